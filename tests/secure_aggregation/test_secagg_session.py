from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from sfumato.secure_aggregation import messages, shares
from sfumato.secure_aggregation.client import self_mask_key
from sfumato.secure_aggregation.encoding import decode, encode
from sfumato.secure_aggregation.fast_path import fast_sum, survivors_of
from sfumato.secure_aggregation.masks import Masker
from sfumato.secure_aggregation.quantisation import QuantisationPlan
from sfumato.secure_aggregation.server import AggregationServer, Phase
from sfumato.secure_aggregation.session import aggregate
from sfumato.wire import errors
from sfumato.wire.frames import parse_frame
from sfumato.wire.keys import KeyPair, session_entropy

PHASES = [Phase.ADVERTISE, Phase.SHARE, Phase.MASK, Phase.CONSENT, Phase.UNMASK]


def ring_vectors(count: int, length: int, bits: int = 32, seed: int = 0) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {i: rng.integers(0, 2**bits, length, dtype=f"<u{bits // 8}") for i in range(count)}


def plain_sum(vectors, survivors):
    return np.sum([vectors[i] for i in survivors], axis=0, dtype=vectors[0].dtype)


@pytest.mark.parametrize("trust", ["malicious", "semi-honest"])
@pytest.mark.parametrize("phase", PHASES)
def test_the_sum_of_the_survivors_whoever_drops_out_when(make_parties, phase, trust) -> None:
    parties = make_parties(10)
    terms = parties.complete(500, 7, threat_model=trust)
    vectors = ring_vectors(10, 500)
    gone = [1, 4, 9]
    outcome = aggregate(terms, parties.identities, parties.server, vectors, drop={phase: gone})
    expected = tuple(i for i in range(10) if i not in gone or phase > Phase.MASK)
    if trust == "semi-honest" and phase is Phase.CONSENT:
        expected = tuple(range(10))  # that phase does not happen: nobody drops
    assert outcome.survivors == expected
    assert (outcome.total == plain_sum(vectors, expected)).all()
    assert not outcome.rejected
    assert outcome.survivors == survivors_of(10, 7, {phase: gone}, trust)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_dropouts_at_several_phases_over_a_sparse_graph(make_parties, bits) -> None:
    parties = make_parties(40)
    terms = parties.sparse(300, 25, 16, 10)
    terms = type(terms)(**{**{f: getattr(terms, f) for f in terms.__dataclass_fields__}, "bits": bits})
    vectors = ring_vectors(40, 300, bits)
    drop = {
        Phase.ADVERTISE: [0],
        Phase.SHARE: [7, 8],
        Phase.MASK: [20, 21],
        Phase.CONSENT: [30],
        Phase.UNMASK: [39],
    }
    outcome = aggregate(terms, parties.identities, parties.server, vectors, drop=drop)
    assert outcome.survivors == tuple(i for i in range(40) if i not in (0, 7, 8, 20, 21))
    assert (outcome.total == plain_sum(vectors, outcome.survivors)).all()


def test_exactly_the_threshold_is_enough(make_parties) -> None:
    parties = make_parties(9)
    vectors = ring_vectors(9, 20)
    outcome = aggregate(
        parties.complete(20, 5),
        parties.identities,
        parties.server,
        vectors,
        drop={Phase.UNMASK: [0, 1, 2, 3]},
    )
    assert (outcome.total == plain_sum(vectors, range(9))).all()


@pytest.mark.parametrize("phase", PHASES)
def test_below_the_threshold_nothing_is_revealed(make_parties, phase) -> None:
    parties = make_parties(10)
    terms = parties.complete(50, 7)
    servers: list[AggregationServer] = []
    real = AggregationServer.__init__

    def remember(self, *args) -> None:
        servers.append(self)
        real(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AggregationServer, "__init__", remember)
        with pytest.raises(errors.BelowThresholdError, match="nothing is revealed"):
            aggregate(
                terms, parties.identities, parties.server, ring_vectors(10, 50), drop={phase: [0, 1, 2, 3]}
            )
    (server,) = servers
    assert server.phase is Phase.ABORTED
    with pytest.raises(errors.OutOfOrderMessageError, match="no result"):
        _ = server.result
    with pytest.raises(errors.OutOfOrderMessageError, match="ended"):
        server.close()
    for table in (server._mask_shares, server._seed_shares):
        assert all(
            len(row) < terms.share_threshold for row in table.values()
        )  # tells nothing: test_secagg_parts


def test_the_fast_path_gives_the_same_bits(make_parties) -> None:
    parties = make_parties(12)
    plan = QuantisationPlan(1.0, 2.0**24, 32, parties=12, dimension=400, noise_std=2.0**22)
    terms = parties.complete(400, 8, bits=plan.bits)
    rng = np.random.default_rng(3)
    updates = {i: rng.normal(size=400).astype(np.float32) for i in range(12)}
    keys = {i: bytes([i]) * 32 for i in range(12)}
    for phase in PHASES:
        drop = {phase: [2, 3, 5]}
        parties = make_parties(12)
        encoded = {i: encode(updates[i], plan, keys[i]) for i in range(12)}
        outcome = aggregate(terms, parties.identities, parties.server, encoded, drop=drop)
        fast = fast_sum(encoded, survivors_of(12, 8, drop))
        assert outcome.total.tobytes() == fast.tobytes()
    exact = sum(updates[i] / max(1, np.linalg.norm(updates[i])) for i in outcome.survivors)
    assert np.abs(decode(fast, plan) - exact).max() < 7 * np.sqrt(plan.parties) * plan.noise_std / plan.scale


def _masked_inputs(make_parties, vectors, salt) -> dict[int, np.ndarray]:
    parties = make_parties(4)
    length = len(vectors[0])
    seen: dict[int, np.ndarray] = {}

    def listen(phase, party, upwards, data):
        if phase is Phase.MASK and upwards:
            seen[party] = messages.decode_vector(parse_frame(data).payload, length, 32)
        return [data]

    aggregate(
        parties.complete(length, 3),
        parties.identities,
        parties.server,
        vectors,
        entropy=parties.entropy(salt),
        wire=listen,
    )
    return seen


def test_what_the_server_sees_does_not_depend_on_one_input_given_the_sum(make_parties) -> None:
    """Two worlds of equal sum, fresh masks: masked inputs are uniform in both, singly and in pairs."""
    length, runs = 4000, 12
    zero, big = np.zeros(length, dtype=np.uint32), np.full(length, 123_456_789, dtype=np.uint32)
    worlds = {"one": [big, zero, zero, zero], "other": [zero, big, zero, zero]}
    counts = {}
    for name, inputs in worlds.items():
        vectors = dict(enumerate(inputs))
        seen = [_masked_inputs(make_parties, vectors, (name, run)) for run in range(runs)]
        y = {i: np.concatenate([s[i] for s in seen]).astype(np.int64) for i in range(4)}
        assert len(np.unique(y[0])) > 0.99 * len(y[0])
        total = sum(y.values()) % 2**32
        assert not (total == 123_456_789).any()  # the self masks are still on
        tables = {"top": y[0] >> 24, "low": y[0] & 255}
        for other in (1, 2):
            tables[f"pair {other}"] = (y[0] >> 28) * 16 + (y[other] >> 28)
            tables[f"difference {other}"] = ((y[0] - y[other]) % 2**32) >> 24
        tables["sum"] = total >> 24
        counts[name] = {key: np.bincount(cells, minlength=256) for key, cells in tables.items()}
        for key, found in counts[name].items():
            mean = runs * length / 256
            assert ((found - mean) ** 2 / mean).sum() < chi2.ppf(1 - 1e-8, 255), (name, key)
    for key, first in counts["one"].items():
        second = counts["other"][key]
        assert ((first - second) ** 2 / (first + second)).sum() < chi2.ppf(1 - 1e-8, 255), key


def test_given_the_sum_the_unmasked_rest_is_the_same_in_both_worlds(make_parties) -> None:
    """All self masks taken off, what is left has the inputs' sum and else only pairwise masks: uniform."""
    length = 20_000
    zero, big = np.zeros(length, dtype=np.uint32), np.full(length, 7, dtype=np.uint32)
    for salt, inputs in (("a", [big, zero, zero, zero]), ("b", [zero, zero, zero, big])):
        grabbed: dict[int, np.ndarray] = {}
        rebuilt: dict[int, bytes] = {}

        def listen(phase, party, upwards, data, grabbed=grabbed, rebuilt=rebuilt):
            payload = parse_frame(data).payload
            if upwards and phase is Phase.MASK:
                grabbed[party] = messages.decode_vector(payload, length, 32).copy()
            if upwards and phase is Phase.UNMASK:
                rebuilt[party] = messages.decode_reveal(payload)[1]
            return [data]

        parties = make_parties(4)
        terms = parties.complete(length, 3)
        vectors = dict(enumerate(inputs))
        aggregate(
            terms, parties.identities, parties.server, vectors, entropy=parties.entropy(salt), wire=listen
        )
        for j in range(4):
            seed = shares.rebuild({i + 1: rebuilt[i][j] for i in range(4)}, 3)
            Masker(length, 32).subtract(grabbed[j], self_mask_key(terms.session, j, seed))
        assert (np.sum(list(grabbed.values()), axis=0, dtype=np.uint32) == 7).all()
        for j in range(4):
            found = np.bincount((grabbed[j] >> 24).astype(np.int64), minlength=256)
            assert ((found - length / 256) ** 2 / (length / 256)).sum() < chi2.ppf(1 - 1e-8, 255)


def test_no_secret_crosses_the_wire(make_parties) -> None:
    """Neither seeds, nor masking keys, nor sealing keys, nor vectors; whoever drops out."""
    parties = make_parties(5)
    wired: list[bytes] = []
    terms = parties.complete(64, 4)
    vectors = ring_vectors(5, 64)

    def listen(phase, party, upwards, data):
        wired.append(data)
        return [data]

    aggregate(
        terms,
        parties.identities,
        parties.server,
        vectors,
        drop={Phase.MASK: [2]},
        entropy=parties.entropy(),
        wire=listen,
    )
    everything = b"".join(wired)
    for party in range(5):
        draw = session_entropy(parties.entropy()(party), parties.identities[party], terms.session, party)
        sealing, masking, seed = draw(32), draw(32), draw(32)  # in the order in which Client draws them
        assert KeyPair(masking).public in everything
        assert KeyPair(sealing).public in everything
        for secret in (sealing, masking, seed, vectors[party][:4].tobytes()):
            assert secret not in everything


def test_two_sessions_of_the_same_parties_share_no_mask(make_parties) -> None:
    zero = dict.fromkeys(range(4), np.zeros(1000, dtype=np.uint32))
    first, second = (_masked_inputs(make_parties, zero, salt)[0] for salt in (1, 2))
    assert (first != second).mean() > 0.99


def test_terms_refuse_unsafe_thresholds(make_parties) -> None:
    parties = make_parties(10)
    with pytest.raises(ValueError, match="more than half"):
        parties.complete(5, 5)
    with pytest.raises(ValueError, match="share_threshold"):
        parties.sparse(5, 6, 4, 2)
    with pytest.raises(ValueError, match="bits"):
        parties.complete(5, 7, bits=20)
    assert parties.complete(5, 7).session != parties.complete(5, 7, label="else").session


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["malicious", "semi-honest"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_hundred_devices_of_a_hundred_thousand_parameters(make_parties, phase, trust) -> None:
    """Threshold 67, 20 drop out in each phase in turn; the exact sum."""
    parties = make_parties(100)
    vectors = ring_vectors(100, 100_000)
    gone = range(40, 60)
    outcome = aggregate(
        parties.complete(100_000, 67, threat_model=trust),
        parties.identities,
        parties.server,
        vectors,
        drop={phase: gone},
    )
    assert len(outcome.survivors) == (80 if phase <= Phase.MASK else 100)
    assert (outcome.total == plain_sum(vectors, outcome.survivors)).all()


def test_forty_devices_of_ten_thousand_parameters(make_parties) -> None:
    """The always-on version of the above."""
    vectors = ring_vectors(40, 10_000)
    for phase in (Phase.SHARE, Phase.MASK):
        parties = make_parties(40)
        outcome = aggregate(
            parties.complete(10_000, 27), parties.identities, parties.server, vectors, drop={phase: range(8)}
        )
        assert outcome.survivors == tuple(range(8, 40))
        assert (outcome.total == plain_sum(vectors, outcome.survivors)).all()
