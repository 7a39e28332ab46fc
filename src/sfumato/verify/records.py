"""Records that their devices draw: whether a row charges them as the facts require."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING
from sfumato.verify.draws import Draw
from sfumato.verify.facts import CertifiedBound
from sfumato.verify.group_exposures import CheckedGroups
from sfumato.verify.moving_exposures import CheckedMovingTree
from sfumato.verify.read import Json
from sfumato.verify.spec_records import moved_shares
from sfumato.verify.spec_settings import clip_kind, has_gaussian_law
from sfumato.verify.tree_exposures import CheckedTree


def record_problems(bound: CertifiedBound) -> Iterator[str]:
    """Yield a line where a record's charge does not follow from the draws and releases in the facts.

    ``bound``: of a row about a record or a person; its certificate has ``record``.
    """
    record, facts = bound.cert["record"], bound.facts
    batches = (facts.eras[0] if isinstance(facts, CheckedMovingTree) else facts).ledger.get("batches")
    if batches is None or bound.name != "flow" or bound.spec.get("control"):
        yield "record: no draw of records amplifies this bound"
        return
    rate = read.figures(batches["rate_per_device"]).tolist()[bound.unit]
    if read.figure(record["rate"]) < rate * (1 - ROUNDING):  # pair_counts.py looks at others of the row
        yield f"record: rate: stated {record['rate']}; the facts give {rate}"
    if not isinstance(facts, CheckedMovingTree):
        yield from _part_problems(bound, facts, record["parts"])
        return
    at_steps = read.figure(batches["noise_at_steps"]) > 0  # one part an era, whatever is sent
    sizes = [1 if at_steps else len(draw.releases) for draw in bound.draws]
    for era, draw, parts in zip(facts.eras, bound.draws, _parts_by_era(record["parts"], sizes), strict=True):
        problems = _part_problems(bound._replace(draws=[draw]), era, parts)
        yield from (f"from round {era.ledger['from_round']}: {problem}" for problem in problems)


def _parts_by_era(parts: Sequence[Json], sizes: Sequence[int]) -> Iterator[list[Json]]:
    """Yield the parts of each era: in order, until they have as many releases as ``sizes`` gives the era.

    Whatever is left goes with the last era.
    """
    left = list(parts)
    for place, size in enumerate(sizes, start=1):
        mine: list[Json] = []
        while left and (place == len(sizes) or sum(len(part["releases"]) for part in mine) < size):
            mine.append(left.pop(0))
        yield mine


def _part_problems(
    bound: CertifiedBound, facts: CheckedTree | CheckedGroups, parts: Sequence[Json]
) -> Iterator[str]:
    """Yield a line where parts of a record's charge do not fit the releases of one tree, or of groups.

    Args:
        bound: whose draws are those of the tree or the groups.
        facts: of the tree or the groups.
        parts: of the record's charge, about these releases.
    """
    batches, table, unit = facts.ledger["batches"], bound.table, bound.unit
    if multiplier := read.figure(batches["noise_at_steps"]):
        yield from _noised_step_problems(parts, table, multiplier, facts, unit)
        return
    tree = facts if isinstance(facts, CheckedTree) else None
    moves, replaced = moved_shares(batches, tree.leaf_of(unit) if tree else 0)
    sending = tree.sending_steps(tree.leaf_of(unit)) if tree else []
    # in groups bits go with masters who add the noise
    noised_first = tree and all(tree.message_variance(step)[tree.class_of(unit)] > 0 for step in sending)
    rounded = bool(batches.get("rounded")) and not noised_first
    examples = clip_kind(bound.spec) == "example"
    limit = read.count(batches.get("answering", 0)), read.figure(batches.get("beyond", 0.0))
    flow, charged = Counter[int](), Counter[int]()
    for draw in bound.draws:
        for place, release in enumerate(draw.releases):
            step = place if tree else 0
            flow[_release_hash(release)] += draw.count
            most, shares = read.figure(release["variance"]), (moves[step], replaced[step])
            if examples:  # of groups `record_noise_problems` compares all at once
                most = tree.noise_of_records(sending[step], unit, bound.coalition) if tree else math.inf
                most = most if has_gaussian_law(bound.spec) or not tree else 0.0
            if rounded:
                most, shares = (0.0 if examples else most), ((1.0,) * len(moves[step]),) * 2
            check = _ReleaseOfRecord(release, most, draw, shares, sum(map(len, moves)))
            yield from check.problems(parts, table, limit if examples else None)
    for part in parts:
        for i in read.counts(part["releases"]):
            charged[_release_hash(table[i])] += read.count(part["count"])
    if charged != flow:
        yield "record: the releases charged are not those of the flow bound"
    if isinstance(facts, CheckedGroups):
        exposed = read.counts(bound.cert["exposed_releases_per_group"]).tolist()
        yield from hidden_start_problems(parts, facts, exposed, unit, table)
        if examples:
            gaussian = has_gaussian_law(bound.spec)
            yield from facts.record_noise_problems(parts, table, exposed, unit, bound.coalition, gaussian)


def _release_hash(release: Json) -> int:
    """A hash that is equal for releases with the same name, vector and sensitivities."""
    own = read.figure(release["own_sensitivity"])
    return hash((release["name"], release["vector"], own, read.figure(release["propagated_sensitivity"])))


class _ReleaseOfRecord(NamedTuple):
    """A release that records move, and what may be said of it at most.

    Attributes:
        release: as the certificate states it.
        most: the most noise variance behind it.
        draw: of participants, that it belongs to.
        shares: for each local step, the share of its bound by which it moves if the record is first drawn
            there: where the record is zeroed out, and where it is replaced.
        all_steps: number of local steps of a round.
    """

    release: Json
    most: float
    draw: Draw
    shares: tuple[tuple[float, ...], tuple[float, ...]]
    all_steps: int

    def problems(
        self, parts: Sequence[Json], table: Sequence[Json], limit: tuple[int, float] | None
    ) -> Iterator[str]:
        """Yield a line where draws of a record are claimed to move this release less than they may.

        Args:
            parts: of the record's charge.
            table: all releases, which parts name by index.
            limit: where gradients of examples are clipped: the most examples in a step, and the probability
                of more; else ``None``.
        """
        release, draw, most = self.release, self.draw, self.most
        where = f"record: {release['name']}"
        moved = (
            read.figure(release["propagated_sensitivity"]) > 0 or read.count(release.get("linking", 0)) > 0
        )
        alone = len(draw.releases) == 1 and draw.kind == "poisson" and draw.amplifies
        least = draw.rate if alone and not draw.divides_by_drawn and limit is None else 1.0
        for part in parts:
            alike = [table[i] for i in read.counts(part["releases"]) if self._is_like(table[i])]
            if not alike:
                continue
            variance = max(read.figure(one["variance"]) for one in alike)
            mine = tuple(read.figures(part.get("moves", ())).tolist())
            others = tuple(read.figures(part.get("replaced_moves", ())).tolist()) or mine
            together = len(part["releases"]) > 1
            largest = 1.0
            if limit is not None and (not mine or together or len(mine) > 1):
                largest = float(limit[0] or 1)
                if variance > 0 and (not limit[0] or moved):
                    yield f"{where}: clipped examples that answer each other have no bound"
                steps = self.all_steps if together else len(self.shares[0])
                excess = part.get("beyond", 0.0)
                if variance > 0 and read.figure(excess) < limit[1] * steps * (1 - ROUNDING):
                    yield f"{where}: beyond: stated {excess}; {steps} steps may add up more"
            if not mine and variance > 0 and read.figure(part.get("largest_move", 1.0)) < largest:
                yield f"{where}: moves by {part.get('largest_move', 1.0)}; may by {largest}"
            if variance > most * (1 + ROUNDING):
                yield f"{where}: variance {variance:.9g} counted; the facts leave {most:.9g}"
            if mine and moved:
                yield f"{where}: others move it, so the record counts as drawn"
            if mine and together:
                if mine != (largest,) * self.all_steps or len(part["releases"]) != len(draw.releases):
                    yield f"{where}: releases on one draw move by all of their bound, at any step"
            elif mine and (mine, others) != self.shares:
                yield f"{where}: the shares that move are not those of the facts"
            participation = read.figure(part.get("participation", 1.0))
            if participation < (least * (1 - ROUNDING) if least < 1 else least):
                yield f"{where}: participation: stated {participation}; the facts give {least}"

    def _is_like(self, other: Json) -> bool:
        """Whether another release has the same name, vector and sensitivity."""
        return _release_hash(other) == _release_hash(self.release)


def _noised_step_problems(
    parts: Sequence[Json],
    table: Sequence[Json],
    multiplier: float,
    facts: CheckedTree | CheckedGroups,
    unit: int,
) -> Iterator[str]:
    """Yield a line where noise at local steps is not charged as one part: every step, the device's own noise.

    Args:
        parts: of the record's charge.
        table: all releases, which parts name by index.
        multiplier: noise multiplier of a step.
        facts: of the tree or the groups.
        unit: index of the device.
    """
    ledger, rounds = facts.ledger, read.count(facts.ledger["rounds"])
    leaf = facts.leaf_of(unit) if isinstance(facts, CheckedTree) else 0
    steps = [len(one) for one in moved_shares(ledger["batches"], leaf)[0]]
    if isinstance(facts, CheckedGroups):
        groups = max(int(inside[unit].sum()) for inside in facts.inside)
        count = groups * -(-rounds // (facts.every if facts.intervals else 1)) * steps[0]
    else:
        count = rounds * sum(steps)
    fits = len(parts) == 1 and len(parts[0]["releases"]) == 1
    if fits:
        part, release = parts[0], table[read.count(parts[0]["releases"][0])]
        moves = tuple(part["moves"]), tuple(part.get("replaced_moves", ()))
        fits = (read.figure(release["own_sensitivity"]), *moves) == (1.0, (0.5,), (1.0,))
        fits &= read.figure(release["variance"]) <= multiplier**2 * (1 + ROUNDING)
        fits &= read.count(part["count"]) == count and read.figure(part.get("participation", 1.0)) == 1
    if not fits:
        yield f"record: noise at local steps: must be {count} steps of multiplier {multiplier}"


def hidden_start_problems(
    parts: Sequence[Json], facts: CheckedGroups, exposed: Sequence[int], unit: int, table: Sequence[Json]
) -> Iterator[str]:
    """Yield a line where the unit starts from hidden models and its record is charged as drawn at random.

    Once it starts from such a model its record may be in every message, so it must be charged as always
    drawn.

    Args:
        parts: of the record's charge.
        facts: of the groups.
        exposed: number of exposed releases by group.
        unit: index of the worker.
        table: all releases, which parts name by index.
    """
    _, unknown = facts.charged_sums(unit, exposed)
    for (group, _), least in unknown.items():
        sure = sum(
            read.count(part["count"])
            for part in parts
            for i in part["releases"]
            if table[i]["name"].split(",")[0] == f"group {group}" and not part.get("moves")
        )
        if sure < least:
            yield f"record: group {group}: it counts as drawn in {sure} releases; must in {least}"
