"""Energy, time and bytes of messages: by hand, against a plain loop over devices, and by enumeration."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from repeatable_entropy import repeatable

from sfumato.network import tree as topology
from sfumato.network.groups import listed
from sfumato.radio.cells import Cells
from sfumato.radio.costs import Analog, Attempts, Cost, TreeCosts
from sfumato.radio.group_costs import GroupCosts
from sfumato.radio.secagg_traffic import secure_bytes
from sfumato.secure_aggregation.server import Phase
from sfumato.secure_aggregation.session import aggregate
from sfumato.secure_aggregation.terms import complete_terms
from sfumato.spec.load import load_spec
from sfumato.wire.keys import Identity

PARAMETERS = 7840
BITS = PARAMETERS * 32
WIRED_W, WIRE_S = 10**0.8, BITS / 100e6
DEVICE_W = 10**-0.6
FIXED = {"fading": "none"}


def costs(tree, radio, parameters=PARAMETERS) -> TreeCosts:
    return TreeCosts.of(load_spec("quickstart", [f"radio={radio}"]), tree, parameters)


def rate_bps(distance_m, share=1.0):
    snr_db = 24 - 30 - 37.5 * math.log10(distance_m) + 113
    return share * 1e6 * math.log2(1 + 10 ** (snr_db / 10) / share)


def test_one_global_aggregation_by_hand() -> None:
    # Two edges; devices at 100 m (32 dB, 10.6311 Mbit/s: 23.599 ms for 250,880 bits) and, at the second, 10 m
    # (69.5 dB, 23.0874 Mbit/s: 10.8666 ms). A wire takes 2.5088 ms at 6.30957 W.
    tree = topology.balanced((2, 2), ("edge",))
    found = costs(tree, FIXED | {"distances_m": [100, 100, 10, 10]}).round(0).aggregation(0, np.arange(4))
    # in turns 47.197 ms, the wire, the wire back, the broadcast at the same rate 23.599 ms
    assert found.delay_s == pytest.approx(47.197e-3 + 2 * 2.5088e-3 + 23.599e-3, rel=1e-4)
    uplinks = 2 * (23.599e-3 + 10.8666e-3) * 0.251189
    broadcasts = (23.599e-3 + 10.8666e-3) * 0.251189
    assert found.energy_j == pytest.approx(uplinks + broadcasts + 4 * 2.5088e-3 * 6.30957, rel=1e-4)
    assert (found.bytes_up, found.bytes_down) == (6 * 31_360, 6 * 31_360)


def test_one_aggregation_by_the_edges_by_hand() -> None:
    tree = topology.balanced((2, 2), ("edge",))
    round_ = costs(tree, FIXED | {"distances_m": [100, 10, 10, 10]}).round(0)
    found = round_.aggregation(1, np.array([1, 2, 3]))
    # only the first device is at 100 m, and idle: it does not even listen
    assert found.delay_s == pytest.approx(3 * 10.8666e-3, rel=1e-4)
    assert found.energy_j == pytest.approx(5 * 10.8666e-3 * 0.251189, rel=1e-4)
    assert (found.bytes_up, found.bytes_down) == (3 * 31_360, 3 * 31_360)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
@pytest.mark.parametrize("tier", [0, 1, 2])
def test_three_tiers_against_a_loop_over_devices(access, tier) -> None:
    tree = topology.balanced((2, 3, 4), ("region", "edge"))
    rng = np.random.default_rng(3)
    distances = rng.uniform(5, 90, 24)
    chosen = np.flatnonzero(rng.random(24) < 0.6)
    made = costs(tree, FIXED | {"access": access, "distances_m": distances.tolist()})
    found = made.round(0).aggregation(tier, chosen)
    energy, ups, downs = 0.0, [], []
    for leaf in range(6):
        here = [d for d in chosen if d // 4 == leaf]
        times = [BITS / rate_bps(distances[d], 1 / len(here) if access == "ofdma" else 1.0) for d in here]
        listening = range(4 * leaf, 4 * leaf + 4) if tier == 0 else here
        down = max((BITS / rate_bps(distances[d]) for d in listening), default=0.0)
        energy += DEVICE_W * (sum(times) + down)
        ups.append((sum if access == "tdma" else max)(times or [0.0]))
        downs.append(down)
    below = {0: [range(6)], 1: [range(3), range(3, 6)], 2: [[leaf] for leaf in range(6)]}[tier]
    wait = max(max(ups[c] for c in leaves) + max(downs[c] for c in leaves) for leaves in below)
    wires, hops = {0: (8, 2), 1: (6, 1), 2: (0, 0)}[tier]
    listening = 24 if tier == 0 else len(chosen)
    assert found.delay_s == pytest.approx(wait + 2 * hops * WIRE_S, rel=1e-9)
    assert found.energy_j == pytest.approx(energy + 2 * wires * WIRED_W * WIRE_S, rel=1e-9)
    assert found.bytes_up == (len(chosen) + wires) * BITS // 8
    assert found.bytes_down == (listening + wires) * BITS // 8


def test_nobody_takes_part() -> None:
    round_ = costs(topology.balanced((2, 3), ("edge",)), {}).round(0)
    assert round_.aggregation(1, np.array([], dtype=np.int64)) == Cost()


def test_costs_follow_one_another() -> None:
    assert Cost(1.0, 2.0, 3, 4).then(Cost(10.0, 20.0, 30, 40)) == Cost(11.0, 22.0, 33, 44)


def test_other_messages_on_the_hop_of_devices() -> None:
    tree = topology.balanced((2, 2), ("edge",))
    round_ = costs(tree, FIXED | {"distances_m": [100, 100, 10, 10]}).round(0)
    everybody = np.arange(4)
    plain = round_.aggregation(1, everybody)
    once = np.ones(4, dtype=np.int64)
    assert round_.aggregation(1, everybody, Attempts(np.ones(4, dtype=bool), once)) == plain
    again = round_.aggregation(1, everybody, Attempts(np.array([True, True, True, False]), 2 * once))
    # the first cell: 4 messages' time up and the broadcast as before
    assert again.delay_s == pytest.approx((4 * BITS + BITS) / rate_bps(100))
    assert (again.bytes_up, again.bytes_down) == (6 * 31_360, plain.bytes_down)
    air = round_.aggregation(1, everybody, Analog(np.array([1.0, 2.0]), np.array([0.5, 0.1]), 77))
    assert air.bytes_up == 77
    assert air.energy_j == pytest.approx(3.0 + DEVICE_W * (BITS / rate_bps(100) + BITS / rate_bps(10)))
    assert air.delay_s == pytest.approx(0.5 + BITS / rate_bps(100))


def test_digital_messages_over_the_radio_of_pfels_by_hand() -> None:
    # Gain 0.1 and 15 dB (31.6228) over noise 1 a real coordinate: SNR .316228/2 = .158114 a complex symbol.
    # 3,300 subcarriers in 10 ms carry 330,000 symbols a second. Each of two devices has half of them at twice
    # the density: 165,000 * log2(1.316228) = 65,411.2 bit/s; 320,000 bits take 4.8921 s.
    # Power 31.6228 * 330,000 a second each.
    radio = {"gain": {"kind": "constant", "mean": 0.1}, "snr_db": [15, 15]}
    found = costs(topology.star(2), radio, 10_000).round(0).aggregation(0, np.arange(2))
    assert found.delay_s == pytest.approx(4.8921, rel=1e-4)
    assert found.energy_j == pytest.approx(2 * 31.6228 * 330_000 * 4.8921, rel=1e-4)
    in_turns = (
        costs(topology.star(2), radio | {"access": "tdma"}, 10_000).round(0).aggregation(0, np.arange(2))
    )
    assert in_turns.delay_s == pytest.approx(2 * 320_000 / (330_000 * math.log2(1.158114)), rel=1e-6)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_predictions_are_means_over_all_draws(access) -> None:
    tree = replace(topology.balanced((2, 5), ("edge",)), devices=np.array([5, 3]))
    made = costs(tree, {"access": access})
    round_ = made.round(4)
    counts = np.array([[0, 1], [2, 3], [5, 2]])
    found = round_.predicted(counts)
    for row, (first, second) in enumerate(counts):
        draws = list(
            itertools.product(
                itertools.combinations(range(5), first), itertools.combinations(range(5, 8), second)
            )
        )
        up = [round_.cells.uplink(np.array([*a, *b], dtype=np.int64), BITS) for a, b in draws]
        assert found.local_energy_j[row] == pytest.approx(np.mean([u.energy_j for u in up], axis=0))
        assert found.local_delay_s[row] == pytest.approx(np.mean([u.delay_s for u in up], axis=0))
    assert found.global_energy_j == pytest.approx(found.local_energy_j.sum(axis=1) + 2 * WIRED_W * WIRE_S)
    whole = round_.predicted(np.array([5, 3]))
    metered = round_.aggregation(0, np.arange(8))
    broadcast = round_.cells.broadcast(np.arange(8), BITS)
    assert whole.global_delay_s == pytest.approx(metered.delay_s)
    # the broadcast's energy and that of the wires down are no part of E_Glob
    rest = float(broadcast.energy_j.sum()) + 2 * WIRED_W * WIRE_S
    assert whole.global_energy_j == pytest.approx(metered.energy_j - rest)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_predictions_of_masked_sums_are_means_over_all_draws_of_whole_sessions(access) -> None:
    tree = replace(topology.balanced((2, 5), ("edge",)), devices=np.array([5, 3]))
    radio = {"access": access, "broadcast_power_dbm": 30}
    round_ = replace(costs(tree, radio), secure=(False, True)).round(4)
    for counts in ([3, 2], [4, 3], [1, 3]):
        sessions = []
        for first in itertools.combinations(range(5), counts[0]):
            for second in itertools.combinations(range(5, 8), counts[1]):
                devices = np.array([*first, *second], dtype=np.int64)
                up, down = secure_bytes((devices >= 5).astype(np.int64), 2, PARAMETERS)
                messages = round_.cells.uplink(devices, 8.0 * up)
                sessions.append(messages.then(round_.cells.unicast(devices, 8.0 * down)))
        found = round_.predicted(np.array(counts))
        assert found.local_energy_j == pytest.approx(np.mean([s.energy_j for s in sessions], axis=0))
        assert found.local_delay_s == pytest.approx(np.mean([s.delay_s for s in sessions], axis=0))


def test_groups_meter_every_membership() -> None:
    groups = listed([[0, 1], [1, 2, 3]])
    distances = [100.0, 10.0, 10.0, 100.0, 10.0]
    spec = load_spec("quickstart", [f"radio={FIXED | {'distances_m': distances}}"])
    made = GroupCosts.of(spec, groups, PARAMETERS)
    found = made.round(0, np.array([1, 3, 4]))
    far, near = BITS / rate_bps(100), BITS / rate_bps(10)
    assert found.delay_s == pytest.approx(far + near + far)  # the second group's
    assert found.energy_j == pytest.approx(DEVICE_W * (near + far + near + far + far))
    assert (found.bytes_up, found.bytes_down) == (3 * BITS // 8, 5 * BITS // 8)


def test_every_round_has_its_own_channel() -> None:
    made = costs(topology.balanced((3, 4), ("edge",)), {})
    everybody = np.arange(12)
    first, again, second = (made.round(n).aggregation(0, everybody) for n in (0, 0, 1))
    assert first == again
    assert first.delay_s != second.delay_s
    assert (first.bytes_up, first.bytes_down) == (second.bytes_up, second.bytes_down)


def test_a_hundred_thousand_devices_are_arrays() -> None:
    made = costs(topology.balanced((100, 1000), ("edge",)), {})
    found = made.round(0).aggregation(0, np.arange(100_000))
    cells = Cells(made.channels, made.channels.gains(0))
    alone = cells.uplink(np.arange(5000, 6000), BITS)
    assert alone.delay_s[5] == pytest.approx(cells.uplink(np.arange(100_000), BITS).delay_s[5])
    assert found.bytes_up == 100_100 * BITS // 8


def test_secure_aggregation_sends_every_frame_of_its_sessions() -> None:
    tree = topology.balanced((2, 3), ("edge",))
    spec = load_spec(
        "quickstart", ["transport={devices_to_edge: secure-aggregation, edge_to_cloud: secure-aggregation}"]
    )
    found = TreeCosts.of(spec, tree, 50).round(0).aggregation(0, np.array([0, 1, 2, 4]))
    three, alone = session(3, 50), 4 * 50
    zones = session(2, 50)
    broadcasts = (6 + 2) * 4 * 50
    assert found.bytes_up == sum(three.bytes_up) + alone + sum(zones.bytes_up)
    assert found.bytes_down == sum(three.bytes_down) + sum(zones.bytes_down) + broadcasts


def test_dropouts_of_secure_aggregation() -> None:
    outcome = session(4, 50, drop=[2])
    gone = np.array([False, False, True, False])
    up, down = secure_bytes(np.zeros(4, dtype=np.int64), 1, 50, gone)
    assert (tuple(up), tuple(down)) == (outcome.bytes_up, outcome.bytes_down)


def session(parties: int, length: int, drop=()):
    identities = [Identity(repeatable(b"%d" % i)) for i in range(parties)]
    server = Identity(repeatable(b"server"))
    public = tuple(identity.public for identity in identities)
    terms = complete_terms(
        "x",
        public,
        server.public,
        length=length,
        threshold=2 * parties // 3 + 1,
        threat_model="malicious",
        colluders=0,
    )
    vectors = {i: np.zeros(length, dtype="<u4") for i in range(parties)}
    return aggregate(terms, identities, server, vectors, drop={Phase.MASK: drop})


@pytest.mark.parametrize(
    ("compression", "sent"),
    [
        ("{kind: rand-k, ratio: 0.25}", 1000),
        ("{kind: rand-k, ratio: 0.25, bits: 4}", 125 + 4),
        ("{kind: top-k, ratio: 1.0, bits: 8}", 1000 + 4),
    ],
)
def test_compressed_messages_are_shorter_upwards_only(compression, sent) -> None:
    tree = topology.balanced((2, 2), ("edge",))
    spec = load_spec("quickstart", [f"compression={compression}"])
    found = TreeCosts.of(spec, tree, 1000).round(0).aggregation(0, np.arange(4))
    whole = costs(tree, {}, 1000).round(0).aggregation(0, np.arange(4))
    assert found.bytes_up == 4 * sent + 2 * 4000
    assert found.bytes_down == whole.bytes_down
    assert found.delay_s < whole.delay_s
