"""Rounds whose step size, interval, participation and noise are chosen on the way, within a preset budget.

The budget of every pair of a unit and an observer is what the same spec without control would spend on it:
``rounds`` rounds of ``local_steps`` steps, everybody taking part, noise as stated. That is what
``account`` reports. A run may divide its local steps into other rounds as it sees fit. A filter
(`privacy.privacy_filter`) charges every round as it is, each device only when it takes part (its subnet's
cohort is drawn without looking at data and charged as drawn, so nothing is amplified). No pair passes its
budget (`schedule.control.budget`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sfumato.random import Stream, generator
from sfumato.schedule.local_steps import Aggregation
from sfumato.schedule.participation import TreeParticipants
from sfumato.schedule.tree import TreePlan
from sfumato.schedule.tree_facts import TreeRounds, tree_releases
from sfumato.spec.control import Control
from sfumato.spec.refusals import Refusals
from sfumato.spec.training import ConstantRate

CONTROLLED_PROTOCOLS = ("h2fdp", "hfl-dp", "hfl")
ALL_STEPS_DONE = "all local steps are done"
"""Why a training with control ends where its budget lasts; run folders have it in ``realised.ended``."""
SMALLEST_SESSION = 3  # of two parties, each knows the other's message from their sum
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RoundSettings:
    """What control sets for one round.

    Attributes:
        steps: tau, local steps; local epochs where the spec counts those.
        trusted: participants of trusted edges: one number for all, or one for each; expected where every
            device is drawn by itself.
        untrusted: participants of untrusted edges, likewise.
        rate: eta, the step size.
        noise: factor on every source's standard deviation as stated.
    """

    steps: int
    trusted: int | tuple[int, ...]
    untrusted: int | tuple[int, ...]
    rate: float
    noise: float


def evenly_spaced_aggregations(steps: int, local: int) -> tuple[Aggregation, ...]:
    """The aggregations of a round in order: ``local`` evenly spaced ones of edges, and a global one.

    ``steps``: number of local steps of the round, at least 1.
    """
    ends = [round((j + 1) * steps / (local + 1)) for j in range(local + 1)]
    starts = [0, *ends]
    return tuple(Aggregation(end, 0 if j == local else 1, end - starts[j]) for j, end in enumerate(ends))


def local_aggregations(plan: TreePlan) -> int:
    """K_l: the number of edge aggregations in a round, without the global one."""
    return len(plan.aggregations) - 1


def work_of_a_round(plan: TreePlan) -> int:
    """Number of local steps of a round by the spec, or of local epochs where the spec counts those."""
    return plan.spec.training.local_epochs or plan.aggregations[-1].step


def participants(plan: TreePlan, setting: RoundSettings) -> IntArray:
    """Number of participants of every edge under ``setting``, at most the devices it has, ``[edges]``."""
    trusted = plan.tree.tiers[-1].trusted
    wanted = np.zeros(len(trusted), dtype=np.int64)
    wanted[trusted], wanted[~trusted] = setting.trusted, setting.untrusted
    return np.minimum(wanted, plan.tree.devices)


def least_participants(plan: TreePlan) -> int:
    """Fewest participants of an edge that control may choose: a secure aggregation session's, or else 1."""
    return SMALLEST_SESSION if plan.hops[-1] == "secure-aggregation" else 1


def draws_devices_independently(plan: TreePlan) -> bool:
    """Whether control draws every device independently (Poisson), rather than a fixed number of each edge."""
    return plan.spec.control is not None and plan.spec.control.draw == "poisson"


def _draw_cohort(plan: TreePlan, count: FloatArray, number: int | None) -> TreeParticipants:
    """Draw the participants of a round, where ``count`` devices of each edge are wanted.

    A Poisson draw depends on no data and is made before anything of the round is chosen or sent: given the
    draw, the round is one of the devices that were drawn, whose sums are divided by the expected number.

    Args:
        plan: of the run.
        count: wanted participants of every edge, ``[edges]``.
        number: of the round; ``None`` only where a fixed number is drawn.

    Raises:
        ValueError: there is no number, and every device is drawn by itself.
    """
    tree, rate = plan.tree, float(np.max(count / plan.tree.devices))
    if not draws_devices_independently(plan):
        return TreeParticipants("fixed", rate, count, count)
    if number is None:
        raise ValueError("number: needed where every device is drawn by itself")
    draws = generator(plan.spec.seed, Stream.PARTICIPATION, number).random(tree.device_count)
    chosen = np.flatnonzero(draws < np.repeat(count / tree.devices, tree.devices)).astype(np.int64)
    drawn = np.bincount(tree.leaves_of(chosen), minlength=tree.leaf_count).astype(np.float64)
    return TreeParticipants("fixed", rate, drawn, count, cohort=chosen)


def round_plan(plan: TreePlan, setting: RoundSettings, number: int | None = None) -> TreePlan:
    """Make the plan of one round under ``setting``: another interval, cohort, step size and noise.

    Args:
        plan: of the run.
        setting: of the round.
        number: of the round, from 0; may be ``None`` where a fixed number of devices is drawn.

    Returns:
        ``plan`` with that work, cohort, step size, noise and declared releases; the tree stays.

    Raises:
        ValueError: there is no number, and every device is drawn by itself.
    """
    count = participants(plan, setting).astype(np.float64)
    aggregations = evenly_spaced_aggregations(setting.steps, local_aggregations(plan))
    update: dict[str, object] = {"local_steps": setting.steps, "edge_every": None}
    if plan.spec.training.local_epochs is not None:  # however many, they are one piece of work
        aggregations, update = plan.aggregations, {"local_epochs": setting.steps}
    cohort = _draw_cohort(plan, count, number)
    update["learning_rate"] = ConstantRate(initial=setting.rate)
    spec = plan.spec
    spec = spec.model_copy(update={"training": spec.training.model_copy(update=update)})
    tree = plan.tree
    noise = plan.noise.scaled(
        np.full(tree.leaf_count, setting.noise), [np.full(tier.size, setting.noise) for tier in tree.tiers]
    )
    rounds = TreeRounds(spec, ((0, tree),), aggregations, plan.releases.batches)
    declared = tree_releases(rounds, tree, cohort, noise)
    return replace(
        plan, spec=spec, aggregations=aggregations, participants=cohort, noise=noise, releases=declared
    )


def _are_alike(plan: TreePlan, control: Control) -> bool:
    """Whether a trusted and an untrusted edge have one class number, though control treats them differently.

    ``False`` where there is no noise, or control chooses for each edge.
    """
    trusted, classes = plan.tree.tiers[-1].trusted, plan.releases.leaf_classes
    apart = plan.spec.privacy.noise.kind == "none" or control.per_edge or draws_devices_independently(plan)
    return not apart and bool(set(classes[trusted]) & set(classes[~trusted]))


def _smallest_edge(plan: TreePlan) -> str:
    """The edge with the fewest devices and how many it has, as a message says it."""
    smallest = int(np.argmin(plan.tree.devices))
    return f"{plan.tree.node_name(plan.tree.depth - 1, smallest)} has {int(plan.tree.devices[smallest])}"


# fmt: off
def control_refusals(plan: TreePlan) -> Refusals:
    """The settings that cannot be combined with adaptive control, as rows (applies, key, value, allowed).

    If ``applies`` of a row is true, the spec is refused with an error about ``key``. Control is for H2FDP and
    its baselines.
    """
    spec, training, control = plan.spec, plan.spec.training, plan.spec.control
    if control is None:
        return
    edge, aggregations = plan.tree.tiers[-1].name, len(plan.aggregations)
    yield (spec.protocol not in CONTROLLED_PROTOCOLS or plan.tree.depth != 2, "control", None,
           f"is for {', '.join(CONTROLLED_PROTOCOLS)} with edges under the cloud")
    yield (training.participation.kind != "all", "training.participation", None,
           "must be left out: control chooses it")
    estimates_smoothness = control.bounds.smoothness is None or control.step_size == "theorem"
    yield (training.local_epochs is not None and estimates_smoothness,
           "training.local_epochs", training.local_epochs,
           "needs control.bounds.smoothness, and another step_size than theorem, with control: how many "
           "steps an epoch has is each device's own secret, so the smoothness cannot be estimated")
    yield (training.global_update == "resend", "training.global_update", "resend",
           "must be increment with control")
    yield (draws_devices_independently(plan) and "secure-aggregation" in plan.hops, "control.draw", "poisson",
           "must be left out with secure aggregation: sessions could have any size, one device included")
    yield (int(plan.tree.devices.min()) < least_participants(plan),
           f"transport.{plan.tree.hop_names[-1]}", "secure-aggregation",
           f"needs at least {SMALLEST_SESSION} devices in every {edge} with control, which chooses how many "
           f"take part; {_smallest_edge(plan)}")
    most = control.max_devices
    yield (least_participants(plan) > (most or SMALLEST_SESSION), "control.max_devices", most,
           f"must be at least {SMALLEST_SESSION} with secure aggregation: of two, each knows the other's "
           "message")
    yield (_are_alike(plan, control), "privacy.noise", None,
           "must not be the same at trusted and untrusted edges: control has different numbers take part; "
           "control.per_edge has a budget for every edge")
    yield (control.max_steps < aggregations, "control.max_steps", control.max_steps,
           f"must be at least {aggregations}: a round has {local_aggregations(plan)} edge aggregations "
           "before the global one")
    largest = int(plan.tree.devices.max())
    yield ((most or 0) > largest, "control.max_devices", most,
           f"must be at most {largest}, the most devices that any {edge} has")
# fmt: on


def noise_constant(plan: TreePlan) -> float:
    """c2² q² ln(1/δ) / ε² of H2FDP's (15), computed from the largest multiplier of a global aggregation.

    By (15) with Lemma 3.2 the standard deviation is ``2 eta tau G`` times the root of this number times the
    global aggregations of all rounds. So it is defined however the spec states noise; 0 without noise.
    """
    steps = plan.releases.steps[-1]
    largest = max(float(plan.noise.device[:, 0].max()), *(float(n[:, 0].max()) for n in plan.noise.node))
    ratio = largest * float(steps.message_norm.max()) / (2 * work_of_a_round(plan))
    return ratio**2 / plan.spec.training.rounds
