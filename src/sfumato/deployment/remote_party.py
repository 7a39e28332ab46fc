"""A party whose neighbours are on other machines: it starts from its folder, and reaches them over TLS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.data.dataset_sizes import dataset_facts
from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.declared_facts import DeclaredFacts
from sfumato.deployment.duties import duties, taking_part
from sfumato.deployment.hops_file import HOPS
from sfumato.deployment.invitation import CONSENT, TERMS, read_terms, start_party
from sfumato.deployment.known_consents import note_agreed, require_known
from sfumato.deployment.neighbours import read_neighbours
from sfumato.deployment.party_folder import PartyFolder
from sfumato.deployment.party_sheet import keys_in_words
from sfumato.deployment.several_parents import answer_parents
from sfumato.deployment.tls_hops import ChildrenDoor
from sfumato.errors import RunError, SfumatoError, SpecError, first_line
from sfumato.spec.document import Spec

if TYPE_CHECKING:
    from sfumato.deployment.played_rounds import PlayedRounds
    from sfumato.simulation.run import RoundResult
    from sfumato.simulation.training_loop import Session

RUN = "run"
"""The name of the run folder, in the folder of the cloud or of a master."""

Say = Callable[[str], object]


def is_remote(folder: Path) -> bool:
    """Whether the party in a folder has its neighbours on other machines, so that it needs TLS."""
    return (folder / HOPS).exists()


def spec_of_head(folder: Path) -> Spec | None:
    """The spec of the run if the party in a folder is the cloud or a master, else ``None``.

    Raises:
        SfumatoError: its files cannot be used.
    """
    said, terms = read_terms(folder)
    return terms.plan.spec if said.number in terms.heads else None


def require_own_run(folder: Path, terms: CommonTerms, number: int) -> None:
    """Check that the folder of the cloud, or of a master, holds no run folder of another session or master.

    It would pass for this run. Of another master it has the model of another group: this one would ask its
    own workers with it, some of whom no row of `account` lets see that model.

    A run folder without a checkpoint is refused too, as it would be replaced.

    Args:
        folder: of the cloud, or of a master.
        terms: of the run.
        number: of the cloud, or of the master.

    Raises:
        RunError: there is such a run folder, or it is damaged.
    """
    from sfumato.protocols.tree.state import DeployedState  # PyTorch: edges need none
    from sfumato.run_folder.reader import holds_run
    from sfumato.simulation import checkpoint as checkpoints

    run = folder / RUN
    if not holds_run(run):
        return
    found = checkpoints.load(run)
    state = None if found is None else found.position.state
    if not (isinstance(state, DeployedState) and state.session == terms.session.hex()):
        what = "is the run of other terms, or of another version of Sfumato, or has no checkpoint"
        raise RunError(f"{run}: {what}; move it away")
    if state.heads != terms.digest_of_keys([number]):
        raise RunError(f"{run}: is the run of another master than {terms.name(number)}; move it away")


def require_own_data(folder: Path, terms: CommonTerms) -> None:
    """Check that the sizes in the terms are those of the data set that the cloud, or a master, has.

    Args:
        folder: of the cloud, or of a master.
        terms: of the run.

    Raises:
        SpecError: they differ.
        DataError: the data set is neither tabulated nor on this machine.
    """
    here = dataset_facts(terms.plan.spec.data, terms.device_count).counted_in_persons
    if DeclaredFacts.of(here) != DeclaredFacts.of(terms.facts):
        rows = f"{terms.facts.train_examples:,} training rows"
        allowed = f"must be those of {here.name}, which has {here.train_examples:,} here, in each class too"
        raise SpecError(f"{folder / TERMS}: facts", rows, allowed)


def serve_remotely(folder: Path, say: Say) -> None:
    """Run a device or an edge until the process is ended.

    Args:
        folder: of the party.
        say: called with what the party agrees to, and what happens to its connections.

    Raises:
        SfumatoError: as of `start_party` and `read_neighbours`.
    """
    said, terms = read_terms(folder)
    hops = read_neighbours(folder, said.number, terms)
    with ExitStack() as opened:
        below = None
        if hops.children:
            door = ChildrenDoor(hops, say)
            opened.callback(door.close)
            below = door.parties(terms.largest_answer(said.number))
        consent = folder / CONSENT if said.number < terms.device_count else None
        if consent is not None and consent.exists():
            require_known(consent, terms.session)
        started = start_party(folder, below, say)
        opened.callback(started.close)
        if consent is not None:
            note_agreed(consent)
        for sentence in (*started.words, *keys_in_words(terms, said.number)):
            say(sentence)

        def refused(error: SfumatoError) -> None:
            say(first_line(error))

        answer_parents(started.party, hops, terms.largest_answer, say, refused)


def play_remotely(
    folder: Path, say: Say, on_step: Callable[[str], object] = lambda name: None
) -> Iterator[RoundResult]:
    """Play all rounds as the cloud or a group's master, or the rest of a run that was stopped.

    The run folder is ``run`` in the party's own folder.

    Args:
        folder: of the cloud, or of a master.
        say: called with what it does, and what happens to its connections.
        on_step: called with the name of every step that begins, except rounds.

    Yields:
        The result of every round.

    Raises:
        SfumatoError: files cannot be used, or ``run`` is of other terms; a child is not there, or refuses.
    """
    from sfumato.deployment.remote_rounds import remote_rounds  # PyTorch: edges need none
    from sfumato.simulation.run import run_rounds

    said, terms = read_terms(folder)
    number = said.number
    require_own_run(folder, terms, number)
    require_own_data(folder, terms)
    with ExitStack() as opened:
        own = PartyFolder.open(folder)
        opened.callback(own.close)
        door = ChildrenDoor(read_neighbours(folder, number, terms), say)
        opened.callback(door.close)
        for sentence in (taking_part(terms, number), *duties(terms, number), *keys_in_words(terms, number)):
            say(sentence)
        children = door.parties(terms.largest_answer(number))

        def played_by(session: Session) -> PlayedRounds[Any]:
            return remote_rounds(number, terms, own, children, session.protocol, say)

        yield from run_rounds(
            terms.plan.spec, out=folder / RUN, device="cpu", resume=True, on_step=on_step, played_by=played_by
        )
