"""ε of the watched pairs over the rounds of a run: from the plan alone, where it says all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sfumato.accounting import PrivacyReport, epsilon_after, epsilon_of_spent, pair_guarantee
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import Party
from sfumato.protocols.base import FloatArray
from sfumato.run_folder.metrics_table import EPSILON_PREFIX
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.observers import parse_coalition, parse_protected
from sfumato.schedule.rows.watch import MonitoredPair, rounds_to_account, watched_pairs


@dataclass(frozen=True, eq=False)
class WatchedEpsilons:
    """The columns ``epsilon:OBSERVER`` of the metrics.

    A plan declares every round, whatever is drawn and whatever the models become, so ε after a number of
    rounds does not depend on training. It is computed once, when that round is done: all at once would let a
    run of very many rounds wait, with nothing saved. What a privacy filter charges is known round by round.

    Attributes:
        plan: of the run.
        pairs: that are watched.
        accounted: rounds (from 1) after which ε is stated; after the last one it always is.
    """

    plan: Plan
    pairs: tuple[MonitoredPair, ...]
    accounted: frozenset[int]
    _known: dict[tuple[MonitoredPair, int], float] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, plan: Plan, privacy: PrivacyReport | None) -> WatchedEpsilons:
        """The ε to follow in a run of ``plan``: of its watched pairs; of none if ``privacy`` is ``None``.

        Rows of ``privacy`` are used where they have the pair, so that their ε is not computed again.
        """
        if privacy is None:
            return cls(plan, (), frozenset())
        known = {(row.unit, row.observer): row for row in privacy.guarantees}

        def pair(unit: str, observer: str) -> Guarantee:
            found = known.get((unit, observer))
            return found or pair_guarantee(plan, unit, observer, delta=privacy.delta)

        return cls(plan, watched_pairs(plan, pair), rounds_to_account(plan))

    def unknown(self) -> dict[str, float]:
        """Every column with the value NaN, for a row of metrics in which ε is not stated."""
        return dict.fromkeys(self._columns(), float("nan"))

    def after(self, done: int, *, played: int, spent: FloatArray | None) -> dict[str, float]:
        """ε by column after ``done`` rounds.

        Args:
            done: number of rounds.
            played: how many have been played, at least ``done``.
            spent: what a filter has charged in those, as of `FederatedProtocol.spent`; ``None`` without one.
        """
        return {
            column: self._after(pair, done) if spent is None else self._of_spent(pair, done, played, spent)
            for column, pair in zip(self._columns(), self.pairs, strict=True)
        }

    def _columns(self) -> Iterable[str]:
        """Names of the columns: ``epsilon:OBSERVER`` for each pair."""
        return [f"{EPSILON_PREFIX}{pair.observer}" for pair in self.pairs]

    def _after(self, pair: MonitoredPair, done: int) -> float:
        """ε of ``pair`` after ``done`` rounds by the plan; computed once."""
        if (pair, done) not in self._known:
            self._known[pair, done] = epsilon_after(self.plan, *self._parties_of(pair), done)
        return self._known[pair, done]

    def _of_spent(self, pair: MonitoredPair, done: int, played: int, spent: FloatArray) -> float:
        """ε of ``pair`` from what a filter has charged in the ``played`` rounds.

        NaN for fewer rounds (``done`` < ``played``): what was spent by then is not kept.
        """
        if done < played:
            return float("nan")
        return epsilon_of_spent(self.plan, spent, *self._parties_of(pair))

    def _parties_of(self, pair: MonitoredPair) -> tuple[int, tuple[Party, ...]]:
        """The number of the unit's device, and the observers."""
        _, device = parse_protected(pair.unit, self.plan.parties, own=self.plan.spec.privacy.unit)
        return device, parse_coalition(pair.observer, self.plan.parties)
