"""Devices that take part by a coin of their own: its law, that it stays, and who sees nothing of it."""

from __future__ import annotations

from contextlib import closing
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from deployed_parties import answers, staged
from drawn_devices import (
    DRAWN_STAR,
    DRAWN_TREE,
    MASKED,
    MASKED_EDGES,
    QUIET_DEVICES,
    QUIET_STAR,
    RATE,
    decide,
)
from losing_devices import model_of, recorded
from rehearsals import UNLIMITED, SimulatedRandomness, rehearsed, spec_of
from scipy.stats import binomtest

from sfumato.accounting import account
from sfumato.checked import statement
from sfumato.deployment import randomness as randomness_file
from sfumato.deployment.collecting import with_own_noise
from sfumato.deployment.consent import agree
from sfumato.deployment.duties import duties
from sfumato.deployment.ledger import OwnersLedger
from sfumato.deployment.messages import FrameKind, RoundPosition, decode_masking
from sfumato.deployment.randomness import SystemRandomness, round_context, secret_coin
from sfumato.run_folder.reader import RunFolder
from sfumato.schedule.tree import TreePlan
from sfumato.secure_aggregation.messages import MessageKind, decode_vector
from sfumato.verify.checker import check_run
from sfumato.wire.frames import parse_frame
from sfumato.wire.keys import Identity

ERROR = 1e-7


def p_value(heads: int, tosses: int, rate: float) -> float:
    return float(binomtest(heads, tosses, rate).pvalue)


def plan_with(rate: float) -> TreePlan:
    return cast(TreePlan, SimpleNamespace(participants=SimpleNamespace(rate=rate)))


@pytest.mark.parametrize("rate", [0.02, RATE, 0.9])
def test_coins_of_the_operating_system_have_the_rate_of_the_spec_and_no_other(rate: float) -> None:
    """Error below 1e-6 a test, also of rejecting too few wrong rates."""
    plan, tosses = plan_with(rate), 40_000
    heads = sum(SystemRandomness().takes_part(plan, 0, b"") for _ in range(tosses))
    assert p_value(heads, tosses, rate) > ERROR
    for wrong in (rate / 2, min(rate * 1.5, 1 - (1 - rate) * 0.8)):
        assert p_value(heads, tosses, wrong) < ERROR


@pytest.mark.parametrize("rate", [0.1, RATE, 0.5, 1.0, 2.0**-70, 5e-324])
def test_a_coin_has_its_rate_exactly(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 2^b words of b bits, as many as the rate is over 2^-b are heads: the first ones."""
    below, of = rate.as_integer_ratio()
    bits = of.bit_length() - 1
    size = (bits + 7) // 8

    def tossed(word: int) -> bool:
        packed = (word << (8 * size - bits)).to_bytes(size, "big")

        class Stream:
            def __init__(self, key: bytes) -> None: ...

            def take(self, count: int) -> bytes:
                assert count == size
                return packed

        monkeypatch.setattr(randomness_file, "KeyStream", Stream)
        return secret_coin(bytes(32), rate)

    assert tossed(below - 1)
    assert below == of or not tossed(below)


def test_a_generator_that_repeats_itself_gives_other_devices_and_rounds_other_coins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in copies of one machine. 100 tosses are alike, in two rows or in one, with probability 2^-99."""
    keys = [Identity(), Identity()]
    monkeypatch.setattr("os.urandom", bytes)
    rows = {
        tuple(
            SystemRandomness().takes_part(plan_with(0.5), number, round_context(key, b"run", party, number))
            for number in range(100)
        )
        for key in keys
        for party in (0, 1)
    }
    assert len(rows) == 4
    assert all(len(set(row)) == 2 for row in rows)


def test_the_coins_of_a_deployed_device_have_that_law_too(tmp_path: Path) -> None:
    """Each round has a coin of its own. Error below 1e-6, also of rejecting too few wrong rates."""
    document = DRAWN_STAR | {"training": DRAWN_STAR["training"] | {"rounds": 400}}
    with staged(document, tmp_path) as stage:
        tossed = [stage.device(0)._takes_part(number) for number in range(400)]
    assert p_value(sum(tossed), 400, RATE) > ERROR
    assert p_value(sum(tossed), 400, RATE / 4) < ERROR
    assert p_value(sum(tossed), 400, RATE * 2) < ERROR


def test_who_takes_no_part_sends_zeros_in_every_aggregation_after_the_same_work(tmp_path: Path) -> None:
    with staged(DRAWN_TREE, tmp_path) as stage:
        decide(stage, d0=False, d1=True, d2=False, d3=True)
        trained = []
        for device in range(4):
            data = stage.device(device)._data
            message = data.message
            data.message = lambda *of, say=device, do=message: (trained.append(say), do(*of))[1]
        _, carried = stage.play(model_of(stage))
        found = answers(carried, stage)
        for (sender, _), steps in found.items():
            if sender < 4:
                assert steps.any() == (sender in (1, 3))
        assert sorted(trained) == sorted([*range(4)] * (stage.terms.last + 1))
        lengths = {len(data) for data in carried if parse_frame(data).sender < 4}
        assert len(lengths) == 1


def test_a_device_that_starts_again_keeps_its_coin(tmp_path: Path) -> None:
    """Killed between two aggregations of a round, and before an answer was recorded; new coins say else."""
    for says in (True, False):
        (tmp_path / str(says)).mkdir()
        with staged(DRAWN_TREE, tmp_path / str(says)) as stage:
            decide(stage, d2=says)
            found = {}
            for data in stage.sent(model_of(stage)):
                found |= answers([data], stage)
                if parse_frame(data).sender == 2:
                    stage.restart(2)
                    decide(stage, d2=not says)
            stage.forget_last(2)
            stage.restart(2)
            decide(stage, d2=not says)
            assert stage.device(2)._takes_part(0) == says
            assert stage.device(2)._takes_part(1) == (not says)
            mine = {position: steps for (sender, position), steps in found.items() if sender == 2}
            assert [bool(steps.any()) for steps in mine.values()] == [says] * (stage.terms.last + 1)


@pytest.mark.parametrize("who", [(False, False, False, False), (True, False, True, True), (True,) * 4])
def test_the_cloud_sees_nothing_of_who_takes_part_below_an_edge(
    tmp_path: Path, who: tuple[bool, ...]
) -> None:
    """The whole dump: one frame an edge, of one length, which holds its sum and all of its noise."""
    with staged(QUIET_DEVICES, tmp_path) as stage:
        terms = stage.terms
        edges = [terms.edge(index) for index in range(2)]
        decide(stage, **{f"d{device}": one for device, one in enumerate(who)})
        drawn = {edge: SimulatedRandomness(terms.plan, stage.inputs, edge) for edge in edges}
        for edge, one in drawn.items():
            stage.edge(edge)._randomness = one
        _, carried = stage.play(model_of(stage))
        found = answers(carried, stage)
        dump = [frame for frame in map(parse_frame, carried) if frame.recipient == terms.cloud]
        assert sorted((frame.sender, frame.kind) for frame in dump) == [
            (edge, FrameKind.ANSWER) for edge in edges
        ]
        assert {len(frame.payload) for frame in dump} == {8 + 32 + 8 * terms.parameters}
        for edge in edges:
            noise = np.zeros(terms.parameters, np.int64)
            raw = np.zeros(terms.parameters, np.int64)
            for index in range(terms.last + 1):
                position = RoundPosition(0, index)
                nothing = np.zeros(terms.parameters, np.int64)
                noise += with_own_noise(terms, edge, position, nothing, drawn[edge].noise_key(position))
                raw += sum(found[child, position] for child in terms.children(edge))
            assert np.array_equal(found[edge, terms.at(0)], raw + noise)
            assert np.abs(noise).min() > 0
            assert raw.any() == any(who[child] for child in terms.children(edge))


def test_masks_hide_who_takes_part(tmp_path: Path) -> None:
    """All take part in the session; what is masked is zeros or a message, and the sum is that of all."""
    with staged(MASKED, tmp_path) as stage:
        decide(stage, d0=False, d1=True, d2=False)
        terms = stage.terms
        released, carried = stage.play(model_of(stage))
        own = [recorded(stage, device) for device in range(3)]
        assert [bool(steps.any()) for steps in own] == [False, True, False]
        assert np.array_equal(released, own[1])
        dump = [frame for frame in map(parse_frame, carried) if frame.recipient == terms.cloud]
        said = [parse_frame(decode_masking(frame.payload)[2]) for frame in dump]
        vectors = {
            one.sender: decode_vector(one.payload, terms.parameters, 32)
            for one in said
            if one.kind == MessageKind.MASKED
        }
        assert sorted(vectors) == [0, 1, 2]
        for device, vector in vectors.items():  # of 170 uniform words fewer than 5 are those of the message
            assert np.count_nonzero(vector == own[device].astype(np.uint32)) < 5


def test_who_sees_the_draw_is_charged_without_amplification_and_others_with() -> None:
    """What the protocol rests on: the parent of plain messages knows the coins, and nobody else does."""
    star = {row.observer: row.why for row in account(spec_of(DRAWN_STAR), unit="device:0").guarantees}
    assert "seen; mixture over Binomial" in star["cloud"]
    own = {row.observer: row.why for row in account(spec_of(DRAWN_TREE), unit="device:2").guarantees}
    assert "seen; mixture over Binomial" in own["edge:1"]
    quiet = {row.observer: row.why for row in account(spec_of(QUIET_DEVICES), unit="device:2").guarantees}
    for observer in ("cloud", "public", "device:3", "edge:0"):
        assert "unseen; amplified by Poisson sampling at rate 0.3" in quiet[observer]


@pytest.fixture(name="folder")
def fixture_folder(tmp_path: Path, no_report: None, coarse_losses: None) -> RunFolder:
    return rehearsed(spec_of(DRAWN_TREE), tmp_path, simulated=False)


def test_the_run_folder_is_verified_and_does_not_tell_who_took_part(folder: RunFolder) -> None:
    assert check_run(folder.path).problems == []
    realised = folder.ledger["realised"]
    assert realised["participations"] is None
    assert realised["deployed"]["draws"] == ["operating system"]
    expected = {(row.unit, row.observer): row.epsilon for row in account(spec_of(DRAWN_TREE)).guarantees}
    assert {(row.unit, row.observer): row.epsilon for row in folder.privacy.guarantees} == expected
    assert folder.privacy.after_run == {}
    metrics = folder.metrics
    assert metrics["noise_std"].isna().all()  # it would tell how many of those who add noise took part
    assert metrics["bytes_up"].nunique() == metrics["bytes_down"].nunique() == 1
    stated = statement(folder.path, folder.path.parent / "statement.html").read_text("utf-8")
    assert "takes part in a round with probability 0.3, by a draw of its own." in stated
    assert "Devices take part by coins, and figures are over all ways that these may fall." in stated
    assert "Who and which rows were drawn stays secret." in stated
    assert "Keep secret the keys and the memories of the parties" in stated
    assert "Keep ledger.json" not in stated
    checkpoint = torch.load(folder.path / "checkpoint.pt", weights_only=True)
    assert not checkpoint["participations"].any()


@pytest.mark.slow
def test_a_run_with_coins_has_its_real_report_and_statement(tmp_path: Path) -> None:
    for name, document in (("noisy", DRAWN_TREE), ("quiet", QUIET_DEVICES)):
        folder = rehearsed(spec_of(document), tmp_path / name, simulated=False)
        assert check_run(folder.path).problems == []
        assert "probability 0.3" in unescape((folder.path / "report.html").read_text("utf-8"))
        stated = statement(folder.path, tmp_path / f"{name}.html").read_text("utf-8")
        assert "Devices take part by coins, and figures are over all ways that these may fall." in stated


def test_the_noise_in_the_model_is_told_where_it_does_not_depend_on_the_coins(
    tmp_path: Path, no_report: None
) -> None:
    folder = rehearsed(spec_of(QUIET_DEVICES), tmp_path, simulated=False)
    assert (folder.metrics["noise_std"] > 0).all()


def test_the_sheet_and_the_words_of_a_consent_say_it(tmp_path: Path) -> None:
    with staged(DRAWN_TREE, tmp_path) as stage:
        coin = (
            "It takes part in a round with probability 0.3, by a coin of its own; otherwise it does the same"
        )
        said = duties(stage.terms, 2)[1]
        told = "how many took part, and so whether all or none did."
        noise = f"edge:1 sees which it was, and others may tell from the noise {told}"
        assert said == f"{coin} work and sends zeros, and {noise}"
        assert duties(stage.terms, 0)[1] == f"{coin} work and sends zeros, and only edge:0 sees which it was."
        pinned = UNLIMITED.model_copy(update={"trusted": stage.pins()})
        words = agree(stage.terms, 2, pinned, stage.ledger(2)).words
        assert said in words
        assert any("device:2 itself, other devices when they are drawn, edge:0 (key" in one for one in words)
    (tmp_path / "masked").mkdir()
    with staged(MASKED, tmp_path / "masked") as stage:
        hidden = f"masks hide which it was, but others may tell from the noise {told}"
        assert duties(stage.terms, 0)[1] == f"{coin} work and sends zeros, and {hidden}"
    (tmp_path / "quiet").mkdir()
    with staged(MASKED_EDGES, tmp_path / "quiet") as stage:
        assert not stage.terms.noisy()[0]
        hidden = "masks hide which it was: edge:0 gets the sum alone, which is 0 where nobody took part."
        assert duties(stage.terms, 0)[1] == f"{coin} work and sends zeros, and {hidden}"


@pytest.mark.parametrize(
    "document", [DRAWN_STAR, DRAWN_TREE, QUIET_DEVICES, QUIET_STAR, MASKED, MASKED_EDGES]
)
def test_words_say_that_only_the_parent_sees_it_exactly_where_the_account_says_so(
    document: dict[str, Any], tmp_path: Path
) -> None:
    with staged(document, tmp_path) as stage:
        terms = stage.terms
        for device in range(terms.cloud):
            parent = terms.parent(device)
            rows = account(terms.plan.spec, unit=f"device:{device}").guarantees
            unseen = all("unseen" in row.why for row in rows if row.observer != terms.name(parent))
            assert ("only" in duties(terms, device)[1].split("; ")[1]) == unseen
            sees = [words for words in duties(terms, parent) if words.startswith("It sees which of them")]
            assert len(sees) == (not terms.is_masked(parent))
            assert any("must keep that secret" in words for words in sees) == unseen


def test_a_run_is_booked_before_the_first_answer_whatever_the_coin(tmp_path: Path) -> None:
    with staged(DRAWN_STAR, tmp_path) as stage:
        decide(stage, d0=False)
        (question, *_) = stage.cloud().ask(0, model_of(stage))
        stage.device(0).receive(question)
        with closing(OwnersLedger(stage.ledger(0))) as ledger:
            assert ledger.holds(stage.device(0)._agreement.cost)
