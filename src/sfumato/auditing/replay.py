"""Thousands of trials of a whole training, by replaying its releases with a worst-case target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sfumato.auditing.attack import RoundTest, learned
from sfumato.auditing.stage import Heard, Key, Stage, UnitDraw
from sfumato.auditing.tradeoff import Scores
from sfumato.privacy.relation import Neighbours
from sfumato.random import Stream, generator, seed_at

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
_LEARNING_TRIALS = 2048


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


def other_world(neighbours: Neighbours) -> float:
    """What the unit sends in the other world, in units of the largest message: nothing, or the opposite."""
    return 0.0 if neighbours == "zero-out" else -1.0


def replayed(
    stage: Stage, hearings: Sequence[Hearing], neighbours: Neighbours, *, trials: int, seed: int
) -> Trials:
    """Play all rounds in both worlds, ``trials`` times each to hold out and as often to judge.

    Where participants are drawn, each trial draws by itself whether the unit takes part.
    """
    other = other_world(neighbours)
    signs = torch.tensor([other, 1.0]).repeat_interleave(trials).repeat(2)
    totals, rng = np.zeros(len(signs)), generator(seed, Stream.AUDIT, 0)
    sampled = any(draw.rate < 1 for draw in stage.draws)
    for number in range(stage.rounds):
        at = seed_at(seed, Stream.AUDIT, 1, number)
        present = stage.play(number, taking_part=True, signs=signs, seed=at)
        absent = stage.play(number, taking_part=False, signs=signs, seed=at) if sampled else present
        for hearing, there, not_there in zip(hearings, present, absent, strict=True):
            part = rng.random(len(signs)) < hearing.draw.rate
            totals += hearing.scores(there, not_there, part)
    out, sent, judged_out, judged_sent = totals.reshape(4, trials)
    return Trials(Scores(out, sent), Scores(judged_out, judged_sent))


def learned_hearings(stage: Stage, neighbours: Neighbours, *, seed: int) -> tuple[Hearing, ...]:
    """A test for each draw, from plays of the first round: the noise is the same in both worlds."""
    ones, other, seed = (
        torch.ones(_LEARNING_TRIALS),
        other_world(neighbours),
        seed_at(seed, Stream.AUDIT, 2),
    )
    out = stage.play(0, taking_part=True, signs=other * ones, seed=seed)
    sent = stage.play(0, taking_part=True, signs=ones, seed=seed)
    absent = out
    if any(draw.rate < 1 for draw in stage.draws):
        absent = stage.play(0, taking_part=False, signs=ones, seed=seed)
    found = []
    for draw, not_there, quiet, loud in zip(stage.draws, absent, out, sent, strict=True):
        keys = tuple(sorted(quiet))
        rows = [_rows(heard, keys, _LEARNING_TRIALS) for heard in (not_there, quiet, loud)]
        found.append(Hearing(draw, keys, learned(*rows, rate=draw.rate, seen=draw.seen)))
    return tuple(found)


def _rows(heard: Heard, keys: tuple[Key, ...], trials: int) -> FloatArray:
    """``[d, trials]``; zeros for what was not sent."""
    silence = np.zeros(trials)
    return np.array([heard.get(key, silence) for key in keys]).reshape(len(keys), trials)
