"""A party whose neighbours are on other machines: it starts from its folder, and reaches them over TLS."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.deployment.calls import together
from sfumato.deployment.carrier import InProcess
from sfumato.deployment.device import require_own_key
from sfumato.deployment.duties import duties, taking_part
from sfumato.deployment.hop_keys import HopKey
from sfumato.deployment.hops_file import HOPS, Hops, read_hops
from sfumato.deployment.invitation import TERMS, read_terms, start_party
from sfumato.deployment.party_folder import PartyFolder
from sfumato.deployment.randomness import SystemRandomness
from sfumato.deployment.terms import DeploymentTerms
from sfumato.deployment.tls_hops import ChildrenDoor, answer_parent
from sfumato.errors import SfumatoError, SpecError, first_line
from sfumato.spec.document import Spec

if TYPE_CHECKING:
    from sfumato.simulation.run import RoundResult
    from sfumato.simulation.training_loop import Session

RUN = "run"
"""The name of the run folder, in the cloud's folder."""

Say = Callable[[str], object]


def is_remote(folder: Path) -> bool:
    """Whether the party of a folder has its neighbours on other machines."""
    return (folder / HOPS).exists()


def spec_of_cloud(folder: Path) -> Spec | None:
    """The spec that the party of a folder plays; ``None`` if it is not the cloud.

    Raises:
        SfumatoError: its files cannot be used.
    """
    said, terms = read_terms(folder)
    return terms.plan.spec if said.number == terms.cloud else None


def serve_remotely(folder: Path, say: Say) -> None:
    """Be a device or an edge, until the process is ended.

    Args:
        folder: of the party.
        say: called with what the party agrees to, and what happens to its connections.

    Raises:
        SfumatoError: as `start_party`; the parent is not the registered one, or does not take this party.
    """
    hops, own = read_hops(folder), HopKey(folder)
    if hops.parent is None:
        raise SpecError(f"{folder / HOPS}: parent", None, "must be there for a device or an edge")
    said, terms = read_terms(folder)
    most = terms.largest_answer(terms.parent(said.number))
    with ExitStack() as opened:
        below = None
        if hops.children:
            door = ChildrenDoor(hops, own, say)
            opened.callback(door.close)
            below = door.parties(terms.largest_answer(said.number))
        started = start_party(folder, below)
        opened.callback(started.close)
        for sentence in started.words:
            say(sentence)

        def refused(error: SfumatoError) -> None:
            say(first_line(error))

        answer_parent(started.party, hops.parent, own, most, say, refused)


def play_remotely(
    folder: Path, say: Say, on_step: Callable[[str], object] = lambda name: None
) -> Generator[RoundResult]:
    """Be the cloud: play the rounds, or those that are left of a run that was stopped, into ``run``.

    Args:
        folder: of the cloud.
        say: called with what the cloud does, and what happens to its connections.
        on_step: called with the name of every step that begins, except rounds.

    Yields:
        Every round when it is done.

    Raises:
        SfumatoError: files cannot be used; a child is not there, or refuses.
    """
    from sfumato.deployment.cloud import CloudParty  # PyTorch: edges need none
    from sfumato.deployment.rounds import DeployedRounds
    from sfumato.protocols.tree.rounds import TreeProtocol
    from sfumato.simulation.run import run_rounds

    hops, own_hop = read_hops(folder), HopKey(folder)
    said, terms = read_terms(folder)
    with ExitStack() as opened:
        own = PartyFolder.open(folder)
        opened.callback(own.close)
        require_own_key(terms, said.number, own.identity)
        _require_children(folder, hops, terms)
        door = ChildrenDoor(hops, own_hop, say)
        opened.callback(door.close)
        for sentence in (taking_part(terms, terms.cloud), *duties(terms, terms.cloud)):
            say(sentence)

        def played_by(session: Session) -> DeployedRounds:
            assert isinstance(session.protocol, TreeProtocol)  # what can be deployed is played by it
            draws = SystemRandomness()  # that of all parties
            cloud = CloudParty(terms, own.identity, own.memory, draws)
            children = door.parties(terms.largest_answer(terms.cloud))
            parents = dict.fromkeys(children, terms.cloud)
            carrier = InProcess({terms.cloud: cloud, **children}, parents, together)
            return DeployedRounds(terms, cloud, carrier, session.protocol, {draws.source})

        yield from run_rounds(
            terms.plan.spec, out=folder / RUN, device="cpu", resume=True, on_step=on_step, played_by=played_by
        )


def _require_children(folder: Path, hops: Hops, terms: DeploymentTerms) -> None:
    """Refuse hops that are not those of the cloud."""
    wanted = terms.children(terms.cloud).keys()
    if hops.parent is not None or {child.number for child in hops.children} != wanted:
        raise SpecError(
            f"{folder / HOPS}: children", len(hops.children), f"must be those of {folder / TERMS}"
        )
