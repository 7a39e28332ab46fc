"""Times of secure aggregation and elections: what is played and added up. No time of a machine is tested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sfumato.errors import SpecError
from sfumato.secure_aggregation.session import SessionOutcome, aggregate
from sfumato.spec.load import load_spec
from sfumato.studies.measures import timings
from sfumato.studies.measures.computing import measure_spec
from sfumato.studies.measures.registry import MEASURES

SPEC: dict[str, Any] = {
    "name": "zones", "protocol": "hdp", "data": {"source": "digits"}, "model": {"kind": "softmax"},
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": [3, 4, 4]},
    "training": {"rounds": 1, "local_epochs": 1, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0},
                "noise": {"multiplier": 1.0, "placement": {"edge": 1.0}}},
}  # fmt: skip
PARAMETERS = 65 * 10


def by_series(name: str, spec: dict[str, Any] = SPEC) -> dict[str, float]:
    return {one.series: one.value for one in measure_spec(name, load_spec(spec))}


def test_zones_are_added_up_and_the_largest_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(parties: int, length: int) -> tuple[float, float, float]:
        assert length == PARAMETERS
        return float(parties), 10.0 * parties, 100.0 * parties

    monkeypatch.setattr(timings, "_session_cost", cost)
    assert by_series("aggregation_seconds") == {
        "a client": 4, "a supernode": 40, "one zone": 400, "all zones": 300 + 2 * 400
    }  # fmt: skip
    monkeypatch.setattr(timings, "_election_time", lambda parties: 7.0 * parties)
    assert by_series("election_seconds") == {"one zone": 28, "all zones": 7 * (3 + 4 + 4)}


def test_a_session_of_all_parties_is_played_and_its_bytes_are_those_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played: list[SessionOutcome] = []

    def recorded(*arguments: Any) -> SessionOutcome:
        played.append(aggregate(*arguments))
        return played[-1]

    monkeypatch.setattr(timings, "aggregate", recorded)
    found = by_series("aggregation_seconds")
    assert len(played) == 2 * timings.REPEATS  # a zone of 3 and one of 4
    for outcome in played:
        assert outcome.rejected == ()
        assert (outcome.total == len(outcome.survivors)).all()
        assert len(outcome.total) == PARAMETERS
    of_three, of_four = (
        next(sum(o.bytes_up) + sum(o.bytes_down) for o in played if len(o.survivors) == size)
        for size in (3, 4)
    )
    of_clients, sent_on = of_three + 2 * of_four, 3 * 4 * PARAMETERS
    assert by_series("aggregation_megabytes") == {
        "all clients": pytest.approx(of_clients / 1e6),
        "with what supernodes send on": pytest.approx((of_clients + sent_on) / 1e6),
    }
    overhead = of_clients - (3 + 4 + 4) * 4 * PARAMETERS
    assert by_series("aggregation_overhead_megabytes") == {"": pytest.approx(overhead / 1e6)}
    assert overhead > 0
    whole = sorted(sum(o.client_seconds) + o.server_seconds for o in played if len(o.survivors) == 4)
    assert found["one zone"] == whole[1]
    assert found["a client"] == sorted(sum(o.client_seconds) / 4 for o in played if len(o.survivors) == 4)[1]


def test_an_election_is_held_and_the_middle_time_of_three_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.election.session import Election, elect

    held: list[Election] = []
    clock: Iterator[float] = iter([0, 5, 10, 11, 20, 22])  # 5, 1 and 2 s

    def recorded(*arguments: Any) -> Election:
        held.append(elect(*arguments))
        return held[-1]

    monkeypatch.setattr(timings, "elect", recorded)
    monkeypatch.setattr(timings.time, "process_time", lambda: next(clock))
    topology = {"kind": "tree", "edges": 2, "devices_per_edge": 3}
    assert by_series("election_seconds", SPEC | {"topology": topology}) == {"one zone": 2, "all zones": 4}
    assert [len(one.result.order) for one in held] == [3, 3, 3]


def test_times_have_intervals_over_seeds_and_bytes_need_none() -> None:
    assert not MEASURES["aggregation_seconds"].is_exact
    assert not MEASURES["election_seconds"].is_exact
    assert MEASURES["aggregation_megabytes"].is_exact


@pytest.mark.parametrize("measure", ["aggregation_seconds", "aggregation_megabytes", "election_seconds"])
def test_zones_that_cannot_be_timed_are_refused(measure: str) -> None:
    some = SPEC["training"] | {"participation": {"kind": "poisson", "rate": 0.5}}
    with pytest.raises(SpecError, match=r"training\.participation: got 'poisson'; must be all"):
        by_series(measure, SPEC | {"training": some})
    two = {"kind": "tree", "edges": 2, "devices_per_edge": [2, 4]}
    with pytest.raises(SpecError, match=r"topology\.devices_per_edge: got 2; must be at least 3"):
        by_series(measure, SPEC | {"topology": two})
