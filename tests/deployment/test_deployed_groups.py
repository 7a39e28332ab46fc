"""Workers and masters of groups as parties: what each is sent, and what holds after a crash."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed_groups import GroupStage, staged_groups
from rehearsals import GROUPS, UNLIMITED

from sfumato.accounting import account
from sfumato.deployment.consent import ConsentRefusedError, agree, proposed_consent
from sfumato.deployment.duties import duties
from sfumato.deployment.group_carrier import BetweenGroups
from sfumato.deployment.ledger import OwnersLedger
from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.messages import (
    FrameKind,
    RoundPosition,
    decode_answer,
    decode_question,
    encode_question,
)
from sfumato.deployment.worker import _ALL
from sfumato.errors import SfumatoError
from sfumato.wire.errors import (
    DuplicateMessageError,
    MessageError,
    MisroutedMessageError,
    OutOfOrderMessageError,
    ReplayedMessageError,
    SessionMemoryError,
    UnknownSenderError,
)
from sfumato.wire.frames import Frame, parse_frame, seal_frame

ALL_TRUSTED = GROUPS | {"trust": {"trusted_aggregators": [0, 1, 2]}}
UNEVEN = GROUPS | {
    "topology": {"kind": "groups", "structure": "list", "devices": 6, "groups": [[0, 1, 2], [2, 3, 4, 5]]},
    "trust": {"trusted_aggregators": [0, 1]},
}
LOCAL = GROUPS | {"protocol": "dp-ogl-local", "training": GROUPS["training"] | {"rounds": 5}}
"""Masters ask in rounds 2 and 4; a fifth round is left over."""


def models_of(stage: GroupStage) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A model for every group, each of them another one."""
    drawn = np.random.default_rng(4).normal(size=(stage.terms.plan.groups.count, stage.terms.parameters))
    return drawn.astype(np.float32)


@pytest.mark.parametrize("document", [GROUPS, ALL_TRUSTED])
def test_the_whole_dump_of_a_round(document: dict[str, Any], tmp_path: Path) -> None:
    """A worker sees the models of its own groups, a master one message of each of its own workers: no more.

    Towards a master who is not trusted a message is noised by its worker; towards one who is, it is not. What
    the latter releases has noise of its own.
    """
    with staged_groups(document, tmp_path) as stage:
        terms, groups, models = stage.terms, stage.terms.plan.groups, models_of(stage)
        frames = [parse_frame(data) for data in dict.fromkeys(stage.play(0, models))]
        assert Counter((frame.sender, frame.recipient) for frame in frames) == Counter(
            pair
            for group in range(groups.count)
            for worker in groups.members_of(group).tolist()
            for pair in [(terms.master(group), worker), (worker, terms.master(group))]
        )
        totals = {group: np.zeros(terms.parameters, np.int64) for group in range(groups.count)}
        for frame in frames:
            if frame.kind == FrameKind.QUESTION:
                group = terms.group(frame.sender)
                position, _, seen = decode_question(frame.payload, terms.parameters)
                assert np.array_equal(seen, models[group])
            else:
                group = terms.group(frame.recipient)
                position, _, steps = decode_answer(frame.payload, terms.parameters)
                totals[group] += steps
                how = terms.encoding(frame.sender, position)[1]
                is_raw = bool(terms.plan.trusted[group])
                assert (how.noise_std == 0) == is_raw
                length = float(np.linalg.norm(steps))
                assert length <= how.sensitivity if is_raw else length > 2 * how.sensitivity
            assert position == (0, group)
        for group, total in totals.items():
            added = stage.master(group).released - total
            assert added.any() == bool(terms.plan.trusted[group])


def test_every_deployed_multiplier_is_at_least_the_declared_one(tmp_path: Path) -> None:
    for document in (GROUPS, ALL_TRUSTED, LOCAL):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        with staged_groups(document, folder) as stage:
            terms, plan = stage.terms, stage.terms.plan
            for group in range(plan.groups.count):
                position = RoundPosition(1, group)
                worker = int(plan.groups.members_of(group)[0])
                how = terms.encoding(worker, position)[1]
                noise = terms.noise_steps(terms.master(group), position) + how.noise_std
                declared = float(plan.multipliers[group])
                assert declared <= noise / how.sensitivity <= declared * 1.01
                assert declared == plan.noise_std(1)[group] / plan.bounds[group] == 1.0


def test_a_worker_waits_for_all_of_its_masters(tmp_path: Path) -> None:
    """It starts from the mean of its groups' models in the first of two rounds, from each in the second."""
    with staged_groups(GROUPS, tmp_path) as stage:
        worker, models = stage.worker(0), models_of(stage)
        assert len(stage.terms.parents(0)) == 2
        first, second = [data for data in stage.questions(0, models) if parse_frame(data).recipient == 0]
        assert worker.receive(first) == []
        assert worker.receive(first) == []
        for asked in (second, first):  # each gets its own answer, and nobody else's
            (answer,) = worker.receive(asked)
            assert parse_frame(answer).recipient == parse_frame(asked).sender
        two = models[:2]
        assert np.allclose(worker._data.starts(0, two), two.mean(axis=0))
        assert np.array_equal(worker._data.starts(1, two), two)


def test_a_worker_never_answers_a_round_with_other_bytes(tmp_path: Path) -> None:
    """Killed or not, asked again by one master or by all: the frames of before. Another model gets none."""
    with staged_groups(GROUPS, tmp_path) as stage:
        models = models_of(stage)
        asked = [data for data in stage.questions(0, models) if parse_frame(data).recipient == 0]
        assert stage.worker(0).receive(asked[0]) == []
        answers = [stage.worker(0).receive(data) for data in asked[::-1]]
        stage.restart(0)
        assert [stage.worker(0).receive(data) for data in asked[::-1]] == answers
        for group in (0, 2):
            stage.restart(stage.terms.master(group))
            other = stage.master(group).ask(0, models[group] + 1)
            with pytest.raises(DuplicateMessageError, match="another question was answered before"):
                stage.worker(0).receive(other[0])
            stage.restart(stage.terms.master(group))
        stage.play(0, models)
        stage.play(1, models)
        with pytest.raises(ReplayedMessageError):
            stage.worker(0).receive(asked[0])


def test_a_worker_whose_memory_was_put_back_answers_nothing_even_the_same(tmp_path: Path) -> None:
    """One that died between its memory and the ledger goes on. Whoever is refused must not depend on what
    it answers, so the same bytes, made again, are refused as well.
    """
    with staged_groups(GROUPS, tmp_path) as stage:
        asked = [data for data in stage.questions(0, models_of(stage)) if parse_frame(data).recipient == 0]
        worker, session, own = stage.worker(0), stage.terms.session, RoundPosition(0, 0)
        for data in asked:
            worker.receive(data)
        with closing(OwnersLedger(stage.ledger(0))) as ledger:
            assert ledger._file.execute("DELETE FROM sent").rowcount == 1
        answer = worker.receive(asked[0])
        kept = stage.memory(0).answer(session, own, _ALL)
        assert kept is not None
        stage.memory(0)._file.execute("DELETE FROM answers")
        stage.memory(0).record(session, own, _ALL, kept)
        with pytest.raises(SessionMemoryError, match="another copy of this device"):
            worker.receive(asked[0])
        assert answer[0] in kept


def test_a_run_is_booked_with_the_first_answers_of_a_worker_and_not_before(tmp_path: Path) -> None:
    with staged_groups(GROUPS, tmp_path) as stage:
        asked = [data for data in stage.questions(0, models_of(stage)) if parse_frame(data).recipient == 0]
        cost = stage.worker(0)._agreement.cost

        def is_booked() -> bool:
            with closing(OwnersLedger(stage.ledger(0))) as ledger:
                return ledger.holds(cost)

        assert stage.worker(0).receive(asked[0]) == []
        assert not is_booked()
        assert len(stage.worker(0).receive(asked[1])) == 1
        assert is_booked()


def test_no_question_of_an_earlier_round_is_answered_with_those_of_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker fails after its answers of a round were recorded, and keeps the questions of that round."""
    with staged_groups(GROUPS, tmp_path) as stage:
        models = models_of(stage)
        asked = [data for data in stage.questions(0, models) if parse_frame(data).recipient == 0]
        record = PartyMemory.record

        def failing(*what: Any) -> None:
            record(*what)
            raise SessionMemoryError("no room")

        stage.worker(0).receive(asked[0])
        with monkeypatch.context() as patch:
            patch.setattr(PartyMemory, "record", failing)
            with pytest.raises(SessionMemoryError):
                stage.worker(0).receive(asked[1])
        stage.play(0, models)
        later = [data for data in stage.questions(1, models) if parse_frame(data).recipient == 0]
        assert stage.worker(0).receive(later[0]) == []
        assert len(stage.worker(0).receive(later[1])) == 1


def test_a_worker_that_was_killed_while_it_waited_draws_once(tmp_path: Path) -> None:
    """Nothing was sent before all masters had asked: it begins anew, and the round comes to an end."""
    with staged_groups(GROUPS, tmp_path) as stage:
        models = models_of(stage)
        asked = [data for data in stage.questions(0, models) if parse_frame(data).recipient == 0]
        assert stage.worker(0).receive(asked[0]) == []
        stage.restart(0)
        assert stage.worker(0).receive(asked[1]) == []
        assert len(stage.worker(0).receive(asked[0])) == 1
        stage.play(0, models)
        assert all(stage.master(group).released is not None for group in range(3))


def test_questions_that_are_not_a_masters_are_refused(tmp_path: Path) -> None:
    with staged_groups(GROUPS, tmp_path) as stage:
        terms, model = stage.terms, models_of(stage)[0]
        assert terms.parents(1) == (terms.master(0),)

        def asks(master: int, position: RoundPosition, worker: int = 1) -> list[bytes]:
            payload = encode_question(position, model)
            frame = Frame(FrameKind.QUESTION, terms.session, master, worker, payload)
            return stage.worker(worker).receive(seal_frame(frame, stage.identities[master]))

        cases: list[tuple[tuple[Any, ...], type[SfumatoError]]] = [
            ((terms.master(1), RoundPosition(0, 1)), UnknownSenderError),  # of another group
            ((0, RoundPosition(0, 0)), UnknownSenderError),  # a worker
            ((terms.master(0), RoundPosition(0, 1)), OutOfOrderMessageError),
            ((terms.master(0), RoundPosition(1, 0)), OutOfOrderMessageError),
            ((terms.master(0), RoundPosition(3, 0)), OutOfOrderMessageError),
        ]
        for what, error in cases:
            with pytest.raises(error):
                asks(*what)
        assert len(asks(terms.master(0), RoundPosition(0, 0))) == 1


def test_workers_that_train_alone_are_asked_at_the_end_of_an_interval_only(tmp_path: Path) -> None:
    with staged_groups(LOCAL, tmp_path) as stage:
        models = models_of(stage)
        with pytest.raises(OutOfOrderMessageError):
            stage.questions(0, models)
        assert stage.play(1, models)
        assert stage.play(3, models)
        with pytest.raises(OutOfOrderMessageError):
            stage.questions(4, models)
        with pytest.raises(OutOfOrderMessageError, match="nothing is sent in the rounds that are left"):
            stage.terms.require_turn(RoundPosition(5, 0), RoundPosition(3, 0))


def test_a_master_refuses_who_is_not_in_its_group(tmp_path: Path) -> None:
    with staged_groups(GROUPS, tmp_path) as stage:
        models = models_of(stage)
        carried = stage.play(0, models)
        stage.questions(1, models)
        of_others = [data for data in carried if parse_frame(data).recipient == stage.terms.master(1)]
        for data in of_others:
            with pytest.raises(MessageError):
                stage.master(0).receive(data)


def test_frames_go_between_masters_and_their_workers_only(tmp_path: Path) -> None:
    with staged_groups(GROUPS, tmp_path) as stage:
        terms = stage.terms
        masters = {terms.master(group): stage.master(group) for group in range(3)}
        workers = {number: stage.worker(number) for number in range(terms.device_count)}
        belongs = {number: terms.parents(number) for number in workers}
        questions, carrier = stage.questions(0, models_of(stage)), BetweenGroups(masters, workers, belongs)
        with pytest.raises(MisroutedMessageError):
            BetweenGroups(masters, workers, belongs | {1: (terms.master(1),)}).carry(questions)

        of_its_own = [data for data in questions if parse_frame(data).recipient == 1]

        class Forger:
            def receive(self, data: bytes) -> list[bytes]:
                own = parse_frame(data)
                frame = Frame(FrameKind.ANSWER, terms.session, own.recipient, terms.master(0), b"")
                return [
                    seal_frame(replace(frame, sender=self.sender, recipient=self.to), stage.identities[1])
                ]

            def __init__(self, sender: int, to: int) -> None:
                self.sender, self.to = sender, to

        for forger, error in [
            (Forger(0, terms.master(0)), UnknownSenderError),
            (Forger(1, terms.master(1)), MisroutedMessageError),
        ]:
            with pytest.raises(error):
                BetweenGroups(masters, workers | {1: forger}, belongs).carry(of_its_own)
        carrier.carry(stage.questions(0, models_of(stage)))
        assert carrier.bytes_down > sum(map(len, questions))  # some are asked twice
        assert carrier.bytes_up > 0


def test_a_worker_agrees_to_the_figures_of_account(tmp_path: Path) -> None:
    with staged_groups(GROUPS, tmp_path) as stage:
        terms, spec = stage.terms, stage.terms.plan.spec
        proposed = proposed_consent(terms, 0, tmp_path / "ledger")
        rows = account(spec, unit="device:0", delta=spec.privacy.delta).guarantees
        worst = max(row.epsilon for row in rows if row.relation.kind == "peer")
        assert worst <= proposed.epsilon["device"]["peer"] <= worst + 2e-3
        others = max(row.epsilon for row in rows if row.observer == "master:2")
        trusted, limit = proposed.epsilon["device"]["own-edge"]  # of its two masters one is trusted
        assert trusted == "trusted"
        assert others <= limit <= others + 2e-3
        assert proposed.trusted == {"master:0": terms.keys[terms.master(0)].hex()}
        ledger = stage.ledger(0)
        agree(terms, 0, proposed, ledger)
        limits = proposed.epsilon["device"] | {"peer": worst * 0.999}
        refused = proposed.model_copy(update={"epsilon": proposed.epsilon | {"device": limits}})
        with pytest.raises(ConsentRefusedError, match=r"at epsilon\.device\.peer"):
            agree(terms, 0, refused, ledger)
        limits = proposed.epsilon["device"] | {"own-edge": ("trusted", others * 0.999)}
        refused = proposed.model_copy(update={"epsilon": proposed.epsilon | {"device": limits}})
        with pytest.raises(ConsentRefusedError, match=r"master:2 would .* at epsilon\.device\.own-edge"):
            agree(terms, 0, refused, ledger)
        another = proposed.model_copy(update={"trusted": {"master:0": terms.keys[0].hex()}})
        with pytest.raises(ConsentRefusedError, match=r"does not pin this key at trusted\.master:0"):
            agree(terms, 0, another, ledger)


@pytest.mark.parametrize("document", [ALL_TRUSTED, UNEVEN])
def test_every_trusted_master_is_pinned_and_told(document: dict[str, Any], tmp_path: Path) -> None:
    """A row of `account` may stand for two of them: each gets raw updates, and has a key of its own."""
    with staged_groups(document, tmp_path) as stage:
        terms, device = stage.terms, 2
        pinned = {terms.name(master): terms.keys[master].hex() for master in terms.parents(device)}
        assert len(pinned) == 2
        proposed = proposed_consent(terms, device, stage.ledger(device))
        assert proposed.trusted == pinned
        words = agree(terms, device, proposed, stage.ledger(device)).words
        for master, key in pinned.items():
            sees = f"is trusted, and sees what device:{device} sends raw."
            assert words.count(f"own master, {master} (key {key[:32]}…): {sees}") == 1
            without = {name: known for name, known in pinned.items() if name != master}
            for trusted in (without, pinned | {master: "00" * 32}):
                other = proposed.model_copy(update={"trusted": trusted})
                with pytest.raises(ConsentRefusedError, match=rf"does not pin this key at trusted\.{master}"):
                    agree(terms, device, other, stage.ledger(device))


def test_words_of_workers_and_masters(tmp_path: Path) -> None:
    with staged_groups(GROUPS, tmp_path) as stage:
        terms = stage.terms
        words = agree(terms, 0, UNLIMITED, stage.ledger(0)).words
        assert words[0] == "device:0 takes part in ring, for: a test."
        key = terms.keys[terms.master(0)].hex()[:32]
        assert words[2].startswith(
            "They rely on noise that is added by: device:0 itself, other devices, master:0"
        )
        assert f"own master, master:0 (key {key}…): is trusted, and sees what device:0 sends raw." in words
        first, second, mean = words[-3:]
        assert first.startswith("device:0 clips its update for master:0 to 1, rounds it to multiples of ")
        assert "adds no noise; it counts in the average of the group divided by 3. master:0 sees it." in first
        assert "adds discrete Gaussian noise of σ = 1; it counts" in second
        assert mean == (
            "It starts from the mean of its groups' models every 2 rounds, and sends that mean to nobody."
        )
        assert len(duties(terms, 1)) == 1  # it is in one group: there is no mean
        added, to = duties(terms, terms.master(0))
        assert added.startswith("master:0 adds up the messages of 3 workers of its group and adds discrete")
        assert added.endswith("σ = 0.3333 to their average.")
        assert to == "It sends the group's model to these workers, and to nobody else."
        assert duties(terms, terms.master(1))[0].endswith("of its group and adds no noise.")


def test_the_session_commits_to_groups_noise_and_trust(tmp_path: Path) -> None:
    with staged_groups(GROUPS, tmp_path) as stage:
        terms, plan = stage.terms, stage.terms.plan
        others = [
            replace(terms, plan=replace(plan, multipliers=plan.multipliers * 0.5)),
            replace(terms, plan=replace(plan, clips=plan.clips * 2)),
            replace(terms, plan=replace(plan, trusted=~plan.trusted)),
            replace(
                terms, plan=replace(plan, groups=replace(plan.groups, members=plan.groups.members[::-1]))
            ),
        ]
        assert replace(terms, plan=replace(plan)).session == terms.session
        assert len({one.session for one in (terms, *others)}) == len(others) + 1
