"""Facts in ledger.json that spec.yaml determines, whatever the protocol, and those of eras."""

from __future__ import annotations

from collections.abc import Iterator

from sfumato.verify import read
from sfumato.verify.read import Json
from sfumato.verify.spec_groups import group_spec_problems
from sfumato.verify.spec_records import batch_problems, person_problems
from sfumato.verify.spec_settings import clip_kind, eras_in_spec, has_gaussian_law, unlike_spec
from sfumato.verify.spec_tree import tree_spec_problems
from sfumato.verify.tree_exposures import CheckedTree


def spec_problems(spec: Json, ledger: Json) -> Iterator[str]:
    """Yield a line where a fact in ``ledger.json`` differs from what spec.yaml determines.

    Raises:
        UnknownKindError: there is no rule for something in spec.yaml.
    """
    yield from person_problems(spec)
    yield from optimizer_problems(spec, in_tree=ledger["kind"] in ("tree", "moving"))
    if ledger["kind"] == "moving":
        yield from _moving_tree_problems(spec, ledger)
        return
    yield from unlike_spec("rounds", ledger["rounds"], spec["training"]["rounds"])
    yield from noise_law_and_batch_problems(spec, ledger)
    if ledger["kind"] != "tree":
        yield from group_spec_problems(spec, ledger)
        return
    eras = eras_in_spec(spec)
    if len(eras) > 1:
        yield "ledger.json: it has one tree; spec.yaml has moves, or trust that changes, and so several"
    yield from tree_spec_problems(spec, CheckedTree(ledger), eras[0] if eras else None)


def optimizer_problems(spec: Json, *, in_tree: bool) -> Iterator[str]:
    """Yield a line where Adam or weight decay is used though bounds of messages assume plain SGD steps.

    Args:
        spec: contents of spec.yaml.
        in_tree: whether the protocol runs on a tree, for which clipped gradients with weight decay are
            bounded.
    """
    training, privacy = spec["training"], spec["privacy"]
    optimizer, decay = training.get("optimizer") or "sgd", read.figure(training.get("weight_decay") or 0.0)
    adam = (optimizer if isinstance(optimizer, str) else optimizer["kind"]) != "sgd"
    clip, noise = clip_kind(spec), privacy["noise"]
    if clip == "update" or noise["kind"] == "none" or noise.get("at") == "step" or not (adam or decay):
        return
    if adam or clip == "step" or not in_tree:
        clipping = f"privacy.clip.kind: {clip} does not bound by how much a message moves"
        yield f"spec.yaml: training: with Adam or weight_decay, {clipping}"
    rate = training["learning_rate"]
    rates = [rate["initial"], rate.get("final", 0.0)] if isinstance(rate, dict) else [rate]
    if decay * max(map(read.figure, rates)) > 1:
        yield "spec.yaml: training.weight_decay: steps turn the model round, so that differences may grow"


def noise_law_and_batch_problems(spec: Json, ledger: Json) -> Iterator[str]:
    """Yield a line where ``ledger.json`` differs from the spec in noise law, batches or step noise."""
    other_law = not has_gaussian_law(spec) or clip_kind(spec) == "example"
    yield from unlike_spec("noise_not_composed", "noise_not_composed" in ledger, other_law)
    if spec["training"].get("batches") != "poisson" and "batches" in ledger:
        yield "spec.yaml: training.batches is not poisson, so no record is drawn; ledger.json has batches"
    elif "batches" in ledger:
        yield from batch_problems(spec, ledger)
    noise = spec["privacy"]["noise"]
    at_steps = noise.get("multiplier") if noise["kind"] == "multiplier" and noise.get("at") == "step" else 0.0
    held = ledger.get("batches", {}).get("noise_at_steps", 0.0)
    yield from unlike_spec("batches.noise_at_steps", held, at_steps)


def _moving_tree_problems(spec: Json, ledger: Json) -> Iterator[str]:
    """Yield a line where an era of ``ledger.json``, or its tree, differs from what spec.yaml determines."""
    eras, held = eras_in_spec(spec), ledger["eras"]
    for key in ("batches", "elections_per_round", "noise_not_composed", "steps"):
        if key in ledger:
            yield f"ledger.json: {key}: belongs to the eras"
    yield from unlike_spec("rounds", ledger["rounds"], spec["training"]["rounds"])
    yield from unlike_spec("number of eras", len(held), len(eras))
    for place, (era, facts) in enumerate(zip(eras, held, strict=False)):
        what = f"eras[{place}]"
        yield from unlike_spec(f"{what}.from_round", facts["from_round"], era.first)
        yield from unlike_spec(f"{what}.rounds", facts["rounds"], era.rounds)
        yield from (f"{what}: {problem}" for problem in noise_law_and_batch_problems(spec, facts))
        yield from (f"{what}: {problem}" for problem in tree_spec_problems(spec, CheckedTree(facts), era))
