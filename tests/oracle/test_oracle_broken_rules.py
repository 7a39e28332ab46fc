"""Rules broken on purpose: each makes `account` report less than an attack attains, and that is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from moving_trees import last_trust_throughout, nobody_moves
from oracle_compare import BELOW, compare
from oracle_specs import MASKED_GROUPS, MASKED_ZONES, devices, groups, hdp, star, tree

from sfumato.privacy.groups.exposure_problem import ExposureProblem
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.observers import Party
from sfumato.privacy.tree import elections
from sfumato.privacy.tree.facts import AggregationFacts, TreeFacts, TreeNoise
from sfumato.privacy.tree.moving_pairs import RoundKinds
from sfumato.privacy.tree.moving_releases import MovingReleases
from sfumato.schedule import batches, moves, tree_facts
from sfumato.schedule import groups as group_schedule
from sfumato.schedule.participation import GuaranteedSurvivors


@dataclass(frozen=True)
class Broken:
    """A rule that does not hold, and a pair that it is found by.

    Attributes:
        spec: of the pair.
        unit: number of the device.
        observer: of the pair.
        breaks: what replaces the rule: by object and name.
        record: whether the unit is a record of the device.
    """

    spec: dict[str, Any]
    unit: int
    observer: str
    breaks: tuple[tuple[Any, str, Any], ...]
    record: bool = False


def _first_edge_only(charged: Callable[..., Any]) -> Callable[..., Any]:
    """What an edge learns of a unit that has moved to it is what the public learns."""

    def exposures(self: RoundKinds, unit: int, coalition: tuple[Party, ...]) -> Any:
        kept = tuple(
            Party("public")
            if p.kind == "node" and p.tier and p.index == self.releases.leaf_of(unit) == 1
            else p
            for p in coalition
        )
        return charged(self, unit, kept)

    return exposures


def _eras_once(composed: Callable[..., Any]) -> Callable[..., Any]:
    """An era is charged as one round."""

    def exposures(self: MovingReleases, unit: int, members: tuple[Party, ...]) -> Any:
        return tuple(
            replace(bound, draws=tuple(replace(draw, count=1) for draw in bound.draws))
            for bound in composed(self, unit, members)
        )

    return exposures


def _nobody_elected(*_: Any) -> dict[int, float]:
    return {}


def _everybody_survives(*_: Any, **__: Any) -> GuaranteedSurvivors:
    return GuaranteedSurvivors()


def _nothing_hidden(_: ExposureProblem) -> Counter[tuple[int, int]]:
    return Counter()


def _without_the_observer(*_: Any) -> tuple[Party, ...]:
    return Party("device", 0, 1), Party("device", 0, 2)


def _schedule_of_the_first(self: AggregationFacts, leaf: int) -> bool:
    return self.takes_part is None or bool(self.takes_part[0])


def _masks_hold(variance_if_drawn: Callable[..., Any]) -> Callable[..., Any]:
    """Members in a session with their edge never take the masks off, however few are drawn."""

    def variance(self: TreeNoise, path: Any, coalition: Sequence[Party], number: int, tier: int) -> Any:
        edge = Party("node", self.facts.depth - 1, int(path[-1]))
        return variance_if_drawn(self, path, [party for party in coalition if party != edge], number, tier)

    return variance


DATA = {"source": "synthetic", "examples_per_device": 20}
POISSON = {"rounds": 6, "batch_size": 4, "batches": "poisson"}
MOVED = tree(
    topology={
        "kind": "tree",
        "edges": 2,
        "devices_per_edge": [3, 3],
        "moves": {"trace": [[2, 0, 1]]},
    },
    training={"rounds": 6},
    trust={"from": {0: [0, 1], 4: [0]}},
    privacy={"noise": {"multiplier": 2.0}},
)
MOVED_AND_DRAWN = {
    **MOVED, "training": {**MOVED["training"], "participation": {"kind": "poisson", "rate": 0.3}},
}  # fmt: skip
LINKED_BY_THE_UNIT = groups(
    [[0, 1], [0, *range(2, 62)]],
    data=DATA,
    training={**POISSON, "rounds": 10, "batch_size": 1},
    privacy={"noise": {"multiplier": [0.02, 2.0]}},
)
BROKEN = {
    "nobody is elected": Broken(
        hdp(
            topology={"kind": "tree", "edges": 2, "devices_per_edge": [4, 4], "supernodes": "elected"},
            training={"rounds": 4},
            transport=MASKED_ZONES,
            privacy={"noise": {"multiplier": 1.0, "placement": {"device": 1}}},
        ),
        0,
        "device:1",
        ((elections, "chances_of_office", _nobody_elected),),
    ),
    "masks of a small session": Broken(
        hdp(  # 5 members open a session of 7, which has one device more than them and the unit
            topology={"kind": "tree", "edges": 1, "devices_per_edge": [10]},
            training={"rounds": 1, "participation": {"kind": "poisson", "rate": 0.75}},
            transport=MASKED_ZONES,
            privacy={"noise": {"multiplier": 1.0, "placement": {"device": 1}}},
        ),
        0,
        "edge:0," + devices(*range(1, 6)),
        ((TreeNoise, "variance_if_drawn", _masks_hold(TreeNoise.variance_if_drawn)),),
    ),
    "noise of who dropped out": Broken(
        hdp(
            topology={"kind": "tree", "edges": 1, "devices_per_edge": [6]},
            training={"rounds": 1},
            transport=MASKED_ZONES,
            faults={"dropout_rate": 0.1, "survival_threshold": 0.6},
            privacy={"noise": {"multiplier": 1.0, "placement": {"device": 1}}},
        ),
        0,
        "edge:0",
        ((tree_facts, "guaranteed_survivors_of", _everybody_survives),),
    ),
    "noise of workers who dropped out": Broken(
        groups(
            [list(range(6))],
            training={"rounds": 1},
            transport=MASKED_GROUPS,
            trust={"trusted_aggregators": []},
            faults={"dropout_rate": 0.1, "survival_threshold": 0.6},
        ),
        0,
        "master:0",
        ((group_schedule, "guaranteed_survivors_of", _everybody_survives),),
    ),
    "noise that the observer adds itself": Broken(
        hdp(
            topology={"kind": "tree", "edges": 3, "devices_per_edge": [2, 2, 2]},
            privacy={"noise": {"multiplier": 1.0, "placement": {"edge": 1}}},
        ),
        0,
        "edge:1,edge:2",
        ((TreeFacts, "known_senders", lambda *_: ()),),
    ),
    "other examples that do not answer": Broken(
        star(
            2,
            data=DATA,
            training={**POISSON, "steps_per_round": 2},
            privacy={"clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 4.0}},
        ),
        0,
        "cloud",
        ((batches, "_most_answering", lambda *_: (0, 0.0)),),
        record=True,
    ),
    "the rate of one of several steps": Broken(
        star(
            2,
            data=DATA,
            training={**POISSON, "steps_per_round": 3},
            privacy={"noise": {"multiplier": 4.0}},
        ),
        0,
        "cloud",
        ((batches, "_moved_shares", lambda *_: (1.0,)),),
        record=True,
    ),
    "a draw behind a hidden model": Broken(
        LINKED_BY_THE_UNIT,
        0,
        "device:2",
        ((ExposureProblem, "starts_from_hidden", _nothing_hidden),),
        record=True,
    ),
    "a larger coalition without the observer": Broken(
        groups(
            [[0, 1], [0, 2], [0, 3]],
            data=DATA,
            training={**POISSON, "rounds": 4},
            privacy={"noise": {"multiplier": [50.0, 50.0, 2.0]}},
        ),
        0,
        "device:3",
        ((GroupReleases, "larger_coalition", _without_the_observer),),
        record=True,
    ),
    "nobody moves": Broken(MOVED, 0, "edge:1", ((moves, "trees_over_time", nobody_moves),)),
    "the trust of the last rounds": Broken(
        MOVED, 3, "cloud", ((moves, "trees_over_time", last_trust_throughout),)
    ),
    "the draw of an edge that a device moved to": Broken(
        MOVED_AND_DRAWN, 0, "edge:1", ((RoundKinds, "exposures", _first_edge_only(RoundKinds.exposures)),)
    ),
    "an era that is charged as one round": Broken(
        MOVED,
        0,
        "public",
        ((MovingReleases, "_compute_exposures", _eras_once(MovingReleases._compute_exposures)),),
    ),
    "the schedule of another edge": Broken(
        tree(training={"rounds": 2, "steps_per_round": 2, "edge_every": [2, 1]}),
        5,
        "edge:1",
        ((AggregationFacts, "sends", _schedule_of_the_first),),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = BROKEN[name]
    kept = compare(one.spec, one.unit, one.observer, record=one.record)
    assert kept.verdict != BELOW, str(kept)
    for owner, rule, instead in one.breaks:
        monkeypatch.setattr(owner, rule, instead)
    broken = compare(one.spec, one.unit, one.observer, record=one.record)
    assert broken.epsilon < broken.answer.epsilon * 0.99, str(broken)
