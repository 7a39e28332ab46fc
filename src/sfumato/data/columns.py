"""Which columns of a source hold what, and what a model learns from them, as the spec says."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.spec.model import Task


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; ``None`` for what the source finds by itself, or does not have.

    Attributes:
        image: a column of images or vectors.
        label: the labels; several columns hold one number each.
        group: natural groups, read only if given.
        features: columns of one number each.
        site: names of sites.
        test: which rows are tested on.
        scale: ``(column, low, high)`` of the columns to scale.
        task: what a model learns to predict.
        vocabulary: features are token ids below it.
    """

    image: str | None = None
    label: str | tuple[str, ...] | None = None
    group: str | None = None
    features: tuple[str, ...] | None = None
    site: str | None = None
    test: str | None = None
    scale: tuple[tuple[str, float, float], ...] = ()
    task: Task = "classification"
    vocabulary: int | None = None


AS_FOUND = Columns()
"""Nothing is named."""
