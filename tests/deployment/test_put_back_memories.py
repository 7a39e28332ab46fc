"""Devices whose memory was put back: what the owner's ledger refuses, and that this does not tell a coin."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deployed_parties import Stage, staged
from drawn_devices import DRAWN_STAR, MASKED, decide
from losing_devices import model_of, recorded

from sfumato.deployment.ledger import OwnersLedger
from sfumato.wire.errors import SessionMemoryError
from sfumato.wire.keys import Identity

BOTH = pytest.mark.parametrize("document", [DRAWN_STAR, MASKED], ids=["plain", "masked"])


def question_of(stage: Stage) -> bytes:
    """What the cloud asks device 0."""
    return stage.cloud().ask(0, model_of(stage))[0]


def back_up(stage: Stage) -> None:
    stage.memory(0)
    stage.restart(0)
    shutil.copy(stage.folder / "memory-0", stage.folder / "earlier")


def require_refused(stage: Stage, question: bytes) -> None:
    """Device 0 with the memory of before answers nothing, whatever its next coin says."""
    for says in (True, False):
        stage.restart(0)
        shutil.copy(stage.folder / "earlier", stage.folder / "memory-0")
        decide(stage, d0=says)
        for _ in range(2):
            with pytest.raises(SessionMemoryError, match="another copy of this device"):
                stage.device(0).receive(question)


@BOTH
@pytest.mark.parametrize("was", [True, False])
@pytest.mark.parametrize("put_back", ["without the coin", "with the coin"])
def test_a_memory_that_was_put_back_answers_nothing_whatever_the_coin(
    document: dict[str, Any], put_back: str, was: bool, tmp_path: Path
) -> None:
    """If only one of the coins were refused, whoever sees a run stop would learn it."""
    with staged(document, tmp_path) as stage:
        decide(stage, d0=was)
        if put_back == "with the coin":
            assert stage.device(0)._takes_part(0) == was
        back_up(stage)
        decide(stage, d0=was)
        question = question_of(stage)
        assert stage.device(0).receive(question)
        require_refused(stage, question)


@pytest.mark.parametrize("was", [True, False])
def test_a_memory_of_before_a_coin_that_was_noted_answers_nothing(was: bool, tmp_path: Path) -> None:
    """Nothing was sent yet: the note of the coin alone refuses, whatever is drawn now."""
    with staged(DRAWN_STAR, tmp_path) as stage:
        back_up(stage)
        decide(stage, d0=was)
        stage.device(0)._takes_part(0)
        require_refused(stage, question_of(stage))


@pytest.mark.parametrize("says", [True, False])
def test_a_device_that_died_between_its_memory_and_the_ledger_goes_on(says: bool, tmp_path: Path) -> None:
    with staged(DRAWN_STAR, tmp_path) as stage:
        question = question_of(stage)
        stage.memory(0).keep_draw(stage.terms.session, 0, bytes([says]))  # killed before it was noted
        decide(stage, d0=not says)
        sent = stage.device(0).receive(question)
        assert recorded(stage, 0).any() == says
        with closing(OwnersLedger(stage.ledger(0))) as ledger:  # killed before the answer was noted
            assert ledger._file.execute("DELETE FROM sent").rowcount == 2
        stage.restart(0)
        decide(stage, d0=not says)
        assert stage.device(0).receive(question) == sent


@BOTH
def test_the_ledger_does_not_tell_the_coin_to_who_has_the_key(
    document: dict[str, Any], tmp_path: Path
) -> None:
    """Two devices of one key and of the same answers, zeros, note other hashes: nothing can be tried out."""
    key, noted, kept = Identity(), [], []
    for copy in ("one", "other"):
        (tmp_path / copy).mkdir()
        with staged(document, tmp_path / copy, first=key) as stage:
            decide(stage, d0=False)
            stage.device(0).receive(question_of(stage))
            kept.append(recorded(stage, 0))
            with closing(OwnersLedger(stage.ledger(0))) as ledger:
                noted.append({row[0] for row in ledger._file.execute("SELECT answer FROM sent")})
    assert not kept[0].any()
    assert not kept[1].any()
    assert len(noted[0] | noted[1]) == 4
