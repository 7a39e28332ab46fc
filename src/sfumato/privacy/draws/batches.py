"""How devices draw the batches that their messages are trained on: facts for records as the unit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BatchFacts:
    """How devices draw the batches that their messages are trained on.

    Attributes:
        rates: q, the probability that a record is in a local step, for each device; ``None`` where a record
            is charged as if it were in every message.
        moves: for each aggregation of a round (in groups there is one), the largest share of the message that
            moves if the record is first drawn at each of its local steps.
        replaced_moves: the same where the record is replaced, not zeroed out; empty where it is the same.
        clips_examples: whether gradients of single examples are clipped. Sensitivities of releases are then
            those of one example by itself, and no bound of a device's message.
        answering: the most gradients that a local step adds up, where gradients of examples are clipped and
            other records may answer; 0 where that was not asked for.
        beyond: probability that one local step adds up more than ``answering``.
        rounded: whether devices round messages, to a grid that depends on the whole message.
        step_multiplier: noise that a device adds to the sum of clipped gradients of each local step, over the
            norm that gradients of examples are clipped to; 0 for none.
        of_leaf: in a tree whose leaves take part in different aggregations, the facts for the devices of
            each; empty where all are alike.
        why_not_drawn: without ``rates``, why.
    """

    rates: FloatArray | None = None
    moves: tuple[tuple[float, ...], ...] = ()
    replaced_moves: tuple[tuple[float, ...], ...] = ()
    clips_examples: bool = False
    answering: int = 0
    beyond: float = 0.0
    rounded: bool = False
    step_multiplier: float = 0.0
    why_not_drawn: str = "batches are shuffled, so a record may be in every message"
    of_leaf: tuple[BatchFacts, ...] = ()

    def at(self, leaf: int) -> BatchFacts:
        """The facts for devices of ``leaf``."""
        return self.of_leaf[leaf] if self.of_leaf else self

    def to_dict(self) -> dict[str, object]:
        """As JSON; empty where nothing is drawn record by record."""
        if self.rates is None:
            return {}
        first, replaced = "moved_share_by_first_step", "moved_share_by_first_step_replaced"
        shares: dict[str, object] = {first: self._shares(False), replaced: self._shares(True)}
        if self.of_leaf:
            shares = {
                f"{first}_per_leaf": [leaf._shares(False) for leaf in self.of_leaf],
                f"{replaced}_per_leaf": [leaf._shares(True) for leaf in self.of_leaf],
            }
        return {
            "batches": {
                "rate_per_device": self.rates.tolist(),
                **shares,
                **({"answering": self.answering, "beyond": self.beyond} if self.answering else {}),
                **({"rounded": True} if self.rounded else {}),
                "noise_at_steps": self.step_multiplier,
            }
        }

    def _shares(self, replaced: bool) -> list[list[float]]:
        listed = self.replaced_moves or self.moves if replaced else self.moves
        return [list(steps) for steps in listed]


SHUFFLED = BatchFacts()
