"""Record rates and weights that ``spec.yaml`` fixes are checked; what is believed besides is named."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from certified_folders import GROUPS, STAR, TREE, Documents, certified_folder, forge
from manipulated_folders import stated

import sfumato as sf
from sfumato.data.dataset_sizes import known_examples
from sfumato.spec.frozen import FrozenSpec
from sfumato.verify.checker import check_run
from sfumato.verify.draws import term_of_record
from sfumato.verify.epsilon import recomputed_epsilon
from sfumato.verify.examples_held import examples_held
from sfumato.verify.spec_records import record_rate_problems

POISSON = {"batches": "poisson"}
R1 = TREE | {
    "topology": {"kind": "tree", "edges": 1, "devices_per_edge": 9},
    "trust": {},
    "training": TREE["training"] | POISSON | {"rounds": 1, "local_steps": 1, "edge_every": 1},
    "privacy": TREE["privacy"] | {"unit": "record", "noise": {"multiplier": 20.0}},
}
R2 = R1 | {
    "privacy": R1["privacy"] | {"clip": {"kind": "example", "norm": 1.0}},
}
R3 = R2 | {"privacy": R2["privacy"] | {"noise": {"multiplier": 4.0, "at": "step"}}}
OF_GROUPS = GROUPS | {
    "training": GROUPS["training"] | POISSON,
    "privacy": GROUPS["privacy"] | {"unit": "record", "noise": {"multiplier": 20.0}},
}
OF_STAR = STAR | {"training": STAR["training"] | POISSON, "privacy": STAR["privacy"] | {"unit": "record"}}
TABULATED = R1 | {"data": {"source": "digits"}}
UNEQUAL = {"kind": "iid", "size_sigma": 1.0}


def more_data(spec: Documents) -> Documents:
    return spec | {"data": spec["data"] | {"examples_per_device": 600}}


def smaller_batches(spec: Documents) -> Documents:
    return spec | {"training": spec["training"] | {"batch_size": 1}}


def equal_sizes(spec: Documents) -> Documents:
    return spec | {"data": spec["data"] | {"partition": {"kind": "iid"}}}


def another_seed(spec: Documents) -> Documents:
    return spec | {"seed": 5}


SWAPS = {
    "R1 with more data": (R1, more_data(R1)),
    "R2 with more data": (R2, more_data(R2)),
    "R3 with more data": (R3, more_data(R3)),
    "groups with more data": (OF_GROUPS, more_data(OF_GROUPS)),
    "a star with more data": (OF_STAR, more_data(OF_STAR)),
    "R1 with smaller batches": (R1, smaller_batches(R1)),
    "R2 with smaller batches": (R2, smaller_batches(R2)),
    "R3 with smaller batches": (R3, smaller_batches(R3)),
    "a tabulated set with smaller batches": (TABULATED, smaller_batches(TABULATED)),
    "sizes as if they were equal": (
        R1 | {"data": R1["data"] | {"partition": UNEQUAL}},
        equal_sizes(R1),
    ),
    "sizes of another seed": (
        TABULATED | {"data": TABULATED["data"] | {"partition": UNEQUAL}},
        another_seed(TABULATED | {"data": TABULATED["data"] | {"partition": UNEQUAL}}),
    ),
}


@pytest.mark.parametrize("what", SWAPS)
def test_figures_of_another_spec_are_found(what: str, tmp_path: Path) -> None:
    """The hashes are right, and every figure follows from the facts: those of another spec."""
    named, accounted = (sf.load_spec(document) for document in SWAPS[what])
    folder = certified_folder(tmp_path / "forged", accounted, named=named)
    problems = check_run(folder).problems
    assert any("batches.rate_per_device" in problem for problem in problems), problems


def test_a_folder_whose_rates_are_checked_believes_none(tmp_path: Path) -> None:
    outcome = check_run(certified_folder(tmp_path / "run", sf.load_spec(R1)))
    assert outcome.problems == []
    assert not any("believed" in what for what in outcome.unchecked)


def test_rates_that_follow_from_a_file_are_believed_and_named(tmp_path: Path) -> None:
    """Sizes of sites are in the file alone: rates half as large pass, and the output says so."""
    rows = "\n".join(f"{i % 7},{i % 2},site{i % 3}" for i in range(300))
    (tmp_path / "sites.csv").write_text(f"x,label,site\n{rows}\n", "utf-8")
    spec = R1 | {
        "data": {"source": str(tmp_path / "sites.csv"), "label_column": "label", "site_column": "site"},
        "topology": {"kind": "tree", "sites": [{"name": f"site{i}", "devices": 2} for i in range(3)]},
        "trust": {},
    }
    outcome = check_run(certified_folder(tmp_path / "run", sf.load_spec(spec)))
    assert outcome.problems == []
    assert any("how many records each device has: believed" in what for what in outcome.unchecked)
    assert any("sites.csv" in what for what in outcome.unchecked)


def test_rates_never_stand_for_more_examples_than_there_are(tmp_path: Path) -> None:
    """Of a rule that only the data settle, the number of all examples is known."""
    rule = {
        "kind": "two-level",
        "edge": {"kind": "iid"},
        "device": {"kind": "labels", "labels_per_device": 2},
    }
    spec = yaml.safe_load(FrozenSpec.of(sf.load_spec(R1), {}, {"sfumato": "0"}).text)
    spec["data"] = {"source": "digits", "partition": rule}
    assert examples_held(spec)[0] is None
    assert list(record_rate_problems(spec, np.full(9, 5 / 159))) == []
    (problem,) = record_rate_problems(spec, np.full(9, 5 / 160))
    assert "more examples than the 1,437 of the data set" in problem


def epsilons(folder: Path) -> list[float]:
    rows = json.loads((folder / "privacy.json").read_text("utf-8"))["guarantees"]
    return [row["epsilon"] for row in rows if row["epsilon"] != "inf"]


def record_at_rate(row: Documents, cert: Documents, table: list[Documents], rate: float) -> None:
    """Charge a row whose record is drawn at this rate."""
    for name, bound in cert["bounds"].items():
        if "record" in bound:
            parts = bound["record"]["parts"]
            bound["record"]["rate"] = rate
            held = [[table[i] for i in part["releases"]] for part in parts]
            events = [
                term_of_record(part, own, rate, "zero-out") for part, own in zip(parts, held, strict=True)
            ]
            bound["terms"] = [stated(event) for event in events]
            interval = bound["losses"]["interval"]
            bound["epsilon"] = recomputed_epsilon(events, bound["method"], cert["delta"], interval)
            row["bounds"][name]["epsilon"] = bound["epsilon"]
    row["epsilon"] = row["bounds"][row["bound"]]["epsilon"]


UNEQUAL_R1 = R1 | {"data": R1["data"] | {"partition": UNEQUAL}}


def test_the_rarest_record_does_not_stand_for_others(tmp_path: Path) -> None:
    """A row for many units is charged at the largest rate; many rows for one unit are not as many units."""
    folder = certified_folder(tmp_path / "run", sf.load_spec(UNEQUAL_R1))
    assert check_run(folder).problems == []
    rates = json.loads((folder / "ledger.json").read_text("utf-8"))["batches"]["rate_per_device"]
    rarest = int(np.argmin(rates))

    def split(privacy: Documents, ledger: Documents) -> None:
        certificates = ledger["certificates"]
        table = certificates["releases"]
        pairs = list(zip(privacy["guarantees"], certificates["rows"], strict=True))
        privacy["guarantees"], certificates["rows"] = [], []
        for row, cert in pairs:
            for _ in range(row["stands_for"]):
                mine, own = copy.deepcopy(row), copy.deepcopy(cert)
                mine["stands_for"], mine["unit"], own["unit"] = 1, f"record:{rarest}", f"record:{rarest}"
                if mine["observer"].startswith("device:"):
                    other = (rarest + 1) % len(rates)
                    mine["observer"] = own["observer"] = f"device:{other}"
                mine.pop("epsilon_range", None)
                record_at_rate(mine, own, table, rates[rarest])
                privacy["guarantees"].append(mine)
                certificates["rows"].append(own)

    before = epsilons(folder)
    forge(folder, split)
    assert max(epsilons(folder)) < max(before)
    problems = check_run(folder).problems
    assert problems
    found = r"record:\d+ towards .*: \d+ rows|records that are drawn more often"
    assert [problem for problem in problems if not re.search(found, problem)] == []


def lighter(privacy: Documents, ledger: Documents) -> None:
    for kind in ledger["device_classes"]:
        kind["weight"] *= 0.9


def test_weights_that_the_sizes_fix_are_checked(tmp_path: Path) -> None:
    spec = {
        "name": "weights", "protocol": "hdp", "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
        "training": {
            "rounds": 1, "local_epochs": 1, "batch_size": 5, "learning_rate": 0.1,
            "weights": {"kind": "capped", "examples": 40}, "denominator": {"kind": "fixed"},
        },
        "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
    }  # fmt: skip
    folder = certified_folder(tmp_path / "run", sf.load_spec(spec))
    assert check_run(folder).problems == []
    forge(folder, lighter)
    assert any("device_classes: weight" in problem for problem in check_run(folder).problems)


def _random_rule(rng: random.Random) -> dict[str, Any]:
    return rng.choice(
        [
            {"kind": "iid"},
            {"kind": "iid", "size_sigma": 1.0},
            {"kind": "labels", "labels_per_device": rng.choice((1, 2, 3))},
            {"kind": "dirichlet", "alpha": rng.choice((0.1, 1.0, 10.0))},
            {"kind": "dirichlet", "alpha": 0.1, "min_examples": 5},
            {"kind": "dirichlet", "alpha": 0.1, "shards": rng.choice((6, 20))},
        ]
    )


def test_examples_held_are_those_that_the_library_deals_out() -> None:
    """Random sets, rules of one level and of two, and zones."""
    rng, compared, open_ = random.Random(7), 0, 0
    while compared < 60:
        rule = _random_rule(rng)
        if rng.random() < 0.4:
            rule = {"kind": "two-level", "edge": rule, "device": _random_rule(rng)}
        rule |= {"empty_devices": rng.choice(("refuse", "allow"))}
        data = {
            "source": rng.choice(("synthetic", "digits", "mnist", "femnist", "cifar100")),
            "partition": rule,
        }
        if data["source"] == "synthetic":
            data["examples_per_device"] = rng.choice((15, 20, 60))
        each = [rng.randint(1, 5) for _ in range(rng.choice((1, 2, 3)))]
        topology = {"kind": "tree", "edges": len(each), "devices_per_edge": each}
        if rng.random() < 0.5:
            topology["zones"] = {"kind": rng.choice(("random", "distance", "compute", "data"))}
        document = {
            "name": "random", "protocol": "hdp", "seed": rng.randrange(1000), "data": data,
            "topology": topology,
            "training": {"rounds": 1, "local_epochs": 1, "batch_size": 4, "learning_rate": 0.1},
            "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
        }  # fmt: skip
        try:
            spec = sf.load_spec(document)
            wanted = known_examples(spec, np.array(each))
        except sf.SfumatoError:
            continue
        held, why = examples_held(yaml.safe_load(FrozenSpec.of(spec, {}, {"sfumato": "0"}).text))
        if wanted is None:
            assert held is None
            assert why
            open_ += 1
        else:
            assert held is not None
            assert held.tolist() == wanted.tolist()
            compared += 1
    assert open_ > 3
