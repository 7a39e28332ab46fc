"""How a group draws the workers of one step, and what that leaves of a sum (docs/leakage.md, "Fixed
cohorts")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sfumato.privacy.draws.amplification import fixed_draw
from sfumato.privacy.draws.sampling import Sampling


@dataclass(frozen=True)
class GroupDraw:
    """The draw of a group, independent of all other draws.

    Attributes:
        kind: ``fixed``: ``drawn`` of the workers, uniformly without replacement.
        rate: probability that a worker is drawn.
        size: workers of the group.
        drawn: how many are drawn, expected.
        survivors: messages that a sum holds at least, if it is released at all; ``None``: of all drawn.
    """

    kind: Literal["all", "poisson", "fixed"]
    rate: float
    size: int
    drawn: float
    survivors: int | None = None

    @classmethod
    def of(cls, size: int, rate: float, count: int | None, survivors: int | None = None) -> GroupDraw:
        """``count`` of ``size`` workers, or (``None``) each with probability ``rate``."""
        if count is None:
            return cls("poisson" if rate < 1 else "all", rate, size, rate * size, survivors)
        return cls("fixed" if count < size else "all", count / size, size, float(count), survivors)

    @property
    def guaranteed(self) -> int:
        """How many are sure to be drawn."""
        return 0 if self.kind == "poisson" else round(self.drawn)

    @property
    def sure(self) -> int:
        """Messages that are sure to be in a sum that is released."""
        return self.guaranteed if self.survivors is None else self.survivors

    def sampling(self, *, known: int, hidden: bool) -> Sampling:
        """The draw as a coalition with ``known`` of the workers meets it."""
        if self.kind == "poisson":
            return Sampling.poisson(self.rate, hidden=hidden)
        if self.kind == "all":
            return Sampling(hidden=hidden)
        return fixed_draw(devices=self.size, sample=self.guaranteed, members=known, hidden=hidden)

    def moved_at_once(self, *, own: bool, others: int, only_with_unit: bool = False) -> float:
        """By how many message norms others move a sum, at most, besides the unit's own message.

        The unit and n - 1 others may be drawn, or n others without the unit.

        Args:
            own: whether the unit is one of the group's workers.
            others: how many other workers may send anything else.
            only_with_unit: whether they do so only if the unit is drawn.
        """
        most = round(self.drawn) if self.kind == "fixed" else self.size
        if self.kind != "fixed" or others + own <= most:
            return 2.0 * others
        if own:
            return 2.0 * most - (2.0 if only_with_unit else 1.0)
        return 2.0 * most

    def sure_noisers(self, *, own: bool, linking: int, known: int) -> int:
        """How many workers outside the coalition add noise to a sum whenever it moves.

        Members fill the places of a fixed number, or of the fewest survivors, that those who move the sum
        leave. Under a Poisson draw only those who move it are sure to be there. If fewer of them are there,
        there is less noise, but the sum moves by even less: (own + 2t)^2 / max(k, own + t) grows with t.

        Args:
            own: whether the unit is one of the group's workers.
            linking: how many others may move it.
            known: how many workers are members of the coalition, who know their own noise.
        """
        if self.kind == "poisson":
            return own + linking
        return max(self.sure - known, min(self.guaranteed, own + linking))
