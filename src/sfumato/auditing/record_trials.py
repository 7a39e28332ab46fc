"""Thousands of trials of a whole training in which one record of the target is drawn into its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.auditing.groups import GroupHarness
from sfumato.auditing.harness import AuditHarness, Observations, TargetDraw
from sfumato.auditing.mixture_ratio import MixtureRatioTest, fit_mixture_test
from sfumato.auditing.record_canary import ListedMessages, RecordCanary, canary_of_groups, canary_of_tree
from sfumato.auditing.tradeoff import Scores, TrialScores
from sfumato.auditing.tree import TreeHarness, tree_harness
from sfumato.auditing.trials import FITTING_TRIALS, observation_matrix
from sfumato.privacy.observers import Party
from sfumato.privacy.sampling import Neighbours
from sfumato.random import Stream, generator, seed_at
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Round:
    """What was simulated of a round with one outcome of its elections.

    Attributes:
        present: observations if the device takes part; first the trials to fit with.
        absent: if it does not.
        shifts: observations of the listed messages of both worlds, one a coordinate, less those of a device
            whose record is in no step.
    """

    present: Observations
    absent: Observations
    shifts: Observations

    def scores(
        self, draw: TargetDraw, listed: tuple[ListedMessages, ListedMessages], part: npt.NDArray[np.bool_]
    ) -> FloatArray:
        """The scores ``[trials]`` of the trials of the round that no test was fitted on.

        Args:
            draw: of the device.
            listed: the likeliest messages in the two worlds.
            part: in which trials the device takes part.
        """
        keys = tuple(sorted({*self.present, *self.absent}))
        there = observation_matrix(self.present, keys, FITTING_TRIALS + len(part))
        away = observation_matrix(self.absent, keys, FITTING_TRIALS + len(part)) if draw.rate < 1 else there
        test = self._fit(draw, listed, keys, there[:, :FITTING_TRIALS], away[:, :FITTING_TRIALS])
        return test.scores(np.where(part, there[:, FITTING_TRIALS:], away[:, FITTING_TRIALS:]), part)

    def _fit(
        self,
        draw: TargetDraw,
        listed: tuple[ListedMessages, ListedMessages],
        keys: tuple[tuple[int, int, str, int], ...],
        undrawn: FloatArray,
        absent: FloatArray,
    ) -> MixtureRatioTest:
        """Fit the likelihood-ratio test of the round, for a record that is or is not in local steps.

        ``draw`` and ``listed``: as of `scores`; ``keys``: of the observations; ``undrawn`` and ``absent``:
        fitting trials ``[d, trials]``.
        """
        other, present = (len(world.chances) for world in listed)
        moved = observation_matrix(self.shifts, keys, other + present)
        shifts = moved[:, :other], moved[:, other:]
        return fit_mixture_test(undrawn, absent, shifts, (listed[0].chances, listed[1].chances), draw)


def tree_record_trials(
    plan: TreePlan, unit: int, coalition: Sequence[Party], neighbours: Neighbours, hidden: bool, trials: int
) -> TrialScores | None:
    """Attack one record of ``unit``; returns the scores of trials with it and without it.

    ``None`` where a record is taken to be in every message. Every trial draws the local steps that the record
    is in, whether its device takes part, and the offices of the coalition. Everything else that is public
    follows from one seed.

    Args:
        plan: the plan that is audited.
        unit: the record's device.
        coalition: the colluding observers.
        neighbours: ``zero-out`` or ``replace``.
        hidden: whether the guarantee allows for models that the coalition does not receive. The device then
            answers to what earlier messages of a round left in the models that it receives.
        trials: how many are held out, and how many tested, under each hypothesis.

    Raises:
        SpecError: the plan cannot be audited.
    """
    harness, canary = tree_harness(plan, unit, coalition), canary_of_tree(plan, unit, neighbours)
    if canary is None:
        return None
    answers = hidden and not plan.spec.privacy.clips_examples

    def scores_of_round(number: int, at: int, trial: _Trials) -> Iterator[FloatArray]:
        outcomes, messages = harness.outcomes(number, at), trial.messages(canary)
        above = _answer_thresholds(harness, number, at, canary) if answers else ()
        present = partial(harness.simulate, answers=above)
        found = _simulate(harness, present, number, at, canary, messages, trial.listed)
        part = trial.rng.random(len(trial.with_record)) < outcomes[0].draws[0].rate
        held = trial.rng.choice(len(outcomes), size=len(part), p=[o.probability for o in outcomes])
        for place, (outcome, (of_outcome,)) in enumerate(zip(outcomes, found, strict=True)):
            yield np.where(held == place, of_outcome.scores(outcome.draws[0], trial.listed, part), 0.0)

    return _scores_of_rounds(harness.rounds, canary, trials, plan.spec.seed, scores_of_round, answers=answers)


def group_record_trials(
    plan: GroupPlan, unit: int, coalition: Sequence[Party], neighbours: Neighbours, trials: int
) -> TrialScores | None:
    """Attack one record of ``unit`` in groups; returns the scores of trials with it and without it.

    ``None`` where a record is taken to be in every message. Its device answers to nothing that it receives,
    and each group of the unit draws for itself. ``coalition``: the colluding observers; ``trials``: how many
    are held out, and how many tested, under each hypothesis.

    Raises:
        SpecError: the plan cannot be audited.
    """
    harness, canary = GroupHarness(plan, unit, coalition), canary_of_groups(plan, unit, neighbours)
    if canary is None:
        return None

    def scores_of_round(number: int, at: int, trial: _Trials) -> Iterator[FloatArray]:
        draws = harness.outcomes(number, at)[0].draws
        messages = np.concatenate([trial.messages(canary) for _ in draws])  # drawn for each group anew
        (found,) = _simulate(harness, harness.simulate, number, at, canary, messages, trial.listed)
        for draw, of_group in zip(draws, found, strict=True):
            part = trial.rng.random(len(trial.with_record)) < draw.rate
            yield of_group.scores(draw, trial.listed, part)

    return _scores_of_rounds(harness.rounds, canary, trials, plan.spec.seed, scores_of_round, answers=False)


@dataclass(frozen=True)
class _Trials:
    """What the rounds of an attack share.

    Attributes:
        rng: of everything that trials draw.
        listed: the likeliest messages of a round in the two worlds.
        with_record: in which of the trials the record is there: held-out ones, then those of the test.
    """

    rng: np.random.Generator
    listed: tuple[ListedMessages, ListedMessages]
    with_record: npt.NDArray[np.bool_]

    def messages(self, canary: RecordCanary) -> FloatArray:
        """Draw the device's messages in a round, each trial in its own world, ``[messages, trials]``."""
        present, other = canary.sample(self.rng, len(self.with_record))
        return np.where(self.with_record, present, other)


def _scores_of_rounds(
    rounds: int,
    canary: RecordCanary,
    trials: int,
    seed: int,
    scores_of_round: Callable[[int, int, _Trials], Iterator[FloatArray]],
    *,
    answers: bool,
) -> TrialScores:
    """The scores of all rounds added up, trial by trial.

    ``scores_of_round`` takes the number of a round, a seed and the trials; ``answers`` as of
    `RecordCanary.likeliest_messages`.
    """
    rng = generator(seed, Stream.AUDIT, 6)
    listed = canary.likeliest_messages(rng, answers=answers)
    shared = _Trials(rng, listed, np.tile(np.repeat([False, True], trials), 2))
    totals = np.zeros(len(shared.with_record))
    for number in range(rounds):
        for scores in scores_of_round(number, seed_at(seed, Stream.AUDIT, 1, number), shared):
            totals += scores
    out, sent, judged_out, judged_sent = totals.reshape(4, trials)
    return TrialScores(Scores(out, sent), Scores(judged_out, judged_sent))


def _simulate(
    harness: AuditHarness,
    simulate_present: Callable[..., tuple[tuple[Observations, ...], ...]],
    number: int,
    seed: int,
    canary: RecordCanary,
    messages: FloatArray,
    listed: Sequence[ListedMessages],
) -> tuple[tuple[_Round, ...], ...]:
    """One round or interval, for every outcome of its elections and every draw.

    Args:
        harness: with the record's device as the target.
        simulate_present: simulates the trials in which the device takes part.
        number: of the round or interval.
        seed: of everything random.
        canary: the record.
        messages: of the trials, ``[messages, n]``; in groups one for each group of the unit.
        listed: the likeliest messages in the two worlds.
    """
    signs = torch.cat([_undrawn_messages(canary, len(messages)), torch.from_numpy(messages).float()], dim=1)
    present = simulate_present(number, taking_part=True, signs=signs, seed=seed)
    sampled = any(draw.rate < 1 for outcome in harness.outcomes(number, seed) for draw in outcome.draws)
    absent = harness.simulate(number, taking_part=False, signs=signs, seed=seed) if sampled else present
    every = torch.from_numpy(np.concatenate([world.sent for world in listed], axis=1)).float()
    every = every.expand(len(messages), -1)
    moved = harness.simulate(number, taking_part=True, signs=every, seed=seed)
    still = harness.simulate(
        number, taking_part=True, signs=torch.full_like(every, canary.undrawn_message), seed=seed
    )
    return tuple(
        tuple(
            _Round(there, away, {key: one[key] - two[key] for key in one})
            for there, away, one, two in zip(*of_outcome, strict=True)
        )
        for of_outcome in zip(present, absent, moved, still, strict=True)
    )


def _undrawn_messages(canary: RecordCanary, messages: int) -> Tensor:
    """Messages ``[messages, trials]`` of a device whose record is in no step, for trials that fit tests."""
    return torch.full((messages, FITTING_TRIALS), canary.undrawn_message)


def _answer_thresholds(
    harness: TreeHarness, number: int, seed: int, canary: RecordCanary
) -> tuple[float, ...]:
    """For each message of the device, a threshold for the model that it starts from.

    It lies halfway between the models without the record and with it in the message before. Infinite where
    the model does not depend on the device's messages before. ``number``: of the round; ``seed``: of
    everything random.
    """
    quiet = _undrawn_messages(canary, len(canary.weights))
    before = harness.models_before_messages(number, signs=quiet, seed=seed)
    found = []
    for index, models in enumerate(before):
        drawn = quiet.clone()
        if index:
            drawn[index - 1] = 1.0
        apart = float((harness.models_before_messages(number, signs=drawn, seed=seed)[index] - models).mean())
        found.append(float(models.mean()) + apart / 2 if apart > 0 else np.inf)
    return tuple(found)
