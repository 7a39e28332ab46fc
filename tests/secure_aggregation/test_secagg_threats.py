"""The guarantee of `threats`: at its bounds attacks fail, one colluder or one edge beyond they succeed."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secagg_stage import Listener, Stage

from sfumato.secure_aggregation import graph, messages, terms
from sfumato.secure_aggregation.client import survivors_digest
from sfumato.secure_aggregation.messages import MessageKind
from sfumato.secure_aggregation.threats import require_guarantee
from sfumato.wire import errors
from sfumato.wire.frames import EVERYBODY
from sfumato.wire.key_stream import KeyStream
from sfumato.wire.keys import digest

LENGTH = 8


class Views:
    """A malicious server that delivers shares, and lists of survivors, within groups of its choice.

    Args:
        make_parties: makes parties.
        count: how many.
        threshold: of survivors and of shares.
        colluders: how many really collude: the last ones. They get everything.
        declared: how many the terms reckon with.
    """

    def __init__(self, make_parties, count: int, threshold: int, colluders: int, declared: int) -> None:
        parties = make_parties(count)
        made = parties.complete(LENGTH, threshold, threat_model="malicious", colluders=declared)
        self.stage = Stage(parties, terms=made).until(MessageKind.DELIVERY)
        self.bad = set(range(count - colluders, count))
        self.honest = sorted(set(range(count)) - self.bad)
        self.listener = Listener(self.stage, self.bad)

    def mask(self, groups: dict[int, set[int]]) -> None:
        """Everybody masks, with those of its group only."""
        for i, boxes in self.stage.sent[MessageKind.DELIVERY].items():
            held = messages.decode_boxes(self.stage.payload(MessageKind.DELIVERY, i))
            if i in groups:
                held = {j: box for j, box in held.items() if j in groups[i]}
                boxes = self.stage.from_server(MessageKind.DELIVERY, messages.encode_boxes(held), i)
            self.listener.hear(self.stage.answer(MessageKind.DELIVERY, i, boxes))
        self.listener.corrupt()

    def sign(self, listed: set[int], signers: list[int]) -> list[bytes]:
        """Consents to a list: the signers' own, and the colluders', who sign anything."""
        signed = [self.stage.clients[i].consent(self.stage.survivors(listed, i)) for i in signers]
        content = survivors_digest(self.stage.terms.session, sorted(listed))
        for i in self.bad:
            signed.append(self.stage.by_party(MessageKind.CONSENT, content, i, EVERYBODY))
        return signed

    def unmask(self, signers: list[int], consents: list[bytes]) -> None:
        for i in signers:
            data = self.stage.from_server(MessageKind.CONSENTS, messages.encode_blobs(consents), i)
            self.listener.hear(self.stage.clients[i].unmask(data))


SIZES = [(6, 4), (7, 5), (9, 6), (10, 7)]


def two_lists(make_parties, count: int, threshold: int, colluders: int, declared: int) -> Views:
    """Two camps of honest parties: each meets itself and the colluders only, and signs that it survived."""
    views = Views(make_parties, count, threshold, colluders, declared)
    half = len(views.honest) // 2
    sides = [views.honest[half:], views.honest[:half]]
    views.mask({i: {*side, *views.bad} for side in sides for i in side})
    for side in sides:
        views.unmask(side, views.sign({*side, *views.bad}, side))
    return views


@pytest.mark.parametrize(("count", "threshold"), SIZES)
def test_two_lists_need_one_more_colluder_than_declared(make_parties, count, threshold) -> None:
    most = 2 * threshold - count - 1
    with pytest.raises(errors.BelowThresholdError):
        two_lists(make_parties, count, threshold, most, most)
    views = two_lists(make_parties, count, threshold, most + 1, most)
    half = len(views.honest) // 2
    for side in (views.honest[half:], views.honest[:half]):  # what would be learnt: each half's sum
        assert (views.listener.sum_of(side) == sum(side)).all()


def one_list(make_parties, count: int, threshold: int, colluders: int, declared: int) -> Views:
    """Some honest parties mask among themselves and the colluders only; the others sign a list of all."""
    views = Views(make_parties, count, threshold, colluders, declared)
    signers = views.honest[: threshold - colluders]
    apart = views.honest[threshold - colluders :]
    views.mask({i: {*apart, *views.bad} for i in apart})
    views.unmask(signers, views.sign(set(range(count)), signers))
    return views


@pytest.mark.parametrize(("count", "threshold"), SIZES)
def test_parties_masked_apart_need_one_more_colluder_than_declared(make_parties, count, threshold) -> None:
    """All signatures are under one list: the threshold of shares keeps the masks joined, not the consents."""
    most = 2 * threshold - count - 1
    with pytest.raises(errors.BelowThresholdError, match="neighbourhood"):
        one_list(make_parties, count, threshold, most, most)
    views = one_list(make_parties, count, threshold, most + 1, most)
    apart = views.honest[threshold - len(views.bad) :]
    assert (views.listener.sum_of(apart) == sum(apart)).all()


def cut_off(make_parties) -> tuple[Listener, list[int]]:
    """24 parties, degree 4, share threshold 3: the server claims that the four around three dropped out."""
    parties = make_parties(24)
    made = parties.sparse(LENGTH, 13, 4, 3, threat_model="malicious")
    stage = Stage(parties, terms=made).until(MessageKind.SURVIVORS)
    listener = Listener(stage, ())
    for data in stage.sent[MessageKind.MASKED].values():
        listener.hear(data)
    circle = KeyStream(digest(b"graph", made.graph_seed)).permutation(range(24))
    target, around = circle[10:13], [*circle[8:10], *circle[13:15]]
    listed = sorted(set(range(24)) - set(around))
    signed = [stage.clients[i].consent(stage.survivors(listed, i)) for i in listed]
    for i in listed:
        consents = stage.from_server(MessageKind.CONSENTS, messages.encode_blobs(signed), i)
        listener.hear(stage.clients[i].unmask(consents))
    return listener, target


def test_a_sparse_graph_is_refused_towards_a_malicious_server(make_parties, monkeypatch) -> None:
    """Why: nobody sees anything wrong, all sign one list, and the sum of three comes out."""
    with pytest.raises(errors.UnsafeTermsError, match="complete graph"):
        cut_off(make_parties)
    monkeypatch.setattr(terms, "require_guarantee", lambda **_: None)
    listener, target = cut_off(make_parties)
    assert (listener.sum_of(target) == sum(target)).all()


@pytest.mark.parametrize("degree", [4, 8, 16, 22])
def test_no_sparse_graph_is_taken_towards_a_malicious_server(make_parties, degree) -> None:
    with pytest.raises(errors.UnsafeTermsError, match="complete graph, 23"):
        make_parties(24).sparse(5, 24, degree, degree, threat_model="malicious")


def test_a_sparse_graph_that_may_fall_apart_is_refused_towards_a_semi_honest_server(make_parties) -> None:
    parties = make_parties(24)
    with pytest.raises(errors.UnsafeTermsError, match=r"falls apart with up to 1;"):
        parties.sparse(5, 13, 4, 3)
    parties.sparse(5, 21, 4, 3)  # three are gone at most: too few to cut it
    with pytest.raises(errors.UnsafeTermsError, match=r"exposed with probability up to 0\.054 "):
        parties.sparse(5, 24, 4, 3, colluders=3)
    full = parties.complete(5, 24, threat_model="semi-honest", colluders=13)
    with pytest.raises(errors.UnsafeTermsError, match="exposed with probability up to 1 "):
        dataclasses.replace(full, share_threshold=13)


def test_terms_need_a_threat_model_and_a_number_of_colluders(make_parties) -> None:
    parties = make_parties(4)
    fields = {"length": 5, "threshold": 3}
    for missing in ({"threat_model": "malicious"}, {"colluders": 0}):
        with pytest.raises(TypeError, match="missing"):
            terms.complete_terms("x", parties.public, parties.server.public, **fields, **missing)
    with pytest.raises(ValueError, match="'semi-honest' or 'malicious'"):
        parties.complete(5, 3, threat_model="trusted")
    with pytest.raises(ValueError, match="colluders"):
        parties.complete(5, 3, colluders=4)


@given(st.integers(2, 40), st.data())
def test_malicious_terms_are_taken_exactly_where_no_two_lists_fit(parties, data) -> None:
    """Brute force: honest parties in two camps of any sizes, with all colluders on both sides."""
    threshold = data.draw(st.integers(parties // 2 + 1, parties))
    colluders = data.draw(st.integers(0, parties - 1))
    honest = parties - colluders
    split = any(min(camp, honest - camp) + colluders >= threshold for camp in range(1, honest))
    taken = True
    try:
        require_guarantee(
            parties=parties,
            threshold=threshold,
            degree=parties - 1,
            share_threshold=threshold,
            threat_model="malicious",
            colluders=colluders,
        )
    except errors.UnsafeTermsError:
        taken = False
    assert taken == (not split and threshold - colluders >= 2)


def can_be_split(parties: int, threshold: int, shares: int, colluders: int) -> bool:
    """Whether some delivery of shares lets a sum of a part of the honest survivors out, all signing one list.

    Every choice is tried. Signers got shares from all on the list; others from any set, of at least
    ``shares - 1`` parties with colluders and honest parties off the list. A part comes out if every mask in
    it was put on by both ends, and both ends are in the part.
    """
    honest, signers = parties - colluders, threshold - colluders
    for listed in range(max(1, signers), honest + 1):
        everybody = frozenset(range(listed))
        free = range(signers, listed)
        least = shares - 1 - colluders - (honest - listed)
        choices = [
            [
                frozenset(some)
                for size in range(max(0, least), listed)
                for some in itertools.combinations(sorted(everybody - {i}), size)
            ]
            for i in free
        ]
        for chosen in itertools.product(*choices):
            masked = [everybody - {i} for i in range(signers)] + list(chosen)
            for start in everybody:
                part, front = {start}, [start]
                while front:
                    new = masked[front.pop()] - part
                    part |= new
                    front += new
                if part != everybody and all(i in masked[j] for i in part for j in masked[i]):
                    return True
    return False


@pytest.mark.parametrize("parties", [3, 4, 5, 6])
def test_the_third_step_of_the_derivation_by_brute_force(parties) -> None:
    """With one list signed, parts come out exactly where both thresholds add up to n + c or less."""
    seen = set()
    for threshold, shares, colluders in itertools.product(*[range(1, parties + 1)] * 2, range(parties)):
        if threshold - colluders < 2 or 2 * threshold <= parties + colluders or shares <= colluders:
            continue
        split = can_be_split(parties, threshold, shares, colluders)
        assert split == (threshold + shares <= parties + colluders)
        seen.add(split)
    assert seen == {True, False}


@pytest.mark.parametrize("which", ["threshold", "share_threshold"])
def test_each_threshold_has_its_own_bound(which) -> None:
    numbers = {"threshold": 7, "share_threshold": 7}
    fixed = {"parties": 10, "degree": 9, "threat_model": "malicious", "colluders": 3}
    require_guarantee(**numbers, **fixed)
    with pytest.raises(errors.UnsafeTermsError, match=f"^{which}: got 6; must be at least 7"):
        require_guarantee(**{**numbers, which: 6}, **fixed)


def components(left: set[int], near: list[tuple[int, ...]]) -> int:
    count, unseen = 0, set(left)
    while unseen:
        count, front = count + 1, [unseen.pop()]
        while front:
            reached = unseen & set(near[front.pop()])
            unseen -= reached
            front += reached
    return count


def test_graphs_fall_apart_no_more_often_than_assessed() -> None:
    parties, degree, gone, rounds = 24, 4, 6, 4000
    risk = graph.risks_of_graph(parties, degree, 3, colluders=1, dropouts=5).isolation
    apart = sum(
        components(set(range(gone, parties)), graph.neighbours(parties, degree, b"%d" % n)) > 1
        for n in range(rounds)
    )
    assert risk / 3 < apart / rounds < risk  # a bound, and not a loose one


@settings(max_examples=60, deadline=None)
@given(st.integers(8, 40), st.integers(1, 8), st.binary(max_size=8), st.randoms(use_true_random=False))
def test_fewer_than_degree_never_cut_a_graph(parties, half, seed, random) -> None:
    degree = min(2 * half, (parties - 2) // 2 * 2)
    gone = set(random.sample(range(parties), degree - 1))
    assert graph.risks_of_graph(parties, degree, degree, colluders=0, dropouts=degree - 1).isolation == 0
    assert components(set(range(parties)) - gone, graph.neighbours(parties, degree, seed)) == 1


def test_no_secret_is_used_twice_where_entropy_repeats_itself(make_parties) -> None:
    """A copied machine draws the same bytes in two sessions: no key, seed or masked vector is the same."""
    secrets: set[bytes] = set()
    masked = []
    for label in ("round 1", "round 2"):
        parties = make_parties(5)  # the same bytes again
        stage = Stage(parties, terms=parties.complete(LENGTH, 4, label=label)).until(MessageKind.MASKED)
        masked.append(np.frombuffer(stage.payload(MessageKind.MASKED), dtype="<u4"))
        for client in stage.clients:
            secrets |= {client._seed, client._masking.secret, client._sealing.secret}
    assert len(secrets) == 2 * 5 * 3
    assert (masked[0] != masked[1]).all()
