"""Who found the figures of runs that no ε accounts for: a simulator, or who wrote a deployed run's folder.

Real parties release models alone. Whoever writes the folder of their run tests the model on test rows of its
own, and knows the noise as it was declared; nobody tells it how many messages were clipped.
"""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.report.results.series import Series

_DECLARED = "what was declared, with what the grid adds"
_OF_PARTY = "time is that of the party that asked"


def all_simulated(series: Sequence[Series]) -> bool:
    """Whether real parties played none of the runs."""
    return not any(one.first.deployed for one in series)


def _all_deployed(series: Sequence[Series]) -> bool:
    """Whether real parties played all of the runs."""
    return all(one.first.deployed for one in series)


def who_measured(series: Sequence[Series]) -> str:
    """By whom scores were measured, as words for captions.

    "the simulator only" where no run was deployed, "whoever wrote the run folder" where all were; else a
    phrase that names both.
    """
    if all_simulated(series):
        return "the simulator only"
    writer = "whoever wrote the run folder"
    return writer if _all_deployed(series) else f"the simulator, or of a deployed run by {writer}"


def about_noise(series: Sequence[Series]) -> str:
    """Where the level of noise is from, for captions, as sentences.

    Of several runs where some were deployed it tells both apart.
    """
    if _all_deployed(series):
        return f"It is {_DECLARED}."
    measured = "Measured by the simulator only."
    return measured if all_simulated(series) else f"{measured} Of a deployed run it is {_DECLARED}."


def about_time(series: Sequence[Series]) -> str:
    """What wall time is of, for captions, a sentence."""
    if all_simulated(series):
        return "Cumulative time of the simulation; it depends on the machine, not on a deployment."
    return "Cumulative time of the rounds; it depends on the machines that played them."


def about_costs(one: Series) -> str:
    """Where clipping, noise and time of a run are from, for the caption of its table, a sentence."""
    if one.first.deployed:
        return f"Noise is {_DECLARED}; {_OF_PARTY}."
    return "Clipping, noise and time are measured by the simulator only."


def name_of_time(one: Series) -> str:
    """The name of ``wall_time_s``: of a simulation it is no time of a deployment."""
    return "time of the rounds" if one.first.deployed else "time of the simulation"
