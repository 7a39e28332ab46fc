"""A release and a draw as the facts have them, and how stated ones claim more protection."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING, nearly_equal
from sfumato.verify.draws import Draw, sensitivity, squared_ratio
from sfumato.verify.read import Array, Json

MOST_COMPARED = 100_000
"""Exposed sets of one row that are compared with the stated one, times their steps."""
OWNERS = ("devices", "aggregators", "channel")
"""Of noise."""


class ExpectedRelease(NamedTuple):
    """A release as the facts have it.

    Attributes:
        name: when it happens.
        vector: which sum or message it is.
        own: how far the unit's own contribution moves it, l2, if it is zeroed out.
        others: how far other devices move it because of the unit's data.
        noise: variance, a coordinate, by kind of owner as `OWNERS`, ``[3]``.
        draw_independent: whether the noise is the same whoever is drawn.
        divides_by_drawn: whether what the sum is divided by depends on who is drawn.
        linking: workers that move it without the unit.
        amplifies_propagated: whether a hidden draw amplifies ``others`` too.
    """

    name: str
    vector: str
    own: float
    others: float
    noise: Array
    draw_independent: bool
    divides_by_drawn: bool = False
    linking: int = 0
    amplifies_propagated: bool = False

    def squared_mu(self, relation: str) -> float:
        """μ² = (sensitivity / noise std)² under ``relation``, as of `sensitivity`; ∞ without noise."""
        moves = sensitivity(self.own, self.others, relation, self.divides_by_drawn)
        return squared_ratio(moves, float(self.noise.sum()))


def release_problems(stated: Json, wanted: ExpectedRelease) -> Iterator[str]:
    """Yield a line where a release of a certificate claims more protection than the facts give.

    That is: smaller sensitivities, more noise of an owner, or a flag that lowers ε and does not hold.
    """
    what = f"{wanted.name}, {wanted.vector}"
    if (stated["name"], stated["vector"]) != (wanted.name, wanted.vector):
        yield f"exposed set: it has {stated['name']}, {stated['vector']}; the observer meets {what}"
        return
    for key, least in (("own_sensitivity", wanted.own), ("propagated_sensitivity", wanted.others)):
        if read.figure(stated[key]) < least * (1 - ROUNDING):
            yield f"{what}: {key}: stated {read.figure(stated[key]):.9g}; the facts give {least:.9g}"
    parts = stated.get("noise", {})
    held = [read.figure(parts.get(owner, 0.0)) for owner in OWNERS]
    for owner, mine, most in zip(OWNERS, held, wanted.noise, strict=True):
        if mine > most * (1 + ROUNDING) + 1e-300:
            yield f"{what}: noise of {owner}: variance {mine:.9g} counted; the facts leave {most:.9g}"
    total = read.figure(stated["variance"])
    if set(parts) - set(OWNERS) or not nearly_equal(math.fsum(held), total):
        yield f"{what}: variance: stated {total:.9g}; its sources add up to {math.fsum(held):.9g}"
    independent = read.flag(stated["noise_is_draw_independent"])
    propagated = read.flag(stated.get("amplifies_propagated", False))
    in_favour = {
        "noise_is_draw_independent": independent > wanted.draw_independent,
        "divides_by_drawn": read.flag(stated.get("divides_by_drawn", False)) < wanted.divides_by_drawn,
        "linking": read.count(stated.get("linking", 0)) < wanted.linking,
        "amplifies_propagated": propagated > wanted.amplifies_propagated,
    }
    for key in (key for key, claims in in_favour.items() if claims):
        yield f"{what}: {key}: the certificate says more in its favour than the facts do"


def sampling_problems(stated: Draw, wanted: Json, count: int, ratio: float = 1.0) -> Iterator[str]:
    """Yield a line where a stated draw differs from that of the facts.

    Args:
        stated: the draw of the certificate.
        wanted: the draw of the facts: kind, rate, hidden, population, sample.
        count: how often it happens.
        ratio: heaviest device's weight over the unit's; the stated one must not be smaller.
    """
    if stated.count != count:
        yield f"draw: stated {stated.count} times; it happens {count} times"
    defaults = {"kind": "all", "rate": 1.0, "hidden": True, "population": 0, "sample": 0}
    for key, default in defaults.items():
        mine, theirs = stated.sampling.get(key, default), wanted.get(key, default)
        if key == "hidden" and wanted["kind"] == "all":
            continue
        same = (
            mine == theirs
            if key in ("kind", "hidden")
            else nearly_equal(read.figure(mine), read.figure(theirs))
        )
        if not same:
            seen = " (who sees it)" if key == "hidden" else ""
            yield f"draw: {key}{seen}: stated {mine}; the facts give {theirs}"
    if stated.max_weight_ratio < ratio * (1 - ROUNDING):
        yield f"draw: max_weight_ratio: stated {stated.max_weight_ratio}; the facts give {ratio:.9g}"
