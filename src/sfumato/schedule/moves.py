"""Devices that move, and trust that changes: the trees of a run, what is refused, and the plan of each tree.

A round starts from the global model, which everybody has, so each round is that of its own tree. Who is where
is public: it is drawn from the seed, or written down, and depends on no data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from sfumato.errors import SpecError
from sfumato.network.moves import trace_of, trees_over_time
from sfumato.network.tree import Tree
from sfumato.privacy.tree.moving_releases import MovingReleases
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.schedule.local_steps import per_edge
from sfumato.schedule.noise.placement import NoisePlan, place_by_trust
from sfumato.schedule.participation import participants_of
from sfumato.schedule.tree import TreePlan
from sfumato.schedule.tree_facts import TreeRounds, tree_releases
from sfumato.spec.document import Spec
from sfumato.spec.moves import TopologyMoves
from sfumato.spec.topology import TreeTopology
from sfumato.spec.training import FixedParticipation

MOST_CELLS = 4_000_000
MOST_DRAWN_ERAS = 20
Trees = tuple[tuple[int, Tree], ...]


ONE_TREE_ONLY: dict[str, tuple[str, Callable[[Spec], bool]]] = {
    "elected supernodes": (
        "elected supernodes hold office in a zone whose members they are",
        lambda spec: spec.elects_supernodes,
    ),
    "HDP": ("hdp places noise by zone", lambda spec: spec.protocol == "hdp"),
    "control": ("control plans rounds of one tree", lambda spec: spec.control is not None),
    "dropouts": (
        "dropouts are declared for one number of devices an edge",
        lambda spec: spec.faults is not None,
    ),
    "secure aggregation": (
        "a masked session is sized for one number of devices an edge",
        lambda spec: "secure-aggregation" in spec.transport.values(),
    ),
    "the air": (
        "the power of the air is set for one number of devices an edge",
        lambda spec: spec.sends_over_the_air,
    ),
    "error feedback": (
        "what error feedback keeps would be sent under another edge",
        lambda spec: spec.compression is not None and spec.compression.error_feedback,
    ),
    "`training.weights`": (
        "weights are shared out within an edge",
        lambda spec: spec.training.weights.kind != "uniform",
    ),
    "noise placed by zone": (
        "noise placed by zone is drawn for its devices",
        lambda spec: getattr(spec.privacy.requested_noise, "placement", None) is not None,
    ),
    "`radio.distances_m`": (
        "distances_m has one distance for each device, and a device that moves has several",
        lambda spec: getattr(spec.radio, "distances_m", None) is not None,
    ),
}
"""What is derived for one tree only (docs/accounting.md), as docs/spec.md lists it: why, and where it is."""


def trees_of(spec: Spec, tree: Tree) -> tuple[Spec, Trees]:
    """The trees of a run, each with its first round (from 0), and the spec with its moves written out.

    Args:
        spec: to resolve.
        tree: of the first round, with trust marked.

    Returns:
        The spec, and pairs of a round and a tree.

    Raises:
        SpecError: something that goes with one tree for all rounds only, or moves that do not fit.
    """
    moves = spec.topology.moves if isinstance(spec.topology, TreeTopology) else None
    if moves is None and spec.trust.from_ is None:
        return spec, ((0, tree),)
    place = "topology.moves" if moves is not None else "trust.from"
    if tree.depth != 2:
        raise SpecError(place, None, "goes with edges under the cloud: no rule for deeper trees is derived")
    _refuse_what_needs_one_tree(spec, place)
    choice, rounds = spec.training.participation, spec.training.rounds
    least = per_edge(choice.count if isinstance(choice, FixedParticipation) else 1, tree.leaf_count)
    trace: tuple[tuple[int, int, int], ...] = ()
    if moves is not None:
        trace = trace_of(moves, tree, rounds=rounds, least=least, seed=spec.seed)
        written = TopologyMoves(trace=trace, drawn_at=moves.drawn_at if moves.rate is None else moves.rate)
        spec = spec.model_copy(update={"topology": spec.topology.model_copy(update={"moves": written})})
    trees = trees_over_time(tree, trace, spec.trust, rounds=rounds, least=least)
    _check_size(spec, trees, place)
    return spec, trees


def _refuse_what_needs_one_tree(spec: Spec, place: str) -> None:
    """Raise a `SpecError` if the spec of a changing network asks for what is derived for one tree only.

    ``place``: the key of the spec that makes the network change, for the error.
    """
    for reason, holds in ONE_TREE_ONLY.values():
        if holds(spec):
            raise SpecError(place, None, f"must be left out here: {reason}")


def _check_size(spec: Spec, trees: Trees, place: str) -> None:
    """Raise a `SpecError` if there are more trees, or devices with own histories, than are accounted for.

    ``place``: the key to blame; ``trees``: each with its first round.
    """
    leaves = np.stack([tree.leaves_of(np.arange(tree.device_count)) for _, tree in trees])
    histories = np.unique(leaves, axis=1).shape[1]
    cells = histories * (histories + trees[0][1].leaf_count)
    if len(trees) > 1 and cells > MOST_CELLS:
        allowed = (
            f"gives {histories:,} devices or groups of devices a history of their own; each of them towards "
            f"each other and each edge makes {cells:,} pairs, and at most {MOST_CELLS:,} are computed"
        )
        raise SpecError(place, None, allowed)
    drawn = spec.training.participation.kind != "all" or spec.training.batches == "poisson"
    if len(trees) > MOST_DRAWN_ERAS and drawn:
        allowed = (
            f"makes {len(trees)} different trees over the rounds; with participants or records drawn at most "
            f"{MOST_DRAWN_ERAS}, as each has privacy losses of its own to compose"
        )
        raise SpecError(place, None, allowed)


def noise_under_any_trust(trees: Trees, noise_of: Callable[[Tree], NoisePlan]) -> NoisePlan:
    """The noise plan with every source that adds noise under any of the trees' trust.

    A source has the largest of its multipliers.

    Args:
        trees: of the run, each with its first round.
        noise_of: gives the noise plan of one tree.

    Raises:
        SpecError: a source names some devices by their place under an edge, which changes.
    """
    plans = [noise_of(tree) for tree in _by_trust(trees)]
    if plans[0].noisy is not None:
        allowed = "must name all devices of an edge: which device has which place there changes"
        raise SpecError("privacy.noise.sources", None, allowed)
    device = np.maximum.reduce([plan.device for plan in plans])
    node = tuple(np.maximum.reduce(tiers) for tiers in zip(*(plan.node for plan in plans), strict=True))
    return NoisePlan(device, node)


def _by_trust(trees: Trees) -> list[Tree]:
    """One tree for every set of trusted edges that occurs in ``trees``."""
    return list({tree.tiers[-1].trusted.tobytes(): tree for _, tree in reversed(trees)}.values())


def noise_in(tree: Tree, noise: NoisePlan, trees: Trees) -> NoisePlan:
    """``noise`` without the sources that add none under the trust of ``tree``.

    If trust is the same in all rounds, every source stays. Else those stay where messages first leave trusted
    hands in ``tree``: trusted aggregators, and devices under untrusted edges.

    Args:
        tree: of some rounds.
        noise: of every source in all rounds.
        trees: all trees of the run, each with its first round.
    """
    if len(_by_trust(trees)) == 1:
        return noise
    there = place_by_trust(tree, [1.0] * tree.depth)
    node = tuple(np.where(mark > 0, mine, 0.0) for mark, mine in zip(there.node, noise.node, strict=True))
    return NoisePlan(np.where(there.device > 0, noise.device, 0.0), node, noise.noisy)


def releases_over_time(rounds: TreeRounds, noise: NoisePlan) -> tuple[TreeReleases, ...]:
    """For every tree of ``rounds``, its releases as if all rounds were on it, with the noise of ``noise``."""
    return tuple(
        tree_releases(rounds, tree, participants_of(rounds.spec, tree), noise_in(tree, noise, rounds.trees))
        for _, tree in rounds.trees
    )


def moving_releases(rounds: TreeRounds, releases: Sequence[TreeReleases]) -> MovingReleases:
    """The releases of the whole run, from those of each tree of ``rounds``, in the order of the trees."""
    firsts = (first for first, _ in rounds.trees)
    return MovingReleases.over_time(tuple(zip(firsts, releases, strict=True)))


def with_plan_of_every_tree(plan: TreePlan, rounds: TreeRounds, releases: Sequence[TreeReleases]) -> TreePlan:
    """``plan``, of the first tree, with a plan for every tree of the run as its ``eras``.

    Args:
        plan: with the noise and the releases of all rounds.
        rounds: of the run, with its trees.
        releases: those of each tree, in the order of the trees.
    """
    eras = []
    for (first, tree), facts in zip(rounds.trees, releases, strict=True):
        noise, cohort = noise_in(tree, plan.noise, rounds.trees), participants_of(plan.spec, tree)
        eras.append((first, replace(plan, tree=tree, participants=cohort, noise=noise, releases=facts)))
    return replace(plan, eras=tuple(eras))
