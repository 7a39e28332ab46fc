"""Sets what `account` reports beside what the oracles know to be attainable.

Only the public API is asked: ``load_spec``, ``account``, and the rows it reports. A reported epsilon is *below* if
it is less than the oracle's, by more than a millionth; *equal* up to a ten-thousandth; else it is loose, by so much.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import oracle_random_groups as groups
import oracle_random_trees as trees
import yaml
from oracle_group_world import read_groups
from oracle_groups import GroupOracle
from oracle_tree import Answer, TreeOracle
from oracle_tree_world import read_tree

import sfumato

BELOW, EQUAL, INFINITE, UNKNOWN = "below", "equal", "reported infinite", "not played"
STEPS = (1e-3, 1e-2, 0.1, 0.5, 1.0)
COLUMNS = (BELOW, EQUAL, *(f"to {1 + step:g}" for step in STEPS), "more", INFINITE, UNKNOWN)


@dataclass(frozen=True)
class Row:
    """One pair of a spec, as reported and as attained.

    Attributes:
        spec: as a user writes it.
        reported: the row of ``account``.
        answer: the oracle's.
    """

    spec: Mapping[str, Any]
    reported: Mapping[str, Any]
    answer: Answer

    @property
    def epsilon(self) -> float:
        """What is reported."""
        return float(self.reported["epsilon"])

    @property
    def verdict(self) -> str:
        """One of `COLUMNS`."""
        reported, true = self.epsilon, self.answer.epsilon
        if reported < true * (1 - 1e-6):
            return BELOW
        if reported <= true * (1 + 1e-4):
            return EQUAL
        if math.isinf(reported):
            return INFINITE
        if not self.answer.complete:
            return UNKNOWN
        return next((f"to {1 + step:g}" for step in STEPS if reported <= true * (1 + step)), "more")

    def __str__(self) -> str:
        bounds = {name: bound["epsilon"] for name, bound in self.reported["bounds"].items()}
        return (
            f"{self.reported['unit']} -> {self.reported['observer']}: reported {self.epsilon:.6g}"
            f" ({self.reported['neighbours']}, {bounds}), attained {self.answer.epsilon:.6g} ({self.answer.attack})\n"
            + yaml.safe_dump(_plain(self.spec), default_flow_style=None, width=110, sort_keys=False)
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def compare(spec: Mapping[str, Any], unit: int, observer: str) -> Row:
    """Ask both about one pair.

    Raises:
        SpecError: the library refuses the spec.
    """
    reported = reported_row(spec, unit, observer)
    replaced = reported["neighbours"] == "replace"  # a row names the relation that it holds for
    oracle: TreeOracle | GroupOracle
    if spec["topology"]["kind"] == "groups":
        oracle = GroupOracle(replace(read_groups(spec), replace=replaced))
    else:
        oracle = TreeOracle(replace(read_tree(spec), replace=replaced))
    return Row(spec, reported, oracle.answer(unit, observer))


def reported_row(spec: Mapping[str, Any], unit: int, observer: str) -> Mapping[str, Any]:
    """What ``account`` reports of one pair."""
    report = sfumato.account(sfumato.load_spec(spec), unit=f"device:{unit}", observer=observer)
    (row,) = report.to_dict()["guarantees"]
    return row


@dataclass(frozen=True)
class Drawn:
    """A random spec that the library accepts, and what became of a few pairs of it.

    Attributes:
        number: repeats the draw, with the seed.
        family: ``tree`` or ``groups``.
        rows: of the pairs.
        refusals: coalitions that are told to learn less than a part of them.
    """

    number: int
    family: str
    rows: tuple[Row, ...]
    refusals: tuple[str, ...] = ()


def drawn(seed: int, numbers: Iterable[int], pairs: int, *, monotone: bool) -> Iterator[Drawn]:
    """Random specs, one in three on groups; those that the library refuses are left out.

    Args:
        seed: of all.
        numbers: of the draws.
        pairs: to ask about of each spec.
        monotone: whether to ask about a part of each coalition as well.
    """
    for number in numbers:
        rng = Random(f"{seed}/{number}")
        family = "groups" if number % 3 == 2 else "tree"
        spec = (groups.random_groups if family == "groups" else trees.random_tree)(rng)
        pick = groups.random_pair if family == "groups" else trees.random_pair
        asked = [pick(spec, rng) for _ in range(pairs)]
        try:
            rows = tuple(compare(spec, *pair) for pair in asked)
        except sfumato.SpecError:
            continue
        told = (part_knows_more(row, *pair, rng) for row, pair in zip(rows, asked, strict=True) if monotone)
        yield Drawn(number, family, rows, tuple(one for one in told if one))


def part_knows_more(row: Row, unit: int, observer: str, rng: Random) -> str | None:
    """A part of the coalition with a larger reported epsilon than the whole, and both figures."""
    members = observer.split(",")
    if len(members) < 2:
        return None
    part = ",".join(rng.sample(members, rng.randint(1, len(members) - 1)))
    less = reported_row(row.spec, unit, part)
    if less["neighbours"] != row.reported["neighbours"]:
        return None  # figures for two relations say nothing of each other
    if float(less["epsilon"]) <= row.epsilon * (1 + 1e-6):
        return None
    return f"{part} alone: {less['epsilon']:.6g} ({less['method']}), more than {row}"


class Table:
    """Counts of verdicts, by family, protocol and bound."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, one: Drawn) -> None:
        """Count the rows of a spec."""
        for row in one.rows:
            group = f"{one.family} {row.spec['protocol']}, {row.reported['bound']}"
            self.counts[group, row.verdict] += 1
            self.counts["all", row.verdict] += 1

    def __str__(self) -> str:
        groups = [*sorted({group for group, _ in self.counts} - {"all"}), "all"]
        wide = max(map(len, groups)) + 2
        lines = [" " * wide + "".join(f"{name:>{len(name) + 2}}" for name in COLUMNS)]
        for group in groups:
            counts = "".join(f"{self.counts[group, name]:>{len(name) + 2}}" for name in COLUMNS)
            lines.append(f"{group:<{wide}}{counts}")
        return "\n".join(lines)
