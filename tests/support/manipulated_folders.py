"""Folders that somebody manipulated who knows how certificates are made: entries, facts, rows, and specs.

Whoever manipulates an entry of a certificate computes the terms and ε anew that follow from it, states the
smaller ε in both files, and renews all hashes. What is left to check against is ``spec.yaml``.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import yaml
from certified_folders import GROUPS, STAR, TREE, Documents, certified_folder

import sfumato as sf
from sfumato.verify import read
from sfumato.verify.checker import CheckOutcome, document_problems, list_unchecked
from sfumato.verify.draws import read_draw, stated_term
from sfumato.verify.elections import terms_of_office
from sfumato.verify.epsilon import recomputed_epsilon
from sfumato.verify.facts import FACTS
from sfumato.verify.loss_curves import Event
from sfumato.verify.read import BROKEN
from sfumato.verify.rows import row_problems, terms_from_releases
from sfumato.verify.spec_facts import spec_problems

ROW_LEVEL = ("unit", "observer")
"""Entries that another test changes: whom a row is about."""
SMALLER = 1 - 1e-5


def _with(base: Documents, **sections: Any) -> Documents:
    """``base`` with sections merged into its own; ``None`` for a key takes it out."""
    found = copy.deepcopy(base)
    for name, value in sections.items():
        if isinstance(value, dict) and isinstance(found.get(name), dict) and name != "topology":
            found[name] = {key: v for key, v in {**found[name], **value}.items() if v is not None}
        else:
            found[name] = value
    return found


POISSON = {"kind": "poisson", "rate": 0.4}
FIXED = {"kind": "fixed", "count": 2}
LOUD = {"noise": {"multiplier": 4.0}}
SMALL = _with(
    TREE,
    topology={"kind": "tree", "edges": 2, "devices_per_edge": 3},
    trust={"trusted_edges": [1]},
    privacy=LOUD,
)
RECORDS = {"unit": "record"}
DRAWN_RECORDS = {"batches": "poisson", "local_steps": 2, "edge_every": 2}
MOVES = {"kind": "tree", "edges": 2, "devices_per_edge": 2, "moves": {"trace": [[2, 0, 1]]}}
RING = {"kind": "groups", "structure": "ring", "groups": 3, "devices": 9}
CIRCLE = _with(GROUPS, topology=RING, training={"rounds": 4, "merge_every": 2}, privacy=LOUD)
MASKED_GROUPS = {"devices_to_master": "secure-aggregation"}
ZONES = _with(
    TREE,
    protocol="hdp",
    trust={},
    topology={"kind": "tree", "edges": 2, "devices_per_edge": 4},
    training={"rounds": 3, "local_steps": None, "edge_every": None, "local_epochs": 1},
    privacy={"noise": {"multiplier": 4.0, "placement": {"device": 1.0}}},
    transport={"devices_to_edge": "secure-aggregation"},
)
ELECTED = _with(ZONES, topology={**ZONES["topology"], "supernodes": "elected"})

FAMILIES: dict[str, Documents] = {
    "tree": SMALL,
    "tree, replaced": _with(SMALL, privacy={"neighbours": "replace"}),
    "tree, others drawn": _with(SMALL, trust={}, training={"participation": POISSON}),
    "tree, a fixed number": _with(SMALL, trust={}, training={"participation": FIXED}),
    "tree, masked and lossy": _with(
        SMALL, trust={}, transport={"devices_to_edge": "secure-aggregation"}, faults={"dropout_rate": 0.1}
    ),
    "tree, three tiers": _with(
        SMALL,
        topology={"kind": "tree", "levels": [1, 2, 2], "names": ["region", "cabinet"]},
        trust={"trusted": ["cabinet:0"]},
        training={"edge_every": None, "aggregate_every": [2, 1], "local_steps": 2},
    ),
    "tree, resent": _with(SMALL, training={"global_update": "resend"}),
    "tree, schedules": _with(SMALL, training={"edge_every": [1, 2], "edge_at_global": True}),
    "star, blind": _with(STAR, privacy=LOUD),
    "star, a fixed number": _with(STAR, training={"participation": FIXED}, privacy=LOUD),
    "star, removed": _with(STAR, privacy={"neighbours": "remove"} | LOUD),
    "moving": _with(SMALL, topology=MOVES, trust={"trusted_edges": None, "from": {0: [1], 2: [0]}}),
    "moving, others drawn": _with(SMALL, topology=MOVES, trust={}, training={"participation": POISSON}),
    "groups": CIRCLE,
    "groups, drawn": _with(CIRCLE, training={"participation": POISSON}),
    "groups, a fixed number": _with(
        CIRCLE, trust={"trusted_aggregators": []}, training={"participation": FIXED, "rounds": 2}
    ),
    "groups, masked and lossy": _with(
        CIRCLE, trust={"trusted_aggregators": [0]}, transport=MASKED_GROUPS, faults={"dropout_rate": 0.2}
    ),
    "groups, un-noised inside": _with(CIRCLE, protocol="dp-ogl+"),
    "groups, intervals": _with(CIRCLE, protocol="dp-ogl-local"),
    "zones": ZONES,
    "zones, weights": _with(
        ZONES,
        training={
            "weights": {"kind": "capped", "examples": 40},
            "denominator": {"kind": "clipped", "min_weight": 1.0},
            "participation": FIXED,
        },
    ),
    "elections": ELECTED,
    "elections, drawn": _with(ELECTED, training={"participation": POISSON}),
    "elections, edges noise": _with(
        ELECTED, privacy={"noise": {"multiplier": 4.0, "placement": {"edge": 1.0}}}
    ),
    "air": _with(
        STAR,
        protocol="pfels",
        topology={"kind": "star", "devices": 8},
        trust={},
        radio={
            "gain": {"kind": "exponential", "mean": 0.2, "min": 0.001, "max": 1.0},
            "snr_db": [2, 15],
        },
        compression={"kind": "rand-k", "ratio": 0.3},
        training={"participation": {"kind": "fixed", "count": 4}},
        privacy={"delta": 1e-3, "noise": {"formula": "pfels", "epsilon": 1.5}},
    ),
    "control": _with(
        SMALL, topology={"kind": "tree", "edges": 2, "devices_per_edge": 4},
        control={"smoothness": 0.5, "max_steps": 4},
    ),
    "records R1": _with(SMALL, training=DRAWN_RECORDS, privacy=RECORDS),
    "records R1, blind": _with(STAR, training={"batches": "poisson"}, privacy={"unit": "both"} | LOUD),
    "records R1, steps": _with(
        SMALL,
        training=DRAWN_RECORDS | {"momentum": 0.5},
        privacy=RECORDS | {"clip": {"kind": "step", "norm": 0.5}},
    ),
    "records R1, in groups": _with(
        CIRCLE, training={"batches": "poisson", "rounds": 2}, privacy=RECORDS
    ),
    "records R1, moving": _with(SMALL, topology=MOVES, trust={}, training=DRAWN_RECORDS, privacy=RECORDS),
    "records R2": _with(
        SMALL,
        training=DRAWN_RECORDS | {"local_steps": 1, "edge_every": 1},
        privacy=RECORDS | {"clip": {"kind": "example", "norm": 0.5}},
    ),
    "records R2, two steps": _with(
        SMALL, training=DRAWN_RECORDS | {"batch_size": 2},
        privacy=RECORDS | {"clip": {"kind": "example", "norm": 0.5}, "noise": {"multiplier": 40.0}},
    ),
    "records R3": _with(
        SMALL, trust={}, training=DRAWN_RECORDS,
        privacy=RECORDS
        | {"clip": {"kind": "example", "norm": 0.5}, "noise": {"multiplier": 4.0, "at": "step"}},
    ),
}  # fmt: skip
"""Specs whose accounts take little time, over all families."""


@dataclass
class Case:
    """What the files of a folder hold."""

    spec: Documents
    privacy: Documents
    ledger: Documents

    @classmethod
    def read(cls, folder: Path) -> Case:
        """From a folder."""
        spec = yaml.safe_load((folder / "spec.yaml").read_text("utf-8"))
        held = [json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ("privacy", "ledger")]
        return cls(spec, *held)

    def problems(self) -> list[str]:
        """What is found beside the hashes, which whoever manipulates renews."""
        try:
            with np.errstate(all="ignore"):  # as `check_run`
                return [*document_problems(self.spec, self.privacy, self.ledger, CheckOutcome())]
        except BROKEN as error:
            return [str(error)]

    def spec_problems(self) -> list[str]:
        """What is found in the facts alone."""
        try:
            with np.errstate(all="ignore"):
                return [*spec_problems(self.spec, self.ledger)]
        except BROKEN as error:
            return [str(error)]

    def believed(self) -> list[str]:
        """What the output says that it believes, or does not check."""
        return list_unchecked(self.spec, self.privacy, self.ledger)


def case_of(document: Documents, folder: Path) -> Case:
    """The honest folder of a spec."""
    return Case.read(certified_folder(folder, sf.load_spec(document)))


# --- entries ------------------------------------------------------------------------------------------

Path_ = tuple[Any, ...]


def entries(value: Any, at: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every key and every place of a list in a certificate, with what it holds."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in items:
        yield (*at, key), held
        yield from entries(held, (*at, key))


def kind_of(path: Path_) -> str:
    """What kind of entry is at a path: places of lists do not matter."""
    return ".".join("*" if isinstance(key, int) else str(key) for key in path)


def changes(path: Path_, held: Any) -> list[str]:
    """What may be done to an entry."""
    found = ["dropped"]
    if isinstance(path[-1], int):
        found.append("duplicated")
    if isinstance(held, bool):
        return [*found, "flipped"]
    if isinstance(held, int | float) or held == "inf":
        found += ["halved", "doubled", "zero", "one", "infinite"]
    if isinstance(held, str):
        found.append("renamed")
    if isinstance(held, list):
        found += ["emptied", "reversed"] if held else []
    return found


def apply(document: Any, path: Path_, change: str) -> None:
    """Do it, in place."""
    for key in path[:-1]:
        document = document[key]
    key, held = path[-1], document[path[-1]]
    if change == "dropped":
        del document[key]
    elif change == "duplicated":
        document.insert(key, copy.deepcopy(held))
    else:
        figure = math.inf if held == "inf" else held
        whole = isinstance(held, int) and not isinstance(held, bool)
        document[key] = {
            "flipped": lambda: not held,
            "halved": lambda: figure // 2 if whole else "inf" if figure == math.inf else figure / 2,
            "doubled": lambda: held if held == "inf" else figure * 2,
            "zero": lambda: 0 if whole else 0.0,
            "one": lambda: 1 if whole else 1.0,
            "infinite": lambda: "inf",
            "renamed": lambda: f"another {held}",
            "emptied": list,
            "reversed": lambda: held[::-1],
        }[change]()


# --- certificates -------------------------------------------------------------------------------------


def unfolded(bound: Documents, table: list[Documents]) -> Documents:
    """The certificate of a bound with a copy of every release in the place of its number."""
    found = copy.deepcopy(bound)
    found["draws"] = [
        draw | {"releases": [dict(table[i]) for i in draw["releases"]]} for draw in found["draws"]
    ]
    for part in found.get("record", {}).get("parts", ()):
        part["releases"] = [dict(table[i]) for i in part["releases"]]
    for event in found.get("elections", ()):
        event["pairs"] = [[[dict(table[i]) for i in one] for one in pair] for pair in event["pairs"]]
    return found


def folded(bound: Documents, table: list[Documents]) -> Documents:
    """`unfolded` the other way round; new releases are added to the table."""

    def places(releases: Any) -> list[int]:
        for release in releases:
            if release not in table:
                table.append(release)
        return [table.index(release) for release in releases]

    found = copy.deepcopy(bound)
    for draw in found.get("draws", ()):
        if "releases" in draw:
            draw["releases"] = places(draw["releases"])
    for part in (found.get("record") or {}).get("parts", ()):
        if "releases" in part:
            part["releases"] = places(part["releases"])
    for event in found.get("elections") or ():
        event["pairs"] = [[places(one) for one in pair] for pair in event.get("pairs", ())]
    return found


def stated(event: Event) -> Documents:
    """A term as a certificate writes it."""
    square = event.square
    multiplier: Any = 0.0 if math.isinf(square) else "inf" if square == 0 else 1 / math.sqrt(square)
    term = {"multiplier": multiplier, "count": event.count}
    if event.kind == "batches":
        shares, *ways = event.detail
        way: Documents = {"kind": "batches", "rate": event.rate, "moves": [list(w) for w in ways]}
        return term | {"sampling": way | {"shares_a_part": shares}}
    if event.kind == "fixed":
        drawn = {"kind": "fixed", "sample": event.rate, "population": 1, "apart": list(event.detail)}
        return term | {"sampling": drawn}
    if event.kind in ("poisson", "revealed"):
        drawn = {"kind": "poisson", "rate": event.rate, "hidden": event.kind == "poisson"}
        return term | {"sampling": drawn}
    return term


def recomputed(bound: Documents, case: Case, table: list[Documents], *, is_record: bool) -> None:
    """The terms and ε that follow from the entries, mixtures over others as they stand."""
    draws = [read_draw(draw, table) for draw in bound["draws"]]
    events = tuple(stated_term(term) for term in bound["terms"])
    if not bound.get("chances") and not any(draw.drawn_noise for draw in draws):
        events, failure, _ = terms_from_releases(bound, events, draws, case.spec, table, is_record)
        if bound.get("elections"):
            more, beside = terms_of_office(bound["elections"], table, bound["composed_under"])
            events, failure = (*events, *more), failure + beside
        bound["terms"], bound["failure_probability"] = [stated(event) for event in events], failure
    bound["epsilon"] = composed(bound)


def composed(bound: Documents) -> Any:
    """ε of the terms as they are stated."""
    left = bound["delta"] - bound["failure_probability"]
    events = [stated_term(term) for term in bound["terms"]]
    found = recomputed_epsilon(events, bound["method"], left, bound["losses"]["interval"])
    return found if math.isfinite(found) else "inf"


def _redo(bound: Documents, case: Case, table: list[Documents], path: Path_, *, is_record: bool) -> None:
    """ε of the terms where these were changed; else the terms that follow, and their ε."""
    if path[0] in ("terms", "failure_probability", "losses", "method", "chances", "epsilon"):
        bound["epsilon"] = composed(bound)
    else:
        recomputed(bound, case, table, is_record=is_record)


def manipulated(case: Case, place: int, name: str, path: Path_, change: str) -> Case:
    """The folder after an entry of the bound ``name`` of a row was changed, and ε made smaller by it."""
    found = Case(case.spec, copy.deepcopy(case.privacy), copy.copy(case.ledger))
    certificates = copy.deepcopy(case.ledger["certificates"])
    found.ledger["certificates"] = certificates
    table, cert, row = (
        certificates["releases"], certificates["rows"][place], found.privacy["guarantees"][place],
    )  # fmt: skip
    before = read.figure(row["bounds"][name]["epsilon"])
    bound = unfolded(cert["bounds"][name], table)
    apply(bound, path, change)
    bound = folded(bound, table)
    try:
        bound["delta"] = cert["delta"]
        with np.errstate(all="ignore"):
            _redo(bound, case, table, path, is_record=row["unit"].startswith("record:"))
    except BROKEN:
        bound["epsilon"] = "inf"
    bound.pop("delta", None)
    if read.figure(bound["epsilon"]) >= before * SMALLER:
        bound["epsilon"] = before * 0.9 if math.isfinite(before) else 1.0
    cert["bounds"][name] = bound
    row["bounds"][name]["epsilon"] = bound["epsilon"]
    row["bounds"][name]["releases"] = bound.get("releases", 0)
    best = min(row["bounds"], key=lambda one: read.figure(row["bounds"][one]["epsilon"]))
    row["bound"], row["epsilon"] = best, row["bounds"][best]["epsilon"]
    row["method"], row["neighbours"] = (cert["bounds"][best].get(key) for key in ("method", "neighbours"))
    return found


def problems_of_row(case: Case, place: int) -> list[str]:
    """What is found in one row."""
    facts = FACTS[case.ledger["kind"]](case.ledger)
    certificates = case.ledger["certificates"]
    row, cert = case.privacy["guarantees"][place], certificates["rows"][place]
    try:
        with np.errstate(all="ignore"):
            return [*row_problems(row, cert, case.spec, facts, certificates["releases"])]
    except BROKEN as error:
        return [str(error)]


def manipulations_of(case: Case, rng: Random) -> Iterator[tuple[int, str, Path_, str]]:
    """Every change of every kind of entry that there is, each at a random place that has one."""
    places: dict[str, list[tuple[int, str, Path_, Any]]] = {}
    certificates = case.ledger["certificates"]
    for place, cert in enumerate(certificates["rows"]):
        for name, bound in cert["bounds"].items():
            if read.figure(bound["epsilon"]) == 0:
                continue
            for path, held in entries(unfolded(bound, certificates["releases"])):
                places.setdefault(kind_of(path), []).append((place, name, path, held))
    for kind in sorted(places):
        for _ in range(2):
            place, name, path, held = rng.choice(places[kind])
            for change in changes(path, held):
                yield place, name, path, change
