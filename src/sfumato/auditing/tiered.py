"""A tree as the stage of an audit: the protocol's own rounds, with a target that sends what it is told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.auditing.engine import WorstCaseEngine, one_example_each
from sfumato.auditing.stage import Heard, UnitDraw
from sfumato.auditing.tree_view import TreeEars
from sfumato.privacy.parties import Party
from sfumato.protocols.listener import Together
from sfumato.protocols.tiered import TieredProtocol
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tiered import TieredPlan

IntArray = npt.NDArray[np.int64]


class TieredStage:
    """Rounds of a tiered plan.

    Everything starts from a global model of zero: whoever listens knows the model that a round began with,
    so rounds are as independent in the replay as they are given what was seen.

    Args:
        plan: audited.
        unit: the target.
        coalition: who listens.
    """

    def __init__(self, plan: TieredPlan, unit: int, coalition: Sequence[Party]) -> None:
        self._plan = plan
        self._unit = unit
        self._coalition = tuple(coalition)
        self.rounds = plan.spec.training.rounds

    @property
    def draws(self) -> tuple[UnitDraw, ...]:
        """One draw a round; who chooses the cohort, or is told it, sees it.

        The leaf chooses its own; HDP's cloud and zones know who is online; a secure sum is agreed on among
        those who take part.
        """
        tree, kind = self._plan.tree, self._plan.participants.kind
        leaf = tree.leaf_of(self._unit)
        rate = 1.0
        if kind == "poisson":
            rate = self._plan.participants.rate
        elif kind == "fixed":
            rate = float(self._plan.participants.drawn[leaf] / tree.devices[leaf])
        first = 0 if self._plan.spec.protocol == "hdp" else tree.depth - 1
        choosers = {(tier, int(tree.paths[leaf][tier])) for tier in range(first, tree.depth)}
        seen = any(
            party.kind == "node" and (party.tier, party.index) in choosers for party in self._coalition
        )
        if self._plan.hops[-1] == "secure-aggregation":
            seen |= any(p.kind == "device" and tree.leaf_of(p.index) == leaf for p in self._coalition)
        return (UnitDraw(rate, seen, kind != "fixed"),)

    @property
    def mates(self) -> IntArray:
        """Devices under the unit's leaf that weigh and noise as it does."""
        tree = self._plan.tree
        leaf = tree.leaf_of(self._unit)
        under = np.arange(tree.first_device[leaf], tree.first_device[leaf + 1])
        classes = np.array([self._plan.ledger.class_of(int(device)) for device in under])
        members = [party.index for party in self._coalition if party.kind == "device"]
        alike = classes == self._plan.ledger.class_of(self._unit)
        return np.asarray(under[alike & ~np.isin(under, members)])

    def play(self, number: int, *, taking_part: bool, signs: Tensor, seed: int) -> tuple[Heard, ...]:
        """Play round ``number``; see `Stage.play`."""
        plan = _drawn(widened(self._plan, len(signs)), self._unit, number, taking_part, seed)
        return self._played(plan, number, np.array([self._unit]), signs[None])[0]

    def play_together(
        self, number: int, units: IntArray, updates: Tensor, seed: int
    ) -> tuple[tuple[Heard, ...], ...]:
        """Play round ``number``; see `Stage.play_together`."""
        plan = replace(self._plan, spec=self._plan.spec.model_copy(update={"seed": seed}))
        return self._played(plan, number, units, updates)

    def _played(
        self, plan: TieredPlan, number: int, units: IntArray, updates: Tensor
    ) -> tuple[tuple[Heard, ...], ...]:
        """What the coalition hears of each of ``units`` while they send ``updates``, ``[units, M]``."""
        chosen = draw_participants(plan, number)
        present = np.isin(units, chosen)
        messages = updates[torch.from_numpy(present)]
        pieces = [self._largest(number, index) * messages for index in range(len(plan.aggregations))]
        engine = WorstCaseEngine(np.searchsorted(chosen, units[present]), pieces)
        summed = [hop != "plain" for hop in plan.hops]
        ears = [TreeEars(plan.tree, summed, int(unit), self._coalition) for unit in units]
        parameters = updates.shape[1]
        protocol = TieredProtocol(
            plan, engine, one_example_each(plan.tree.device_count), parameters, listener=Together(ears)
        )
        state = protocol.initial(torch.zeros(parameters))
        protocol.play(replace(state, round=number))
        return tuple((ear.heard,) for ear in ears)

    def _largest(self, number: int, index: int) -> float:
        """Norm of the largest update from which the unit may make a message."""
        unit = np.array([self._unit])
        message = self._plan.bounds_of(index, unit) / self._plan.weights_of(unit)
        return float(message[0]) * self._plan.unit(number)


def widened(plan: TieredPlan, coordinates: int) -> TieredPlan:
    """``plan`` for a model of so many coordinates, each bounded by the clip norm: noise stays as it was.

    The clip norm of the whole vector, the unit of all bounds and noise, grows with √coordinates, and the
    noise in that unit shrinks by as much.
    """
    factor = math.sqrt(coordinates)
    clip = plan.spec.privacy.clip
    if clip is None:
        return plan
    wide = plan.spec.privacy.model_copy(update={"clip": clip.model_copy(update={"norm": clip.norm * factor})})
    steps = tuple(
        replace(
            step,
            device_std=step.device_std / factor,
            node_std=tuple(std / factor for std in step.node_std),
            channel_std=tuple(std / factor for std in step.channel_std),
        )
        for step in plan.ledger.steps
    )
    return replace(
        plan,
        spec=plan.spec.model_copy(update={"privacy": wide}),
        ledger=replace(plan.ledger, steps=steps),
    )


def _drawn(plan: TieredPlan, unit: int, number: int, taking_part: bool, seed: int) -> TieredPlan:
    """``plan`` under the first seed from ``seed`` on with which the unit takes part, or does not."""
    while True:
        found = replace(plan, spec=plan.spec.model_copy(update={"seed": seed}))
        if plan.participants.kind == "all" or (unit in draw_participants(found, number)) == taking_part:
            return found
        seed += 1
