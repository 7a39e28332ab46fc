"""A round by secure aggregation: the bits of real sessions, the noise it owes, nothing where it aborts."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from tree_worlds import Library, spec_of

from sfumato.errors import EnvelopeError, SpecError
from sfumato.privacy.observers import Party
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.protocols.tree.uplinks.secure import SecureUplink
from sfumato.schedule.faults.dropouts import turnout_of
from sfumato.schedule.integer_grid import FEWEST_STEPS, HEADROOM, integer_grid_of
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.resolve import resolve
from sfumato.secure_aggregation.server import Phase
from sfumato.secure_aggregation.session import aggregate
from sfumato.secure_aggregation.terms import complete_terms
from sfumato.wire.keys import Identity

BOTH = {"devices_to_edge": "secure-aggregation", "edge_to_cloud": "secure-aggregation"}
TRAINING = {"rounds": 5, "local_epochs": 1, "batch_size": 4, "learning_rate": 0.3}
ZONES = {"kind": "tree", "edges": 3, "devices_per_edge": [5, 4, 6]}
SILENT = {"advertise": 0.05, "share": 0.05, "mask": 0.05, "consent": 0.05, "unmask": 0.05}


def hdp(multiplier: float = 0.5, placement: dict[str, Any] | None = None, **sections: Any) -> Any:
    noise: Any = (
        {"multiplier": multiplier, "placement": placement or {"device": 1.0}} if multiplier else "none"
    )
    document = {
        "protocol": "hdp",
        "topology": ZONES,
        "training": TRAINING,
        "privacy": {"clip": {"kind": "update", "norm": 0.2}, "noise": noise},
        "transport": BOTH,
    }
    return spec_of(**(document | sections))


def by_sessions(played: list[tuple[int, int]]) -> Any:
    """Forms sums by real messages between parties; keeps how many were enrolled and how many summed."""

    def summation(vectors: Any, drop: Any, parties: int, threshold: int) -> Any:
        identities, server = [Identity() for _ in range(parties)], Identity()
        length = len(next(iter(vectors.values())))
        label, public = f"{len(played)}", tuple(identity.public for identity in identities)
        terms = complete_terms(
            label,
            public,
            server.public,
            length=length,
            threshold=threshold,
            threat_model="malicious",
            colluders=0,
        )
        outcome = aggregate(terms, identities, server, vectors, drop=drop)
        assert set(outcome.survivors) == set(vectors)
        assert not outcome.rejected
        played.append((parties, len(vectors)))
        return outcome.total

    return summation


@pytest.mark.parametrize("faults", [None, {"dropout_rate": SILENT}])
def test_real_sessions_give_the_same_bits(monkeypatch: pytest.MonkeyPatch, faults: Any) -> None:
    spec = hdp(placement={"device": [0, 2], "edge": [1]}, faults=faults)
    fast = Library(spec).play(4)
    played: list[tuple[int, int]] = []

    def uplink(plan: Any, device: torch.device, *_: Any) -> SecureUplink:
        return SecureUplink(plan, device, by_sessions(played))

    monkeypatch.setattr("sfumato.protocols.tree.rounds.uplink_of", uplink)
    real = Library(spec).play(4)
    assert all(torch.equal(a.model, b.model) for a, b in zip(fast, real, strict=True))
    assert not torch.equal(fast[0].model, fast[4].model)
    assert len(played) > 4
    assert any(parties > summed for parties, summed in played) == (faults is not None)


@pytest.mark.parametrize(
    "hops", [BOTH, {"devices_to_edge": "secure-aggregation"}, {"edge_to_cloud": BOTH["edge_to_cloud"]}]
)
@pytest.mark.parametrize("participation", [{"kind": "all"}, {"count": 3}])
def test_without_noise_it_is_the_average_of_the_plain_run(hops: Any, participation: Any) -> None:
    training = TRAINING | {"participation": participation}
    plain = Library(hdp(0, transport={}, training=training)).play(3)
    secure = Library(hdp(0, transport=hops, training=training)).play(3)
    moved = float((plain[-1].model - plain[0].model).abs().max())
    assert moved > 0.01
    for a, b in zip(plain, secure, strict=True):
        torch.testing.assert_close(a.model, b.model, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ({"device": 1.0}, math.sqrt((1 / 5 + 1 / 4 + 1 / 6) / 9)),
        ({"edge": 1.0}, math.sqrt((1 / 25 + 1 / 16 + 1 / 36) / 9)),
        ({"cloud": True}, 1 / 12),  # the sensitivity of the smallest zone's device
        ({"device": [0], "edge": [1, 2]}, math.sqrt((1 / 5 + 1 / 16 + 1 / 36) / 9)),
    ],
)
def test_the_noise_it_owes(placement: Any, expected: float) -> None:
    training = TRAINING | {"learning_rate": 1e-9, "rounds": 6}
    library = Library(hdp(0.5, placement, training=training), kind="mlp", shape=(60,), classes=10)
    states = library.play(6)
    steps = torch.stack([b.model - a.model for a, b in pairwise(states)]).double()
    variance = (0.5 * 0.2 * expected) ** 2
    count, found = steps.numel(), float(steps.square().sum())
    low, high = chi2.ppf(2.5e-7, count), chi2.isf(2.5e-7, count)
    assert low < found / variance < high
    assert not low < found / (variance * 4 / 9) < high
    assert not low < found / (variance * 9 / 4) < high


def test_noise_is_enough_for_what_rounding_adds() -> None:
    plan = resolve(hdp(1.1))
    everybody = np.arange(15)
    ring = integer_grid_of(plan, 0, 0, everybody, 5000)
    for leaf, device in ((0, 0), (1, 5), (2, 9)):
        bound, std = plan.bounds_of(0, np.array([device]))[0], plan.device_stds_of(0, np.array([device]))[0]
        how = ring.device_rounding(leaf, bound, std)
        assert how.noise_std / how.sensitivity >= std / bound * (1 + HEADROOM) * (1 - 1e-12)
        assert how.noise_std / how.sensitivity <= std / bound * 1.001
        assert how.noise_std > FEWEST_STEPS


@pytest.mark.parametrize(("placement", "tier"), [({"edge": 1.0}, 1), ({"cloud": True}, 0)])
def test_a_nodes_noise_is_enough_for_what_rounding_adds(placement: Any, tier: int) -> None:
    plan = resolve(hdp(1.1, placement))
    ring = integer_grid_of(plan, 0, 0, np.arange(15), 5000)
    for leaf, device in ((0, 0), (1, 5), (2, 9)):
        node = leaf if tier else 0
        how = ring.device_rounding(leaf, plan.bounds_of(0, np.array([device]))[0], 0.0)
        std = float(plan.releases.steps[0].node_std[tier][node]) * plan.message_scale(0)
        (release,) = plan.releases.exposures(device, (Party("public"),))[0].releases
        alone = std / (release.own_sensitivity * plan.message_scale(0) * (1 if tier == 0 else 3))
        found = ring.node_steps(tier, node, std) / how.sensitivity
        assert found >= alone * (1 + HEADROOM) * (1 - 1e-12)
        assert found <= alone * 1.001


@pytest.mark.parametrize("hops", [BOTH, {}])
def test_where_everybody_drops_out_nothing_moves(hops: Any) -> None:
    spec = hdp(placement={"device": [0], "edge": [1, 2]}, faults={"dropout_rate": 0.999999}, transport=hops)
    library = Library(spec)
    states = library.play(2)
    _, facts = library.protocol.run_round(states[1])
    assert len(facts.participants) == 0
    same = torch.allclose(states[0].model, states[2].model, rtol=0, atol=1e-6)
    assert same == (hops == BOTH)  # a plain zone sends its noise, whoever came
    assert (facts.noise_std == 0) == (hops == BOTH)


class Ear:
    def __init__(self) -> None:
        self.senders: list[int] = []
        self.zones: list[torch.Tensor] = []

    def sent(self, number: int, index: int, tier: int, senders: Any, vectors: torch.Tensor) -> None:
        if tier == 2:
            self.senders += senders.tolist()
        else:
            self.zones.append(vectors.clone())

    def received(self, *_: Any) -> None: ...

    def broadcast(self, *_: Any) -> None: ...


def test_a_zone_below_its_threshold_sends_nothing_and_the_others_go_on() -> None:
    library = Library(hdp(placement={"edge": 1.0}, faults={"dropout_rate": 0.3}))
    ear, plan = Ear(), library.plan
    protocol = TreeProtocol(plan, library.engine, library.partition, len(library.start), ear)
    state, seen = protocol.initial(library.start), set()
    for number in range(12):
        chosen = draw_participants(plan, number)
        turnout = turnout_of(plan, number, 0, chosen)
        ear.zones.clear()
        after, facts = protocol.run_round(state)
        leaves = np.searchsorted(plan.tree.first_device, chosen, side="right") - 1
        assert facts.participants.tolist() == [
            d for d, z in zip(chosen, leaves, strict=True) if turnout.formed[z] and turnout.sends[d]
        ]
        for zone, formed in enumerate(turnout.formed):
            came = int(turnout.sends[leaves == zone].sum())
            assert formed == (came >= 2 * plan.tree.devices[zone] // 3 + 1)
            assert torch.equal(ear.zones[0][zone], state.model) != formed
            seen.add(bool(formed))
        state = after
    assert seen == {True, False}


ELECTED = ZONES | {"supernodes": "elected"}


def test_a_failed_supernode_is_replaced_and_the_very_same_messages_are_sent_again() -> None:
    calm = Library(hdp(topology=ELECTED, seed=6))
    stormy = Library(hdp(topology=ELECTED, seed=6, faults={"supernode_failure_rate": 0.33}))
    ahead, state = calm.play(4), stormy.protocol.initial(stormy.start)
    again = 0
    for number in range(4):
        state, facts = stormy.protocol.run_round(state)
        _, quiet = calm.protocol.run_round(ahead[number])
        terms = turnout_of(stormy.plan, number, 0, np.arange(15)).terms
        assert [len(set(zone)) for zone in terms] == [len(zone) for zone in terms]
        again += sum(len(zone) - 1 for zone in terms)
        assert (facts.bytes_up > quiet.bytes_up) == any(len(zone) > 1 for zone in terms)
        assert torch.equal(state.model, ahead[number + 1].model)  # no other noise, nothing to charge
    assert again > 0
    kept = stormy.protocol.realised_facts(state)
    assert sum(len(zone) for step in kept["supernodes"] for zones in step for zone in zones) == 12 + again
    assert kept["survivors"] == [[[5, 4, 6]]] * 4


@pytest.mark.parametrize("hops", [{}, BOTH, {"edge_to_cloud": BOTH["edge_to_cloud"]}])
def test_or_its_zone_sits_the_round_out(hops: Any) -> None:
    library = Library(
        hdp(
            topology=ELECTED,
            faults={"supernode_failure_rate": 0.4, "when_supernode_fails": "skip"},
            transport=hops,
        )
    )
    ear = Ear()
    protocol = TreeProtocol(library.plan, library.engine, library.partition, len(library.start), ear)
    state, failed = protocol.initial(library.start), 0
    for number in range(4):
        ear.zones.clear()
        turnout = turnout_of(library.plan, number, 0, np.arange(15))
        after, facts = protocol.run_round(state)
        still = [torch.equal(ear.zones[0][zone], state.model) for zone in range(3)]
        assert still == [not formed for formed in turnout.formed]
        assert len(facts.participants) == 15  # the failed supernode has met what they sent
        assert all(len(zone) == 1 for zone in turnout.terms)
        failed, state = failed + sum(still), after
    assert 0 < failed < 12


def test_a_message_longer_than_declared_stops_the_run() -> None:
    library = Library(hdp())
    train = library.engine.train

    def longer(*arguments: Any) -> Any:
        for chunk in train(*arguments):
            chunk.updates[3] *= 2 * 0.2 / chunk.updates[3].norm()
            yield chunk

    library.engine.train = longer  # type: ignore[method-assign]
    with pytest.raises(EnvelopeError, match="nothing of this round was sent"):
        library.play(1)


@pytest.mark.parametrize(
    ("sections", "place"),
    [
        ({"privacy": {"noise": "none"}}, "privacy.clip"),
        ({"topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3}}, "transport.edge_to_cloud"),
        ({"compression": {"kind": "rand-k", "ratio": 0.5, "bits": 8}}, "compression.bits"),
    ],
)
def test_refusals(sections: Any, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(hdp(**sections))
    assert caught.value.place == place


def test_several_aggregations_a_round_go_with_masks_at_the_lowest_hop_only() -> None:
    training = {"rounds": 2, "steps_per_round": 4, "edge_every": 2, "batch_size": 4, "learning_rate": 0.3}
    sections = {"protocol": "h2fdp", "topology": ZONES, "training": training}
    plain = Library(hdp(0, **sections, transport={})).play(2)
    secure = Library(hdp(0, **sections, transport={"devices_to_edge": "secure-aggregation"})).play(2)
    torch.testing.assert_close(plain[-1].model, secure[-1].model, rtol=0, atol=2e-6)
    with pytest.raises(SpecError, match="one aggregation a round"):
        resolve(hdp(0, **sections))


def test_a_ring_that_is_too_coarse_is_refused() -> None:
    weak = hdp(1e-7)
    with pytest.raises(SpecError, match="too coarse"):
        integer_grid_of(resolve(weak), 0, 0, np.arange(15), 10**6)
    assert Phase.DONE > Phase.UNMASK  # who is never silent is silent after everything
