"""Participation and round lengths to choose from: a small grid around the spec's own values.

All candidates have the same number of local steps in total. Rounds are halved or doubled in length; the
number of aggregations in each round stays (the operator sets it, h2fdp.txt, section 5). The number of
participants ranges from a quarter of the spec's to twice that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sfumato.schedule.local_steps import per_edge
from sfumato.schedule.tree import TreePlan
from sfumato.spec.base import numbers_in
from sfumato.spec.document import Spec
from sfumato.spec.training import Everyone, FixedParticipation, Participation, PoissonParticipation, Training

ROUND_LENGTHS = (Fraction(1, 2), Fraction(1), Fraction(2))
COHORT_SHARES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1), Fraction(3, 2), Fraction(2))
_PERIODS = ("local_steps", "edge_every", "aggregate_every")


@dataclass(frozen=True)
class Candidate:
    """One point of the grid.

    Attributes:
        spec: with this participation and these round lengths.
        participation: as text.
        local_steps: in a round; 0 if the work is counted in epochs.
    """

    spec: Spec
    participation: str
    local_steps: int


def candidates_of(spec: Spec, own: TreePlan) -> Iterator[Candidate]:
    """The grid, the spec's own point included.

    Args:
        spec: as written.
        own: the spec resolved.
    """
    for training in _round_lengths(own.spec.training):
        for participation in _participations(own):
            update = {"training": training.model_copy(update={"participation": participation})}
            steps = training.local_steps or 0
            yield Candidate(spec.model_copy(update=update), _describe_participation(participation), steps)


def _round_lengths(training: Training) -> Iterator[Training]:
    if training.local_steps is None:
        yield training  # an epoch is as long as the data; its length cannot be chosen
        return
    for factor in ROUND_LENGTHS:
        update: dict[str, Any] = {"rounds": training.rounds / factor}
        for key in _PERIODS:
            stated = getattr(training, key)
            if isinstance(stated, tuple):  # one for each level, or for each edge
                update[key] = tuple(period * factor for period in stated)
            elif stated is not None:
                update[key] = stated * factor
        numbers = [n for value in update.values() for n in (value if isinstance(value, tuple) else [value])]
        if all(number >= 1 and Fraction(number).denominator == 1 for number in numbers):
            whole = {k: tuple(map(int, v)) if isinstance(v, tuple) else int(v) for k, v in update.items()}
            yield training.model_copy(update=whole)


def _participations(own: TreePlan) -> Iterator[Participation]:
    stated, sizes = own.spec.training.participation, own.tree.devices.tolist()
    if isinstance(stated, PoissonParticipation):
        for share in COHORT_SHARES:
            if stated.rate * share <= 1:
                yield PoissonParticipation(rate=float(stated.rate * share))
        return
    if isinstance(stated, FixedParticipation) and not isinstance(stated.count, int):
        here = per_edge(stated.count, own.tree.leaf_count)
        each = [tuple(max(1, round(count * share)) for count in here) for share in COHORT_SHARES]
        for counts in sorted(set(each)):
            if all(count <= size for count, size in zip(counts, sizes, strict=True)):
                yield FixedParticipation(count=counts if len(set(counts)) > 1 else counts[0])
        return
    most = min(sizes)
    one = stated.count if isinstance(stated, FixedParticipation) else most
    assert isinstance(one, int)  # other counts were scaled edge by edge
    for count in sorted({max(1, round(one * share)) for share in COHORT_SHARES}):
        if count < most or (count == most and isinstance(stated, FixedParticipation)):
            yield FixedParticipation(count=count)
    if not isinstance(stated, FixedParticipation):
        yield Everyone()


def _describe_participation(participation: Participation) -> str:
    match participation:
        case FixedParticipation():
            return ", ".join(map(str, numbers_in(participation.count)))
        case PoissonParticipation():
            return f"{participation.rate:g} (rate)"
        case _:
            return "all"
