"""The parties of a run on this machine: their folders, and their terms, data and places."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from sfumato.data.dataset import Dataset
from sfumato.data.features import take_rows
from sfumato.data.partition import Partition
from sfumato.deployment.calls import Calls, in_turn
from sfumato.deployment.carrier import FrameReceiver, InProcess
from sfumato.deployment.cloud import AskingParty, CloudParty
from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.group_carrier import BetweenGroups
from sfumato.deployment.group_rounds import DeployedGroupRounds
from sfumato.deployment.group_terms import GroupTerms
from sfumato.deployment.party_folder import PartyFolder, folder_names
from sfumato.deployment.played_rounds import PlayedRounds
from sfumato.deployment.randomness import Randomness
from sfumato.deployment.rounds import DeployedRounds
from sfumato.deployment.terms import DeploymentTerms, new_label
from sfumato.durable_files import replacing
from sfumato.families import GROUPS, family_of
from sfumato.learning.parameters import ParameterLayout
from sfumato.network.groups import Groups
from sfumato.network.tree import Tree
from sfumato.protocols.groups.base import GroupedProtocol
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.simulation.training_loop import Session
from sfumato.user_text import read_text
from sfumato.wire.keys import digest

T = TypeVar("T", bound=CommonTerms)


class PartyFolders(ABC, Generic[T]):
    """The open folders of all parties of one run on this machine, with their data and terms. Must be closed.

    Args:
        kind: class of the terms.
        session: that would simulate the run.
        folder: the folder of the parties' folders; parties that have one already take part again.
        run: the run folder.
        purpose: what the data are used for.
        resume: whether to continue the last run of these parties.

    Raises:
        SpecError: the spec cannot be deployed.
        SfumatoError: a folder cannot be read or written, or is open in another process.
    """

    def __init__(
        self, kind: type[T], session: Session, folder: Path, run: Path, purpose: str, *, resume: bool
    ) -> None:
        self._session = session
        parameters = ParameterLayout.of(session.model).total
        parties = kind.deployable(session.plan, parameters).parties
        assert isinstance(parties, Tree | Groups)
        self.places = [folder / name for name in folder_names(parties)]
        self.folders: dict[int, PartyFolder] = {}
        try:
            for number, place in enumerate(self.places):
                self.folders[number] = PartyFolder.open_or_create(place)
            self.terms = kind.of(
                session.plan.spec,
                parameters=parameters,
                purpose=purpose,
                label=_label(folder, run, session.plan.spec.name, resume=resume),
                keys=tuple(opened.identity.public for opened in self.folders.values()),
            )
        except BaseException:
            self.close()
            raise

    def rows(self) -> list[Dataset]:
        """The rows of every device, each as a data set of training rows."""
        made = TrainingInputs.of(self.terms.plan)
        return [rows_of(made.data, made.partition, device) for device in range(self.terms.device_count)]

    @abstractmethod
    def rounds(
        self,
        parties: Mapping[int, FrameReceiver],
        randomness: Callable[[int], Randomness],
        sources: Collection[str],
        calls: Calls = in_turn,
    ) -> PlayedRounds[Any]:
        """What plays the rounds of the run.

        Args:
            parties: by number: all but the aggregators at the top, which are added; or only the children of
                these, each with all below it.
            randomness: secret choices of an aggregator at the top, by its number.
            sources: where all parties' secret choices come from.
            calls: makes calls to parties: see `InProcess`.
        """

    def forget(self, number: int) -> None:
        """Close the folder of party ``number`` and drop its key.

        From now on a process of its own uses them.
        """
        self.folders.pop(number).close()

    def close(self) -> None:
        """Close all folders."""
        for opened in self.folders.values():
            opened.close()


class LocalParties(PartyFolders[DeploymentTerms]):
    """The folders of the parties of a tree; arguments as of `PartyFolders`."""

    def __init__(self, session: Session, folder: Path, run: Path, purpose: str, *, resume: bool) -> None:
        super().__init__(DeploymentTerms, session, folder, run, purpose, resume=resume)

    def rounds(
        self,
        parties: Mapping[int, FrameReceiver],
        randomness: Callable[[int], Randomness],
        sources: Collection[str],
        calls: Calls = in_turn,
    ) -> DeployedRounds:
        """What plays the rounds of the run; the arguments are those of `PartyFolders.rounds`."""
        terms, own = self.terms, self.folders[self.terms.cloud]
        cloud = CloudParty(terms, own.identity, own.memory, randomness(terms.cloud))
        parents = {number: terms.parent(number) for number in parties}
        simulated = self._session.protocol
        assert isinstance(simulated, TreeProtocol)  # what can be deployed is played by it
        carrier = InProcess({**parties, terms.cloud: cloud}, parents, calls)
        return DeployedRounds(terms, cloud, carrier, simulated, sources, "one machine")


class LocalGroups(PartyFolders[GroupTerms]):
    """The folders of the parties of groups; arguments as of `PartyFolders`."""

    def __init__(self, session: Session, folder: Path, run: Path, purpose: str, *, resume: bool) -> None:
        super().__init__(GroupTerms, session, folder, run, purpose, resume=resume)

    def rounds(
        self,
        parties: Mapping[int, FrameReceiver],
        randomness: Callable[[int], Randomness],
        sources: Collection[str],
        calls: Calls = in_turn,
    ) -> DeployedGroupRounds:
        """What plays the rounds of the run; the arguments are those of `PartyFolders.rounds`."""
        terms, masters = self.terms, dict[int, AskingParty]()
        for number in terms.heads:
            own = self.folders[number]
            masters[number] = AskingParty(number, terms, own.identity, own.memory, randomness(number))
        simulated = self._session.protocol
        assert isinstance(simulated, GroupedProtocol)  # what can be deployed is played by it
        carrier = BetweenGroups(masters, parties, {one: terms.parents(one) for one in parties}, calls)
        return DeployedGroupRounds(terms, list(masters.values()), carrier, simulated, sources, "one machine")


def local_parties_of(
    session: Session, folder: Path, run: Path, purpose: str, *, resume: bool
) -> LocalParties | LocalGroups:
    """The folders of all parties of a run, of a tree or of groups.

    ``purpose``, ``resume`` and the others are the arguments of `PartyFolders`.
    """
    kind = LocalGroups if family_of(session.plan.spec) is GROUPS else LocalParties
    return kind(session, folder, run, purpose, resume=resume)


def _label(parties: Path, run: Path, name: str, *, resume: bool) -> str:
    """The label of the run that is resumed, or a new one for the spec called ``name``.

    It is kept for every run folder by itself.
    """
    place = parties / f"label-{digest(b'run folder', str(run.resolve()).encode())[:8].hex()}"
    if resume and place.exists():
        return read_text(place).strip()
    label = new_label(name)
    with replacing(place) as file:
        file.write(f"{label}\n".encode())
    return label


def rows_of(data: Dataset, partition: Partition, device: int) -> Dataset:
    """A copy of ``data`` in memory whose training rows are those that ``partition`` gives to ``device``.

    The test rows stay; there are no groups and no sites.
    """
    rows = partition.indices(device)
    targets = None if data.train_targets is None else data.train_targets[rows]
    return replace(
        data,
        train_features=take_rows(data.train_features, rows),
        train_labels=data.train_labels[rows],
        train_targets=targets,
        train_persons=None if data.train_persons is None else data.train_persons[rows],
        train_groups=None,
        train_sites=None,
    )
