"""Several seeds of one spec, as ``--seeds`` asks for them."""

from __future__ import annotations

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.spec.limits import MAX_SEED, MAX_SEEDS

_SEEDS = Argument("seeds")


def seeds_from(first: int, count: int) -> range:
    """``count`` seeds from ``first`` on.

    Raises:
        SpecError: fewer than one, or more than ``MAX_SEEDS``, or past the largest seed.
    """
    if not 1 <= count <= MAX_SEEDS:
        raise SpecError(_SEEDS, count, f"must be from 1 to {MAX_SEEDS:,}: each seed is a run of its own")
    if first + count - 1 > MAX_SEED:
        raise SpecError(_SEEDS, count, f"from seed {first} on goes past the largest seed, {MAX_SEED:,}")
    return range(first, first + count)
