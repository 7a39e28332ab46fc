"""Records what an observer receives, as vectors; who receives what is declared, and not decided here.

In a run folder::

    views/observers.json                 who is recorded
    views/SLUG/round-000001.npz          one file a round, written when it is done

SLUG is the observer's name with ``-`` for ``:`` and ``+`` for ``,``. Each file holds, for V vectors: ``step``
(number of the aggregation, or of the group that a worker's message goes to), ``kind``, ``tier`` and ``party``
(whose it is), int64 or text ``[V]``, and ``vector``, float32 ``[V, M]``. Kinds:

sent       what a party hands upwards, its own noise included: of devices their message, of nodes the model
           that their average makes, of workers in groups their message
received   the model (in groups: the sum) that an aggregator meets before its own noise
broadcast  the model that an aggregator sends to everybody below it
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sfumato.arguments import Argument, ErrorPlace
from sfumato.durable_files import replacing
from sfumato.errors import SpecError
from sfumato.families import family_of
from sfumato.privacy.observers import Party
from sfumato.privacy.received import CoalitionView
from sfumato.run_folder.view_files import round_file, slug
from sfumato.schedule.adaptive_clip import require_fixed_clip
from sfumato.schedule.base import Plan
from sfumato.schedule.faults.dropouts import turnout_of
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.schedule.tree import TreePlan

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]


class ObserverPosition(Protocol):
    """The position of a coalition in a topology."""

    def view(self, number: int, index: int) -> CoalitionView:
        """What the observer receives in aggregation ``index`` of round ``number``, both from 0."""

    def parents(self, number: int, index: int, tier: int, senders: IntArray) -> IntArray:
        """The index of the aggregator that each of ``senders`` ``[p]`` of ``tier`` sends to, int64 ``[p]``.

        ``number`` is the round, ``index`` the aggregation in it.
        """


@dataclass(frozen=True)
class TreeObserverPosition:
    """A coalition in a tree.

    Attributes:
        plan: played.
        coalition: who pools knowledge.
    """

    plan: TreePlan
    coalition: tuple[Party, ...]

    def view(self, number: int, index: int) -> CoalitionView:
        """What the observer receives in aggregation ``index`` of round ``number`` (both from 0), by the plan.

        Where supernodes are elected: a member that is elected receives what its zone's supernode receives,
        and a coalition with that supernode knows what the elected device sends.
        """
        plan = self.plan.at(number)
        declared, last = plan.releases, plan.tree.depth - 1
        members = list(self.coalition)
        if declared.elections:
            terms = turnout_of(self.plan, number, index, draw_participants(self.plan, number)).terms
            for leaf, elected in enumerate(terms):
                office, holders = Party("node", last, leaf), [Party("device", 0, d) for d in elected]
                if office in self.coalition:
                    members += holders
                elif any(holder in self.coalition for holder in holders):
                    members.append(office)
        return declared.view(tuple(dict.fromkeys(members)), index)

    def parents(self, number: int, index: int, tier: int, senders: IntArray) -> IntArray:
        """The index of the node that each of ``senders`` ``[p]`` of ``tier`` sends to in round ``number``.

        ``index``, the aggregation, does not matter.
        """
        tree = self.plan.at(number).tree
        if tier == tree.depth:
            return tree.leaves_of(senders)
        return np.asarray(tree.parents[tier][senders], dtype=np.int64)


@dataclass(frozen=True)
class GroupObserverPosition:
    """A coalition among groups.

    Attributes:
        plan: played.
        coalition: who pools knowledge.
    """

    plan: GroupPlan
    coalition: tuple[Party, ...]

    def view(self, number: int, index: int) -> CoalitionView:
        """What the observer receives in round ``number`` (from 0); ``index``, the group, is not used."""
        return self.plan.releases.view(self.coalition, number + 1)

    def parents(self, number: int, index: int, tier: int, senders: IntArray) -> IntArray:
        """The master that each of ``senders`` ``[p]`` sends to: the group ``index``, ``[p]`` times.

        ``number`` and ``tier`` are not used.
        """
        return np.full(len(senders), index, dtype=np.int64)


class Recorder:
    """Records the vectors that one coalition receives or sends, and writes them round by round.

    Args:
        name: of the observer, as in `observer_name`.
        position: of the coalition.
        parameters: M.
    """

    def __init__(self, name: str, position: ObserverPosition, parameters: int) -> None:
        self.name = name
        self._position = position
        self._parameters = parameters
        self._rows: list[tuple[int, str, int, int]] = []
        self._vectors: list[FloatArray] = []

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Keep the messages that members of the observer receive or send.

        Args:
            number: of the round, from 0.
            index: of the aggregation in it; in groups, the group.
            tier: of the senders.
            senders: their indices, ``[p]``.
            vectors: their messages, noise included, ``[p, M]``.
        """
        view = self._position.view(number, index)
        own = [party for at, party in view.senders if at == tier]
        singles = [node for at, node in view.single if at == tier - 1]
        parents = self._position.parents(number, index, tier, senders)
        heard = np.isin(senders, own) | np.isin(parents, singles)
        for row in np.flatnonzero(heard):
            self._keep(index, "sent", tier, int(senders[row]), vectors[int(row)])

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Keep the sums that members of the observer receive in aggregation ``index``.

        Where a member receives single messages, `sent` has kept those. ``number`` is the round, from 0;
        ``values`` ``[nodes, M]`` is what all nodes of ``tier`` received.
        """
        view = self._position.view(number, index)
        for at, node in sorted(view.summed):
            if at == tier:
                self._keep(index, "received", tier, node, values[node])

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Keep the models that members of the observer receive from above in aggregation ``index``.

        ``number`` is the round, from 0; ``values`` ``[nodes, M]`` is what all nodes of ``tier`` send down.
        """
        view = self._position.view(number, index)
        for at, node in sorted(view.averages):
            if at == tier:
                self._keep(index, "broadcast", tier, node, values[node])

    def write(self, folder: Path, number: int) -> str:
        """Write the vectors kept in round ``number`` (from 0) to its file in ``folder``, and forget them.

        They may be raw updates: only the owner may read the file. It is written even if nothing was kept.

        Returns:
            The file's SHA-256.

        Raises:
            RunError: the file cannot be written.
        """
        steps, kinds, tiers, parties = zip(*self._rows, strict=True) if self._rows else ((), (), (), ())
        vectors = np.stack(self._vectors) if self._vectors else np.zeros((0, self._parameters), np.float32)
        path = folder / round_file(slug(self.name), number)
        with replacing(path, private=True) as file:
            np.savez(
                file,
                step=np.array(steps, dtype=np.int64),
                kind=np.array(kinds, dtype="U9"),
                tier=np.array(tiers, dtype=np.int64),
                party=np.array(parties, dtype=np.int64),
                vector=vectors,
            )
        self.clear()
        return file.sha256

    def clear(self) -> None:
        """Forget every vector that was kept and not written."""
        self._rows, self._vectors = [], []

    def _keep(self, index: int, kind: str, tier: int, party: int, vector: Tensor) -> None:
        """Keep one vector ``[M]`` for the file of this round.

        Args:
            index: of the aggregation, or of the group.
            kind: ``sent``, ``received`` or ``broadcast``.
            tier: of the party whose vector it is.
            party: its index in the tier.
            vector: copied to the CPU as float32.
        """
        self._rows.append((index, kind, tier, party))
        self._vectors.append(vector.detach().cpu().float().numpy().copy())


def observer_name(plan: Plan, names: str, *, place: ErrorPlace) -> str:
    """The canonical name of an observer, or of a coalition joined by commas, checked for recording.

    Args:
        plan: has the parties.
        names: as the user wrote them.
        place: where they were written, for the error.

    Raises:
        SpecError: there is no such party, or the clip norm is adaptive.
    """
    require_fixed_clip(plan.spec, "a recorded view has vectors of the model's length only")
    coalition = parse_coalition(names, plan.parties, place=place)
    return ",".join(plan.releases.party_name(party) for party in coalition)


def recorder_of(plan: Plan, name: str, parameters: int) -> Recorder:
    """The recorder of everything that the observer called ``name`` receives.

    Args:
        plan: that is played.
        name: of a party, or of several joined by commas.
        parameters: length of a recorded vector.

    Raises:
        SpecError: there is no such party, or what the observer receives depends on how many participants
            control chooses.
    """
    coalition = parse_coalition(name, plan.parties)
    if plan.spec.control is not None and "secure-aggregation" in plan.spec.transport.values():
        inside = {party.kind for party in coalition}
        if {"node", "device"} <= inside:
            allowed = (
                "must be devices only, or aggregators only, under control with secure aggregation: how many "
                "devices take masks off together with an aggregator changes with the number of participants"
            )
            raise SpecError(Argument("record_views"), name, allowed)
    return Recorder(name, family_of(plan.spec).position(plan, coalition), parameters)
