"""The rule for persons against steps with the library's own draws: an attack stays within (ε, δ).

Batches are those of `plan_poisson`. All rows of one person are canaries, who push as far as a clipped
gradient can; nobody else pushes. An attacker who knows everything but the draws tests "with the person"
against "without" by the exact likelihood ratio. Rates are bounded as in `test_record_simulation`, at an
error below 1e-6 a test.
"""

import math

import numpy as np
import pytest
from scipy import stats
from test_record_simulation import DELTA, lower, upper

from sfumato.learning.batches import plan_poisson
from sfumato.privacy.accountant import compose
from sfumato.privacy.records import BatchFacts, RecordCharge, releases_by_batches
from sfumato.privacy.release import DrawnReleases, Exposure, Release
from sfumato.privacy.sampling import Sampling

TRIALS, PERSONS, ROUNDS = 120_000, 5, 6


def reported(sigma, batch, neighbours):
    """The curve that the library reports of a person: R2, one local step a message, sensitivity C/b."""
    release = Release("", "", 1.0, 0.0, sigma**2, True)
    drawn = DrawnReleases(Sampling(), (release,), ROUNDS)
    rate = batch / PERSONS
    batches = BatchFacts(np.array([rate]), ((0.5,),), ((1.0,),), clips_examples=True)
    parts = tuple(releases_by_batches(drawn, batches))
    charge = RecordCharge(rate, parts, "", neighbours, what="person")
    return compose(charge.ways(Exposure("flow", (drawn,)))[0].terms, neighbours=neighbours)


def canaries_in_steps(rng, batch, rows, *, by_person):
    """How many rows of person 0 are in each step of each trial, ``[trials, rounds]``.

    Every person has ``rows`` rows. Without ``by_person`` rows are drawn by themselves, at the same rate.
    """
    plan = plan_poisson(
        [np.arange(PERSONS * rows)],
        steps=TRIALS * ROUNDS,
        batch_size=batch if by_person else batch * rows,
        rngs=[rng],
        persons=[np.arange(PERSONS + 1) * rows] if by_person else None,
    )
    filled = np.arange(plan.width) < plan.counts[0].numpy()[:, None]
    return ((plan.rows[0].numpy() < rows) & filled).sum(axis=1).reshape(TRIALS, ROUNDS)


def proven_excess(curve, chances, moves, other, sigma, drawn, rng):
    """The largest excess over (ε, δ(ε)) and the largest share of the reported ε that the attack proves.

    Args:
        curve: reported.
        chances: of each number of the person's rows in a step.
        moves: of a message, by that number.
        other: the same in the other world.
        sigma: of the noise.
        drawn: numbers of the person's rows in the steps of each trial.
        rng: of the noise.
    """

    def ratios(shifts):
        seen = shifts + sigma * rng.standard_normal(shifts.shape)
        laws = [
            (chances * np.exp(-((seen[..., None] - at) ** 2) / (2 * sigma**2))).sum(axis=-1)
            for at in (moves, other)
        ]
        return np.log(laws[0] / laws[1]).sum(axis=1)

    worlds = ratios(moves[drawn]), ratios(other[drawn])
    half, excess, share = TRIALS - TRIALS // 2, -math.inf, 0.0
    for sign, (one, two) in ((1, worlds[::-1]), (-1, worlds)):
        for quantile in (0.5, 0.9, 0.97, 0.99, 0.997):
            level = np.quantile(sign * one[: TRIALS // 2], quantile)
            alarms = int((sign * one[TRIALS // 2 :] > level).sum())
            finds = int((sign * two[TRIALS // 2 :] > level).sum())
            for epsilon in (0.1, 0.5, 1.0, 2.0):
                found = lower(finds, half) - math.exp(epsilon) * upper(alarms, half)
                excess = max(excess, found - curve.delta(epsilon))
            above = lower(finds, half) - DELTA
            if above > 0:
                share = max(share, math.log(above / upper(alarms, half)) / curve.epsilon(DELTA))
    return excess, share


@pytest.mark.parametrize("neighbours", ["zero-out", "replace"])
@pytest.mark.parametrize("rows", [1, 4])
def test_a_person_s_rows_together_tell_no_more_than_is_reported(rows, neighbours):
    rng, sigma = np.random.default_rng(3), 1.0
    drawn = canaries_in_steps(rng, 1, rows, by_person=True)
    assert drawn.max() == 1  # however many rows a person has
    moves = np.array([0.0, 1.0])
    other = -moves if neighbours == "replace" else 0 * moves
    chances = np.array([1 - 1 / PERSONS, 1 / PERSONS])
    excess, share = proven_excess(reported(sigma, 1, neighbours), chances, moves, other, sigma, drawn, rng)
    print(f"{rows} rows, {neighbours}: {share:.0%} of the reported ε is proven")
    assert excess <= 0
    assert share > 0.6


def test_rows_that_are_drawn_by_themselves_tell_more_of_a_person():
    """The same rate of every row, without the rule of one row a person: the reported ε is refuted."""
    rng, sigma, rows = np.random.default_rng(4), 1.0, 4
    drawn = canaries_in_steps(rng, 1, rows, by_person=False)
    assert drawn.max() > 1
    numbers = np.arange(rows + 1)
    chances = stats.binom.pmf(numbers, rows, 1 / PERSONS)
    curve = reported(sigma, 1, "zero-out")
    excess, share = proven_excess(curve, chances, 1.0 * numbers, 0.0 * numbers, sigma, drawn, rng)
    assert excess > 0
    assert share > 1
