"""A trusted aggregator draws a fixed number of its devices: the law, who sees it, and what is refused."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed_parties import Stage, answers, staged
from losing_devices import model_of
from rehearsals import (
    STAR,
    TREE,
    UNLIMITED,
    SimulatedRandomness,
    model_bytes,
    on_the_grid,
    rehearsed,
    spec_of,
    terms_of,
)
from scipy.stats import chisquare

from sfumato.accounting import account
from sfumato.checked import statement
from sfumato.deployment import randomness as randomness_file
from sfumato.deployment.collecting import with_own_noise
from sfumato.deployment.consent import agree
from sfumato.deployment.duties import duties
from sfumato.deployment.messages import FrameKind, IntArray, RoundPosition, decode_answer, encode_answer
from sfumato.deployment.randomness import SystemRandomness, round_context, secret_choice
from sfumato.deployment.refusals import require_deployable
from sfumato.errors import SpecError
from sfumato.schedule.resolve import resolve
from sfumato.simulation.run import run
from sfumato.spec.document import Spec
from sfumato.verify.checker import check_run
from sfumato.wire.errors import MalformedMessageError
from sfumato.wire.frames import Frame, parse_frame, seal_frame
from sfumato.wire.keys import Identity

ERROR = 1e-7
FIXED = {"participation": {"kind": "fixed", "count": 2}}
EDGES = TREE | {
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 4},
    "trust": {"trusted_edges": [0, 1]},
    "training": TREE["training"] | FIXED,
}
"""Two aggregations a round; each edge draws two of four devices, and adds all noise."""
ONE_STAR = STAR | {"trust": {"cloud": True}, "training": STAR["training"] | FIXED}
MASKED = {"transport": {"devices_to_edge": "secure-aggregation"}}


class Choosing(SystemRandomness):
    """Draws that a test decides, and all else from the operating system."""

    def __init__(self, *places: int) -> None:
        self.places = np.array(places, np.int64)

    def chosen(self, *_: object) -> IntArray:
        return self.places


def question_to(edge: int, stage: Stage) -> bytes:
    """What the cloud asks an edge in the first round."""
    asked = stage.cloud().ask(0, model_of(stage))
    return next(data for data in asked if parse_frame(data).recipient == edge)


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("document", [ONE_STAR, EDGES], ids=["star", "two levels"])
def test_the_model_is_that_of_run_on_the_same_grid(document: dict[str, Any], tmp_path: Path) -> None:
    """With the draws of `run` injected: so all that anybody but the aggregator sees has the law of `run`."""
    with on_the_grid():
        expected = run(spec_of(document), out=tmp_path / "expected", device="cpu", progress=False)
    played = rehearsed(spec_of(document), tmp_path)
    assert model_bytes(played) == model_bytes(expected.folder)
    assert check_run(played.path).problems == []


@pytest.mark.parametrize(("size", "count"), [(5, 2), (4, 3), (6, 1)])
def test_every_set_of_devices_is_equally_likely(size: int, count: int) -> None:
    """Error below 1e-6; a draw that prefers the first place is rejected."""
    draws = 6_000
    sets = list(combinations(range(size), count))
    found = Counter(
        tuple(secret_choice(number.to_bytes(32, "big"), size, count).tolist()) for number in range(draws)
    )
    assert set(found) <= set(sets)
    seen = np.array([found[one] for one in sets])
    assert chisquare(seen).pvalue > ERROR
    preferring = seen * np.where([0 in one for one in sets], 1.5, 1.0)
    assert chisquare(preferring * draws / preferring.sum()).pvalue < ERROR


def test_all_of_few_devices_can_be_drawn() -> None:
    assert secret_choice(bytes(32), 1, 1).tolist() == [0]
    assert secret_choice(bytes(32), 3, 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("bound", [1, 2, 5, 256, 257])
def test_a_number_below_a_bound_is_uniform_exactly(bound: int) -> None:
    """Each number comes from one word, and all other words are left out."""
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8

    class Words:
        def __init__(self, *words: int) -> None:
            self.left = [word << (8 * size - bits) for word in words]

        def take(self, count: int) -> bytes:
            assert count == size
            return self.left.pop(0).to_bytes(size, "big")

    below = randomness_file._below
    assert [below(Words(word), bound) for word in range(bound)] == [*range(bound)]  # type: ignore[arg-type]
    for large in range(bound, 1 << bits):
        assert below(Words(large, 0), bound) == 0  # type: ignore[arg-type]


def test_an_aggregator_draws_so_many_anew_in_every_round(tmp_path: Path) -> None:
    with staged(EDGES, tmp_path) as stage:
        edge, terms = stage.terms.edge(0), stage.terms
        rounds = 60
        found = [
            tuple(SystemRandomness().chosen(terms.plan, 0, number, 2, edge.to_bytes(32, "big")).tolist())
            for number in range(rounds)
        ]
        assert {len(set(one)) for one in found} == {2}
        assert len(set(found)) > 3  # of six sets; three or fewer with probability below 1e-16


def test_every_edge_adds_up_as_many_as_the_account_has_for_it(tmp_path: Path) -> None:
    """By the operating system's draws; one edge draws one of four, the other three of five."""
    uneven = EDGES | {
        "topology": {"kind": "tree", "edges": 2, "devices_per_edge": [4, 5]},
        "training": EDGES["training"] | {"participation": {"kind": "fixed", "count": [1, 3]}},
    }
    with staged(uneven, tmp_path) as stage:
        terms = stage.terms
        for data in stage.cloud().ask(0, model_of(stage)):
            stage.edge(parse_frame(data).recipient).receive(data)
        counted = [stage.edge(terms.edge(edge))._collection._counted for edge in (0, 1)]  # type: ignore[union-attr]
        assert [len(one) for one in counted] == [1, 3]
        assert [terms.drawn_below(terms.edge(edge)) for edge in (0, 1)] == [1, 3]
        assert all(one <= set(terms.children(terms.edge(edge))) for edge, one in enumerate(counted))
        assert terms.drawn_below(terms.cloud) is None
        said = [row.why for row in account(terms.plan.spec, unit="device:8").guarantees]
        assert any("a draw of 3 of 5, unseen" in why for why in said)


def test_a_generator_that_repeats_itself_gives_other_aggregators_and_rounds_other_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in copies of one machine. 40 draws of one of six sets are alike with probability 6^-39."""
    with staged(EDGES, tmp_path) as stage:
        plan, keys = stage.terms.plan, [Identity(), Identity()]
        monkeypatch.setattr("os.urandom", bytes)
        rows = {
            tuple(
                tuple(SystemRandomness().chosen(plan, 0, number, 2, round_context(key, b"run", node, number)))
                for number in range(40)
            )
            for key in keys
            for node in (stage.terms.edge(0), stage.terms.edge(1))
        }
        assert len(rows) == 4
        assert all(len(set(row)) > 1 for row in rows)


@pytest.mark.parametrize("places", [(0, 1), (1, 3)])
def test_everybody_is_asked_and_the_cloud_sees_nothing_of_who_counts(
    places: tuple[int, int], tmp_path: Path
) -> None:
    """All devices get and send frames of one length; of an edge the cloud gets one frame, with the sum of
    those that were drawn and all of its noise."""
    with staged(EDGES, tmp_path) as stage:
        terms, edge = stage.terms, stage.terms.edge(0)

        class Both(SimulatedRandomness):
            def chosen(self, *_: object) -> IntArray:
                return np.array(places, np.int64)

        drawn = Both(terms.plan, stage.inputs, edge)
        stage.edge(edge)._randomness = drawn
        _, carried = stage.play(model_of(stage))
        found = answers(carried, stage)
        children = list(terms.children(edge))
        assert all(steps.any() for (sender, _), steps in found.items() if sender < terms.cloud)
        assert {sender for sender, _ in found if sender < terms.cloud} == set(range(8))
        assert len({len(data) for data in carried if parse_frame(data).sender < terms.cloud}) == 1
        asked = [parse_frame(data) for data in carried if parse_frame(data).kind == FrameKind.QUESTION]
        assert Counter(one.recipient for one in asked if one.recipient < terms.cloud) == dict.fromkeys(
            range(8), terms.last + 1
        )
        dump = [parse_frame(data) for data in carried if parse_frame(data).recipient == terms.cloud]
        assert Counter(frame.sender for frame in dump) == dict.fromkeys(terms.children(terms.cloud), 1)
        total = np.zeros(terms.parameters, np.int64)
        for index in range(terms.last + 1):
            position = RoundPosition(0, index)
            nothing = np.zeros(terms.parameters, np.int64)
            total += with_own_noise(terms, edge, position, nothing, drawn.noise_key(position))
            total += sum(found[children[place], position] for place in places)
        assert np.array_equal(found[edge, terms.at(0)], total)


@pytest.mark.parametrize("places", [(0, 1), (1, 3)], ids=["drawn", "not drawn"])
def test_a_message_that_is_too_long_is_refused_whether_it_counts_or_not(
    places: tuple[int, int], tmp_path: Path
) -> None:
    """Who does not clip would show all others whether it was drawn, and with it who else may have been: the
    account compares cohorts by messages as long as declared."""
    with staged(EDGES, tmp_path) as stage:
        terms, edge = stage.terms, stage.terms.edge(0)
        stage.edge(edge)._randomness = Choosing(*places)
        question = question_to(edge, stage)
        asked = stage.edge(edge).receive(question)[0]
        hostile = parse_frame(asked).recipient
        assert hostile == next(iter(terms.children(edge)))
        (honest,) = stage.device(hostile).receive(asked)
        position, about, _ = decode_answer(parse_frame(honest).payload, terms.parameters)
        longest = terms.longest(hostile, position)

        def sent(length: int) -> bytes:
            steps = np.zeros(terms.parameters, np.int64)
            steps[3] = -length
            frame = Frame(
                FrameKind.ANSWER, terms.session, hostile, edge, encode_answer(position, about, steps)
            )
            return seal_frame(frame, stage.identities[hostile])

        with pytest.raises(MalformedMessageError, match="a message is longer than the declared"):
            stage.edge(edge).receive(sent(math.floor(longest) + 1))
        assert hostile in stage.edge(edge)._collection.missing  # type: ignore[union-attr]
        stage.edge(edge).receive(sent(math.floor(longest)))
        assert hostile not in stage.edge(edge)._collection.missing  # type: ignore[union-attr]


def test_how_long_a_message_can_be_is_known_where_no_noise_is_in_it(tmp_path: Path) -> None:
    with staged(
        EDGES | {"privacy": EDGES["privacy"] | {"clip": {"kind": "update", "norm": 0.5}}}, tmp_path
    ) as stage:
        terms, first = stage.terms, RoundPosition(0, 0)
        steps = 0.5 / 4 * terms.grid(first).scale  # of a message that is clipped to 1/2; four are averaged
        assert steps < terms.longest(0, first) < steps * 1.001
        assert terms.longest(terms.edge(0), terms.at(0)) == math.inf
    with staged(STAR, tmp_path / "star") as stage:
        assert stage.terms.noisy()[0]
        assert stage.terms.longest(0, first) == math.inf


def test_a_draw_stays_over_restarts_for_all_aggregations_of_its_round(tmp_path: Path) -> None:
    """An edge is killed before each aggregation, and its randomness says another set afterwards."""
    with staged(EDGES, tmp_path) as stage:
        terms, edge = stage.terms, stage.terms.edge(0)
        stage.edge(edge)._randomness = Choosing(0, 2)
        question = question_to(edge, stage)
        assert len(stage.edge(edge).receive(question)) == 4
        kept = []
        for _ in range(terms.last + 1):
            stage.restart(edge)
            stage.edge(edge)._randomness = Choosing(1, 3)
            asked = stage.edge(edge).receive(question)
            kept.append(set(stage.edge(edge)._collection._counted))  # type: ignore[union-attr]
            for data in asked:
                (answer,) = stage.party(parse_frame(data).recipient).receive(data)
                stage.edge(edge).receive(answer)
        children = list(terms.children(edge))
        assert kept == [{children[0], children[2]}] * (terms.last + 1)
        assert stage.memory(edge).keep_draw(terms.session, 1, b"new") == b"new"  # another round has its own


def test_the_account_charges_sums_only_towards_all_but_the_trusted_aggregator() -> None:
    """What the protocol rests on: no row is about a single message, or about a draw that is seen in full."""
    for document in (EDGES, ONE_STAR):
        for row in account(spec_of(document)).guarantees:
            if np.isfinite(row.epsilon):
                assert "average" in row.why
                assert "single message" not in row.why
            else:
                assert "is trusted with raw updates" in row.why


NO_NOISE_OF_EDGES = EDGES | {"trust": {"trusted_edges": [0]}}
DEVICES_ADD_NOISE = EDGES | {
    "protocol": "hdp",
    "training": {key: value for key, value in EDGES["training"].items() if key != "edge_every"},
    "privacy": STAR["privacy"] | {"noise": {"multiplier": 1.0, "placement": {"device": 0.5, "edge": 0.5}}},
}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (STAR | {"training": STAR["training"] | FIXED}, "be trusted with raw updates by all devices"),
        (NO_NOISE_OF_EDGES, "be trusted with raw updates by all devices"),
        (DEVICES_ADD_NOISE, "add the noise, and no device"),
        (EDGES | MASKED, "receive single messages, over a plain hop"),
        (EDGES | {"faults": {"dropout_rate": 0.1}}, "have everybody's answers: leave faults out"),
    ],
)
def test_what_the_account_does_not_cover_is_refused(document: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as refused:
        require_deployable(resolve(spec_of(document)), 100)
    assert refused.value.place == "training.participation"
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_sheet_and_the_words_of_a_consent_say_it(tmp_path: Path) -> None:
    with staged(EDGES, tmp_path) as stage:
        said = duties(stage.terms, 0)[1]
        draws = "It answers in every round; edge:0 draws 2 of the 4 below it and adds up their messages"
        rely = "It is told to nobody whom: the figures towards others rely on that draw, and on its secrecy."
        assert said == f"{draws} alone. {rely}"
        pinned = UNLIMITED.model_copy(update={"trusted": stage.pins()})
        assert said in agree(stage.terms, 0, pinned, stage.ledger(0)).words
        of_edge = " ".join(duties(stage.terms, stage.terms.edge(0)))
        assert "edge:0 adds up the messages of 2 of the 4 below it" in of_edge
        assert "It must keep that secret: the figures towards others rely on it." in of_edge
        assert "draws" not in " ".join(duties(stage.terms, stage.terms.cloud))


def added_noise(spec: Spec) -> float:
    """The std of all noise that reaches the cloud in a round, in units of the model."""
    terms = terms_of(spec, 170, tuple(bytes([number]) * 32 for number in range(11)))
    positions = [RoundPosition(0, index) for index in range(terms.last + 1)]
    steps = [terms.noise_steps(terms.edge(edge), where) for edge in (0, 1) for where in positions]
    return float(np.linalg.norm(steps)) / terms.grid(positions[0]).scale


@pytest.mark.usefixtures("no_report", "coarse_losses")
def test_the_run_folder_is_verified_and_does_not_tell_who_took_part(tmp_path: Path) -> None:
    folder = rehearsed(spec_of(EDGES), tmp_path, simulated=False)
    assert check_run(folder.path).problems == []
    assert folder.ledger["realised"]["participations"] is None
    assert folder.metrics["noise_std"].tolist() == pytest.approx([added_noise(spec_of(EDGES))] * 3, rel=1e-9)
    assert folder.metrics["bytes_up"].nunique() == folder.metrics["bytes_down"].nunique() == 1
    expected = {(row.unit, row.observer): row.epsilon for row in account(spec_of(EDGES)).guarantees}
    assert {(row.unit, row.observer): row.epsilon for row in folder.privacy.guarantees} == expected
    stated = statement(folder.path, tmp_path / "statement.html").read_text("utf-8")
    assert "Who and which rows were drawn stays secret." in stated
    assert "Trusted aggregators draw devices as the spec says." in stated
    assert "by coins" not in stated
