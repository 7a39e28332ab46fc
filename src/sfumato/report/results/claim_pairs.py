"""Names of the pairs of units and observers that published claims are about, and where claims hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sfumato.privacy.claim import Claim, ClaimedDraw, claim_holds
from sfumato.report import formatting as text
from sfumato.report.results.claim_words import held_in_words
from sfumato.report.results.observer_labels import ObserverLabels
from sfumato.run_folder.recorded_privacy import WorstCoalition

MOST_NAMED = 4
_CHARGED: Mapping[ClaimedDraw, str] = {
    "none": "",
    "seen": "for a device that is drawn",
    "unseen": "before the draw",
    "replaced": "before the draw, another device taking its place",
}


class PairNames(NamedTuple):
    """Names the pairs that claims are about: classes of units, and how observers are placed towards them.

    Attributes:
        labels: of the run's network.
        units: of all claims of the run.
        coalitions: of devices with the aggregator of a unit, which a threat model tolerates.
    """

    labels: ObserverLabels
    units: tuple[str, ...]
    coalitions: Sequence[WorstCoalition] = ()

    @classmethod
    def of(
        cls, claims: Sequence[Claim], labels: ObserverLabels, coalitions: Sequence[WorstCoalition]
    ) -> PairNames:
        """The names for all ``claims`` of a run; ``coalitions`` as of the class."""
        return cls(labels, tuple(dict.fromkeys(claim.unit for claim in claims)), coalitions)

    def towards(self, claim: Claim) -> str:
        """The observer of a claim in a sentence, such as ``towards their own edge``.

        A claim on one round is followed by what its ε assumes of the draw: an observer that sees the draw is
        charged for a device that is drawn, others for the probability of being drawn.
        """
        towards = self.labels.column(claim.unit, claim.observer).towards
        charged = _CHARGED[claim.draw] if claim.one_round else ""
        return f"{towards} {charged}".rstrip()

    def all_towards(self, claims: Sequence[Claim]) -> str:
        """The observers of ``claims`` in a sentence, each kind once."""
        return text.join_names(list(dict.fromkeys(map(self.towards, claims))))

    def whose(self, claims: Sequence[Claim]) -> str:
        """The classes of units that claims are about; "" where the run has none about others."""
        about = {claim.unit for claim in claims}
        titles = dict.fromkeys(self.labels.row(unit).title for unit in self.units if unit in about)
        return "" if len(about) == len(self.units) else text.join_names(list(titles), MOST_NAMED)

    def told_apart(self, claims: Sequence[Claim]) -> dict[tuple[str, str], str]:
        """The name of each pair of ``claims``, by (unit, observer), for the axis of a figure.

        Pairs that would have the same name also say who the observer is.
        """
        apart = self.observers_told_apart(claims)
        return {
            pair: f"{name} ({apart[pair]})" if pair in apart else name
            for pair, name in self._named(claims).items()
        }

    def observers_told_apart(self, claims: Sequence[Claim]) -> dict[tuple[str, str], str]:
        """Who the observer is, of each pair of ``claims`` whose name is that of another one, too.

        By (unit, observer); {} where all names differ.
        """
        named = self._named(claims)
        many = Counter(named.values())
        return {pair: self._example(pair[1]) for pair, name in named.items() if many[name] > 1}

    def _example(self, observer: str) -> str:
        """A single observer in words, such as "edge 0"; "such as …" before a device.

        A device stands for its class.
        """
        title = self.labels.observer_title(observer)
        return f"such as {title}" if observer.startswith("device:") else title

    def _named(self, claims: Sequence[Claim]) -> dict[tuple[str, str], str]:
        """By (unit, observer) of ``claims``, the classes of both: ``50 devices under edges 0–4 → cloud``."""
        return {
            (one.unit, one.observer): f"{self.labels.row(one.unit).title} → "
            f"{self.labels.column(one.unit, one.observer).title}"
            for one in claims
        }

    def holding(self, claims: Sequence[Claim], told: str = "") -> str:
        """A clause on where claims hold: everywhere, nowhere, or towards which kinds of observers.

        ``told``: the observers of all claims, where the sentence has named them before.

        Of groups a claim that does not hold is only said to be not proved: see `held_in_words`.
        """
        holds, not_held = held_in_words(claims[0])
        if all(claim.holds for claim in claims):
            colluders = self._colluders_against(claims)
            return (
                f"it {holds}{self._with_colluders(claims, colluders, told)}" if colluders else f"it {holds}"
            )
        if not any(claim.holds for claim in claims):
            return f"it {not_held}"
        kinds = list(dict.fromkeys(map(self.towards, claims)))
        where = [k for k in kinds if all(c.holds for c in claims if self.towards(c) == k)]
        fails = [k for k in kinds if not any(c.holds for c in claims if self.towards(c) == k)]
        if len(where) + len(fails) == len(kinds):
            colluders = self._colluders_against([claim for claim in claims if claim.holds])
            also = (
                f", nor with {text.how_many(colluders, 'device')} that collude with it" if colluders else ""
            )
            nowhere = text.join_names(fails).replace(" and ", " or ")
            return f"it {holds} {text.join_names(where)}, not {nowhere}{also}"
        pairs = {(claim.unit, claim.observer) for claim in claims}
        failing = {(claim.unit, claim.observer) for claim in claims if not claim.holds}
        held = text.whole(len(pairs) - len(failing))
        return f"it {holds} for {held} of {text.whole(len(pairs))} classes of pairs"

    def _with_colluders(self, claims: Sequence[Claim], fewest: int, told: str) -> str:
        """Towards whom claims hold that ``fewest`` devices break which collude with the unit's edge."""
        alone = "" if told else f" {self.all_towards(claims)}"
        if fewest == 1:
            return f"{' towards it' if told else alone} alone, not if 1 device colludes with it"
        some = f"{text.how_many(fewest - 1, 'device')} {'collude' if fewest > 2 else 'colludes'}"
        return f"{alone}, also if up to {some} with that edge, not if more do"

    def _colluders_against(self, claims: Sequence[Claim]) -> int:
        """The fewest devices with which its own edge breaks one of the ``claims``; 0 where none are known."""
        return min(
            (
                row.size
                for claim in claims
                if self.labels.column(claim.unit, claim.observer).kind == "own-edge"
                for row in self.coalitions
                if row.unit == claim.unit and not claim_holds(claim.claimed_epsilon, row.supernode_epsilon)
            ),
            default=0,
        )
