"""Which columns of a source hold what, as the spec names them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; ``None`` for what the source finds by itself, or does not have.

    Attributes:
        image: a column of images or vectors.
        label: the labels.
        group: natural groups, read only if given.
        features: columns of one number each.
        site: names of sites.
        test: which rows are tested on.
        scale: ``(column, low, high)`` of the features to scale.
    """

    image: str | None = None
    label: str | None = None
    group: str | None = None
    features: tuple[str, ...] | None = None
    site: str | None = None
    test: str | None = None
    scale: tuple[tuple[str, float, float], ...] = ()


AS_FOUND = Columns()
"""Nothing is named."""
