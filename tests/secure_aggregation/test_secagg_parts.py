from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repeatable_entropy import repeatable
from scipy.stats import chi2

from sfumato.secure_aggregation import graph, shares
from sfumato.secure_aggregation.client import pair_mask_key, self_mask_key
from sfumato.secure_aggregation.masks import Masker
from sfumato.secure_aggregation.threats import require_guarantee
from sfumato.wire import errors
from sfumato.wire.key_stream import KeyStream
from sfumato.wire.keys import Identity, KeyPair, check_signature, derive, seal, unseal

secrets = st.binary(min_size=32, max_size=32)


@given(secrets, st.integers(1, 8), st.integers(0, 5), st.randoms(use_true_random=False))
def test_any_threshold_of_shares_rebuilds_the_secret(secret, threshold, extra, random) -> None:
    points = random.sample(range(1, 1000), threshold + extra)
    dealt = shares.split(secret, threshold, points, repeatable(secret))
    some = dict(random.sample(sorted(dealt.items()), threshold))
    assert shares.rebuild(some, threshold) == secret


@given(secrets, secrets, st.integers(2, 6))
def test_fewer_shares_fit_every_secret(secret, other, threshold) -> None:
    dealt = shares.split(secret, threshold, range(1, threshold + 1), repeatable(secret))
    few = dict(itertools.islice(dealt.items(), threshold - 1))
    # the one polynomial through `few` and (0, other): its value at the missing point completes them
    weights = shares._weights((*sorted(few), threshold))
    rest = sum(w * few[x] for w, x in zip(weights, sorted(few), strict=False))
    completing = (int.from_bytes(other, "big") - rest) * pow(weights[-1], -1, shares.PRIME) % shares.PRIME
    assert shares.rebuild({**few, threshold: completing}, threshold) == other


def test_shares_are_uniform_whatever_the_secret() -> None:
    for secret in (bytes(32), b"\xff" * 32):
        draw = repeatable(secret)
        tops = [shares.split(secret, 2, [1, 2], draw)[1] >> 252 for _ in range(4000)]
        counts = np.bincount(np.minimum(tops, 15), minlength=16)
        assert ((counts - 250) ** 2 / 250).sum() < chi2.ppf(1 - 1e-7, 15)


def test_shamir_refuses_bad_calls() -> None:
    with pytest.raises(ValueError, match="not 0"):
        shares.split(bytes(32), 2, [0, 1], repeatable(b""))
    with pytest.raises(ValueError, match="distinct"):
        shares.split(bytes(32), 2, [1, 1], repeatable(b""))
    with pytest.raises(ValueError, match="at least the threshold"):
        shares.split(bytes(32), 3, [1, 2], repeatable(b""))
    with pytest.raises(ValueError, match="at least the threshold"):
        shares.rebuild({1: 5}, 2)
    with pytest.raises(ValueError, match="32"):
        shares.split(bytes(31), 1, [1], repeatable(b""))


def test_the_field_is_prime() -> None:
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23):
        assert pow(base, shares.PRIME - 1, shares.PRIME) == 1
    assert shares.PRIME > 1 << 256


def test_key_streams_are_aes_ctr_whatever_the_pieces() -> None:
    key = bytes(range(32))
    # NIST's AES-256 of block zero under this key (FIPS 197 vectors use another plaintext): by ECB
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    ecb = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    blocks = b"".join(ecb.update(counter.to_bytes(16, "big")) for counter in range(20_000))
    whole = KeyStream(key).words(40_000)
    assert whole.tobytes() == blocks
    stream = KeyStream(key)
    pieces = np.concatenate([stream.words(count) for count in (1, 7, 20_000, 19_992)])
    assert (pieces == whole).all()


def test_streams_of_different_keys_are_uniform_and_independent() -> None:
    one, other = (KeyStream(bytes([k]) * 32).words(200_000) for k in (1, 2))
    flipped = KeyStream(bytes([1]) * 31 + bytes([0])).words(200_000)  # one bit of the key, the last
    for second in (other, flipped):
        cells = (one >> np.uint64(60)) * np.uint64(16) + (second >> np.uint64(60))
        counts = np.bincount(cells.astype(np.int64), minlength=256)
        assert ((counts - 200_000 / 256) ** 2 / (200_000 / 256)).sum() < chi2.ppf(1 - 1e-7, 255)
        assert not np.intersect1d(one, second).size


def test_every_bit_of_the_key_matters() -> None:
    base = KeyStream(bytes(32)).words(4)
    for bit in range(256):
        assert (KeyStream((1 << bit).to_bytes(32, "big")).words(4) != base).any()


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_masks_cancel(bits: int) -> None:
    vector = np.arange(1001, dtype=f"<u{bits // 8}")
    total, masker = vector.copy(), Masker(1001, bits)
    masker.add(total, b"k" * 32)
    assert (total != vector).mean() > 0.99
    masker.subtract(total, b"k" * 32)
    assert (total == vector).all()


def test_keys_are_bound_to_session_purpose_and_pair() -> None:
    a, b, c = (KeyPair(bytes([k]) * 32) for k in (1, 2, 3))
    assert pair_mask_key(b"s", a, 0, 1, b.public) == pair_mask_key(b"s", b, 1, 0, a.public)
    keys = {
        pair_mask_key(b"s", a, 0, 1, b.public),
        pair_mask_key(b"t", a, 0, 1, b.public),
        pair_mask_key(b"s", a, 0, 2, b.public),
        pair_mask_key(b"s", a, 0, 1, c.public),
        self_mask_key(b"s", 0, bytes(32)),
        self_mask_key(b"s", 1, bytes(32)),
        self_mask_key(b"t", 0, bytes(32)),
        derive(a.agree(b.public), session=b"s", purpose=b"other", context=b""),
    }
    assert len(keys) == 8


def test_a_public_key_of_small_order_is_refused() -> None:
    with pytest.raises(errors.MalformedMessageError, match="X25519"):
        KeyPair(b"x" * 32).agree(bytes(32))


def test_boxes_and_signatures_notice_changes() -> None:
    box = seal(b"k" * 32, b"secret", b"to you", repeatable(b""))
    assert unseal(b"k" * 32, box, b"to you") == b"secret"
    for key, data, associated in [
        (b"l" * 32, box, b"to you"),
        (b"k" * 32, box[:-1] + bytes([box[-1] ^ 1]), b"to you"),
        (b"k" * 32, box, b"to me"),
        (b"k" * 32, box[:10], b"to you"),
    ]:
        with pytest.raises(errors.TamperedMessageError):
            unseal(key, data, associated)
    identity = Identity()
    check_signature(identity.public, identity.sign(b"x"), b"x")
    with pytest.raises(errors.TamperedMessageError):
        check_signature(identity.public, identity.sign(b"x"), b"y")


@settings(max_examples=50, deadline=None)
@given(st.integers(5, 60), st.integers(1, 10), st.binary(max_size=8))
def test_graphs_are_regular_symmetric_and_connected(parties, half, seed) -> None:
    degree = min(2 * half, (parties - 2) // 2 * 2)
    found = graph.neighbours(parties, degree, seed)
    assert all(len(row) == degree and i not in row for i, row in enumerate(found))
    assert all(i in found[j] for i, row in enumerate(found) for j in row)
    reached, front = {0}, [0]
    while front:
        front = [j for i in front for j in found[i] if j not in reached]
        reached.update(front)
    assert len(reached) == parties


def test_graphs_follow_the_seed() -> None:
    assert graph.neighbours(50, 6, b"a") == graph.neighbours(50, 6, b"a") != graph.neighbours(50, 6, b"b")
    assert graph.neighbours(5, 4, b"")[2] == (0, 1, 3, 4)
    with pytest.raises(ValueError, match="even"):
        graph.neighbours(50, 7, b"")


def test_degrees_grow_slowly_and_keep_their_promises() -> None:
    chosen = {
        n: graph.choose_neighbourhood(n, colluders=n // 5, dropouts=n // 10) for n in (100, 1000, 10_000)
    }
    assert chosen[1000].degree < 200
    assert chosen[10_000].degree < 1.6 * chosen[1000].degree
    for risk in chosen.values():
        assert risk.exposure + risk.isolation <= 2.0**-40
        assert risk.failure <= 2.0**-30
        assert 2 * risk.share_threshold > risk.degree + 1
    for n, risk in chosen.items():  # so terms are taken with them
        require_guarantee(
            parties=n,
            threshold=n - n // 10,
            degree=risk.degree,
            share_threshold=risk.share_threshold,
            threat_model="semi-honest",
            colluders=n // 5,
        )
    with pytest.raises(ValueError, match="cannot tolerate"):
        graph.choose_neighbourhood(30, colluders=20, dropouts=12)
    with pytest.raises(ValueError, match="colluders"):
        graph.choose_neighbourhood(30, colluders=30, dropouts=0)


def test_the_risk_of_a_small_graph_is_what_is_met() -> None:
    parties, degree, threshold, rounds = 40, 8, 6, 3000
    risk = graph.risks_of_graph(parties, degree, threshold, colluders=0, dropouts=10)
    failures = 0
    for number in range(rounds):
        found = graph.neighbours(parties, degree, b"%d" % number)
        failures += any(sum(j >= 10 for j in row) < threshold for row in found)
    assert risk.failure == 1 or failures / rounds <= risk.failure + 5 * np.sqrt(risk.failure / rounds)
    quiet = graph.risks_of_graph(parties, degree, 5, colluders=0, dropouts=4)
    failures = sum(
        any(sum(j >= 4 for j in row) < 5 for row in graph.neighbours(parties, degree, b"%d" % n))
        for n in range(rounds)
    )
    assert failures / rounds <= quiet.failure + 5 * np.sqrt(max(quiet.failure, 1e-3) / rounds)
