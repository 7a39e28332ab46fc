"""What the ε of a report do not speak of: by who played its runs, and whose noise they have."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.report import formatting as text
from sfumato.report.drawings.moving import KNOWN_MOVES
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import has_noise

_MEASURED = "Losses, accuracies, clip fractions and noise levels are measured exactly, and not accounted for."
_OF_MODELS = (
    "Losses and accuracies are measured exactly, and not accounted for; noise levels are those declared."
)
_BY_SIMULATOR = "A deployment does not release what a simulator measures on devices' data."
_FROM_SEED = (
    "All noise of a simulation follows from its seed: whoever has that, or finds it by trying, can subtract "
    "the noise, and no ε holds against them."
)
_ON_AIR = (
    "Over the air, the energy and how many messages the power limit made weaker follow from devices' data; "
    "they are not accounted for either."
)
_IN_USE = "A deployment draws noise from a secret source."
_OF_RECEIVER = "In a real network the noise is the receiver's own, and nobody draws it."


def seed_sentence(series: Sequence[Series]) -> list[str]:
    """A list with the sentence that the noise of simulations follows from their seeds.

    [] where no run of ``series`` is a simulation with noise.
    """
    simulated = [one for one in series if not one.first.deployed and has_noise(one.first.spec_dict)]
    return [noise_from_seed("this" if len(series) == 1 else "a")] if simulated else []


def noise_from_seed(which: str) -> str:
    """A sentence that the noise of ``which`` (this, a) simulation follows from its seed."""
    named = ", which this page names" if which == "this" else ""
    return (
        f"The noise of {which} simulation follows from its seed{named}: whoever has the seed can subtract "
        "it, and these ε do not hold against them."
    )


def _about_test_examples(series: Sequence[Series]) -> list[str]:
    """A sentence that no ε is about the test examples; [] where it is not known how many there are."""
    known = {sum((one.test_labels or {}).values()) for one in series} - {0}
    if not known:
        return []
    many = text.how_many(known.pop(), "test example") if len(known) == 1 else "test examples"
    return [f"No ε is about the {many}: nobody trains on them, and accuracy is measured on them exactly."]


def not_accounted(series: Sequence[Series]) -> list[str]:
    """A list of sentences on what no ε of the runs in ``series`` covers.

    Such as accuracies, the seed of a simulation, test examples and wall time; there is always at least one.
    """
    simulated = [one for one in series if not one.first.deployed]
    lines = [f"{_MEASURED} {_BY_SIMULATOR}" if simulated else _OF_MODELS]
    lines += _about_test_examples(series)
    if noisy := [one for one in simulated if has_noise(one.first.spec_dict)]:
        on_air_only = all(one.network.over_air and not one.network.has_noise for one in noisy)
        lines.append(f"{_FROM_SEED} {_OF_RECEIVER if on_air_only else _IN_USE}")
        lines.append("The guarantees assume exact Gaussian noise and do not cover floating-point effects.")
    if any(one.network.over_air for one in series):
        lines.append(_ON_AIR)
        lines.append("Whoever hears better than the receiver of the spec, or from nearer, learns more.")
    if any(one.network.trees for one in series):
        lines.append(KNOWN_MOVES)
    return [*lines, "Wall time depends on the machines that played the runs."]
