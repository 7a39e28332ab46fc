"""Poisson mini-batches, clips of examples and noise at steps: what a spec may say, what contradicts it."""

import pytest

from sfumato.errors import SpecError
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec

POISSON = "training.batches=poisson"
EXAMPLE = "privacy.clip={kind: example, norm: 2.0}"
PERSON = ["privacy.unit=person", "data.person_column=who"]
AT_STEP = "privacy.noise={multiplier: 0.7, at: step}"


def refusal(base: str, changes: list[str]) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load_spec(base, changes)
    return caught.value


def test_the_defaults_are_shuffled_batches_and_noise_on_messages() -> None:
    spec = load_spec("quickstart", ["privacy.noise={multiplier: 0.7}"])
    assert (spec.training.batches, spec.privacy.noise.at) == ("shuffled", "message")


@pytest.mark.parametrize("noise", ["none", "{multiplier: 0.7}", "{multiplier: 0.7, at: step}", "{at: step}"])
def test_what_belongs_together_is_read(noise: str) -> None:
    changes = [POISSON, EXAMPLE, f"privacy.noise={noise}"]
    if "multiplier" not in noise and noise != "none":
        assert refusal("quickstart", changes).place.endswith("privacy.noise.multiplier")
        return
    spec = load_spec("quickstart", changes)
    assert spec.privacy.clip is not None
    assert (spec.training.batches, spec.privacy.clip.kind) == ("poisson", "example")
    assert Spec.model_validate(spec.model_dump()) == spec


@pytest.mark.parametrize(
    ("base", "changes", "place", "said"),
    [
        ("quickstart", ["training.batches=poison"], "training.batches", "did you mean 'poisson'?"),
        ("dp-fedavg", [POISSON], "training.batches", "goes with training.local_steps"),
        ("quickstart", [POISSON, "training.batch_size=all"], "training.batch_size", "must be a number"),
        ("quickstart", [POISSON, "control={}"], "training.batches", "must be shuffled with control"),
        ("quickstart", [EXAMPLE], "privacy.clip.kind", "needs training.batches: poisson"),
        (
            "quickstart",
            [POISSON, "privacy.clip={kind: example, norm: [1.0, 2.0]}", "privacy.noise=none"],
            "privacy.clip.norm",
            "must be one number",
        ),
        ("quickstart", [POISSON, EXAMPLE, "transport={devices_to_edge: air}"], "privacy.clip.kind", "air"),
        ("quickstart", [POISSON, EXAMPLE], "privacy.noise.kind", "with privacy.unit: record or person"),
        (
            "quickstart",
            [POISSON, "privacy.clip={kind: update, norm: 1.0}", AT_STEP],
            "privacy.noise.at",
            "needs privacy.clip.kind: example",
        ),
        (
            "quickstart",
            [POISSON, EXAMPLE, "privacy.noise={multiplier: 0.7, at: step, placement: {device: 1.0}}"],
            "privacy.noise.placement",
            "every device adds its own noise",
        ),
        (
            "quickstart",
            [POISSON, EXAMPLE, "privacy.noise={multiplier: [0.7, 0.8], at: step}"],
            "privacy.noise.multiplier",
            "must be one number",
        ),
        ("quickstart", ["privacy.unit=person"], "data.person_column", "is required with privacy.unit"),
        ("quickstart", PERSON, "training.batches", "must be poisson with privacy.unit: person"),
        ("quickstart", [*PERSON, "control={}"], "privacy.unit", "must be device with control"),
        (
            "quickstart",
            [*PERSON, POISSON, "data.partition={kind: dirichlet, alpha: 1.0}"],
            "data.partition.kind",
            "persons are dealt whole",
        ),
        (
            "quickstart",
            [*PERSON, POISSON, "data.partition=iid", "topology.zones=data"],
            "topology.zones.kind",
            "must be left out",
        ),
        ("quickstart", ["data.person_column=who"], "data.person_column", "goes with privacy.unit: person"),
        (
            "quickstart",
            [POISSON, EXAMPLE, "privacy.noise={multiplier: 0.0, at: step}"],
            "privacy.noise.multiplier",
            "must be above 0",
        ),
        (
            "quickstart",
            [POISSON, EXAMPLE, AT_STEP, "privacy.mechanism=a:b"],
            "privacy.mechanism",
            "adds Gaussian noise",
        ),
        ("quickstart", [POISSON, "privacy.noise={multiplier: 1.0, at: edge}"], "privacy.noise.at", "step"),
    ],
)  # fmt: skip
def test_what_contradicts_is_refused_where_it_stands(base, changes, place, said) -> None:
    error = refusal(base, changes)
    assert error.place.removeprefix("overrides: ").split(": ")[-1] == place
    assert said in error.allowed
