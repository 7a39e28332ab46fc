"""Columns of the metrics that say how far the models of devices and edges were apart in a round.

Dispersions (28) and (29) of h2fdp.txt, the constants of their bounds as printed, and the terms of (33)
corrected, the first of them for a largest gap F - F* of 1. All of it is computed from noised vectors, unless
nothing at all is noised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.adaptive_control.bounds import BoundInputs, Constants
from sfumato.adaptive_control.estimates import NoisySquaredNorm, largest_distance
from sfumato.adaptive_control.problem import Gap
from sfumato.protocols.adaptive.observations import RoundObservations
from sfumato.protocols.adaptive.state import AdaptiveState
from sfumato.schedule.tree import TreePlan
from sfumato.spec.control import Control

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Dispersion:
    """Squared deviations of the vectors of a round.

    Attributes:
        within: of devices' messages from their edge's average, for each edge.
        between: of the edges' averages from the global one; empty where one of them is raw.
        counts: messages of each edge ``[edges]``.
        public: edges that received messages one by one, which were noised, or if there is no noise at all
            ``[edges]``.
    """

    within: list[NoisySquaredNorm]
    between: list[NoisySquaredNorm]
    counts: FloatArray
    public: BoolArray


def diagnose(
    state: AdaptiveState, observed: RoundObservations, played: TreePlan, gap: Gap, rounds: int
) -> dict[str, float]:
    """The metrics columns of a round of adaptive control: dispersions, their bounds, and terms of the gap.

    Args:
        state: of the protocol before the round.
        observed: messages and models that edges and cloud received in it.
        played: the plan of this round.
        gap: constants of the optimality gap F - F*.
        rounds: of the whole training, as the spec has them.

    Returns:
        By column: ``z1``, the mean squared distance of messages from their edge's average, without the
        expected noise; ``z2``, the mean squared distance of the edges' models from their mean; NaN where one
        of these would tell of raw vectors. ``b1``, ``b2``, ``phi`` are the dispersion bounds as printed in
        H2FDP, ``gap_start``, ``gap_drift``, ``gap_noise`` the terms of (33), corrected; NaN where epochs are
        counted.
    """
    found = _dispersion(state, observed, played, gap.parameters)
    sent = np.maximum(found.counts, 1)
    dispersed = [max(0.0, e.total - e.noise) / n for e, n in zip(found.within, sent, strict=True)]
    return {
        "z1": float(np.mean(np.array(dispersed)[found.public])) if found.public.any() else math.nan,
        "z2": _between_models(observed, played),
        **_bound_columns(state, found, played, gap, rounds),
    }


def _bound_columns(
    state: AdaptiveState, found: _Dispersion, played: TreePlan, gap: Gap, rounds: int
) -> dict[str, float]:
    """Compute the columns of a round about the convergence bounds.

    Args:
        state: of the protocol before the round.
        found: squared deviations of messages and edge averages in the round.
        played: the plan of this round.
        gap: constants of the optimality gap.
        rounds: of the whole training.

    Returns:
        By column: the dispersion bounds ``b1``, ``b2`` and ``phi``, and the terms ``gap_start``,
        ``gap_drift`` and ``gap_noise`` of the optimality gap. NaN where local epochs are counted, which have
        no known number of steps.
    """
    settings = state.settings
    if played.spec.training.local_epochs is not None:
        return dict.fromkeys(("b1", "b2", "phi", "gap_start", "gap_drift", "gap_noise"), math.nan)
    assert played.spec.control is not None  # the registry chooses this protocol by it
    length = settings.rate * played.aggregations[-1].local_steps
    constants = _constants(state, found, gap, length, played.spec.control)
    inputs = BoundInputs(
        constants,
        # gamma, as if every round had this one's
        first_step=settings.rate * math.sqrt(state.round + 1),
        steps=settings.steps,
        rounds=rounds,
        trusted=settings.trusted,
        untrusted=settings.untrusted,
        gap=gap,
    )
    bounds, terms = inputs.printed_dispersions(), inputs.corrected_terms(1.0)
    return {
        "b1": bounds.b1,
        "b2": bounds.b2,
        "phi": bounds.phi,
        "gap_start": terms.start,
        "gap_drift": terms.drift,
        "gap_noise": terms.noise,
    }


def _dispersion(
    state: AdaptiveState, observed: RoundObservations, played: TreePlan, parameters: int
) -> _Dispersion:
    """Squared deviations of messages and of edge averages in a round, and the noise expected in them.

    Args:
        state: of the protocol before the round.
        observed: messages and models that edges and cloud received in it.
        played: the plan of this round.
        parameters: M, coordinates of a message.

    Returns:
        Those of messages by edge, with which edges' may be published; those of edge averages, empty where
        they would tell of raw vectors.
    """
    steps, unit, coordinates = played.releases.steps[-1], played.message_scale(state.round), parameters
    counts = observed.counts.astype(np.float64)
    assert observed.edges is not None
    squares, noise = observed.squares.copy(), (steps.device_std * unit) ** 2
    if observed.sums is not None:  # not everybody dropped out
        squares -= observed.sums.double().square().sum(dim=1).cpu().numpy() / np.maximum(counts, 1)
    # raw messages stay at their trusted edge, nobody has single ones of a masked sum: they are in no figure
    public = ((noise > 0) | _is_without_noise(played)) & (counts > 0) & (played.hops[-1] == "plain")
    within = [
        NoisySquaredNorm(float(s), float((n - 1) * coordinates * v), float(2 * (n - 1) * coordinates * v**2))
        for s, n, v in zip(squares, counts, noise, strict=True)
    ]
    edge_noise = noise / np.maximum(counts, 1) + (steps.node_std[-1] * unit) ** 2
    away = (observed.edges - observed.edges.mean(dim=0)).double().square().sum(dim=1).cpu().numpy()
    edges = len(counts)
    expected = edge_noise * (1 - 2 / edges) + edge_noise.mean() / edges
    between = [
        NoisySquaredNorm().plus(float(s), float(v), coordinates) for s, v in zip(away, expected, strict=True)
    ]
    everybody_sent = played.spec.faults is None and bool((counts == played.participants.count).all())
    # else the cloud does not learn each average, or an average is divided by more than what is in it
    has_each_average = played.hops[0] == "plain" and everybody_sent
    if not has_each_average or not ((edge_noise > 0) | public).all():
        between = []
    return _Dispersion(within, between, counts, public)


def _constants(
    state: AdaptiveState, found: _Dispersion, gap: Gap, length: float, control: Control
) -> Constants:
    """Estimate the constants of the convergence bounds from a round.

    Args:
        state: has the current smoothness estimate.
        found: squared deviations in the round.
        gap: has the clip norm, by which gradients are bounded.
        length: step size times local steps.
        control: the spec's section; its ``bounds.gradient`` is the bound G on gradients if it is smaller than
            the clip norm.

    Returns:
        The constants. A distance between gradients that does not stand out from the noise is 2 G, its largest
        possible value.
    """
    devices = [
        NoisySquaredNorm(e.total / (n - 1), e.noise / (n - 1), e.variance / (n - 1) ** 2)
        for e, n, public in zip(found.within, found.counts, found.public, strict=True)
        if n > 1 and public
    ]
    within, between = largest_distance(devices), largest_distance(found.between)
    known = control.bounds.gradient
    gradient_bound = gap.clip if known is None else min(gap.clip, known)
    return Constants(
        smoothness=state.smoothness,
        gradient_noise=gradient_bound,
        between=2 * gradient_bound if between is None else between / length,
        within=2 * gradient_bound if within is None else within / length,
        gradient=gradient_bound,
    )


def _between_models(observed: RoundObservations, played: TreePlan) -> float:
    """Mean squared distance of the edges' models, from which the last local steps started, to their mean.

    0 where all edges have one model; NaN where one of them is un-noised, though the plan has noise.
    """
    if observed.starts is None:
        return 0.0
    before = played.releases.steps[-2]
    noised = (before.device_std + before.node_std[-1] > 0).all()
    if not noised and not _is_without_noise(played):
        return math.nan
    away = observed.starts - observed.starts.mean(dim=0)
    return float(away.square().sum(dim=1).mean())


def _is_without_noise(played: TreePlan) -> bool:
    """Whether the spec adds no noise at all."""
    return played.spec.privacy.noise.kind == "none"
