"""`deploy check`: whether a party could start, and every hop dialed, before anything starts.

A device that has no consent yet gets a proposed one, for its owner to read. Where all parties of a folder
could start, parents listen and wait, and children dial: so the owners of parties on several machines check at
the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path

from sfumato.arguments import Argument
from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.consent import read_consent
from sfumato.deployment.hop_proofs import OwnEnd
from sfumato.deployment.hops_file import HOPS
from sfumato.deployment.invitation import (
    CONSENT,
    TERMS,
    Invitation,
    different_from_proposed,
    loop_of,
    propose_consent,
    read_terms,
    start_party,
)
from sfumato.deployment.known_consents import (
    confirming,
    is_known,
    is_loop_agreed,
    note_agreed,
    note_loop_agreed,
    note_proposed,
    require_known,
)
from sfumato.deployment.neighbours import DialedParent, Neighbours, read_neighbours
from sfumato.deployment.party_folder import PartyFolder
from sfumato.deployment.party_sheet import keys_in_words
from sfumato.deployment.remote_party import require_own_data, require_own_run
from sfumato.deployment.tls_hops import ChildrenDoor, ParentAbsentError, dial
from sfumato.errors import RunError, SfumatoError, SpecError, first_line

PATIENCE_S = 60.0
"""How long a check dials a parent that is not there yet, and waits for children."""

_POLL_S = 0.2

Say = Callable[[str], object]


def check_parties(folder: Path, say: Say, *, confirm: bool = False) -> None:
    """Check whether the party of a folder, or each party whose folder is in it, could start and connect.

    Args:
        folder: of a party, or of folders of parties.
        say: called with every sentence of the result.
        confirm: whether the owner of a device hereby agrees to the consent in its folder.

    Raises:
        SpecError: there is no party, or ``confirm`` is set for anything but a single device.
        RunError: a party could not start, or a hop fails: the first of these, and how many there are.
    """
    folders = (
        [folder] if (folder / HOPS).exists() else sorted(path.parent for path in folder.glob(f"*/{HOPS}"))
    )
    if not folders:
        raise SpecError(str(folder), None, f"holds no party: there is no {HOPS}, in it or one level below")
    if confirm and (folders != [folder] or not (folder / CONSENT).exists()):
        raise SpecError(Argument("confirm"), str(folder), f"must be the folder of one device, with {CONSENT}")
    problems: list[str] = []

    def noted(name: str, error: SfumatoError) -> None:
        problems.append(f"{name}: {first_line(error)}")
        say(problems[-1])

    hops: dict[Path, Neighbours] = {}
    for own in folders:
        try:
            said, terms = read_terms(own)
            hops[own] = read_neighbours(own, said.number, terms)
            words = keys_in_words(terms, said.number)
            for sentence in chain(words, _could_start(own, said, terms, confirm=confirm)):
                say(f"{own.name}: {sentence}")
        except SfumatoError as error:
            noted(own.name, error)
    if not problems:
        _check_hops(hops, say, noted)
    if problems:
        others = f" (the first of {len(problems)} problems)" if len(problems) > 1 else ""
        raise RunError(f"{problems[0]}{others}")


def _check_hops(
    hops: Mapping[Path, Neighbours], say: Say, noted: Callable[[str, SfumatoError], None]
) -> None:
    """Dial all hops of parties that could start, and listen for who dials them.

    Args:
        hops: of every party, by its folder.
        say: called with every sentence of the result.
        noted: called with a party's name and what is wrong with a hop of it.
    """
    with ExitStack() as opened:
        deadline, doors = time.monotonic() + PATIENCE_S, {}
        for own, found in hops.items():
            try:
                if found.children:
                    doors[own] = ChildrenDoor(found, say)
                    opened.callback(doors[own].close)
            except SfumatoError as error:
                noted(own.name, error)
        for own, found in hops.items():
            for parent in found.parents:
                try:
                    _dial(found.own, parent, deadline)
                    there = f"{parent.name} at {parent.address}"
                    say(f"{own.name}: {there} answers, with its registered key, and the same terms")
                except SfumatoError as error:
                    noted(own.name, error)
        for own, door in doors.items():
            try:
                _wait_for_children(door, hops[own], deadline)
                say(f"{own.name}: all who are below it have dialed")
            except RunError as error:
                noted(own.name, error)


def _could_start(folder: Path, said: Invitation, terms: CommonTerms, *, confirm: bool) -> Iterator[str]:
    """What a party would say if it started; a device without a consent gets one to read.

    ``confirm``: whether the owner of the device hereby agrees to the consent in its folder.

    Raises:
        SfumatoError: it could not start.
    """
    if said.number in terms.heads:
        from sfumato.simulation.training_inputs import TrainingInputs  # PyTorch: edges need none

        PartyFolder.open(folder).close()
        require_own_run(folder, terms, said.number)
        require_own_data(folder, terms)
        rows = len(TrainingInputs.of(terms.plan).data.test_labels)
        yield f"could start; its files fit {folder / TERMS}; it tests the model on {rows:,} rows"
        return
    is_device = said.number < terms.device_count
    if is_device:
        yield from _own_consent(folder, said, terms, confirm=confirm)
    below = None if is_device else dict.fromkeys(terms.children(said.number), _Nobody())
    with closing(start_party(folder, below)) as started:
        yield from started.words


def _own_consent(folder: Path, said: Invitation, terms: CommonTerms, *, confirm: bool) -> Iterator[str]:
    """Propose a consent where there is none; say how one that does not count differs from a proposed one.

    Raises:
        RunError: one was proposed, or the one that is there does not count, and is not confirmed now.
        SfumatoError: it cannot be read, or none can be proposed.
    """
    consent = folder / CONSENT
    if not consent.exists():
        rows = propose_consent(folder, terms, said.number, said.data)
        note_proposed(consent, terms.session)
        again = f"read it, and check again; if you edit it: {confirming(folder)}"
        raise RunError(f"{consent} was proposed, for the rows of {rows}: {again}")
    code = loop_of(folder, read_consent(consent))
    if is_known(consent, terms.session) and (code is None or is_loop_agreed(consent, code)):
        return
    yield from different_from_proposed(folder, said, terms)
    if code is not None:
        yield f"its consent lets this code run, and see its rows: {code.described}."
    if not confirm:
        require_known(consent, terms.session)
        return  # the loop is not agreed to: so says the start
    note_agreed(consent)
    if code is not None:
        note_loop_agreed(consent, code)
    yield f"{consent} is confirmed, as it is now, for this folder."


class _Nobody:
    """A child that is not asked."""

    def receive(self, data: bytes) -> list[bytes]:
        """Fail: a check sends no frames, so ``data`` cannot come."""
        raise AssertionError


def _dial(own: OwnEnd, parent: DialedParent, deadline: float) -> None:
    """Dial ``parent`` until it answers or ``deadline`` (seconds, monotonic clock); see `dial` for errors."""
    while True:
        try:
            dial(own, parent, parent.address).close()
            return
        except ParentAbsentError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_S)


def _wait_for_children(door: ChildrenDoor, hops: Neighbours, deadline: float) -> None:
    """Wait until all children have dialed, at most until ``deadline`` (seconds, monotonic clock).

    Raises:
        RunError: some have not.
    """
    while missing := [child.name for child in hops.children if child.number not in door.seen]:
        if time.monotonic() >= deadline:
            raise RunError(f"has not been dialed by {', '.join(missing)}")
        time.sleep(_POLL_S)
