"""The tiered protocol's plan: everything that ``account`` judges and ``run`` plays, without training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.federation.topology import Tree
from sfumato.privacy.guarantee import Bound
from sfumato.privacy.release import Exposure, Release
from sfumato.privacy.tiered import Party, StepFacts, TieredLedger
from sfumato.schedule.explain import multipliers
from sfumato.schedule.learning_rate import learning_rate
from sfumato.schedule.noise import NoisePlan, raw_sensitivity
from sfumato.schedule.rounds import Aggregation
from sfumato.spec.document import Spec
from sfumato.spec.training import FixedParticipation, PoissonParticipation

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Participants:
    """Who takes part in a round.

    Attributes:
        kind: how they are chosen.
        rate: share of rounds a device takes part in, expected.
        count: devices of each leaf in a round: all, the fixed number, or the expected one. Averages
            divide by it (a public constant), so that one device's weight never depends on the others.
    """

    kind: Literal["all", "poisson", "fixed"]
    rate: float
    count: FloatArray


@dataclass(frozen=True)
class TieredPlan:
    """A resolved, calibrated tiered protocol.

    Attributes:
        spec: as resolved: every random choice made, every source's noise written out.
        tree: with trust marked.
        aggregations: of one round.
        participants: who takes part.
        noise: multipliers by source.
        ledger: the same facts for the accountant.
        notes: what the user should hear.
    """

    spec: Spec
    tree: Tree
    aggregations: tuple[Aggregation, ...]
    participants: Participants
    noise: NoisePlan
    ledger: TieredLedger
    notes: tuple[str, ...]

    @property
    def parties(self) -> Tree:
        """Who there is."""
        return self.tree

    @property
    def is_sampled(self) -> bool:
        """Whether participants are drawn."""
        return self.participants.kind != "all"

    @property
    def default_watch(self) -> tuple[str, ...]:
        """The cloud (the public, where the cloud is trusted) and, in a tree, the worst edge."""
        cloud = "public" if self.tree.tiers[0].trusted[0] else "cloud"
        return (cloud,) if self.tree.depth == 1 else (cloud, "edge")

    def trusts(self, party: Party, device: int) -> bool:
        """Whether ``party`` is a trusted aggregator above ``device``."""
        path = self.tree.paths[self.tree.leaf_of(device)]
        return (
            party.kind == "node"
            and bool(path[party.tier] == party.index)
            and bool(self.tree.tiers[party.tier].trusted[party.index])
        )

    def units_beside(self, members: Set[int]) -> Iterator[tuple[int, int]]:
        """One device of every leaf that has any outside ``members``, and how many it stands for."""
        ends = self.tree.first_device
        inside = Counter(self.tree.leaf_of(member) for member in members)
        for leaf in range(self.tree.leaf_count):
            count = int(self.tree.devices[leaf]) - inside[leaf]
            if count:
                first = int(ends[leaf])
                yield (
                    next(device for device in range(first, int(ends[leaf + 1])) if device not in members),
                    count,
                )

    def explained(self, exposure: Exposure, bound: Bound) -> str:
        """What is charged, sum by sum, at which noise multipliers."""
        views: dict[str, list[Release]] = {}
        for release in exposure.releases:
            views.setdefault(release.view, []).append(release)
        parts = [
            f"{sum(r.count for r in releases)} of {view} at multiplier {multipliers(releases)}"
            for view, releases in views.items()
        ]
        clause = " and ".join(parts)
        if exposure.bound == "cut" and any(r.others for r in exposure.releases):
            clause += ", devices that started from hidden averages as replaced"
        return clause

    @cached_property
    def global_noise(self) -> tuple[float, ...]:
        """Expected variance a coordinate that the noise of each aggregation leaves in the global average.

        In squared units of ``unit``; of a repeated (resent) round only the global aggregation's counts.
        """
        return self.noise_with(self.participants.count)

    def noise_with(self, present: FloatArray) -> tuple[float, ...]:
        """`global_noise` of a round in which ``present[leaf]`` devices take part."""
        tree, variances = self.tree, []
        for number, facts in enumerate(self.ledger.steps):
            forgotten = (
                self.ledger.steps[-1].fresh
                if number < len(self.ledger.steps) - 1
                else ~np.ones_like(facts.fresh)
            )
            value = facts.device_std**2 * present / self.participants.count**2 + facts.node_std[-1] ** 2
            value = np.where(forgotten, 0.0, value)
            for tier in range(tree.depth - 2, -1, -1):
                share = np.bincount(
                    tree.tiers[tier + 1].parents, weights=value, minlength=tree.tiers[tier].size
                )
                value = share / tree.children[tier] ** 2 + facts.node_std[tier] ** 2
            variances.append(float(value[0]))
        return tuple(variances)

    def unit(self, round_number: int) -> float:
        """What the ledger's bounds and standard deviations are multiples of, in this round.

        The clip norm for whole updates; step size times clip norm for clipped steps.
        """
        clip = self.spec.privacy.clip
        if clip is None:
            return 1.0
        if clip.kind == "update":
            return clip.norm
        return clip.norm * learning_rate(self.spec.training, round_number)


def participants_of(spec: Spec, tree: Tree) -> Participants:
    """How many devices of each leaf take part, and how they are chosen.

    Raises:
        SpecError: a fixed number larger than an edge.
    """
    choice = spec.training.participation
    devices = tree.devices.astype(np.float64)
    if isinstance(choice, PoissonParticipation):
        return Participants("poisson", choice.rate, devices * choice.rate)
    if isinstance(choice, FixedParticipation):
        least = int(tree.devices.min())
        if choice.count > least:
            where = "the star" if tree.depth == 1 else f"the smallest {tree.tiers[-1].name}"
            raise SpecError(
                "training.participation.count",
                choice.count,
                f"must be at most the {least} devices of {where}",
            )
        count = np.full(tree.leaf_count, float(choice.count))
        return Participants("fixed", float(np.max(count / devices)), count)
    return Participants("all", 1.0, devices)


def momentum_gain(steps: int, momentum: float) -> float:
    """How far ``steps`` clipped steps of SGD with momentum can go, in steps times clip norm.

    The buffer starts at zero: ``sum_j (steps - j) momentum**j``; ``steps`` without momentum.
    """
    return float(sum((steps - j) * momentum**j for j in range(steps)))


def build_ledger(
    spec: Spec, tree: Tree, rounds: tuple[Aggregation, ...], participants: Participants, noise: NoisePlan
) -> TieredLedger:
    """The facts of the protocol for the accountant.

    Raises:
        SpecError: clipped steps where the number of steps is private (``local_epochs``).
    """
    clip, training = spec.privacy.clip, spec.training
    per_step = clip is not None and clip.kind == "step"
    if per_step and training.local_epochs is not None:
        raise SpecError(
            "privacy.clip.kind",
            "step",
            "needs local steps: the number of steps in an epoch is a device's own secret; use update",
        )
    resend = training.global_step == "resend"
    if resend and tree.depth != 2:
        raise SpecError(
            "training.global_step", "resend", "is defined for edges under the cloud only; use increment"
        )
    names = tuple(tier.name for tier in tree.tiers)
    steps = []
    for number, aggregation in enumerate(rounds):
        size = momentum_gain(aggregation.since, training.momentum) if per_step else 1.0
        bound = np.full(tree.leaf_count, size)
        fresh = np.zeros(tree.leaf_count, dtype=np.bool_)
        if resend and number == len(rounds) - 1 and len(rounds) > 1:
            fresh = tree.tiers[1].trusted.copy()
            pieces = [momentum_gain(a.since, training.momentum) for a in rounds]
            bound = np.where(fresh, sum(pieces) if per_step else 1.0, bound)
        message = bound / participants.count
        node_std = tuple(
            noise.node[t][:, aggregation.tier] * raw_sensitivity(tree, noise, t, aggregation.tier, message)
            if t >= aggregation.tier  # nobody above hears of it
            else np.zeros(tree.tiers[t].size)
            for t in range(tree.depth)
        )
        steps.append(
            StepFacts(
                aggregation.title(names),
                aggregation.tier,
                bound,
                noise.device[:, aggregation.tier] * bound,
                node_std,
                fresh,
            )
        )
    return TieredLedger(
        names=names,
        parents=tuple(tier.parents for tier in tree.tiers),
        devices=tree.devices,
        participants=participants.count,
        draw_kind=participants.kind,
        draw_rate=participants.rate,
        draw_seen_from=tree.depth - 1,
        steps=tuple(steps),
        rounds=training.rounds,
    )
