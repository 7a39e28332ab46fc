"""Rows, certificates and files that were changed so that less is claimed to be known, all hashes in order."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from certified_folders import GROUPS, STAR, TREE, Documents, Forgery, checked_folders, forge, renew_manifest

import sfumato as sf
from sfumato.verify import read
from sfumato.verify.checker import check_run

BATCHES = {"training": TREE["training"] | {"batches": "poisson", "batch_size": 20}}  # always drawn: quick
RECORDS = TREE | BATCHES | {"privacy": TREE["privacy"] | {"unit": "record"}}
EXAMPLES = TREE | BATCHES
EXAMPLES |= {"privacy": RECORDS["privacy"] | {"clip": {"kind": "example", "norm": 0.5}}}
STEPS = EXAMPLES | {"privacy": EXAMPLES["privacy"] | {"noise": {"multiplier": 1.0, "at": "step"}}}
SMALL = {"topology": {"kind": "tree", "edges": 1, "devices_per_edge": 3}, "trust": {"trusted_edges": [0]}}
ANSWERED = (
    EXAMPLES
    | SMALL
    | {
        "data": TREE["data"] | {"examples_per_device": 60},
        "training": TREE["training"] | {"batches": "poisson", "global_update": "resend"},
        "privacy": EXAMPLES["privacy"] | {"noise": {"multiplier": 900.0}},
    }
)
GROUP_EXAMPLES = GROUPS | {
    "training": GROUPS["training"] | {"batches": "poisson", "batch_size": 20, "merge_every": 2},
    "privacy": EXAMPLES["privacy"] | {"noise": {"multiplier": 90.0}},
}
UNEVEN = (
    RECORDS
    | SMALL
    | {
        "data": TREE["data"] | {"partition": {"kind": "iid", "size_sigma": 0.7}, "examples_per_device": 40},
        "training": BATCHES["training"] | {"batch_size": 8, "rounds": 1},
        "privacy": RECORDS["privacy"] | {"noise": {"multiplier": 9.0}},
    }
)
ROUNDED = ANSWERED | {"compression": {"kind": "rand-k", "ratio": 1.0, "bits": 4}}
ROUNDED |= {"training": TREE["training"] | {"batches": "poisson"}}
ROUNDED |= {
    "privacy": {"unit": "record", "clip": {"kind": "step", "norm": 0.5}, "noise": {"multiplier": 5.0}}
}
SPECS = {
    "tree": TREE, "star": STAR, "groups": GROUPS, "record": RECORDS, "examples": EXAMPLES, "steps": STEPS,
    "answered": ANSWERED, "rounded": ROUNDED, "uneven": UNEVEN,
    "group examples": GROUP_EXAMPLES,
}  # fmt: skip


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of each kind."""
    return checked_folders(SPECS, tmp_path_factory.mktemp("originals"))


def rows(privacy: Documents, ledger: Documents) -> list[tuple[Documents, Documents]]:
    """Rows with their certificates, those with the largest ε last."""
    pairs = list(zip(privacy["guarantees"], ledger["certificates"]["rows"], strict=True))
    return sorted(pairs, key=lambda pair: float(pair[0]["epsilon"]))


def worst_left_out(privacy: Documents, ledger: Documents) -> None:
    """The pairs of the largest ε are counted to those of the smallest."""
    ordered = rows(privacy, ledger)
    ordered[0][0]["stands_for"] += ordered[-1][0]["stands_for"]
    place = privacy["guarantees"].index(ordered[-1][0])
    del privacy["guarantees"][place], ledger["certificates"]["rows"][place]


def renamed(name: str, observer: str = "edge:0") -> Forgery:
    """The row towards an observer is that of the cheapest, under another name."""

    def change(privacy: Documents, ledger: Documents) -> None:
        best, certificate = (json.loads(json.dumps(one)) for one in rows(privacy, ledger)[0])
        listed = privacy["guarantees"]
        place = next(n for n, row in enumerate(listed) if row["observer"] == observer)
        best["stands_for"] = listed[place]["stands_for"]
        best["observer"] = certificate["observer"] = name
        listed[place], ledger["certificates"]["rows"][place] = best, certificate

    return change


def of_record(change: Any, observer: str = "edge:0") -> Forgery:
    """In the record of the flow bound towards an observer."""

    def forged(privacy: Documents, ledger: Documents) -> None:
        row = next(row for row in ledger["certificates"]["rows"] if row["observer"] == observer)
        change(row["bounds"]["flow"]["record"]["parts"], ledger["certificates"]["releases"])

    return forged


def quieter_twin(parts: list[Documents], table: list[Documents]) -> None:
    """A second release like the first, with much noise, stands for half of the rounds."""
    for part in parts:
        (first,) = part["releases"]
        table.append(table[first] | {"variance": 1e9, "noise": {"devices": 1e9}})
        part.clear()
        part |= {"releases": [first, len(table) - 1], "count": 1}


def noisier_examples(parts: list[Documents], table: list[Documents]) -> None:
    for part in parts:
        table.append(table[part["releases"][0]] | {"variance": 1e9})
        part["releases"] = [len(table) - 1]


def smaller_moves(parts: list[Documents], table: list[Documents]) -> None:
    for part in parts:
        part["moves"] = [move / 2 for move in part["moves"]]


def later_steps_move_less(parts: list[Documents], table: list[Documents]) -> None:
    for part in parts:
        part["moves"] = part["replaced_moves"] = [1.0, 0.5]


def smaller_largest_moves(privacy: Documents, ledger: Documents) -> None:
    """Where a record counts as drawn it moves a message as if nobody answered."""
    records = [row["bounds"]["flow"].get("record") for row in ledger["certificates"]["rows"]]
    parts = [part for record in records if record for part in record["parts"]]
    assert [part.pop("largest_move") for part in parts if not part.get("moves")]


def rarer_record(privacy: Documents, ledger: Documents) -> None:
    """A row of several devices has the rate of one of them, not of the one that it names."""
    rates = ledger["batches"]["rate_per_device"]
    for _, certificate in rows(privacy, ledger):
        record = certificate["bounds"]["flow"].get("record")
        if record and record["rate"] > min(rates):
            record["rate"] = min(rates)


def never_more(parts: list[Documents], table: list[Documents]) -> None:
    for part in parts:
        del part["beyond"]


def rarer_device(parts: list[Documents], table: list[Documents]) -> None:
    parts[0]["participation"] = 0.01


def of_losses(key: str, value: Any) -> Forgery:
    def change(privacy: Documents, ledger: Documents) -> None:
        for row in ledger["certificates"]["rows"]:
            for bound in row["bounds"].values():
                bound["losses"][key] = value

    return change


def almost_three_rounds(privacy: Documents, ledger: Documents) -> None:
    """Two rounds as a number that is close to the two of the spec, and below it."""
    ledger["rounds"] = 1.9999999999
    for row in ledger["certificates"]["rows"]:
        for bound in row["bounds"].values():
            bound["draws"][0]["count"] = 1


def of_releases(key: str, value: Any) -> Forgery:
    def change(privacy: Documents, ledger: Documents) -> None:
        for release in ledger["certificates"]["releases"]:
            release[key] = value

    return change


def facts(key: str, value: Any) -> Forgery:
    def change(privacy: Documents, ledger: Documents) -> None:
        ledger[key] = value

    return change


def more_devices_of_a_class(privacy: Documents, ledger: Documents) -> None:
    ledger["device_classes"][0]["devices"] = 300


def other_names(privacy: Documents, ledger: Documents) -> None:
    ledger["tiers"][1]["name"] = "zone"


FORGERIES: dict[str, tuple[str, Forgery, str]] = {
    "the worst pairs of a tree": ("tree", worst_left_out, r"stands_for: pairs like no row"),
    "the worst pairs of groups": (
        "groups",
        worst_left_out,
        r"stands_for: pairs placed like",
    ),
    "the worst pairs of records": ("record", worst_left_out, r"stands_for: pairs like"),
    "an observer that is not there": ("tree", renamed("edge:-1"), "there is no party 'edge:-1'"),
    "an observer under another name": ("tree", renamed("edge:00"), "there is no party 'edge:00'"),
    "an observer beyond the last": ("tree", renamed("edge:3"), "there is no party 'edge:3'"),
    "a pair twice": ("tree", renamed("edge:2"), "stands_for: pairs like"),
    "a master that is not there": ("groups", renamed("master:-1", "master:0"), "no party 'master:-1'"),
    "a noisier twin of a release": ("record", of_record(quieter_twin), "variance 1e.09 counted; the facts"),
    "noise of examples": ("examples", of_record(noisier_examples), "variance 1e.09 counted; the facts"),
    "records that answer less": (
        "answered",
        of_record(smaller_moves, "cloud"),
        "releases on one draw move by all of their bound",
    ),
    "batches that are never larger": ("answered", of_record(never_more, "cloud"), "steps may add up more"),
    "steps of messages that are rounded": (
        "rounded",
        of_record(later_steps_move_less, "cloud"),
        "the shares that move are not those",
    ),
    "the rate of one of many devices": ("uneven", rarer_record, "record: rate: stated"),
    "noise of examples in groups": (
        "group examples",
        of_record(noisier_examples, "device:8"),
        "variance 1e.09 counted",
    ),
    "a record drawn less in groups": (
        "group examples",
        smaller_largest_moves,
        "moves by 1.0; may by",
    ),
    "a device that is drawn for noised steps": (
        "steps",
        of_record(rarer_device),
        "noise at local steps: must",
    ),
    "a grid that runs backwards": ("star", of_losses("interval", -0.1), "-0.1 is no grid"),
    "a grid of one cell": ("star", of_losses("interval", "inf"), "inf is no grid"),
    "losses rounded down": ("star", of_losses("direction", "rounded down"), "losses: direction"),
    "rounds that are rounded down": ("tree", almost_three_rounds, "1.9999999999 is no whole number"),
    "text for a figure": ("tree", of_releases("variance", "1.0"), "1.0 is no number"),
    "text that is no figure": ("tree", of_releases("own_sensitivity", "nan"), "nan is no number"),
    "a truth value for a figure": ("tree", of_releases("own_sensitivity", True), "True is no number"),
    "text for a truth value": ("tree", facts("always_sent", "false"), "false is neither true nor false"),
    "a count below 0": ("tree", facts("rounds", -2), "-2 is no whole number"),
    "a class of more devices": ("tree", more_devices_of_a_class, "device_classes: devices of each leaf"),
    "names of tiers": ("tree", other_names, "tiers: names"),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_forgeries_of_rows_are_found_and_named(what, originals, tmp_path):
    which, change, message = FORGERIES[what]
    folder = tmp_path / "run"
    shutil.copytree(originals(which), folder)
    forge(folder, change)
    problems = check_run(folder).problems
    assert any(re.search(message, problem) for problem in problems), problems


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "privacy.json",
            '"delta":',
            '"delta": 0.5, "delta":',
            "privacy.json: cannot be parsed: the key delta",
        ),
        ("ledger.json", '"rounds":', '"rounds": NaN, "rounds":', "ledger.json: cannot be parsed: NaN"),
        ("spec.yaml", "name: tree", "name: tree\nname: other", "spec.yaml: cannot be parsed: the key name"),
    ],
)
def test_what_two_readers_may_read_differently_is_a_mismatch(name, old, new, said, originals, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(originals("tree"), folder)
    text = (folder / name).read_text("utf-8")
    (folder / name).write_text(text.replace(old, new, 1), "utf-8")
    renew_manifest(folder)
    (problem,) = check_run(folder).problems
    assert problem.startswith(said)


def test_noise_that_is_not_resolved_in_the_spec_is_no_noise(originals, tmp_path):
    """A spec that leaves open who adds noise determines none, so the ledger cannot say which there is."""
    from sfumato.spec.frozen import FrozenSpec

    spec = sf.load_spec(TREE)
    folder = tmp_path / "run"
    shutil.copytree(originals("tree"), folder)
    frozen = FrozenSpec.of(spec, {}, {"sfumato": "0"})
    (folder / "spec.yaml").write_text(frozen.text, "utf-8")

    def change(privacy: Documents, ledger: Documents) -> None:
        privacy["hashes"] = ledger["hashes"] = frozen.hashes

    forge(folder, change)
    body = json.loads((folder / "manifest.json").read_text("utf-8")) | {"spec": frozen.fingerprint}
    (folder / "manifest.json").write_text(json.dumps(body), "utf-8")
    renew_manifest(folder)
    problems = check_run(folder).problems
    assert any("device_noise_std_per_leaf" in problem for problem in problems), problems


@pytest.mark.parametrize("value", [True, 2.0, "2", -1, None])
def test_a_count_is_a_whole_number(value):
    with pytest.raises(ValueError, match="no whole number"):
        read.count(value)


def kind_by_words(words: str) -> str:
    """What a row's words say of how its observer is placed."""
    if words in ("cloud", "public", "peer"):
        return words
    if words.startswith("device"):
        return "peer" if words == "device in a common group" else "other-device"
    return "own-edge" if words.startswith("own ") else "other-edge"


@pytest.mark.parametrize("kind", ["tree", "star", "groups"])
def test_how_an_observer_is_placed_for_programs(
    kind: str, originals: Callable[[str], Path], tmp_path: Path
) -> None:
    """`observer_kind` may be left out, or say that nothing is said; else it is what the facts say."""

    def placed(privacy: Documents, ledger: Documents) -> None:
        for row in privacy["guarantees"]:
            row["observer_kind"] = kind_by_words(row["relation"])
        privacy["guarantees"][0]["observer_kind"] = "asked-for"

    def misplaced(privacy: Documents, ledger: Documents) -> None:
        for row in privacy["guarantees"]:
            row["observer_kind"] = {"peer": "other-device", "other-edge": "own-edge"}.get(
                kind_by_words(row["relation"]), "peer"
            )

    for name, change in (("placed", placed), ("misplaced", misplaced)):
        shutil.copytree(originals(kind), tmp_path / name)
        forge(tmp_path / name, change)
    assert check_run(tmp_path / "placed").problems == []
    rows = json.loads((tmp_path / "misplaced" / "privacy.json").read_text("utf-8"))["guarantees"]
    problems = check_run(tmp_path / "misplaced").problems
    assert len(problems) == len(rows)
    assert all("observer_kind: the row says" in problem for problem in problems)
