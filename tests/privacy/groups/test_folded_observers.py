"""Rows of large networks stand for observers that see no more than theirs, and for no others."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

import sfumato as sf
from sfumato.privacy.accountant import MOST_ABOVE
from sfumato.privacy.groups import folded_observers
from sfumato.privacy.groups.folded_observers import may_fold, wider_kinds
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import GroupStructure
from sfumato.privacy.observers import Party
from sfumato.spec.load import load_spec


def random_releases(draw: random.Random, owner: str = "master") -> GroupReleases:
    """Three to five groups of two to six of seven workers; some workers are in groups of another only."""
    count, workers, every = draw.randint(3, 5), 7, draw.randint(1, 3)
    groups = tuple(tuple(sorted(draw.sample(range(workers), draw.randint(2, 6)))) for _ in range(count))
    rates = tuple(draw.choice((1.0, 0.6)) for _ in range(count))
    return GroupReleases(
        draw.choice(("dp-ogl", "dp-ogl-local")),  # type: ignore[arg-type]
        workers,
        (GroupStructure(1, groups),),
        draw.randint(every + 1, 3 * every + 1),
        every,
        (1.0,) * count,
        (draw.choice((0.7, 2.0)),) * count,
        rates,
        noise_owner=(owner,) * count,  # type: ignore[arg-type]
        rows_may_fold=True,
    )


def pairs_of_observers(releases: GroupReleases) -> list[tuple[int, int, int]]:
    """Every unit with two other workers, of whom the second is in groups of the first only."""
    inside = releases.kinds.incidence[0][releases.kinds.of]
    workers = range(releases.device_count)
    return [
        (unit, a, b)
        for unit in workers
        for a in workers
        for b in workers
        if len({unit, a, b}) == 3 and not (inside[b] & ~inside[a]).any()
    ]


def charges(releases: GroupReleases, unit: int, *observers: int) -> list[Any]:
    coalition = [Party("device", 0, observer) for observer in observers]
    return [exposure.without_names for exposure in releases.exposures(unit, coalition)]


def test_one_more_worker_of_the_same_groups_changes_no_charge() -> None:
    """What holds towards the first holds towards both together, and so towards the second."""
    draw, compared = random.Random("observers"), 0
    for _ in range(25):
        releases = random_releases(draw)
        assert may_fold(releases)
        for unit, a, b in pairs_of_observers(releases):
            assert charges(releases, unit, a, b) == charges(releases, unit, a)
            flow, *_ = releases.exposures(unit, [Party("device", 0, b)])
            assert flow.release_count <= releases.exposures(unit, [Party("device", 0, a)])[0].release_count
            compared += 1
    assert compared > 200


def test_members_of_a_cohort_would_charge_more() -> None:
    """Why a fixed number of workers that are drawn is left out: a member knows whether it was drawn."""
    draw, more = random.Random("cohorts"), 0
    for _ in range(10):
        found = random_releases(draw)
        releases = replace(found, cohort=(2,) * found.group_count, rate=(1.0,) * found.group_count)
        assert not may_fold(releases)
        for unit, a, b in pairs_of_observers(releases):
            more += charges(releases, unit, a, b) != charges(releases, unit, a)
    assert more


GROUPS: dict[str, Any] = {
    "name": "groups",
    "protocol": "dp-ogl",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {
        "kind": "groups",
        "structure": "list",
        "groups": [[0, 1, 2, 3], [2, 3, 4, 5], [3, 5, 6], [6, 7, 8], [0, 3, 8]],
    },
    "training": {
        "rounds": 6, "local_steps": 2, "merge_every": 2, "batch_size": 5, "learning_rate": 0.2,
        "participation": {"kind": "poisson", "rate": 0.7},
    },
    "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 1.5}},
}  # fmt: skip
RING = GROUPS | {"topology": {"kind": "groups", "structure": "ring", "groups": 6, "devices": 24}}


@pytest.mark.parametrize("document", [GROUPS, RING])
def test_rows_stand_for_all_pairs_and_none_of_these_has_a_larger_epsilon(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = load_spec(document)
    one_by_one = sf.account(spec)
    assert all(row.kinds == 1 for row in one_by_one.guarantees)
    monkeypatch.setattr(folded_observers, "MOST_PAIRS", 0)
    folded = sf.account(spec)
    assert len(folded.guarantees) < len(one_by_one.guarantees)
    several = [row for row in folded.guarantees if row.kinds > 1]
    assert several
    assert all(row.least_known is None and "epsilon_range" not in row.to_dict() for row in several)
    unprotected = [
        sum(row.stands_for for row in report.guarantees if math.isinf(row.epsilon))
        for report in (one_by_one, folded)
    ]
    assert unprotected[0] == unprotected[1]
    exact = {(row.unit, row.observer): row.epsilon for row in one_by_one.guarantees}
    for row in folded.guarantees:
        assert folded.epsilon(row.unit, row.observer) == row.epsilon
        least = exact.get((row.unit, row.observer), row.epsilon)
        assert math.isinf(least) or least * (1 - 1e-9) <= row.epsilon <= least * (1 + MOST_ABOVE)
    for unit in {row.unit for row in one_by_one.guarantees}:
        for words in {row.relation.words for row in one_by_one.guarantees}:
            alone, together = (
                [row for row in report.guarantees if (row.unit, row.relation.words) == (unit, words)]
                for report in (one_by_one, folded)
            )
            assert sum(row.stands_for for row in alone) == sum(row.stands_for for row in together)
            if alone:
                assert max(r.epsilon for r in alone) <= max(r.epsilon for r in together) * (1 + 1e-9)


def test_a_pair_that_is_asked_for_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_spec(GROUPS)
    wanted = sf.account(spec, unit="device:1").guarantees
    monkeypatch.setattr(folded_observers, "MOST_PAIRS", 0)
    found = sf.account(spec, unit="device:1").guarantees
    assert [(row.observer, row.stands_for, row.kinds) for row in found] == [
        (row.observer, row.stands_for, 1) for row in wanted
    ]
    for mine, theirs in zip(found, wanted, strict=True):
        assert theirs.epsilon == math.inf or mine.epsilon <= theirs.epsilon * (1 + MOST_ABOVE)


ELSEWHERE: dict[str, dict[str, Any]] = {
    "cohorts": {"training": GROUPS["training"] | {"participation": {"kind": "fixed", "count": 2}}},
    "noise of devices": {"trust": {"trusted_aggregators": []}},
    "a group without noise": {
        "privacy": GROUPS["privacy"] | {"noise": {"multiplier": [1.5, 1.5, 1.5, 1.5, 0.0]}}
    },
    "masked sums": {"transport": {"devices_to_master": "secure-aggregation"}},
    "records": {
        "training": GROUPS["training"] | {"batches": "poisson"},
        "privacy": GROUPS["privacy"] | {"unit": "both"},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE)
def test_nobody_stands_for_others_where_the_rule_is_not_derived(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folded_observers, "MOST_PAIRS", 0)
    report = sf.account(load_spec(GROUPS | ELSEWHERE[name]))
    assert all(row.kinds == 1 for row in report.guarantees)


def test_wider_kinds_are_in_all_groups_of_a_kind_and_in_others() -> None:
    draw = random.Random("wider")
    for _ in range(20):
        kinds = random_releases(draw).kinds
        groups = [set(rows[0]) for rows in kinds.groups]
        for kind, wider in enumerate(wider_kinds(kinds)):
            expected = [k for k, theirs in enumerate(groups) if groups[kind] and groups[kind] < theirs]
            assert wider == expected
