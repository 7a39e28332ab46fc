"""Which consents count in a party's folder: whoever writes the whole folder could bring one with it.

A device that is not on the machine of whoever deploys uses a consent only if, in this folder and with exactly
this content, it was proposed for the same terms by the check of this machine, or was confirmed by its owner
(``deploy check DIR --confirm``), or a party of this machine has started with it before. Each is a mark in a
folder of the user's, outside all folders of parties. A consent that was edited is another one.

A training loop that a consent names (`loop_code`) runs only if the owner has agreed to that very consent, in
that folder, together with every byte of the loop's file: that is a mark of its own. No proposal makes one.
"""

from __future__ import annotations

import os
from pathlib import Path

from sfumato.deployment.loop_code import LoopCode
from sfumato.deployment.private_files import require_own, write_private
from sfumato.errors import RunError
from sfumato.user_text import read_bytes
from sfumato.wire.keys import digest

_CONSENTS = "consents"


def state_folder(name: str) -> Path:
    """The folder called ``name`` of the user's own state, outside all folders of parties; made if missing.

    Raises:
        RunError: it cannot be made, or other users could change it.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    made = (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "sfumato" / name
    try:
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{made}: cannot be made: {error.strerror}") from None
    require_own(made)
    return made


def note_proposed(consent: Path, session: bytes) -> None:
    """Note that the consent at this path, as it is now, was proposed for the terms of ``session``.

    Raises:
        RunError: it cannot be noted.
    """
    _note(_proposed(consent, session))


def note_agreed(consent: Path) -> None:
    """Note that the owner of a party has agreed to the consent in its folder, with its present content.

    Raises:
        RunError: it cannot be noted.
    """
    _note(_agreed(consent))


def note_loop_agreed(consent: Path, code: LoopCode) -> None:
    """Note that the owner has agreed to a consent and the training loop it names, both with present content.

    Raises:
        RunError: it cannot be noted.
    """
    _note(_agreed_loop(consent, code))


def is_loop_agreed(consent: Path, code: LoopCode) -> bool:
    """Whether the owner has agreed to a training loop, so that it may run; see `note_loop_agreed`.

    Raises:
        RunError: the consent cannot be read.
    """
    return _agreed_loop(consent, code).exists()


def require_loop_agreed(consent: Path, code: LoopCode) -> None:
    """Check that the owner has agreed to a training loop; see `note_loop_agreed`.

    Raises:
        RunError: the owner has not, or the consent cannot be read.
    """
    if not is_loop_agreed(consent, code):
        what = f"{consent} names code that was not agreed to here as it is now: {code.described}"
        raise RunError(f"{what}; if it is yours: {confirming(consent.parent)}, or deploy --local --loop")


def is_known(consent: Path, session: bytes) -> bool:
    """Whether the owner agreed to a consent, or this machine proposed it for these terms (see the module).

    Args:
        consent: the file, in the folder of a party.
        session: of the terms.

    Raises:
        RunError: it cannot be read.
    """
    return _agreed(consent).exists() or _proposed(consent, session).exists()


def require_known(consent: Path, session: bytes) -> None:
    """Check that the consent at this path counts for a session's terms; see `is_known`.

    ``session``: hash of the terms, 32 bytes.

    Raises:
        RunError: it does not, or cannot be read.
    """
    if not is_known(consent, session):
        what = f"was not agreed to here: {state_folder(_CONSENTS)} has no mark of it"
        raise RunError(f"{consent}: {what}; if it is yours: {confirming(consent.parent)}")


def confirming(folder: Path) -> str:
    """The shell command by which the owner of a party agrees to the consent in its folder."""
    return f"sfumato deploy check {folder} --confirm"


def _proposed(consent: Path, session: bytes) -> Path:
    """The path of the mark that a consent was proposed for the terms with hash ``session``."""
    return _mark(b"proposed consent", consent, session)


def _agreed(consent: Path) -> Path:
    """The mark of what the owner has agreed to."""
    return _mark(b"agreed consent", consent)


def _agreed_loop(consent: Path, code: LoopCode) -> Path:
    """The mark of a loop that the owner has agreed to."""
    return _mark(b"agreed loop", consent, code.source)


def _mark(kind: bytes, consent: Path, *more: bytes) -> Path:
    place = os.fsencode(consent.parent.resolve())
    return state_folder(_CONSENTS) / digest(kind, place, read_bytes(consent), *more)[:16].hex()


def _note(mark: Path) -> None:
    if not mark.exists():
        write_private(mark, b"")
