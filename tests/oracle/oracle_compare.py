"""Sets what `account` reports beside what the oracles know to be attainable.

What is asked is a row of ``account``, by the function that makes it: the claims that a report has besides
would take as long as all else. A reported epsilon is
*below* if it is less than the oracle's, by more than a millionth; *equal* up to a ten-thousandth; else it is
loose, by so much.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import oracle_random_groups as groups
import oracle_random_kinds as kinds
import oracle_random_trees as trees
import yaml
from oracle_group_world import members, read_groups
from oracle_groups import GroupOracle
from oracle_tree import Answer, TreeOracle
from oracle_tree_reader import read_eras

import sfumato
from sfumato.accounting import pair_guarantee
from sfumato.schedule.base import Plan
from sfumato.schedule.resolve import resolve

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
    def is_record(self) -> bool:
        """Whether the unit is a record."""
        return str(self.reported["unit"]).startswith("record")

    @property
    def margin(self) -> float:
        """How many times what is attained is reported; infinite where nothing is attained, or all is."""
        true = self.answer.epsilon
        return self.epsilon / true if 0 < true < math.inf else math.inf

    @property
    def features(self) -> tuple[str, ...]:
        """What of the later kinds the spec has (`FEATURES`)."""
        return tuple(name for name, has in FEATURES.items() if has(self))

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
            f" ({self.reported['neighbours']}, {bounds}), attained {self.answer.epsilon:.6g}"
            f" ({self.answer.attack})\n"
            + yaml.safe_dump(_plain(self.spec), default_flow_style=None, width=110, sort_keys=False)
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def compare(
    spec: Mapping[str, Any], unit: int, observer: str, *, record: bool = False, plan: Plan | None = None
) -> Row:
    """Ask both about one pair, of a device or of one of its records; ``plan``: the spec, resolved before.

    Raises:
        SpecError: the library refuses the spec.
    """
    reported = reported_row(spec, unit, observer, record=record, plan=plan)
    replaced = reported["neighbours"] == "replace"  # a row names the relation that it holds for
    oracle: TreeOracle | GroupOracle
    if spec["topology"]["kind"] == "groups":
        oracle = GroupOracle(replace(read_groups(spec), replace=replaced))
    else:
        oracle = TreeOracle([(replace(world, replace=replaced), rounds) for world, rounds in read_eras(spec)])
    return Row(spec, reported, oracle.answer(unit, observer, record=record))


def reported_row(
    spec: Mapping[str, Any], unit: int, observer: str, *, record: bool = False, plan: Plan | None = None
) -> Mapping[str, Any]:
    """What ``account`` reports of one pair; ``plan``: the spec, resolved before."""
    plan = plan or resolve(sfumato.load_spec(spec))
    name = f"{'record' if record else 'device'}:{unit}"
    return pair_guarantee(plan, name, observer, delta=plan.spec.privacy.delta).to_dict()


@dataclass(frozen=True)
class Drawn:
    """A random spec that the library accepts, and what became of a few pairs of it.

    Attributes:
        number: repeats the draw, with the seed.
        family: one of `FAMILIES`.
        rows: of the pairs.
        refusals: coalitions that are told to learn less than a part of them.
    """

    number: int
    family: str
    rows: tuple[Row, ...]
    refusals: tuple[str, ...] = ()


FAMILIES: Mapping[str, Callable[[Random], dict[str, Any]]] = {
    "tree": trees.random_tree,
    "groups": groups.random_groups,
    "hdp": kinds.random_hdp,
    "schedules": kinds.random_schedules,
    "moves": kinds.random_moves,
    "records": kinds.random_records,
    "zones": kinds.random_zones,
    "groups, some trust": groups.random_groups_with_some_trust,
    "group dropouts": kinds.random_group_dropouts,
    "records in groups": kinds.random_records_in_groups,
}
"""What specs are drawn from, in turn."""


def drawn(seed: int, numbers: Iterable[int], pairs: int, *, monotone: bool) -> Iterator[Drawn]:
    """Random specs, of every family in turn; those that the library refuses are left out.

    Args:
        seed: of all.
        numbers: of the draws.
        pairs: to ask about of each spec.
        monotone: whether to ask about a part of each coalition as well.
    """
    for number in numbers:
        rng = Random(f"{seed}/{number}")
        family = list(FAMILIES)[number % len(FAMILIES)]
        spec, record = FAMILIES[family](rng), "record" in family
        pick = groups.random_pair if spec["topology"]["kind"] == "groups" else trees.random_pair
        asked = [pick(spec, rng) for _ in range(pairs)]
        try:
            plan = resolve(sfumato.load_spec(spec))
            rows = tuple(compare(spec, *pair, record=record, plan=plan) for pair in asked)
        except sfumato.SpecError:
            continue
        told = (part_knows_more(row, *pair, rng) for row, pair in zip(rows, asked, strict=True) if monotone)
        yield Drawn(number, family, rows, tuple(one for one in told if one))


def seen_by_more(numbers: Iterable[int]) -> Iterator[Row]:
    """Records of linking workers towards single observers, where the row is that of a larger coalition."""
    for number in numbers:
        rng = Random(f"seen by more/{number}")
        spec = kinds.random_records_in_groups(rng)
        inside = Counter(worker for group in members(spec["topology"]) for worker in group)
        linking = [worker for worker in sorted(inside) if inside[worker] > 1]
        if not linking or spec["training"].get("participation", "all") != "all":
            continue
        plan, count = resolve(sfumato.load_spec(spec)), len(members(spec["topology"]))
        for unit in rng.sample(linking, min(3, len(linking))):
            others = [f"device:{worker}" for worker in sorted(inside) if worker != unit]
            observer = rng.choice([*others, *(f"master:{group}" for group in range(count))])
            if "as_seen_by" in reported_row(spec, unit, observer, record=True, plan=plan):
                yield compare(spec, unit, observer, record=True, plan=plan)


def part_knows_more(row: Row, unit: int, observer: str, rng: Random) -> str | None:
    """A part of the coalition with a larger reported epsilon than the whole, and both figures."""
    members = observer.split(",")
    if len(members) < 2:
        return None
    part = ",".join(rng.sample(members, rng.randint(1, len(members) - 1)))
    less = reported_row(row.spec, unit, part, record=row.is_record)
    if less["neighbours"] != row.reported["neighbours"]:
        return None  # figures for two relations say nothing of each other
    if "as_seen_by" in less:
        return None  # of the larger coalitions that it could be charged towards one is looked at, not all
    if float(less["epsilon"]) <= row.epsilon * (1 + 1e-6):
        return None
    return f"{part} alone: {less['epsilon']:.6g} ({less['method']}), more than {row}"


FEATURES: Mapping[str, Callable[[Row], bool]] = {
    "elections": lambda row: row.spec["topology"].get("supernodes") == "elected",
    "dropouts": lambda row: "dropout_rate" in row.spec.get("faults", {}),
    "placements of HDP": lambda row: "placement" in _noise(row),
    "masks among zones": lambda row: any(
        how == "secure-aggregation" and not hop.startswith("devices_to")
        for hop, how in row.spec.get("transport", {}).items()
    ),
    "records": lambda row: row.is_record,
    "R2, several steps a message": lambda row: (
        row.is_record
        and row.spec["privacy"]["clip"]["kind"] == "example"
        and _noise(row).get("at") != "step"
        and _steps(row) > 1
    ),
    "as_seen_by": lambda row: "as_seen_by" in row.reported,
    "moves": lambda row: "moves" in row.spec["topology"],
    "moves with draws": lambda row: (
        "moves" in row.spec["topology"] and row.spec["training"].get("participation", "all") != "all"
    ),
    "schedules of single edges": lambda row: isinstance(row.spec["training"].get("edge_every"), list),
}
"""Kinds of pairs that are counted by themselves."""


def _noise(row: Row) -> Mapping[str, Any]:
    noise = row.spec["privacy"]["noise"]
    return noise if isinstance(noise, Mapping) else {}


def _steps(row: Row) -> int:
    """Most local steps behind a message."""
    if row.spec["topology"]["kind"] == "groups":
        return read_groups(row.spec).pieces
    return max(piece for world, _ in read_eras(row.spec) for a in world.aggregations for piece in a.pieces)


class Table:
    """Counts of verdicts, by family, protocol and bound; of pairs, by what they have."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.features: Counter[tuple[str, str]] = Counter()
        self.margin = math.inf

    def add(self, one: Drawn) -> None:
        """Count the rows of a spec."""
        for row in one.rows:
            group = f"{one.family} {row.spec['protocol']}, {row.reported['bound']}"
            self.counts[group, row.verdict] += 1
            self.counts["all", row.verdict] += 1
            for feature in row.features:
                self.features[feature, row.verdict] += 1
            self.margin = min(self.margin, row.margin)

    def __str__(self) -> str:
        groups = [*sorted({group for group, _ in self.counts} - {"all"}), "all"]
        parts = [_lines(self.counts, groups), _lines(self.features, list(FEATURES))]
        return "\n".join([*parts[1], "", *parts[0], f"smallest reported over attained: {self.margin:.7f}"])


def _lines(counts: Counter[tuple[str, str]], rows: list[str]) -> list[str]:
    wide = max(map(len, rows)) + 2
    lines = [" " * wide + "".join(f"{name:>{len(name) + 2}}" for name in COLUMNS) + "  sum"]
    for row in rows:
        each = [counts[row, name] for name in COLUMNS]
        cells = "".join(f"{count:>{len(name) + 2}}" for count, name in zip(each, COLUMNS, strict=True))
        lines.append(f"{row:<{wide}}{cells}  {sum(each)}")
    return lines
