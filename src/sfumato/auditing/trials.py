"""Thousands of trials of a whole training: its releases simulated with a worst-case target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sfumato.auditing.harness import AuditHarness, ElectionOutcome, ObservationKey, Observations, TargetDraw
from sfumato.auditing.likelihood_ratio import LikelihoodRatioTest, fit_test
from sfumato.auditing.tradeoff import Scores, TrialScores
from sfumato.privacy.sampling import Neighbours
from sfumato.random import Stream, generator, seed_at

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
FITTING_TRIALS = 2048
_SHIFT_TRIALS = 64


@dataclass(frozen=True)
class FittedTest:
    """A fitted test for one draw of participants.

    Attributes:
        draw: the draw of participants.
        keys: of the observations that the test uses.
        test: the likelihood-ratio test.
    """

    draw: TargetDraw
    keys: tuple[ObservationKey, ...]
    test: LikelihoodRatioTest

    def scores(self, present: Observations, absent: Observations, part: BoolArray) -> FloatArray:
        """Scores ``[trials]`` of one round: of ``present`` where ``part`` is true, otherwise of ``absent``.

        Args:
            present: observations of trials in which the unit takes part.
            absent: observations of the same trials if it does not.
            part: whether it takes part in each trial, ``[trials]``.
        """
        observed = observation_matrix(present, self.keys, part.shape[0])
        if self.draw.rate < 1:
            observed = np.where(part, observed, observation_matrix(absent, self.keys, part.shape[0]))
        return self.test.scores(observed, part)

    def combine(self, observed: Observations, parameters: int) -> FloatArray:
        """The weighted sum of all observed vectors, ``[M]``, which the test compares with a threshold.

        Args:
            observed: vectors of one trial.
            parameters: M.
        """
        return self.test.log_ratio_weights @ observation_matrix(observed, self.keys, parameters)


@dataclass(frozen=True)
class RoundTests:
    """The fitted tests of one round or interval.

    Attributes:
        probabilities: of the outcomes of its elections.
        tests: for every outcome and every draw.
    """

    probabilities: tuple[float, ...]
    tests: tuple[tuple[FittedTest, ...], ...]


def null_update(neighbours: Neighbours) -> float:
    """What the unit sends under the null hypothesis, in units of its largest message.

    -1 under replace, else 0.
    """
    return -1.0 if neighbours == "replace" else 0.0


def simulate_trials(
    harness: AuditHarness, neighbours: Neighbours, *, trials: int, seed: int
) -> tuple[TrialScores, tuple[RoundTests, ...]]:
    """Simulate all rounds under both hypotheses; returns the trials' scores, and each round's fitted tests.

    If participants are drawn, each trial draws whether the unit takes part; if members of the coalition may
    be elected, each trial draws their offices. Everything else that is public follows from one seed. A unit
    that is removed never takes part under the null hypothesis.

    Args:
        harness: simulates the rounds of the plan for one unit and one coalition.
        neighbours: the relation between neighbouring data sets.
        trials: how many are held out, and how many tested, under each hypothesis.
        seed: of everything random.
    """
    other, removed = null_update(neighbours), neighbours == "remove"
    to_learn = torch.full((FITTING_TRIALS,), 1.0 if removed else other)
    signs = torch.tensor([other, 1.0]).repeat_interleave(trials).repeat(2)
    totals, rng = np.zeros(len(signs)), generator(seed, Stream.AUDIT, 0)
    may_take_part = signs.numpy() == 1 if removed else np.ones(len(signs), dtype=np.bool_)
    rounds = []
    for number in range(harness.rounds):
        at = seed_at(seed, Stream.AUDIT, 1, number)
        outcomes = harness.outcomes(number, at)
        sampled = removed or any(draw.rate < 1 for outcome in outcomes for draw in outcome.draws)
        every = torch.cat([to_learn, signs])
        present = harness.simulate(number, taking_part=True, signs=every, seed=at)
        absent = harness.simulate(number, taking_part=False, signs=every, seed=at) if sampled else present
        shifts = _mean_shifts(harness, number, other, at, removed=removed)
        found = _fit_tests(outcomes, present, absent, shifts, removed=removed)
        parts = [(rng.random(len(signs)) < draw.rate) & may_take_part for draw in outcomes[0].draws]
        outcome_of = rng.choice(len(outcomes), size=len(signs), p=found.probabilities)
        for outcome, fitted_tests in enumerate(found.tests):
            here = outcome_of == outcome
            for fitted, part, there, not_there in zip(
                fitted_tests, parts, present[outcome], absent[outcome], strict=True
            ):
                scores = fitted.scores(_scored_part(there), _scored_part(not_there), part)
                totals += np.where(here, scores, 0.0)
        rounds.append(found)
    out, sent, judged_out, judged_sent = totals.reshape(4, trials)
    return TrialScores(Scores(out, sent), Scores(judged_out, judged_sent)), tuple(rounds)


def _scored_part(observed: Observations) -> Observations:
    """The observations of the trials that are scored, which come after those that fit tests."""
    return {key: values[FITTING_TRIALS:] for key, values in observed.items()}


def _mean_shifts(
    harness: AuditHarness, number: int, other: float, seed: int, *, removed: bool
) -> tuple[tuple[dict[ObservationKey, float], ...], ...]:
    """By outcome, draw and observation, the mean difference of the two hypotheses in round ``number``.

    It is estimated from two simulations of a few coordinates with the same noise. An attacker can compute it
    from the protocol. ``other``: the update under the null hypothesis; ``removed``: whether the unit does not
    take part then.
    """
    ones = torch.ones(_SHIFT_TRIALS)
    loud = harness.simulate(number, taking_part=True, signs=ones, seed=seed)
    quiet = harness.simulate(
        number, taking_part=not removed, signs=(1.0 if removed else other) * ones, seed=seed
    )
    silence = np.zeros(_SHIFT_TRIALS)
    return tuple(
        tuple(
            {key: float((a.get(key, silence) - b.get(key, silence)).mean()) for key in {*a, *b}}
            for a, b in zip(of_loud, of_quiet, strict=True)
        )
        for of_loud, of_quiet in zip(loud, quiet, strict=True)
    )


def _fit_tests(
    outcomes: Sequence[ElectionOutcome],
    present: Sequence[Sequence[Observations]],
    absent: Sequence[Sequence[Observations]],
    shifts: Sequence[Sequence[Mapping[ObservationKey, float]]],
    *,
    removed: bool,
) -> RoundTests:
    """Fit a test for every outcome and draw of a round, on trials that are not scored.

    ``present``, ``absent`` and ``shifts`` are by outcome and draw. ``removed``: whether the unit does not
    take part under the null hypothesis.
    """
    found = []
    for outcome, of_present, of_absent, of_shifts in zip(outcomes, present, absent, shifts, strict=True):
        fitted_tests = []
        for draw, there, not_there, shift in zip(
            outcome.draws, of_present, of_absent, of_shifts, strict=True
        ):
            keys = tuple(sorted({*there, *not_there}))
            rows = [
                observation_matrix(_fitting_part(observed), keys, FITTING_TRIALS)
                for observed in (not_there, there)
            ]
            out = rows[0] if removed else rows[1]
            sent = out + np.array([shift.get(key, 0.0) for key in keys]).reshape(len(keys), 1)
            test = fit_test(rows[0], out, sent, rate=draw.rate, draw_visible=draw.visible, removed=removed)
            fitted_tests.append(FittedTest(draw, keys, test))
        found.append(tuple(fitted_tests))
    return RoundTests(tuple(outcome.probability for outcome in outcomes), tuple(found))


def _fitting_part(observed: Observations) -> Observations:
    """The observations of the trials that tests are fitted on, which come first."""
    return {key: values[:FITTING_TRIALS] for key, values in observed.items()}


def observation_matrix(observed: Observations, keys: tuple[ObservationKey, ...], trials: int) -> FloatArray:
    """The observations under ``keys`` as a matrix ``[d, trials]``; zeros for a key without observation."""
    silence = np.zeros(trials)
    return np.array([observed.get(key, silence) for key in keys]).reshape(len(keys), trials)
