"""Whoever computes ε from the figures in a row's sentence gets the row."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from air_specs import air_spec
from moving_trees import random_moves, random_record_moves
from oracle_random_groups import random_groups, random_groups_with_some_trust
from oracle_random_trees import random_tree
from scipy import optimize, stats
from slow import first_quick

from sfumato.accounting import account, pair_guarantee
from sfumato.errors import SpecError
from sfumato.privacy.guarantee import Guarantee
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec

NOT_COMPLETE = ("at least", "not written out", "by a draw of", "in both worlds", "not below δ")
TERM = re.compile(r"([\d,]+) (?:of|rounds?)\b.*? at multiplier ([\d.,e+-]*\d)")
MOVED = re.compile(r"each moved with probability ([\d.e-]+), (seen|unseen)$")
ROUNDING = 5e-4  # of figures with four digits
GRID, ROUNDED_AND_GRID = 2e-3, 2e-2
MOST_EPSILON = {"gdp": 100.0, "pld": 8.0}
MOST_COMPOSED = 1


@dataclass(frozen=True)
class Term:
    count: int
    multiplier: float
    probability: float
    seen: bool

    def rounded(self, sign: int) -> Term:
        """The largest (1) or the smallest (-1) privacy loss that is written like this."""
        probability = min(1.0, self.probability * (1 + sign * ROUNDING)) if self.probability < 1 else 1.0
        return Term(self.count, self.multiplier * (1 - sign * ROUNDING), probability, self.seen)


def terms_of(why: str) -> list[Term]:
    found = []
    for clause in why.split("charged ", 1)[1].split("; "):
        moved = MOVED.search(clause)
        probability, seen = (float(moved[1]), moved[2] == "seen") if moved else (1.0, True)
        for count, multiplier in TERM.findall(clause):
            found.append(
                Term(int(count.replace(",", "")), float(multiplier.replace(",", "")), probability, seen)
            )
    return found


def of_gaussians(terms: list[Term], delta: float) -> float:
    """ε of Gaussians and of visible mixtures: δ is the mean over how often each of the terms moves."""
    counts = [range(term.count + 1) if term.probability < 1 else (term.count,) for term in terms]
    outcomes = [
        (
            math.prod(stats.binom.pmf(n, t.count, t.probability) for n, t in zip(ns, terms, strict=True)),
            math.sqrt(sum(n / t.multiplier**2 for n, t in zip(ns, terms, strict=True))),
        )
        for ns in itertools.product(*counts)
    ]
    weights, mus = np.array([(p, mu) for p, mu in outcomes if mu > 0]).T

    def excess(epsilon: float) -> float:
        logs = stats.norm.logcdf(-epsilon / mus - mus / 2) + epsilon
        deltas = stats.norm.cdf(-epsilon / mus + mus / 2) - np.exp(np.minimum(logs, 0.0))
        return float(weights @ deltas) - delta

    return 0.0 if excess(0.0) <= 0 else float(optimize.brentq(excess, 0.0, 1e4, xtol=1e-9))


def of_sampled(terms: list[Term], delta: float, grid: float) -> float:
    """ε of sampled Gaussians by Google's dp_accounting."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    composed = pld.identity(value_discretization_interval=grid)
    for term in terms:
        one = pld.from_gaussian_mechanism(
            term.multiplier, sampling_prob=term.probability, value_discretization_interval=grid
        )
        composed = composed.compose(one.self_compose(term.count))
    return float(composed.get_epsilon_for_delta(delta))


def check(terms: list[Term], row: Guarantee, delta: float) -> None:
    """The row is what the terms give, but for the rounding of their figures and a grid."""
    least, most = ([term.rounded(sign) for term in terms] for sign in (-1, 1))
    if row.method == "gdp":
        low, high = of_gaussians(least, delta) * (1 - GRID), of_gaussians(most, delta) * (1 + GRID)
    else:
        high = of_sampled(most, delta, max(1e-3, row.epsilon / 1000)) * (1 + GRID)
        low = high * (1 - ROUNDED_AND_GRID)
    assert low <= row.epsilon <= high + 1e-9, (row.epsilon, low, high, row.why)


def random_documents(batch: int) -> Iterator[dict]:
    for number in range(3):
        rng = Random(f"sentences/{batch}/{number}")
        kind = (batch + number) % 6
        makers = (
            random_tree,
            random_groups,
            random_groups_with_some_trust,
            random_moves,
            random_record_moves,
        )
        document = makers[min(kind, 4)](rng)
        document["privacy"]["delta"] = rng.choice((1e-5, 1e-3))
        if kind not in (3, 4) and rng.random() < 0.7:
            document["training"]["participation"] = {"kind": "poisson", "rate": rng.choice((0.1, 0.3, 0.7))}
        if kind in (1, 2, 5) and rng.random() < 0.4:
            document["privacy"]["unit"] = "record"
            if document["protocol"] != "ms-fedavg" and "batches" not in document["training"]:
                document["training"]["batches"] = "poisson"
        if kind == 4:
            document["privacy"]["unit"] = "record"
        yield document


def rows_of(document: dict, rng: Random) -> Iterator[Guarantee]:
    """Some rows of one unit."""
    try:
        plan = resolve(load_spec(document))
    except SpecError:
        return
    device = rng.randrange(plan.parties.device_count)
    pairs = list(plan.releases.pair_classes(device))
    for pair in rng.sample(pairs, min(4, len(pairs))):
        observer = plan.releases.party_name(pair.observer)
        yield pair_guarantee(
            plan, f"{plan.spec.privacy.unit}:{device}", observer, delta=plan.spec.privacy.delta
        )


@pytest.mark.parametrize("batch", first_quick(range(40), 5, 14))
def test_epsilon_follows_from_the_sentence(batch):
    rng = Random(f"sentences/{batch}")
    composed = 0
    for document in random_documents(batch):
        for row in rows_of(document, rng):
            if not 0.05 < row.epsilon < MOST_EPSILON[row.method]:
                continue
            assert "charged " in row.why, row.why
            if any(words in row.why for words in NOT_COMPLETE):
                continue
            terms = terms_of(row.why)
            assert terms, row.why
            composed += row.method == "pld"
            visible = any(term.seen and term.probability < 1 for term in terms)
            if row.method == "pld" and (visible or composed > MOST_COMPOSED):
                continue  # dp_accounting has no visible mixtures, and takes its time
            off = re.search(r"nothing protects with probability ([\d.e-]+), which is taken off", row.why)
            check(terms, row, row.delta - (float(off[1]) if off else 0.0))


def test_the_ring_of_the_issue():
    """A mixture over participations: 4 by itself, 4.437 without the draws."""
    spec = {
        "name": "ring",
        "protocol": "dp-ogl",
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "groups", "structure": "global", "devices": 4},
        "training": {
            "rounds": 6,
            "local_steps": 1,
            "batch_size": 4,
            "learning_rate": 0.1,
            "participation": {"kind": "poisson", "rate": 0.7},
        },
        "trust": {"trusted_aggregators": []},
        "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.421}},
    }
    report = account(load_spec(spec), unit="device:0", observer="master:0")
    (row,) = report.guarantees
    (term,) = terms_of(row.why)
    assert (term.count, term.multiplier, term.probability, term.seen) == (6, 2.421, 0.7, True)
    assert of_gaussians([Term(6, 2.421, 1.0, True)], row.delta) > row.epsilon * 1.05
    assert of_gaussians([term], row.delta) == pytest.approx(row.epsilon, rel=1e-3)


def test_records_over_the_air_are_drawn():
    """Their device's participation may be charged instead; its batches are not shuffled all the same."""
    training = {"batches": "poisson", "batch_size": 15}
    for row in account(air_spec(training=training, privacy={"unit": "record"})).guarantees:
        assert "shuffled" not in row.why
        assert "counting how rarely the record is drawn gives no less" in row.why
