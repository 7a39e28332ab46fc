"""Groups that draw a fixed number of workers: who takes part, and what sums are divided by."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from test_eras import FIRST, LATER, ROUNDS, protocol_of, spec_of

from sfumato.protocols.groups.base import GroupedProtocol
from sfumato.schedule.group_participation import draw_assignments
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.resolve.groups import resolve_groups
from sfumato.spec.load import load_spec

COUNTS = [3, 1, 4]


def plan_of(protocol: str = "dp-ogl", *, count: Any = COUNTS, eras: Any = (), **sections: Any) -> GroupPlan:
    document = spec_of(protocol, eras=eras, **sections)
    document["training"] |= {"participation": {"kind": "fixed", "count": count}}
    return resolve_groups(load_spec(document))


def test_every_group_draws_exactly_its_count_every_round() -> None:
    plan = plan_of()
    drawn = [draw_assignments(plan, number) for number in range(200)]
    for number, seats in enumerate(drawn):
        assert np.bincount(seats.groups).tolist() == COUNTS
        for group, members in enumerate(FIRST):
            chosen = seats.workers[seats.groups == group].tolist()
            assert chosen == sorted(set(chosen)), number
            assert set(chosen) <= set(members)


def test_draws_are_uniform_and_those_of_two_groups_are_independent() -> None:
    """Of six pairs of four workers each is drawn as often; two groups draw alike once in six."""
    plan = plan_of(count=2, groups=[[0, 1, 2, 3], [4, 5, 6, 7]])
    drawn = [draw_assignments(plan, number).workers.reshape(2, 2) - [[0], [4]] for number in range(300)]
    pairs = Counter(tuple(of_first) for of_first, _ in np.array(drawn).tolist())
    assert len(pairs) == 6
    assert all(20 < count < 85 for count in pairs.values())
    alike = sum(of_first == of_last for of_first, of_last in np.array(drawn).tolist())
    assert 20 < alike < 85


def test_everybody_is_everybody() -> None:
    """count = size: the bytes of participation all."""
    whole = plan_of(count=4)
    document = spec_of()
    document["training"] |= {"participation": {"kind": "all"}}
    everybody = resolve_groups(load_spec(document))
    start = torch.randn(18, generator=torch.Generator().manual_seed(1))
    one, other = protocol_of(whole), protocol_of(everybody)
    state, expected = one.initial(start), other.initial(start)
    for _ in range(2):
        (state, _), (expected, _) = one.run_round(state), other.run_round(expected)
    assert torch.equal(state.models, expected.models)
    assert not whole.is_sampled


class Heard:
    """Keeps the messages and models of a round."""

    def __init__(self) -> None:
        self.sums: dict[int, torch.Tensor] = {}
        self.workers: dict[int, list[int]] = {}
        self.models: torch.Tensor | None = None

    def sent(self, number: int, group: int, tier: int, workers: Any, vectors: torch.Tensor) -> None:
        self.sums[group] = self.sums.get(group, 0) + vectors.sum(dim=0).clone()
        self.workers.setdefault(group, []).extend(workers.tolist())

    def received(self, number: int, index: int, tier: int, sums: torch.Tensor) -> None:
        pass

    def broadcast(self, number: int, index: int, tier: int, models: torch.Tensor) -> None:
        self.models = models.clone()


@pytest.mark.parametrize("owner", ["master", "devices"])
def test_sums_are_divided_by_the_count(owner: str) -> None:
    """The model moves by the sum of the messages over how many there are."""
    trust = {"trust": {"trusted_aggregators": []}} if owner == "devices" else {}
    plan = plan_of(privacy={"clip": {"kind": "update", "norm": 0.3}, "noise": {"multiplier": 1e-7}}, **trust)
    base = protocol_of(plan)
    heard = Heard()
    protocol = GroupedProtocol(plan, base._engine, base._partition, 18, listener=heard)
    state = protocol.initial(torch.randn(18, generator=torch.Generator().manual_seed(1)))
    for _ in range(3):
        heard.sums, heard.workers, before = {}, {}, state.models
        state, stats = protocol.run_round(state)
        for group, count in enumerate(COUNTS):
            assert len(heard.workers[group]) == count
            moved = heard.models[group] - before[group]
            assert torch.allclose(moved, heard.sums[group] / count, atol=1e-5)
        assert set(stats.participants.tolist()) == {w for found in heard.workers.values() for w in found}


@pytest.mark.parametrize("protocol", ["dp-ogl+", "dp-ogl-local"])
def test_one_draw_serves_an_interval(protocol: str) -> None:
    played = protocol_of(plan_of(protocol))
    state, found = played.initial(torch.zeros(18)), []
    for _ in range(ROUNDS):
        state, stats = played.run_round(state)
        found.append(stats.participants.tolist())
    assert found[0::2] == found[1::2]
    assert len({tuple(who) for who in found}) > 1


def test_the_count_stays_when_the_groups_change() -> None:
    plan = plan_of(count=3, eras=[{"from_round": 5, "groups": LATER}])
    for of_era, members in zip(plan.by_era, (FIRST, LATER), strict=True):
        assert of_era.denominators.tolist() == [3, 3, 3]
        seats = draw_assignments(of_era, 6)
        assert np.bincount(seats.groups).tolist() == [3, 3, 3]
        assert all(w in members[g] for g, w in zip(seats.groups, seats.workers, strict=True))
    assert [plan.releases.draw(0, era).kind for era in (0, 1)] == ["fixed", "all"]
