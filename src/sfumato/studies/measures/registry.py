"""The measures by name, as a study's file gives them; `computing` computes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sfumato.errors import SpecError
from sfumato.report.results.network import towards_in_words
from sfumato.spec.base import closest_hint

PERCENTAGE_POINTS = "points"


@dataclass(frozen=True)
class Measure:
    """What can be measured of a point of a study.

    Attributes:
        title: on axes and in tables, with its unit; ``{argument}`` stands for the argument.
        source: ``run``: from the folder of a finished run; ``accounts``: from its accounts, also without
            training; ``formula``: from the spec alone, in a job of its own.
        unit: of values and of their differences in verdicts; "": none is written.
        is_epsilon: whether values are upper bounds of ε, which are rounded up.
        takes_argument: whether its name must have an argument behind a colon; else it must have none.
        is_timed: whether it is a time of this machine, which is another one when it is measured again.
        has_several: whether one point and seed has several values: by series, round, or pair of workers.
    """

    title: str
    source: Literal["run", "accounts", "formula"] = "run"
    unit: str = ""
    is_epsilon: bool = False
    takes_argument: bool = False
    is_timed: bool = False
    has_several: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the value follows from spec and seed without training; a time of this machine does not.

        Only what depends on a drawn channel differs by seed.
        """
        return self.source != "run" and not self.is_timed


MEASURES: dict[str, Measure] = {
    "accuracy": Measure("test accuracy, %", unit=PERCENTAGE_POINTS),
    "best_accuracy": Measure("best test accuracy, %", unit=PERCENTAGE_POINTS),
    "loss": Measure("test loss"),
    "accuracy_by_round": Measure("test accuracy, %", unit=PERCENTAGE_POINTS, has_several=True),
    "loss_by_round": Measure("test loss", has_several=True),
    "train_loss": Measure("training loss"),
    "train_loss_by_round": Measure("training loss", has_several=True),
    "personal_accuracy": Measure("accuracy on data like a worker's own, %", unit=PERCENTAGE_POINTS),
    "worst_decile": Measure("accuracy of the worst tenth, %", unit=PERCENTAGE_POINTS),
    "spread": Measure("standard deviation of accuracy over devices, %", unit=PERCENTAGE_POINTS),
    "energy": Measure("energy, J"),
    "delay": Measure("delay, s"),
    "energy_to": Measure("energy until the accuracy, J", takes_argument=True),
    "delay_to": Measure("delay until the accuracy, s", takes_argument=True),
    "rounds_to": Measure("rounds until the accuracy", takes_argument=True),
    "channel_uses": Measure("uses of the channel"),
    "clip_fraction": Measure("clipped messages, %"),
    "interval_by_round": Measure("τ, local steps", has_several=True),
    "interval_above": Measure("rounds with τ above {argument}, %", takes_argument=True),
    "noise_factor_by_round": Measure("noise, as a multiple of the spec's", has_several=True),
    "mean_interval": Measure("mean τ, local steps"),
    "mean_trusted": Measure("mean s, trusted edges"),
    "mean_untrusted": Measure("mean s, untrusted edges"),
    "mean_participants": Measure("mean s, participants of an edge", has_several=True),
    "last_step_size": Measure("last step size"),
    "last_smoothness": Measure("last β"),
    "smoothness_above": Measure("rounds with β above {argument}, %", takes_argument=True),
    "volatility": Measure(
        "volatility of accuracy from round {argument} on, points",
        unit="points of change",
        takes_argument=True,
    ),
    "epsilon": Measure("rigorous ε {argument}", "accounts", is_epsilon=True, takes_argument=True),
    "claimed": Measure("claimed ε {argument}", "accounts", is_epsilon=True, takes_argument=True),
    "rigorous": Measure("rigorous ε {argument}", "accounts", is_epsilon=True, takes_argument=True),
    "claim_and_rigorous": Measure("ε", "accounts", is_epsilon=True, takes_argument=True, has_several=True),
    "pairs": Measure("ε", "formula", is_epsilon=True, has_several=True),
    "pwp": Measure("mean PwP, ε", "formula", is_epsilon=True, takes_argument=True, has_several=True),
    "theorem_4_3": Measure("value", "formula", takes_argument=True, has_several=True),
    "energy_at_clip": Measure("Σ‖x‖² at full clip, J", "formula", takes_argument=True),
    "privacy_binds": Measure("rounds in which (20) binds, %", "formula", takes_argument=True),
    "table_3_rule": Measure("ε by its rule", "formula", is_epsilon=True),
    "aggregation_seconds": Measure(
        "secure aggregation, CPU s", "formula", unit="s", is_timed=True, has_several=True
    ),
    "aggregation_megabytes": Measure("secure aggregation, MB", "formula", unit="MB", has_several=True),
    "aggregation_overhead_megabytes": Measure(
        "secure aggregation without the masked models, MB", "formula", unit="MB"
    ),
    "election_seconds": Measure("elections, CPU s", "formula", unit="s", is_timed=True, has_several=True),
}
"""By the name before the colon; what stands behind it is the argument.

``epsilon:OBSERVER`` watches that kind of observer. ``claimed:TEXT@OBSERVER`` and ``rigorous:TEXT@OBSERVER``
are about the claims whose source contains the text; ``claim_and_rigorous:TEXT@OBSERVER,OBSERVER`` has both,
by series. ``energy_to:0.75``, ``delay_to:0.75`` and ``rounds_to:0.75``: until the first evaluated round
with that accuracy. ``smoothness_above:0.1`` and ``interval_above:39``: under control. ``volatility:100``:
the standard deviation of the change from one evaluation to the next, from round 100 on. ``pwp:1`` and
``pwp:2``: the threat model of the DP-OGL paper. ``theorem_4_3:TERM:BETA,SIGMA,ZETA,ZETA_C,G,GAP``: a term,
or ``bound``, and the constants of the loss.
``energy_at_clip:D,T`` and ``privacy_binds:D,T``: of a model with D parameters over T rounds; with
``D,T,linear`` SNR limits are uniform as ratios, not in dB.
``aggregation_seconds``, ``aggregation_megabytes``, ``aggregation_overhead_megabytes`` and
``election_seconds``: of one round, in all zones.
"""

_BOUND_TERMS = {
    "b1": "B₁²",
    "b2": "B₂²",
    "start": "start term (a₁)",
    "drift": "drift term (a₂)",
    "noise": "noise term (b)",
    "bound": "the whole bound",
}


def measure_named(name: str) -> tuple[Measure, str]:
    """The measure that ``name`` (``KEY`` or ``KEY:ARGUMENT``) calls, and its argument; "" for one without.

    Raises:
        SpecError: there is no such key, its argument is missing, or it takes none.
    """
    key, _, argument = name.partition(":")
    if key not in MEASURES:
        raise SpecError("measure", name, f"must be one of {', '.join(MEASURES)}{closest_hint(key, MEASURES)}")
    measure = MEASURES[key]
    if measure.takes_argument != bool(argument):
        allowed = f"needs an argument: {key}:..." if measure.takes_argument else f"takes no argument: {key}"
        raise SpecError("measure", name, allowed)
    return measure, argument


def is_measure(name: str) -> bool:
    """Whether ``name`` begins with the key of a measure, even where its argument is wrong."""
    return name.partition(":")[0] in MEASURES


def title_of_measure(name: str) -> str:
    """The title of a measure on axes and in tables, with its unit and, for some, its argument:
    ``claimed ε towards the cloud (Table I)``.

    ``name``: as in a study's file, ``KEY`` or ``KEY:ARGUMENT``.

    Raises:
        SpecError: no such measure; see `measure_named`.
    """
    measure, argument = measure_named(name)
    if measure is MEASURES["theorem_4_3"]:
        return _BOUND_TERMS[argument.partition(":")[0]]
    if measure.source == "accounts":
        claim, _, observer = argument.rpartition("@")
        argument = f"{towards_in_words(observer)}{f' ({claim})' if claim else ''}"
    return measure.title.format(argument=argument)


def watched_observer(name: str) -> str | None:
    """The OBSERVER of a measure ``epsilon:OBSERVER``, which the spec must ``watch``; ``None`` for any other.

    ``name``: of the measure, not checked.
    """
    key, _, argument = name.partition(":")
    return argument if key == "epsilon" else None
