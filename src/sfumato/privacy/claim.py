"""A paper's own privacy claim, beside the rigorous figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sfumato.privacy.guarantee import json_number

ClaimedDraw: TypeAlias = Literal["none", "seen", "unseen", "replaced"]
"""How the draw of participants enters the rigorous ε of one round.

There is none; or the observer sees it, and ε is of a unit that is drawn; else ε is before the draw, and with
``replaced`` another device takes the unit's place.
"""


_DRAW_BY_TEXT: Mapping[str, ClaimedDraw] = {
    "this observer sees who is drawn": "seen",
    "drawn in the unit's place": "replaced",
    "mixture over Binomial": "unseen",
}
"""Words in reasons of claims, as files have them, and the draw that they tell; the first that is found."""


def claim_holds(claimed: float, rigorous: float) -> bool:
    """Whether the ``rigorous`` ε is at most the ``claimed`` one, but for rounding of one part in 10^9.

    Also where both are infinite.
    """
    return rigorous <= claimed * (1 + 1e-9)


@dataclass(frozen=True)
class Claim:
    """What a source says about one pair, and what is true of it.

    Attributes:
        source: paper, the place in it and, after a comma, the formula or the rounds.
        unit: e.g. ``device:0``.
        observer: e.g. ``edge:0``.
        claimed_epsilon: the paper's.
        rigorous_epsilon: ours, at the same delta.
        why: one sentence.
        method: how the rigorous figure was composed, where it is said.
        surrogate_epsilon: of a simpler sampling than the real one, where it is instructive; no guarantee.
        one_round: whether both ε are of one round, of which alone the source speaks.
        draw: how the draw of participants enters the rigorous ε of one round.
        stated: whether the source speaks of this observer; else its rule is applied to it.
    """

    source: str
    unit: str
    observer: str
    claimed_epsilon: float
    rigorous_epsilon: float
    why: str
    method: str | None = None
    surrogate_epsilon: float | None = None
    one_round: bool = False
    draw: ClaimedDraw = "none"
    stated: bool = True

    @property
    def paper(self) -> str:
        """The name of the paper, such as ``DP-OGL``: the first word of the source."""
        return self.source.partition(" ")[0]

    @property
    def holds(self) -> bool:
        """Whether the rigorous ε is at most the claimed one (`claim_holds`)."""
        return claim_holds(self.claimed_epsilon, self.rigorous_epsilon)

    def to_dict(self) -> dict[str, Any]:
        """The claim as a row of ``claims`` in ``account --json``; an ε of ∞ becomes ``"inf"``."""
        row: dict[str, Any] = {
            "source": self.source,
            "unit": self.unit,
            "observer": self.observer,
            "claimed_epsilon": json_number(self.claimed_epsilon),
            "rigorous_epsilon": json_number(self.rigorous_epsilon),
            "holds": self.holds,
            "why": self.why,
        }
        if self.method is not None:
            row["method"] = self.method
        if self.surrogate_epsilon is not None:
            row["surrogate_epsilon"] = json_number(self.surrogate_epsilon)
        if self.one_round:
            row["one_round"] = True
        if self.draw != "none":
            row["draw"] = self.draw
        if not self.stated:
            row["stated"] = False
        return row

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Claim:
        """Read a claim from a row of ``claims`` in ``privacy.json``.

        ``holds``, ``method`` and ``surrogate_epsilon`` are not read; the last two are ``None`` in the result.
        Rows that leave out ``one_round``, ``draw`` and ``stated`` have them by their
        text: `_facts_by_text`.

        Raises:
            KeyError: a key other than ``why`` is missing.
            TypeError: an ε is no number and no string.
            ValueError: an ε is a string that is no number.
        """
        facts = {**_facts_by_text(row), **row}
        return cls(
            source=str(row["source"]),
            unit=str(row["unit"]),
            observer=str(row["observer"]),
            claimed_epsilon=float(row["claimed_epsilon"]),
            rigorous_epsilon=float(row["rigorous_epsilon"]),
            why=str(row.get("why", "")),
            one_round=bool(facts["one_round"]),
            draw=facts["draw"],
            stated=bool(facts["stated"]),
        )


def _facts_by_text(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values ``one_round``, ``draw`` and ``stated`` of a claim, by its source, observer and reason.

    Folders of earlier versions do not have these keys. In rows that have them, they agree with the text.
    """
    source, why = str(row["source"]), str(row.get("why", ""))
    draw = next((draw for said, draw in _DRAW_BY_TEXT.items() if said in why), "none")
    rule = source.startswith("HDP Sec. V, rule of Case 3")
    of_public = source.startswith("HDP Table I") and row["observer"] == "public"
    return {
        "one_round": source.endswith(", one round"),
        "draw": draw if source.startswith("PFELS") else "none",
        "stated": not (rule or of_public),
    }
