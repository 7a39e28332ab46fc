"""Thousands of trials of a whole training, by replaying its releases with a worst-case target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sfumato.auditing.harness import Heard, Key, Outcome, Stage, UnitDraw
from sfumato.auditing.likelihood_ratio import RoundTest, learned
from sfumato.auditing.tradeoff import Scores
from sfumato.privacy.relation import Neighbours
from sfumato.random import Stream, generator, seed_at

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
_LEARNING_TRIALS = 2048
_SHIFT_TRIALS = 64


@dataclass(frozen=True)
class Trials:
    """Scores of an observer: to choose a threshold by, and to judge it by."""

    held_out: Scores
    judged: Scores


@dataclass(frozen=True)
class Hearing:
    """Which of the vectors heard count in the score of one draw, and how.

    Attributes:
        draw: of participants.
        keys: of the vectors.
        test: on them.
    """

    draw: UnitDraw
    keys: tuple[Key, ...]
    test: RoundTest

    def scores(self, present: Heard, absent: Heard, part: BoolArray) -> FloatArray:
        """Scores of one round: each trial heard ``present`` where it took part, else ``absent``."""
        heard = _rows(present, self.keys, part.shape[0])
        if self.draw.rate < 1:
            heard = np.where(part, heard, _rows(absent, self.keys, part.shape[0]))
        return self.test.scores(heard, part)

    def combined(self, heard: Heard, parameters: int) -> FloatArray:
        """Everything heard as one vector, ``[M]``, weighted as the score weighs it."""
        return self.test.weights_of_ratio @ _rows(heard, self.keys, parameters)


@dataclass(frozen=True)
class Round:
    """One piece, as an observer makes use of it.

    Attributes:
        chances: of the outcomes of its elections.
        hearings: for every outcome and every draw.
    """

    chances: tuple[float, ...]
    hearings: tuple[tuple[Hearing, ...], ...]


def other_world(neighbours: Neighbours) -> float:
    """What a unit that is there sends in the other world, in units of the largest message."""
    return -1.0 if neighbours == "replace" else 0.0


def replayed(
    stage: Stage, neighbours: Neighbours, *, trials: int, seed: int
) -> tuple[Trials, tuple[Round, ...]]:
    """Play all rounds in both worlds, ``trials`` times each to hold out and as often to judge.

    Where participants are drawn, each trial draws by itself whether the unit takes part, and where members of
    the coalition may be elected, which offices they hold; all else that is public is as one seed says. A unit
    that is removed never takes part in the other world.
    """
    other, gone = other_world(neighbours), neighbours == "remove"
    to_learn = torch.full((_LEARNING_TRIALS,), 1.0 if gone else other)
    signs = torch.tensor([other, 1.0]).repeat_interleave(trials).repeat(2)
    totals, rng = np.zeros(len(signs)), generator(seed, Stream.AUDIT, 0)
    may_take_part = signs.numpy() == 1 if gone else np.ones(len(signs), dtype=np.bool_)
    rounds = []
    for number in range(stage.rounds):
        at = seed_at(seed, Stream.AUDIT, 1, number)
        outcomes = stage.outcomes(number, at)
        sampled = gone or any(draw.rate < 1 for outcome in outcomes for draw in outcome.draws)
        every = torch.cat([to_learn, signs])
        present = stage.play(number, taking_part=True, signs=every, seed=at)
        absent = stage.play(number, taking_part=False, signs=every, seed=at) if sampled else present
        shifts = _shifts(stage, number, other, at, gone=gone)
        found = _learned(outcomes, present, absent, shifts, gone=gone)
        parts = [(rng.random(len(signs)) < draw.rate) & may_take_part for draw in outcomes[0].draws]
        outcome_of = rng.choice(len(outcomes), size=len(signs), p=found.chances)
        for outcome, hearings in enumerate(found.hearings):
            here = outcome_of == outcome
            for hearing, part, there, not_there in zip(
                hearings, parts, present[outcome], absent[outcome], strict=True
            ):
                scores = hearing.scores(_from(there), _from(not_there), part)
                totals += np.where(here, scores, 0.0)
        rounds.append(found)
    out, sent, judged_out, judged_sent = totals.reshape(4, trials)
    return Trials(Scores(out, sent), Scores(judged_out, judged_sent)), tuple(rounds)


def _from(heard: Heard) -> Heard:
    """What was heard in the trials that are scored: those to learn from come first."""
    return {key: values[_LEARNING_TRIALS:] for key, values in heard.items()}


def _shifts(
    stage: Stage, number: int, other: float, seed: int, *, gone: bool
) -> tuple[tuple[dict[Key, float], ...], ...]:
    """By how much the worlds differ, on average, in each vector of every outcome and draw.

    From two plays of a few coordinates with the same noise. It is no secret: it follows from the protocol.
    """
    ones = torch.ones(_SHIFT_TRIALS)
    loud = stage.play(number, taking_part=True, signs=ones, seed=seed)
    quiet = stage.play(number, taking_part=not gone, signs=(1.0 if gone else other) * ones, seed=seed)
    silence = np.zeros(_SHIFT_TRIALS)
    return tuple(
        tuple(
            {key: float((a.get(key, silence) - b.get(key, silence)).mean()) for key in {*a, *b}}
            for a, b in zip(of_loud, of_quiet, strict=True)
        )
        for of_loud, of_quiet in zip(loud, quiet, strict=True)
    )


def _learned(
    outcomes: Sequence[Outcome],
    present: Sequence[Sequence[Heard]],
    absent: Sequence[Sequence[Heard]],
    shifts: Sequence[Sequence[Mapping[Key, float]]],
    *,
    gone: bool,
) -> Round:
    """Tests for every outcome and draw of a round, from trials that are not scored."""
    found = []
    for outcome, of_present, of_absent, of_shifts in zip(outcomes, present, absent, shifts, strict=True):
        hearings = []
        for draw, there, not_there, shift in zip(
            outcome.draws, of_present, of_absent, of_shifts, strict=True
        ):
            keys = tuple(sorted({*there, *not_there}))
            rows = [_rows(_to_learn(heard), keys, _LEARNING_TRIALS) for heard in (not_there, there)]
            out = rows[0] if gone else rows[1]
            sent = out + np.array([shift.get(key, 0.0) for key in keys]).reshape(len(keys), 1)
            test = learned(rows[0], out, sent, rate=draw.rate, seen=draw.seen, gone=gone)
            hearings.append(Hearing(draw, keys, test))
        found.append(tuple(hearings))
    return Round(tuple(outcome.chance for outcome in outcomes), tuple(found))


def _to_learn(heard: Heard) -> Heard:
    return {key: values[:_LEARNING_TRIALS] for key, values in heard.items()}


def _rows(heard: Heard, keys: tuple[Key, ...], trials: int) -> FloatArray:
    """``[d, trials]``; zeros for what was not sent."""
    silence = np.zeros(trials)
    return np.array([heard.get(key, silence) for key in keys]).reshape(len(keys), trials)
