"""Rounds whose step size, interval, participation and noise are chosen on the way, within a preset budget.

The budget of every pair of a unit and an observer is what the same spec without control would spend on it:
``rounds`` rounds of ``local_steps`` steps, everybody taking part, noise as stated. That is what
``account`` reports. A run may divide its local steps into other rounds as it sees fit. A filter
(`privacy.privacy_filter`) charges every round as it is, each device only when it takes part (its subnet's
cohort is drawn without looking at data and charged as drawn, so nothing is amplified). No pair passes its
budget (`schedule.budget`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.schedule.aggregation_schedule import Aggregation
from sfumato.schedule.participation import Cohort
from sfumato.schedule.tree import TreePlan
from sfumato.schedule.tree_facts import build_ledger
from sfumato.spec.training import ConstantRate

CONTROLLED_PROTOCOLS = ("h2fdp", "hfl-dp", "hfl")
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RoundSettings:
    """What control sets for one round.

    Attributes:
        steps: tau, local steps.
        trusted: participants of trusted edges: one number for all, or one for each.
        untrusted: participants of untrusted edges, likewise.
        rate: eta, the step size.
        noise: factor on every source's standard deviation as stated.
    """

    steps: int
    trusted: int | tuple[int, ...]
    untrusted: int | tuple[int, ...]
    rate: float
    noise: float


def respaced(steps: int, local: int) -> tuple[Aggregation, ...]:
    """``local`` edge aggregations evenly spaced over ``steps`` local steps, and the global one at the end."""
    ends = [round((j + 1) * steps / (local + 1)) for j in range(local + 1)]
    starts = [0, *ends]
    return tuple(Aggregation(end, 0 if j == local else 1, end - starts[j]) for j, end in enumerate(ends))


def local_aggregations(plan: TreePlan) -> int:
    """K_l: edge aggregations a round."""
    return len(plan.aggregations) - 1


def participants(plan: TreePlan, setting: RoundSettings) -> IntArray:
    """Participants of every edge: those set for it, all it has where they are fewer; ``[edges]``."""
    trusted = plan.tree.tiers[-1].trusted
    wanted = np.zeros(len(trusted), dtype=np.int64)
    wanted[trusted], wanted[~trusted] = setting.trusted, setting.untrusted
    return np.minimum(wanted, plan.tree.devices)


def round_plan(plan: TreePlan, setting: RoundSettings) -> TreePlan:
    """The plan of one round under ``setting``: another interval, cohort, step size and noise."""
    count = participants(plan, setting).astype(np.float64)
    aggregations = respaced(setting.steps, local_aggregations(plan))
    cohort = Cohort("fixed", float(np.max(count / plan.tree.devices)), count, count)
    spec = plan.spec
    training = spec.training.model_copy(
        update={
            "local_steps": setting.steps,
            "edge_every": None,
            "learning_rate": ConstantRate(initial=setting.rate),
        }
    )
    spec = spec.model_copy(update={"training": training})
    tree = plan.tree
    noise = plan.noise.scaled(
        np.full(tree.leaf_count, setting.noise), [np.full(tier.size, setting.noise) for tier in tree.tiers]
    )
    ledger = build_ledger(spec, tree, aggregations, cohort, plan.ledger.batches, noise)
    return replace(
        plan, spec=spec, aggregations=aggregations, participants=cohort, noise=noise, ledger=ledger
    )


def check_control(plan: TreePlan) -> None:
    """Refuse what control cannot steer.

    Raises:
        SpecError: the protocol is not H2FDP or a baseline of it on edges under a cloud, the local steps are
            not countable, or another section already settles what control chooses.
    """
    spec, control = plan.spec, plan.spec.control
    if control is None:
        return
    if spec.protocol not in CONTROLLED_PROTOCOLS or plan.tree.depth != 2:
        raise SpecError(
            "control", None, f"is for {', '.join(CONTROLLED_PROTOCOLS)} with edges under the cloud"
        )
    training = spec.training
    if training.participation.kind != "all":
        raise SpecError("training.participation", None, "must be left out: control chooses it")
    if training.local_epochs is not None:
        raise SpecError("training.local_epochs", training.local_epochs, "control divides local_steps")
    if training.global_update == "resend":
        raise SpecError("training.global_update", "resend", "must be increment with control")
    if any(hop != "plain" for hop in spec.transport.values()):
        raise SpecError("transport", dict(spec.transport), "must be plain with control")
    least, total = local_aggregations(plan) + 1, training.rounds * plan.aggregations[-1].step
    trusted, orbits = plan.tree.tiers[-1].trusted, plan.ledger.leaf_classes
    alike = set(orbits[trusted]) & set(orbits[~trusted])
    if spec.privacy.noise.kind != "none" and alike and not control.per_edge:
        raise SpecError(
            "privacy.noise",
            None,
            "must not be the same at trusted and untrusted edges: control has different numbers take part; "
            "control.per_edge has a budget for every edge",
        )
    if control.max_steps < least:
        raise SpecError(
            "control.max_steps",
            control.max_steps,
            f"must be at least {least}: a round has {least - 1} edge aggregations before the global one",
        )
    if total < least:
        raise SpecError("training.rounds", training.rounds, f"must give at least {least} local steps in all")


def strength(plan: TreePlan) -> float:
    """c2^2 q^2 ln(1/delta) / epsilon^2 of (15), solved for from the multiplier, whatever stated the noise.

    (15) with Lemma 3.2 is a standard deviation of ``2 eta tau G`` times the root of that times the number of
    global aggregations.
    """
    steps = plan.ledger.steps[-1]
    largest = max(float(plan.noise.device[:, 0].max()), *(float(n[:, 0].max()) for n in plan.noise.node))
    ratio = largest * float(steps.message_norm.max()) / (2 * plan.aggregations[-1].step)
    return ratio**2 / plan.spec.training.rounds
