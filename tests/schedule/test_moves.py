"""Devices that move and trust that changes: what a spec may say, what it means, and what it costs in ε."""

import math
import re
from copy import deepcopy

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import TESTS

import sfumato as sf
from sfumato.auditing.audit import audit_pair
from sfumato.errors import SpecError
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.privacy.tree.moving_releases import MovingReleases
from sfumato.radio.channels import Channels
from sfumato.radio.costs import TreeCosts
from sfumato.schedule.moves import ONE_TREE_ONLY
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.observers import is_of_kind
from sfumato.spec.load import dump_spec, load_spec

DELTA = 1e-5
VISITS = {
    "name": "visits",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {
        "kind": "tree", "edges": 3, "devices_per_edge": 3, "moves": {"trace": [[2, 0, 1], [3, 0, 2]]},
    },
    "trust": {"trusted_edges": [0, 1]},
    "training": {"rounds": 3, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}  # fmt: skip
"""Device 0 is under edge 0, 1 and 2 in turn; edge 2 is not trusted."""


def changed(document, **sections):
    found = deepcopy(document)
    for name, section in sections.items():
        found[name] = {**found[name], **section}
    return found


def epsilon(square):
    return gaussian.epsilon(delta=DELTA, mu=math.sqrt(square))


class TestByHand:
    """The figures of docs/accounting.md."""

    def test_a_device_that_visits_three_edges(self):
        report = sf.account(load_spec(VISITS))
        # round 1: the global average less edge 2's own part; round 2: likewise; round 3: the device's message
        assert report.epsilon(0, "edge:2") == pytest.approx(epsilon(1 / 8 + 1 / 20 + 1 / 4), rel=1e-9)
        assert report.epsilon(0, "cloud") == pytest.approx(epsilon(1 / 4 + 1 / 4 + 1 / 16), rel=1e-9)
        assert report.epsilon(0, "edge:0") == math.inf
        assert report.epsilon(0, "edge:1") == math.inf

    def test_a_device_that_stays_meets_an_edge_by_what_passes_it(self):
        # under edge 0 throughout, of 3, 2 and 2 devices; edge 1 has 3, 4 and 3
        report = sf.account(load_spec(VISITS))
        squares = [1 / 8, (1 / 36) / (5 / 36), (1 / 36) / ((1 + 4 / 9) / 9)]
        assert report.epsilon(1, "edge:2") == pytest.approx(epsilon(sum(squares)), rel=1e-9)

    def test_an_edge_that_is_trusted_first_keeps_what_it_saw(self):
        document = changed(VISITS, trust={"trusted_edges": 0.0, "from": {0: [0, 1], 3: [1]}})
        report = sf.account(load_spec(document))
        rows = {(row.unit, row.observer): row for row in report.guarantees}
        assert rows["device:1", "edge:0"].epsilon == math.inf  # raw until round 2
        assert not rows["device:1", "edge:0"].trusted  # an observer now
        assert rows["device:3", "edge:1"].trusted

    def test_an_edge_that_is_trusted_later_has_seen_no_raw_update_of_a_device_that_left(self):
        document = changed(VISITS, trust={"trusted_edges": 0.0, "from": {0: [], 3: [0]}})
        report = sf.account(load_spec(document))
        # own message; behind devices' noise, z^2 over their number; with edge 0 trusted
        second = (1 / 144) / ((4 / 4 + 4 / 3) / 9)
        third = (1 / 144) / ((4 / 3 + 4 / 4) / 9)
        assert report.epsilon(0, "edge:0") == pytest.approx(epsilon(1 / 4 + second + third), rel=1e-9)
        assert report.epsilon(1, "edge:0") == math.inf


def test_raw_updates_of_any_round_count():
    plan = resolve(load_spec(VISITS))
    assert plan.raw_to_trusted_edge == 6  # device 0 among them, though it ends elsewhere
    assert plan.trusts(Party("node", 1, 0), 0)
    assert not plan.trusts(Party("node", 1, 2), 0)


class TestNothingMoves:
    """A spec whose moves move nothing is the spec without them."""

    @pytest.mark.parametrize(
        "moves", [{"trace": []}, {"trace": [[2, 0, 0]]}, {"trace": [[9, 0, 1]]}], ids=["none", "home", "late"]
    )
    def test_plan_and_figures_are_those_without_moves(self, moves):
        still = deepcopy(VISITS)
        del still["topology"]["moves"]
        one = sf.account(load_spec(still))
        other = sf.account(load_spec(changed(VISITS, topology={"moves": moves})))
        assert other.plan.eras == ()
        found = [one for one in other.to_dict()["findings"] if one["kind"] in ("changes", "moves")]
        said = {(9, 0, 1): ["changes"], (2, 0, 0): ["moves"]}
        assert [one["kind"] for one in found] == [
            kind for move in moves["trace"] for kind in said[tuple(move)]
        ]
        assert other.to_dict() == one.to_dict() | {"findings": found}  # nothing else differs
        assert other.plan.releases.to_dict() == one.plan.releases.to_dict()

    def test_trust_that_is_the_same_from_a_round_on(self):
        still = deepcopy(VISITS)
        del still["topology"]["moves"]
        other = deepcopy(still)
        other["trust"] = {"from": {0: [0, 1], 2: [1, 0]}}
        assert sf.account(load_spec(other)).to_dict() == sf.account(load_spec(still)).to_dict()


class TestRandomHandovers:
    DOCUMENT = changed(
        VISITS,
        topology={"edges": 4, "devices_per_edge": [2, 3, 4, 3], "moves": {"rate": 0.3}},
        training={"rounds": 40},
    )

    def test_they_are_drawn_from_the_seed_and_written_out(self):
        plan = resolve(load_spec(self.DOCUMENT))
        again = resolve(load_spec(plan.spec.model_dump(mode="json", by_alias=True, exclude_none=True)))
        assert again.spec.topology.moves == plan.spec.topology.moves
        assert plan.spec.topology.moves.drawn_at == 0.3
        assert again.releases.to_dict() == plan.releases.to_dict()
        other = resolve(load_spec(self.DOCUMENT | {"seed": 1}))
        assert other.spec.topology.moves != plan.spec.topology.moves

    def test_the_spec_of_a_run_says_the_same_in_yaml(self):
        plan = resolve(load_spec(self.DOCUMENT))
        from sfumato.user_text import parse_yaml

        read = load_spec(parse_yaml(dump_spec(plan.spec), "spec"))
        assert read == plan.spec

    def test_they_happen_at_the_rate_and_leave_no_edge_empty(self):
        document = changed(self.DOCUMENT, topology={"devices_per_edge": 20}, training={"rounds": 100})
        plan = resolve(load_spec(document))
        moves = len(plan.spec.topology.moves.trace)
        assert abs(moves - 0.3 * 80 * 99) < 5 * math.sqrt(0.21 * 80 * 99)
        assert all(one.tree.devices.min() >= 1 for one in plan.structures)
        assert all(one.tree.device_count == 80 for one in plan.structures)
        everywhere = np.stack([one.tree.leaves_of(np.arange(80)) for one in plan.structures])
        shares = np.bincount(everywhere.reshape(-1), minlength=4) / everywhere.size
        assert shares == pytest.approx(np.full(4, 0.25), abs=0.08)

    def test_an_edge_keeps_as_many_as_take_part(self):
        document = changed(
            self.DOCUMENT,
            training={"rounds": 12, "participation": {"kind": "fixed", "count": 2}},
        )
        plan = resolve(load_spec(document))
        assert min(int(one.tree.devices.min()) for one in plan.structures) >= 2


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_trace_comes_from_a_file(tmp_path, kind):
    path = tmp_path / f"trace.{kind}"
    if kind == "csv":
        path.write_text("device,round,edge,speed\n0,2,1,9.5\n0,3,2,3.0\n")
    else:
        pq.write_table(pa.table({"round": [2, 3], "device": [0, 0], "edge": [1, 2]}), path)
    plan = resolve(load_spec(changed(VISITS, topology={"moves": {"file": str(path)}})))
    assert plan.releases.to_dict() == resolve(load_spec(VISITS)).releases.to_dict()
    assert plan.spec.topology.moves.file is None
    assert set(plan.spec.hashes) == {"topology.moves.file"}


@pytest.mark.parametrize(
    ("sections", "place", "allowed"),
    [
        ({"topology": {"moves": {}}}, "topology.moves", "give exactly one of rate, trace, file"),
        ({"topology": {"moves": {"trace": [[1, 0, 1]]}}}, "topology.moves.trace", "from 2 to"),
        ({"topology": {"moves": {"trace": [[2, 9, 1]]}}}, "topology.moves.trace[0]", "devices 0 to 8"),
        ({"topology": {"moves": {"trace": [[2, 0, 3]]}}}, "topology.moves.trace[0]", "edges 0 to 2"),
        (
            {"topology": {"moves": {"trace": [[2, 0, 1], [2, 0, 2]]}}},
            "topology.moves.trace[1]",
            "device 0 is placed in round 2 already",
        ),
        (
            {"topology": {"moves": {"trace": [[2, 0, 1], [2, 1, 1], [2, 2, 1]]}}},
            "topology.moves",
            "leaves edge:0 with 0 devices in round 2",
        ),
        ({"trust": {"trusted_edges": [0], "from": {0: []}}}, "trust.trusted_edges", "must be left out"),
        ({"trust": {"trusted_edges": 0.0, "from": {2: []}}}, "trust.from", "from 0"),
        ({"trust": {"trusted_edges": 0.0, "from": {0: [7]}}}, "trust.from", "edges 0 to 2"),
        ({"training": {"participation": {"kind": "fixed", "count": 3}}}, "topology.moves", "must keep 3"),
        ({"transport": {"devices_to_edge": "secure-aggregation"}}, "topology.moves", "masked session"),
        ({"faults": {"dropout_rate": 0.1}}, "topology.moves", "dropouts"),
        (
            {"compression": {"kind": "rand-k", "ratio": 0.5, "error_feedback": True}},
            "topology.moves",
            "keeps",
        ),
        ({"radio": {"distances_m": [5.0] * 9}}, "topology.moves", "distances_m"),
        ({"training": {"weights": {"kind": "capped", "examples": 5}}}, "topology.moves", "weights"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(sections, place, allowed):
    document = deepcopy(VISITS)
    for name, section in sections.items():
        document[name] = {**document.get(name, {}), **section}
    with pytest.raises(SpecError) as refused:
        resolve(load_spec(document))
    assert refused.value.place.startswith(place)
    assert allowed in refused.value.allowed


def test_the_page_lists_what_is_refused_and_nothing_else():
    page = (TESTS.parent / "docs" / "spec.md").read_text("utf-8")
    (listed,) = re.findall(r"Refused with moves, and with `trust.from`: (.*?);", page, re.DOTALL)
    bare = re.sub(r" \(.*?\)", "", " ".join(listed.split()))
    assert bare.split(", ") == list(ONE_TREE_ONLY)


def test_records_that_are_drawn_move_and_are_audited():
    """docs/spec.md said that both are refused."""
    plan = resolve(load_spec(VISITS, ["training.batches=poisson", "privacy.unit=both"]))
    assert math.isfinite(sf.account(plan.spec).epsilon("record:0", "cloud"))
    assert audit_pair(plan, "device:0", "cloud", trials=200).upper > 0


def test_deeper_trees_are_refused():
    topology = {
        "kind": "tree", "levels": [2, 2, 2], "level_names": ["region", "cabinet"], "moves": {"rate": 0.1},
    }  # fmt: skip
    with pytest.raises(SpecError, match="no rule for deeper trees"):
        resolve(load_spec(VISITS | {"topology": topology, "trust": {}}))


class TestSchedulesOfSingleEdges:
    """A device has the schedule and the draw of the edge that it is under."""

    DOCUMENT = changed(
        VISITS,
        training={"local_steps": 4, "edge_every": [1, 2, 4]},
        privacy={"clip": {"kind": "step", "norm": 1.0}},
    )

    def test_a_device_that_visits_three_edges(self):
        document = changed(self.DOCUMENT, trust={"trusted_edges": []})
        found = sf.account(load_spec(document))
        # untrusted edges receive its messages, z = 2 each: 4 of them, then 2, then 1
        flow, _ = found.plan.releases.exposures(0, (Party("public"),))
        assert [len(draw.releases) for draw in flow.draws] == [4, 2, 1]
        for edge, messages, under in ((0, 4, 1), (1, 2, 2), (2, 1, 3)):
            report = found.plan.releases.exposures(0, (Party("node", 1, edge),))[0]
            own = report.draws[under - 1].releases
            assert [release.vector for release in own] == ["the device's own message"] * messages
            assert sum(release.mu_squared("zero-out") for release in own) == pytest.approx(messages / 4)

    def test_a_device_is_drawn_as_its_edge_draws(self):
        counts = {"kind": "fixed", "count": [1, 2, 3]}
        document = changed(self.DOCUMENT, training={"participation": counts})
        flow, _ = resolve(load_spec(document)).releases.exposures(0, (Party("public"),))
        drawn = [(draw.sampling.sample, draw.sampling.population) for draw in flow.draws]
        assert drawn == [(1, 3), (2, 4), (3, 4)]

    def test_each_edge_keeps_as_many_as_take_part_there(self):
        counts = {"kind": "fixed", "count": [1, 1, 3]}
        document = changed(self.DOCUMENT, training={"participation": counts})
        assert len(resolve(load_spec(document)).structures) == 3
        document["topology"]["moves"] = {"trace": [[2, 8, 0]]}
        with pytest.raises(SpecError, match="leaves edge:2 with 2 devices in round 2; it must keep 3"):
            resolve(load_spec(document))
        document["topology"]["moves"] = {"rate": 0.5}
        plan = resolve(load_spec(changed(document, training={"rounds": 12})))
        sizes = np.stack([one.tree.devices for one in plan.structures])
        assert sizes.min(axis=0).tolist() == [1, 1, 3]

    @pytest.mark.parametrize("key", ["edge_every", "participation.count"])
    def test_counts_by_trust_need_trust_that_stays(self, key):
        by_trust = {"trusted": 1, "untrusted": 2}
        training = {"edge_every": by_trust, "local_steps": 4}
        if key == "participation.count":
            training = {"participation": {"kind": "fixed", "count": by_trust}}
        document = changed(VISITS, training=training, trust={"trusted_edges": 0.0, "from": {0: [0], 2: [1]}})
        with pytest.raises(SpecError, match="which edges are trusted changes") as refused:
            resolve(load_spec(document))
        assert refused.value.place == f"training.{key}"
        document["trust"]["from"] = {0: [0], 2: [0]}
        training = resolve(load_spec(document)).spec.training
        found = training.edge_every if key == "edge_every" else training.participation.count
        assert found == (1, 2, 2)

    @pytest.mark.parametrize("both", [False, True])
    def test_noise_for_a_target_meets_it(self, both):
        document = changed(
            self.DOCUMENT,
            training={"edge_at_global": both},
            trust={"trusted_edges": 0.0, "from": {0: [0, 1], 3: []}},
            privacy={"noise": {"epsilon": 2.0, "for": "cloud"}},
        )
        report = sf.account(load_spec(document))
        assert max(report.epsilon(unit, "cloud") for unit in range(9)) == pytest.approx(2.0, rel=1e-6)


class TestWhichPairs:
    """Rows stand for all pairs, none of which has a larger ε than its row."""

    @pytest.mark.parametrize("participation", [{"kind": "all"}, {"kind": "poisson", "rate": 0.5}])
    def test_no_pair_is_above_its_row(self, participation):
        noise = {"multiplier": 6.0}
        document = changed(VISITS, training={"participation": participation}, privacy={"noise": noise})
        document["topology"]["moves"]["trace"] += [[2, 4, 0], [3, 4, 1]]
        report = sf.account(load_spec(document))
        declared = report.plan.releases
        rows = [row for row in report.guarantees if row.unit == "device:0"]
        parties = [f"edge:{e}" for e in range(3)] + [f"device:{d}" for d in range(1, 9)]
        kinds = {"own edge": [], "edge elsewhere": [], "peer": [], "device elsewhere": []}
        for name in parties:
            places = [one.tree.leaf_of(0) for one in report.plan.structures]
            number = int(name.partition(":")[2])
            if name.startswith("edge"):
                kind = "own edge" if number in places else "edge elsewhere"
            else:
                theirs = [one.tree.leaf_of(number) for one in report.plan.structures]
                met = any(a == b for a, b in zip(places, theirs, strict=True))
                kind = "peer" if met else "device elsewhere"
            kinds[kind].append(report.epsilon(0, name))
        for kind, figures in kinds.items():
            found = [row for row in rows if row.relation.words == kind]
            assert sum(row.stands_for for row in found) == len(figures)
            figures.sort()
            stated = sorted(row.epsilon for row in found for _ in range(row.stands_for))
            assert all(a <= b * (1 + 1e-9) for a, b in zip(figures, stated, strict=True))
            assert max(figures, default=0.0) == pytest.approx(max(stated, default=0.0), rel=1e-9)
        assert isinstance(declared, MovingReleases)

    def test_of_one_unit_every_edge_has_a_row(self):
        report = sf.account(load_spec(VISITS), unit="device:0")
        edges = {
            row.observer: row.relation.words for row in report.guarantees if row.observer.startswith("edge")
        }
        assert edges == {f"edge:{e}": "own edge" for e in range(3)}

    def test_own_and_other_edges_are_those_of_any_round(self):
        plan = resolve(load_spec(VISITS))
        pairs = list(plan.releases.pair_classes(1))
        own = {p.observer.index for p in pairs if is_of_kind(p, "own-edge")}
        other = {p.observer.index for p in pairs if is_of_kind(p, "other-edge")}
        assert (own, other) == ({0}, {1, 2})


@pytest.mark.parametrize("towards", ["cloud", "own-edge", "other-edge", "peer", "edge", "edge:2", "public"])
def test_noise_for_a_target_meets_it_over_the_whole_run(towards):
    document = changed(VISITS, privacy={"noise": {"epsilon": 3.0, "for": towards}})
    document["topology"]["moves"]["trace"] += [[2, 7, 1], [3, 4, 0]]
    report = sf.account(load_spec(document))
    plan = report.plan
    if ":" in towards:
        found = [report.epsilon(unit, towards) for unit in range(9)]
    else:
        found = [
            report.epsilon(pair.unit, plan.releases.party_name(pair.observer))
            for unit in range(9)
            for pair in plan.releases.pair_classes(unit)
            if is_of_kind(pair, towards)
        ]
    assert max(e for e in found if math.isfinite(e)) == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("towards", ["cloud", "public"])
def test_noise_of_devices_is_as_much_in_a_sum_as_that_of_a_trusted_edge(towards):
    plan = resolve(load_spec(changed(VISITS, privacy={"noise": {"epsilon": 3.0, "for": towards}})))
    edges, devices = plan.noise.node[-1][:, 0], plan.noise.device[:, 0]
    assert edges[0] == edges[1] > 0 == edges[2]
    # edge 2 has 3, 3 and 4 devices
    assert devices[2] / edges[0] == pytest.approx(math.sqrt((1 / 3 + 1 / 3 + 1 / 4) / 3), rel=1e-12)
    if towards == "cloud":  # devices that stay under an edge are charged 3 / z²
        assert edges[0] == pytest.approx(math.sqrt(3) / gaussian.mu(epsilon=3.0, delta=DELTA), rel=1e-6)


def test_devices_that_hardly_move_add_about_as_much_noise_as_those_that_stay():
    changes = ["training.rounds=3", "privacy.noise={epsilon: 8, for: cloud}"]
    stay, move = (
        resolve(load_spec("quickstart", more + changes)) for more in ([], ["topology.moves={rate: 0.02}"])
    )
    assert len(move.eras) > 1
    assert move.noise.device.max() == pytest.approx(stay.noise.device.max(), rel=0.1)
    assert move.noise.node[-1].max() == pytest.approx(stay.noise.node[-1].max(), rel=0.1)


def test_a_device_and_a_trusted_edge_have_one_multiplier_towards_who_receives_single_messages():
    plan = resolve(load_spec(changed(VISITS, privacy={"noise": {"epsilon": 3.0, "for": "edge:2"}})))
    assert plan.noise.device[2, 0] == plan.noise.node[-1][0, 0] > 0


def test_a_target_with_draws_is_met_and_not_exceeded():
    document = changed(
        VISITS,
        trust={"trusted_edges": [0, 1, 2]},
        training={"rounds": 2, "participation": {"kind": "poisson", "rate": 0.5}},
        privacy={"noise": {"epsilon": 1.0, "for": "public"}},
    )
    report = sf.account(load_spec(document))
    worst = max(row.epsilon for row in report.guarantees if row.observer == "public")
    assert 0.999 < worst <= 1.0


def test_only_a_draw_that_the_observer_does_not_make_amplifies():
    """Each round's draw is its own: an edge sees those of the rounds in which the device is under it."""
    document = changed(
        VISITS,
        trust={"trusted_edges": [0, 1, 2]},
        training={"participation": {"kind": "poisson", "rate": 0.5}},
    )
    declared = resolve(load_spec(document)).releases
    flow, _ = declared.exposures(0, (Party("node", 1, 1),))
    assert [draw.sampling.hidden for draw in flow.draws] == [True, False, True]
    assert [draw.amplifies for draw in flow.draws] == [True, False, True]


class TestRadio:
    def test_a_device_that_moves_has_another_distance_and_its_own_when_it_returns(self):
        document = changed(VISITS, topology={"moves": {"trace": [[2, 0, 1], [3, 0, 0]]}})
        plan = resolve(load_spec(document))
        one, two, three = (Channels.of_tree(plan.spec, p.tree).distances_m for p in plan.structures)
        assert one[0] != two[0]
        assert (one[1:] == two[1:]).all()
        assert (three == one).all()

    def test_tdma_takes_as_long_as_the_edges_devices_need(self):
        plan = resolve(load_spec(VISITS))
        everybody = np.arange(9)
        costs = [TreeCosts.of(plan.spec, p.tree, 100).round(0) for p in plan.structures]
        turns = [one.cells.uplink(everybody, 3200.0).delay_s for one in costs]
        assert turns[1][0] < turns[0][0]  # device 0 has left edge 0
        assert turns[1][1] > turns[0][1]
