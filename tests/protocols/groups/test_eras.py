"""Groups whose members change: trained as the groups of each era are, accounted for over all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import account
from sfumato.auditing import audit
from sfumato.data.partition import Partition
from sfumato.engine.base import EngineSettings
from sfumato.engine.local import LocalEngine
from sfumato.errors import SpecError
from sfumato.learning.parameters import ParameterLayout
from sfumato.privacy.observers import Party
from sfumato.protocols.groups.base import GroupedProtocol
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.participation import colluders_that_unmask
from sfumato.schedule.resolve.groups import resolve_groups
from sfumato.spec.load import load_spec
from sfumato.verify.spec_facts import spec_problems

FIRST = [[0, 1, 2, 3], [2, 3, 4, 5], [0, 5, 6, 2]]
LATER = [[0, 1, 2], [3, 4, 5, 6], [0, 1, 5, 6, 2]]
ROUNDS = 8


def spec_of(
    protocol: str = "dp-ogl", *, groups: Any = FIRST, eras: Any = (), **sections: Any
) -> dict[str, Any]:
    return {
        "name": "eras",
        "protocol": protocol,
        "seed": 11,
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "groups", "structure": "list", "groups": groups, "eras": list(eras)},
        "training": {
            "rounds": ROUNDS,
            "local_steps": 2,
            "batch_size": 4,
            "learning_rate": 0.2,
            "merge_every": 1 if protocol == "ms-fedavg" else 2,
            "participation": {"kind": "poisson", "rate": 0.7},
        },
        "privacy": {"clip": {"kind": "update", "norm": 0.3}, "noise": {"multiplier": 0.5}},
    } | sections


def plan_of(*, later: Any = LATER, start: int = 5, **sections: Any) -> GroupPlan:
    return resolve_groups(load_spec(spec_of(eras=[{"from_round": start, "groups": later}], **sections)))


@pytest.fixture(scope="module")
def start() -> torch.Tensor:
    return torch.randn(18, generator=torch.Generator().manual_seed(1))


def protocol_of(plan: GroupPlan) -> GroupedProtocol:
    rng = np.random.default_rng(5)
    partition = Partition(np.arange(70), np.arange(0, 71, 10, dtype=np.int64))
    features = torch.from_numpy(rng.normal(size=(70, 5))).float()
    labels = torch.from_numpy(rng.integers(0, 3, 70))
    model = nn.Linear(5, 3)
    engine = LocalEngine(model, features, labels, EngineSettings("cpu", 1, 64 << 20))
    return GroupedProtocol(plan, engine, partition, ParameterLayout.of(model).total)


@pytest.mark.parametrize("protocol", ["dp-ogl", "dp-ogl+", "dp-ogl-local", "ms-fedavg"])
def test_every_era_is_trained_as_its_groups_alone(protocol: str, start: torch.Tensor) -> None:
    """Rounds 1 to 4 with the first groups, 5 to 8 with the later ones from the same state: the same bytes."""
    changing = protocol_of(plan_of(protocol=protocol))
    before = protocol_of(resolve_groups(load_spec(spec_of(protocol))))
    after = protocol_of(resolve_groups(load_spec(spec_of(protocol, groups=LATER))))
    state = expected = changing.initial(start)
    for number in range(ROUNDS):
        state, stats = changing.run_round(state)
        one = before if number < 4 else after
        expected, wanted = one.run_round(expected)
        assert torch.equal(state.models, expected.models)
        assert np.array_equal(stats.participants, wanted.participants)
        for name in ("clip_fraction", "noise_std", "energy_j", "delay_s", "bytes_up", "bytes_down"):
            assert getattr(stats, name) == pytest.approx(getattr(wanted, name), nan_ok=True)
        assert torch.equal(changing.personalised(state), one.personalised(expected))
        assert torch.equal(changing.model(state), one.model(expected))


def test_a_change_that_changes_nothing_changes_nothing(start: torch.Tensor) -> None:
    changing = protocol_of(plan_of(later=FIRST, start=4))
    steady = protocol_of(resolve_groups(load_spec(spec_of())))
    state, expected = changing.initial(start), steady.initial(start)
    for _ in range(ROUNDS):
        (state, _), (expected, _) = changing.run_round(state), steady.run_round(expected)
    assert torch.equal(state.models, expected.models)


def test_a_worker_is_charged_for_the_rounds_in_which_it_was_there() -> None:
    """Worker 1 joins group 2 with round 5: the trusted master of group 2 has four messages of it."""
    plan = plan_of(training=spec_of()["training"] | {"participation": {"kind": "all"}, "merge_every": 1})
    assert [era.first_epoch for era in plan.releases.eras] == [1, 5]
    assert plan.releases.eras[1].groups == tuple(map(tuple, map(sorted, LATER)))
    flow = plan.releases.exposures(1, (Party("node", 1, 2),))[0]
    assert {r.name: n for r, n in flow.counted_releases if r.own_sensitivity}["group 2"] == 4
    assert plan.trusts(Party("node", 1, 2), 1)
    report = account(plan.spec, unit="device:1", observer="master:2")
    assert report.guarantees[0].epsilon == float("inf")
    later = account(plan.spec, unit="device:4", observer="device:1").guarantees[0].epsilon
    never = account(load_spec(spec_of()), unit="device:4", observer="device:1").guarantees[0].epsilon
    assert 0 < later != never


def test_the_smallest_session_decides_how_many_unmask() -> None:
    plan = plan_of(transport={"devices_to_master": "secure-aggregation"}, trust={"trusted_aggregators": []})
    assert plan.releases.unmask_thresholds == tuple(
        colluders_that_unmask(None, n, drawn=True) for n in (3, 4, 4)
    )


def test_units_are_told_apart_by_the_groups_of_all_eras() -> None:
    plan = plan_of()
    assert sum(units.count for units in plan.releases.units_outside(set())) == 7
    assert sorted(units.unit for units in plan.releases.units_outside(set())) == list(range(7))
    assert plan.raw_to_trusted_edge == 7


def test_a_resolved_spec_resolves_to_itself() -> None:
    plan = plan_of()
    again = resolve_groups(load_spec(plan.spec.model_dump(mode="json", by_alias=True)))
    assert again.spec == plan.spec
    assert again.releases == plan.releases


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        ({"eras": [{"from_round": 5, "groups": LATER[:2]}]}, "eras[0].groups", "must list 3 groups"),
        (
            {"eras": [{"from_round": 5, "groups": [LATER[0], [3, 4, 5], [0, 1]]}]},
            "eras[0].groups",
            "worker 6",
        ),
        ({"eras": [{"from_round": 5, "groups": [[0], *LATER[1:]]}]}, "eras[0].groups[0]", "at least two"),
        ({"eras": [{"from_round": 5, "groups": [[0, 9], *LATER[1:]]}]}, "eras[0].groups[0]", "no worker"),
        ({"eras": [{"from_round": 1, "groups": LATER}]}, "eras[0].from_round", "2"),
        (
            {"eras": [{"from_round": 5, "groups": LATER}, {"from_round": 5, "groups": FIRST}]},
            "eras[1].from_round",
            "after round 5",
        ),
        (
            {"protocol": "dp-ogl-local", "eras": [{"from_round": 4, "groups": LATER}]},
            "eras[0].from_round",
            "multiple of merge_every, 2",
        ),
        (
            {"eras": [{"from_round": 5, "groups": LATER}], "radio": {"distances_m": [10.0] * 12}},
            "distances_m",
            "one for each membership",
        ),
    ],
)
def test_changes_that_do_not_fit_are_refused(changes: dict[str, Any], place: str, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        resolve_groups(load_spec(spec_of(**changes)))
    assert place in str(refused.value)
    assert said in str(refused.value)


def test_the_checker_compares_the_eras_with_the_spec() -> None:
    plan = plan_of()
    spec, ledger = plan.spec.model_dump(mode="json", by_alias=True), plan.releases.to_dict()
    assert list(spec_problems(spec, ledger)) == []
    first, later = ledger["eras"]
    for eras in ([first], [first, later | {"first_epoch": 7}], [first, first | {"first_epoch": 5}]):
        assert any(
            "eras begin" in p or "from round 5" in p for p in spec_problems(spec, ledger | {"eras": eras})
        )


def test_changing_groups_are_not_audited() -> None:
    with pytest.raises(SpecError, match="rounds with other groups are not alike"):
        audit(plan_of().spec, observers=("device:1",), trials=100)
