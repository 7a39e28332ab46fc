"""Who adds how much noise, who takes part and what is clipped: of a resolved spec, and as HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.report import formatting as text
from sfumato.report.results.dp_ogl_plus import protocol_warnings
from sfumato.report.results.network import AT_STEPS, GroupNetwork, Network, owners_in_words
from sfumato.report.results.secure_sums import drops_in_words
from sfumato.report.results.spec_sections import stated_participation
from sfumato.rounding import number
from sfumato.schedule.groups import BY_INTERVAL

_CLIPPED = {
    "update": "Every update",
    "step": "The gradient of every local step",
    "example": "The gradient of every example",
}
_ONE_ROW = "In every local step a person that is drawn brings one of their rows, chosen anew: its gradient"
_STATED = (
    "rounds", "local_steps", "local_epochs", "edge_every", "edge_at_global", "aggregate_every", "merge_every",
    "batches", "participation",
)  # fmt: skip


def noise_of(spec: Mapping[str, Any], network: Network) -> dict[str, Any]:
    """Who adds how much noise by a resolved spec, as a mapping for `noise_part` and for statements.

    ``clip`` has the clipping, with ``rounds`` where a message is an update of several; ``parties`` is a list
    of parties with their noise multipliers by aggregating tier from the top down, [] where none adds any.
    They are the standard deviation over the sensitivity; with ``moved_by_others``, of DP-OGL+, over the norm
    to which a message is clipped, which is less than the sensitivity (errata O4). ``requested`` is the noise
    that was asked for, where it was sized by a target or formula, and ``channel`` a sentence on the
    receiver's noise.

    Args:
        spec: resolved.
        network: that it describes.
    """
    noise, clip = spec["privacy"]["noise"], spec["privacy"].get("clip")
    found: dict[str, Any] = {"clip": clip, "parties": []}
    if clip and spec["protocol"] in BY_INTERVAL:
        found["clip"] = clip | {"rounds": spec["training"]["merge_every"]}
    if noise["kind"] == "sources":
        found["parties"] = [
            {"parties": list(map(network.titled, one["owners"])), "multipliers": list(one["multipliers"])}
            for one in noise["sources"]
            if any(one["multipliers"])
        ]
        found["requested"] = noise.get("calibrated_from")
    elif network.step_noise:
        every = {"parties": [AT_STEPS], "multipliers": [network.step_noise]}
        found["parties"] = [every]
    elif noise["kind"] == "formula":
        found["requested"] = noise
    if protocol_warnings(spec):
        found["moved_by_others"] = True
    if network.over_air:
        found["channel"] = "The receiver's own noise is counted. Its level is an assumption."
    return found


def training_of(spec: Mapping[str, Any], network: Network) -> dict[str, Any]:
    """What a statement says of training: rounds, steps, participation and dropouts, by a resolved spec.

    Args:
        spec: resolved.
        network: that it describes.
    """
    training = spec["training"]
    found = {key: training[key] for key in _STATED if key in training}
    found |= {"controlled": True} if spec.get("control") else {}
    found |= {"interval": training["merge_every"]} if spec["protocol"] in BY_INTERVAL else {}
    drops = drops_in_words(spec, network)
    found |= {"dropouts": drops} if drops else {}
    found |= {"groups": True} if isinstance(network.shape, GroupNetwork) else {}
    return found | ({"star": True} if spec["topology"].get("kind") == "star" else {})


def sentence_of_participation(training: Mapping[str, Any]) -> str:
    """A sentence on which devices take part in a round; ``training``: from `training_of`."""
    part = stated_participation(training)
    if part["kind"] == "poisson":
        rates = part.get("rates") or [part["rate"]]
        shown = " or ".join(sorted({number(rate) for rate in rates}))
        interval = training.get("interval") or 1
        when = f"an interval of {interval} rounds" if interval > 1 else "a round"
        each = " for each of its groups" if training.get("groups") else ""
        return f"Each device takes part in {when} with probability {shown}, by a draw of its own{each}."
    if part["kind"] == "fixed":
        count = part["count"]
        many = " or ".join(map(str, sorted(set(count)))) if isinstance(count, list) else count
        if training.get("star"):
            return f"In every round {many} devices are drawn without replacement."
        whose = "its edge or group" if isinstance(count, list) else "each edge or group"
        return f"In every draw {many} devices of {whose} are drawn without replacement."
    if training.get("dropouts"):
        return "Every device takes part in every round, unless it drops out."
    return "Every device takes part in every round."


def _rounds(training: Mapping[str, Any]) -> str:
    """Sentences on how many rounds the training has, and who takes part; ``training``: from `training_of`."""
    if training.get("controlled"):
        return (
            "Adaptive control chooses before every round but the first how many local steps it has and how "
            "many devices of an edge take part, and before every round the factor by which the noise below "
            "is multiplied."
        )
    said = f"The training has {text.whole(training['rounds'])} rounds. {sentence_of_participation(training)}"
    return f"{said} {training.get('dropouts', '')}".rstrip()


def noise_part(noise: Mapping[str, Any], training: Mapping[str, Any], *, persons: bool) -> str:
    """HTML: sentences on training and clipping, and a table of the parties that add noise.

    Args:
        noise: from `noise_of`.
        training: from `training_of`.
        persons: whether the unit is a person, of whom a local step has at most one row (docs/accounting.md).
    """
    said = [_rounds(training)]
    clip = noise["clip"]
    if clip:
        rounds = clip.get("rounds") or 1
        norm = text.number(clip["norm"] * math.sqrt(rounds))
        bound = f"{text.number(clip['norm'])} for each round, times √{rounds}, as a message is the update of "
        of_several = f" ({bound}{rounds} rounds)" if rounds > 1 else ""
        what = _ONE_ROW if persons and clip["kind"] == "example" else _CLIPPED[clip["kind"]]
        if rounds > 1:
            what = f"{what} that is released"
        said.append(f"{what} is clipped to norm {norm}{of_several}.")
    if noise.get("channel"):
        said.append(noise["channel"])
    if not noise["parties"]:
        nobody = (
            "Devices and aggregators add none." if noise.get("channel") else "No party adds noise of its own."
        )
        return text.paragraphs([*said, nobody])
    written = [
        [text.number(value) if value else "none" for value in row["multipliers"]] for row in noise["parties"]
    ]
    one_level = _only_global(noise, training) or all(len(set(values)) == 1 for values in written)
    depth = 1 if one_level else max(map(len, written))
    rows = [
        (owners_in_words(alike, 12), *values[:depth], *["–"] * (depth - len(values)))
        for row, values in zip(noise["parties"], written, strict=True)
        for alike in _aggregators_and_devices(row["parties"])
    ]
    levels = names_of_levels(depth)
    titles = ["noise multiplier"] if depth == 1 else [f"noise multiplier, {name}" for name in levels]
    caption = f"Gaussian noise of each party: its standard deviation over the {_divisor(noise)}"
    if depth > 1:
        caption += ". Global aggregation: up to the cloud; one level below: the cloud does not take part"
    numeric = tuple(range(1, depth + 1))
    return text.paragraphs(said) + text.html_table(["party", *titles], rows, caption=caption, numeric=numeric)


def _divisor(noise: Mapping[str, Any]) -> str:
    """What noise multipliers divide by, with a sentence where that is not the sensitivity of the sum."""
    if not noise.get("moved_by_others"):
        return "sensitivity of what it is added to"
    return (
        "norm to which a message is clipped. The sensitivity of a group's sum is larger, as the data of one "
        "change what the others send, too; the multiplier over that sensitivity, which is smaller, is told "
        "with the reasons of each ε"
    )


def _aggregators_and_devices(parties: Sequence[str]) -> list[list[str]]:
    """The parties of one source of noise: first aggregators, then devices under some; none is empty."""
    split = [[party for party in parties if ("/devices" in party) == below] for below in (False, True)]
    return [alike for alike in split if alike]


def _only_global(noise: Mapping[str, Any], training: Mapping[str, Any]) -> bool:
    """Whether the cloud takes part in every aggregation, as in HDP, so that noise has no other levels."""
    below = any(any(row["multipliers"][1:]) for row in noise["parties"])
    return not below and not {"edge_every", "aggregate_every"} & set(training)


def names_of_levels(depth: int) -> list[str]:
    """A list with the names of the aggregations of a tree of ``depth`` tiers, from the top down.

    "global aggregation", "one level below", "2 levels below" and so on.
    """
    return ["global aggregation", "one level below", *(f"{n} levels below" for n in range(2, depth))][:depth]
