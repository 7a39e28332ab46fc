"""The audit harness of a tree: the protocol's own rounds with a target that sends given updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.arguments import Argument
from sfumato.auditing.air import require_independent_coordinates, with_amplitudes_of
from sfumato.auditing.elections import coalition_outcomes
from sfumato.auditing.harness import ElectionOutcome, Observations, TargetDraw
from sfumato.auditing.tree_observer import TreeObserver, unmasking_nodes
from sfumato.auditing.worst_case_engine import Answer, AnswerAbove, WorstCaseEngine, one_example_per_device
from sfumato.errors import SpecError
from sfumato.privacy.observers import Party
from sfumato.privacy.sampling import Neighbours
from sfumato.protocols.message_hooks import ListenerGroup
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.random import Stream, generator
from sfumato.schedule.faults.dropouts import turnout_of
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan
from sfumato.spec.privacy import NoiseByMultiplier

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def tree_harness(plan: TreePlan, unit: int, coalition: Sequence[Party]) -> TreeHarness:
    """The harness that simulates the rounds of a tree for ``unit`` and ``coalition``.

    Raises:
        SpecError: the plan mixes the coordinates of messages, or its releases depend on earlier ones.
    """
    if plan.air is not None:
        require_independent_coordinates(plan)
    elif plan.spec.compression is not None:
        allowed = "cannot be audited: it makes the coordinates of a message dependent"
        raise SpecError("compression", None, allowed)
    if plan.spec.control is not None:
        plan = _only_rounds_of(plan, unit)
    if any(step.takes_part is not None or step.leaf_broadcasts is not None for step in plan.releases.steps):
        key = "edge_at_global" if plan.spec.training.edge_at_global else "edge_every"
        allowed = (
            "cannot be audited where edges aggregate at steps of their own: the simulated rounds send every "
            "message of the target at the same steps"
        )
        raise SpecError(f"training.{key}", None, allowed)
    return TreeHarness(plan, unit, coalition)


def _only_rounds_of(plan: TreePlan, unit: int) -> TreePlan:
    """The rounds of a run with control that ``unit`` took part in: nothing of it is in the others.

    Raises:
        SpecError: the rounds are not known, or the unit took part in none.
    """
    if not plan.eras:
        allowed = (
            "cannot be audited before training, which noise and rounds depend on; audit the folder of a "
            f"finished run, or with {Argument('overrides', ['control=null'])}"
        )
        raise SpecError("control", None, allowed)
    rounds = [one for one in plan.structures if unit in draw_participants(one, 0)]
    if not rounds:
        raise SpecError(
            Argument("observers"), None, f"device:{unit} took part in no round, so none can be attacked"
        )
    return replace(plan, eras=tuple(enumerate(rounds)))


class TreeHarness:
    """Rounds of a plan over a tree.

    Every round starts from a global model of zero. The observers know the model that a round began with, so
    rounds are as independent in the simulation as they are given the observations. Where devices move or
    trust changes, each is played on its own tree.

    Args:
        plan: the plan that is audited.
        unit: the target.
        coalition: the colluding observers.
    """

    def __init__(self, plan: TreePlan, unit: int, coalition: Sequence[Party]) -> None:
        self._plan = plan
        self._unit = unit
        self._coalition = tuple(coalition)
        # with control there are as many rounds as were played with the unit, each a plan of its own
        self.rounds = plan.spec.training.rounds if plan.spec.control is None else len(plan.eras)

    @property
    def exchangeable_devices(self) -> IntArray:
        """Numbers ``[n]`` of the devices with the unit's leaf, weight and noise in every round.

        The unit is among them; members of the coalition are not.
        """
        tree = self._plan.tree
        members = [party.index for party in self._coalition if party.kind == "device"]
        found = np.setdiff1d(tree.devices_under(tree.leaf_of(self._unit)), members)
        for plan in self._plan.structures:
            classes = np.array([plan.releases.class_of(int(device)) for device in found])
            found = found[classes == plan.releases.class_of(self._unit)]
        return found

    def outcomes(self, number: int, seed: int) -> tuple[ElectionOutcome, ...]:
        """The possible outcomes, with probabilities, of the elections in round ``number`` under ``seed``.

        Outcomes differ in the offices that member devices hold; in the first they hold none.

        Raises:
            SpecError: the coalition has devices in too many zones.
        """
        return tuple(
            ElectionOutcome(chance, (self._target_draw(members, number),))
            for chance, members in self._coalition_outcomes(number, seed)
        )

    def simulate(
        self, number: int, *, taking_part: bool, signs: Tensor, seed: int, answers: Sequence[float] = ()
    ) -> tuple[tuple[Observations, ...], ...]:
        """Simulate one round; returns the observations, ``[M]`` each, by outcome of elections and draw.

        Args:
            number: of the round, from 0.
            taking_part: whether the unit takes part.
            signs: what the unit sends in each trial, in units of its largest message, ``[M]``, or for each
                message ``[messages, M]``.
            seed: of everything random.
            answers: if given, one value a message: the unit sends its largest message wherever the model that
                it starts from exceeds the value.
        """
        largest = (
            self._largest_update(number, index, np.array([self._unit])) for index in range(len(answers))
        )
        rules = [AnswerAbove(above, most) for above, most in zip(answers, largest, strict=True)]
        return tuple((seen,) for (seen,) in self._simulate_unit(number, taking_part, signs, seed, rules))

    def models_before_messages(self, number: int, *, signs: Tensor, seed: int) -> tuple[FloatArray, ...]:
        """Simulate round ``number``; returns the model ``[M]`` that the unit starts from before each message.

        ``signs`` and ``seed``: as of `simulate`.
        """
        found: list[FloatArray] = []

        def look(models: Tensor, updates: Tensor) -> Tensor:
            found.append(models[0].double().numpy())
            return updates

        self._simulate_unit(number, True, signs, seed, [look] * len(self._plan.at(number).aggregations))
        return tuple(found)

    def _simulate_unit(
        self, number: int, taking_part: bool, signs: Tensor, seed: int, answers: Sequence[Answer]
    ) -> tuple[tuple[Observations, ...], ...]:
        """Observations of round ``number`` in which the unit sends ``signs``, or does not take part.

        Returned by outcome of elections and draw, ``[M]`` each. The other arguments are those of `simulate`;
        ``answers``: one function a message.
        """
        wide = tree_with_dimension(self._plan.at(number), signs.shape[-1])
        plan = self._with_participation(wide, number, seed, taking_part)
        members = [members for _, members in self._coalition_outcomes(number, seed)]
        return self._simulate(plan, number, members, np.array([self._unit]), signs[..., None, :], answers)

    def simulate_canaries(
        self, number: int, units: IntArray, updates: Tensor, seed: int
    ) -> tuple[tuple[Observations, ...], ...]:
        """Simulate round ``number`` in which ``units`` send canaries ``updates``, if they are drawn.

        Arguments and result as of `AuditHarness.simulate_canaries`.
        """
        plan = with_amplitudes_of(self._plan.at(number), self._plan.at(number), 1.0)
        plan = replace(plan, spec=plan.spec.model_copy(update={"seed": seed}))
        first = self._coalition_outcomes(number, seed)[0][1]
        (observed,) = self._simulate(plan, number, [first], units, updates)
        return tuple((of_unit,) for of_unit in observed)

    def scores_through_others(self, neighbours: Neighbours, *, trials: int, seed: int) -> None:
        """Always ``None``: in a tree every observer receives the unit's message itself, in an average."""

    def _coalition_outcomes(self, number: int, seed: int) -> list[tuple[float, tuple[Party, ...]]]:
        """Pairs of a probability and the coalition, with the offices of its members in round ``number``."""
        plan = self._with_participation(self._plan.at(number), number, seed, True)
        terms = turnout_of(plan, number, 0, draw_participants(plan, number)).terms
        return coalition_outcomes(plan.tree, self._unit, self._coalition, terms)

    def _target_draw(self, members: tuple[Party, ...], number: int) -> TargetDraw:
        """The draw of round ``number``, visible if one of ``members`` chooses the cohort or is told it.

        The leaf chooses its own cohort; HDP's cloud and zones know who is online; the participants of a
        secure sum know each other.
        """
        tree, participants = self._plan.at(number).tree, self._plan.at(number).participants
        leaf, kind = tree.leaf_of(self._unit), participants.kind
        rate = 1.0
        if kind == "poisson":
            rate = participants.rate
        elif kind == "fixed":
            rate = float(participants.drawn[leaf] / tree.devices[leaf])
        first = 0 if self._plan.spec.protocol == "hdp" else tree.depth - 1
        choosers = {(tier, int(tree.paths[leaf][tier])) for tier in range(first, tree.depth)}
        seen = any(party.kind == "node" and (party.tier, party.index) in choosers for party in members)
        if self._plan.hops[-1] == "secure-aggregation":
            seen |= any(p.kind == "device" and tree.leaf_of(p.index) == leaf for p in members)
        return TargetDraw(rate, seen, kind != "fixed")

    def _with_participation(self, plan: TreePlan, number: int, seed: int, taking_part: bool) -> TreePlan:
        """``plan`` under ``seed``, with or without the unit among the participants of a round.

        The other participants stay as they were drawn. If their number is fixed, the unit takes the place of
        one device of its leaf chosen at random, or such a device takes the unit's. ``taking_part``: whether
        the unit takes part.
        """
        plan = replace(plan, spec=plan.spec.model_copy(update={"seed": seed}))
        drawn, unit = draw_participants(plan, number), np.array([self._unit])
        if plan.participants.kind == "all" or (self._unit in drawn) == taking_part:
            return plan
        if plan.participants.kind == "fixed":
            tree = plan.tree
            leaf = tree.leaf_of(self._unit)
            here = tree.devices_under(leaf)
            is_in = np.isin(here, drawn)
            place = generator(seed, Stream.AUDIT, 5, number)
            other = place.choice(here[is_in if taking_part else ~is_in], size=1)
            drawn = np.setdiff1d(drawn, other) if taking_part else np.union1d(drawn, other)
        cohort = np.union1d(drawn, unit) if taking_part else np.setdiff1d(drawn, unit)
        return replace(plan, participants=replace(plan.participants, cohort=cohort.astype(np.int64)))

    def _simulate(
        self,
        plan: TreePlan,
        number: int,
        outcomes: Sequence[tuple[Party, ...]],
        units: IntArray,
        updates: Tensor,
        answers: Sequence[Answer] = (),
    ) -> tuple[tuple[Observations, ...], ...]:
        """The observations in round ``number`` of each coalition of ``outcomes``, of each of ``units``.

        ``updates`` are those of the units, ``[units, M]``, or of each message, ``[messages, units, M]``.
        ``answers``: of the unit, one a message.
        """
        chosen, tree = draw_participants(plan, number), plan.tree
        present = np.isin(units, chosen)
        indices = range(len(plan.aggregations))
        messages = updates.expand(len(indices), *updates.shape[-2:])[:, torch.from_numpy(present)]
        largest = [self._largest_update(number, index, np.array([self._unit])) for index in indices]
        engine = WorstCaseEngine(
            np.searchsorted(chosen, units[present]),
            [most * message for most, message in zip(largest, messages, strict=True)],
            self._update_of_others(number),
            answers,
        )
        discarded = [_discarded_sums(plan, number, index, chosen) for index in indices]
        observers = [
            [self._make_observer(plan, members, chosen, discarded, int(unit)) for unit in units]
            for members in outcomes
        ]
        parameters = updates.shape[-1]
        protocol = TreeProtocol(
            plan,
            engine,
            one_example_per_device(tree.device_count),
            parameters,
            listener=ListenerGroup([observer for of_members in observers for observer in of_members]),
        )
        state = protocol.initial(torch.zeros(parameters))
        protocol.run_round(replace(state, round=number))
        return tuple(tuple(observer.observations for observer in each) for each in observers)

    def _make_observer(
        self,
        plan: TreePlan,
        members: tuple[Party, ...],
        chosen: IntArray,
        discarded: Sequence[Mapping[int, IntArray]],
        unit: int,
    ) -> TreeObserver:
        """An observer for the coalition ``members``, who remove masks where enough of them collude.

        Args:
            chosen: the participants.
            discarded: of each aggregation, sums that failed supernodes received.
            unit: the target.
        """
        open_nodes = unmasking_nodes(plan.tree, plan.hops, plan.spec.faults, chosen, members)
        summed = [hop != "plain" for hop in plan.hops]
        return TreeObserver(plan.tree, summed, unit, members, open_nodes=open_nodes, discarded_sums=discarded)

    def _largest_update(self, number: int, index: int, devices: IntArray) -> float:
        """The largest norm of an update before aggregation ``index`` that every one of ``devices`` may send.

        A message that repeats the whole round is the sum of its updates. Where each step is clipped, its
        bound is that of the sum, and the earlier updates count against it. ``number``: of the
        round; ``devices``: numbers of one or more.
        """
        plan = self._plan.at(number)
        if plan.spec.privacy.clips_examples:  # what one example can do, drawn for every step
            bounds = plan.releases.steps[index].message_norm[plan.tree.leaves_of(devices)]
            return float(bounds.min()) * plan.message_scale(number)
        bounds = plan.bounds_of(index, devices)
        clip, again = plan.spec.privacy.clip, plan.releases.steps[index].resends[plan.tree.leaves_of(devices)]
        if clip is not None and clip.kind == "step" and again.any():
            bounds = bounds - again * np.sum([plan.bounds_of(i, devices) for i in range(index)], axis=0)
        return float((bounds / plan.weights_of(devices)).min()) * plan.message_scale(number)

    def _update_of_others(self, number: int) -> float:
        """The value that all other devices send in every coordinate in round ``number``.

        It is 0, but under remove the opposite of the unit's. Under remove a denominator that depends on the
        unit changes the weight of all others.
        """
        if self._plan.spec.privacy.neighbours != "remove":
            return 0.0
        everybody = np.arange(self._plan.tree.device_count)
        return -min(self._largest_update(number, i, everybody) for i in range(len(self._plan.aggregations)))


def _discarded_sums(plan: TreePlan, number: int, index: int, chosen: IntArray) -> dict[int, IntArray]:
    """By zone whose sum was discarded, the devices in the sum that its failed supernode received.

    {} where no sum was discarded. ``number``, ``index``: of round and aggregation; ``chosen``: numbers of
    the participants ``[P]``.
    """
    turnout, leaves = turnout_of(plan, number, index, chosen), plan.tree.leaves_of(chosen)
    return {
        int(leaf): chosen[turnout.received & (leaves == leaf)] for leaf in np.flatnonzero(~turnout.formed)
    }


def tree_with_dimension(plan: TreePlan, coordinates: int) -> TreePlan:
    """``plan`` for a model of ``coordinates`` parameters, each bounded by the old clip norm; same noise.

    The clip norm of the whole vector is the unit of all bounds and of the noise. It grows by √coordinates,
    and the noise in that unit shrinks by the same factor.
    """
    factor, real = math.sqrt(coordinates), plan
    clip, noise = plan.spec.privacy.clip, plan.spec.privacy.noise
    if clip is None:
        return plan
    wide = plan.spec.privacy.model_copy(update={"clip": clip.model_copy(update={"norm": clip.norm * factor})})
    if isinstance(noise, NoiseByMultiplier) and noise.at == "step":
        finer = noise.model_copy(update={"multiplier": noise.multiplier / factor})
        wide = wide.model_copy(update={"noise": finer})
    steps = tuple(
        replace(
            step,
            device_std=step.device_std / factor,
            node_std=tuple(std / factor for std in step.node_std),
            channel_std=tuple(std / factor for std in step.channel_std),
        )
        for step in plan.releases.steps
    )
    plan = replace(
        plan,
        spec=plan.spec.model_copy(update={"privacy": wide}),
        releases=replace(plan.releases, steps=steps),
    )
    return with_amplitudes_of(plan, real, factor)
