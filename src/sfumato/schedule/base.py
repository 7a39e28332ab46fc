"""The interface of a plan: what the accountant, the protocols and the reports read of it in any topology."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from sfumato.arguments import ErrorPlace
from sfumato.privacy.declared_releases import DeclaredReleases
from sfumato.privacy.observers import Party
from sfumato.spec.document import Spec


class Parties(Protocol):
    """The parties of a network (devices and aggregators) and their names."""

    @property
    def device_count(self) -> int:
        """Number of devices."""

    @property
    def has_public(self) -> bool:
        """Whether there is one global model that the public may see."""

    @property
    def device_names(self) -> tuple[str, ...]:
        """The devices' names by number; empty where the topology names none."""

    @property
    def site_names(self) -> tuple[str, ...]:
        """The names that a user gave to sites of devices (devices or leaves), by number; empty without."""

    def titled(self, text: str) -> str:
        """``text`` with names such as ``edge:0`` replaced by those that the topology gives these parties.

        Names of parties without such a name stay.
        """

    def find_node(self, name: str, *, place: ErrorPlace) -> tuple[int, int]:
        """The tier and the index in it of the aggregator called ``name``, such as ``edge:0``.

        Args:
            name: of an aggregator, as the user wrote it.
            place: key of the spec or option to blame.

        Raises:
            SpecError: there is no such aggregator.
        """


class Plan(Protocol):
    """A resolved spec: every random choice is made and the size of all noise is known."""

    @property
    def spec(self) -> Spec:
        """The resolved spec: every random choice is made, and every source's noise is written out."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user, shown beside results: choices that resolving made, and warnings."""

    @property
    def releases(self) -> DeclaredReleases:
        """The declared releases: the facts from which ε is computed."""

    @property
    def parties(self) -> Parties:
        """The parties of the network: a tree or groups."""

    @property
    def devices_per_place(self) -> npt.NDArray[np.int64]:
        """Number of devices at each place that data are divided among: leaves, or one place in groups."""

    @property
    def is_sampled(self) -> bool:
        """Whether the participants of a round are drawn at random, so that ε takes longer to compute."""

    @property
    def default_watch(self) -> tuple[str, ...]:
        """Names of the observers whose ε a run follows where the spec has no ``watch``."""

    def trusts(self, party: Party, device: int) -> bool:
        """Whether ``party`` is trusted with the raw updates of the device of number ``device``.

        Where trust changes: whether it still is at the end; see `ever_trusts`.
        """

    def ever_trusts(self, party: Party, device: int) -> bool:
        """Whether ``party`` is trusted with raw updates of the device of number ``device`` in any round."""

    def is_near(self, party: Party, device: int) -> bool:
        """Whether ``party`` is ever an aggregator above the device of number ``device``, or a peer of it."""

    @property
    def moves_without_change(self) -> tuple[tuple[int, int, int], ...]:
        """The moves of ``topology.moves.trace`` that name the edge which their device is under already.

        Each is a round (from 1), a device and an edge (from 0). () without a trace.
        """

    @property
    def grows_in_proportion(self) -> bool:
        """Whether what a unit is charged after n rounds is n times what it is charged after one.

        Then a unit whose charge is at most another's after the whole run has at most the other's after any
        number of rounds.
        """

    @property
    def rounds_are_alike(self) -> bool:
        """Whether every round has the same releases as the first."""

    @property
    def classes_share_trust(self) -> bool:
        """Whether all devices of an accountant's class trust the same kinds of parties with raw updates."""

    @property
    def devices_at_untrusted_edges(self) -> int | None:
        """How many devices are ever under an edge (in groups: a master) that is not trusted.

        ``None`` where that is not known: in a star, or where trust changes.
        """

    @property
    def raw_to_trusted_edge(self) -> int:
        """How many devices send raw updates to an edge (in groups: a master) that is trusted with them."""
