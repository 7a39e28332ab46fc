"""Which consents are the owner's own: whoever writes a party's whole folder could bring one with it.

A device that is not on the machine of whoever deploys uses a consent only if this machine has proposed one
for the same folder and the same terms, or has used the same one before. Both are marks in a folder of the
user's, outside all folders of parties. What its owner made of a proposal is not looked at.
"""

from __future__ import annotations

import os
from pathlib import Path

from sfumato.deployment.private_files import require_own
from sfumato.durable_files import replacing
from sfumato.errors import RunError
from sfumato.user_text import read_bytes
from sfumato.wire.keys import digest

_CONSENTS = "consents"


def state_folder(name: str) -> Path:
    """A folder of the user's for what outlives all folders of parties; made if there is none.

    Raises:
        RunError: it cannot be made, or others could change it.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    made = (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "sfumato" / name
    try:
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{made}: cannot be made: {error.strerror}") from None
    require_own(made)
    return made


def note_proposed(folder: Path, session: bytes) -> None:
    """Note that a consent was proposed in the folder of a party.

    Raises:
        RunError: it cannot be noted.
    """
    _note(_proposed(folder, session))


def require_known(consent: Path, session: bytes) -> None:
    """Refuse a consent that comes from elsewhere; note one that does not.

    Args:
        consent: the file, in the folder of a party.
        session: of the terms.

    Raises:
        RunError: nothing was proposed there for these terms, and it was never used; or it cannot be read.
    """
    used = state_folder(_CONSENTS) / digest(b"used consent", read_bytes(consent))[:16].hex()
    if not (used.exists() or _proposed(consent.parent, session).exists()):
        what = "was neither proposed nor used on this machine: somebody else may have put it there"
        raise RunError(f"{consent}: {what}; move it away, check again, and put it back if it is yours")
    _note(used)


def _proposed(folder: Path, session: bytes) -> Path:
    """The mark of a proposal."""
    place = os.fsencode(folder.resolve())
    return state_folder(_CONSENTS) / digest(b"proposed consent", place, session)[:16].hex()


def _note(mark: Path) -> None:
    if not mark.exists():
        with replacing(mark, private=True):
            pass
