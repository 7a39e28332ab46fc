"""Every ε that a person is shown, anywhere, is the guarantee that `sfumato.account` gives."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from shown_epsilons import before_a_run, differences
from slow import first_of
from unequal_specs import FAMILIES, random_unequal

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.spec.document import Spec
from sfumato.spec.load import builtin_names, load_spec

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path for path in ROOT.glob("examples/*/*.yaml") if "protocol:" in path.read_text("utf-8"))
UNEQUAL = ["data.partition.size_sigma=1", "training.rounds=2"]


def drawn(family: str, seed: int) -> Spec:
    """The first random spec from ``seed`` on that the settings allow."""
    for number in range(seed, seed + 100):
        try:
            spec = load_spec(random_unequal(Random(number), family))
            sf.account(spec, unit="device:0", observer="public" if family != "groups" else "device:1")
        except SpecError:
            continue
        return spec
    raise AssertionError(f"no {family} spec is allowed")


@pytest.mark.parametrize("seed", [0, 1000, 2000])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_shown_is_the_guarantee(family: str, seed: int, tmp_path: Path) -> None:
    found = differences(drawn(family, seed), tmp_path)
    assert found.different == []
    assert found.compared["account"] > 1


def test_what_is_shown_of_several_seeds_is_the_largest(tmp_path: Path) -> None:
    assert differences(drawn("star", 3), tmp_path, seeds=2).different == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*builtin_names(), *(str(path.relative_to(ROOT)) for path in EXAMPLES)])
def test_what_examples_show_before_a_run_is_the_guarantee(name: str, tmp_path: Path) -> None:
    spec = load_spec(name if name in builtin_names() else ROOT / name)
    assert before_a_run(spec, tmp_path).different == []


@pytest.mark.slow
@pytest.mark.parametrize("piece", first_of(10, 2))
def test_what_is_shown_of_2000_specs_is_the_guarantee(piece: int, tmp_path: Path) -> None:
    done, different = Counter[str](), list[str]()
    for number in range(1000 * piece, 1000 * (piece + 1)):
        if done.total() == 200:
            break
        family = FAMILIES[number % len(FAMILIES)]
        try:
            spec = load_spec(random_unequal(Random(number), family))
            with warnings.catch_warnings(action="ignore"):
                found = differences(
                    spec, tmp_path / str(number), seeds=2 if number % 20 == 0 else 1, verified=False
                )
        except SpecError:  # settings that contradict each other
            continue
        done[family] += 1
        different += [f"{number}, {family}: {what}" for what in found.different]
    assert different == []
    assert done.total() == 200
    assert min(done.values()) > 10


@pytest.mark.usefixtures("no_report")
def test_a_run_shows_what_it_guarantees_where_hospitals_are_of_unequal_sizes(tmp_path: Path) -> None:
    """The worst hospital is followed, not the first one."""
    spec = sf.load_spec(ROOT / "examples/hospitals/hospitals.yaml", UNEQUAL)
    run = sf.run(spec, out=tmp_path)
    stated: dict[str, float] = {}
    for row in json.loads((tmp_path / "privacy.json").read_text())["guarantees"]:
        stated[row["observer"]] = max(row["epsilon"], stated.get(row["observer"], 0.0))
    shown = {name: float(run.metrics[f"epsilon:{name}"].iloc[-1]) for name in ("cloud", "public")}
    assert shown == {name: stated[name] for name in shown}
    each = [
        sf.account(spec, unit=f"record:{site}", observer="cloud").guarantees[0].epsilon for site in range(5)
    ]
    assert shown["cloud"] == max(each) > 1.5 * min(each)


@pytest.mark.usefixtures("no_report")
def test_one_column_has_the_larger_of_two_kinds_with_the_same_observer(tmp_path: Path) -> None:
    """The edge is above one device and elsewhere for the others; one of them has the larger ε."""
    changes = ["topology={kind: tree, edges: 2, devices_per_edge: [1, 3]}", "trust={}", "training.rounds=1"]
    changes += ["data={source: synthetic, examples_per_device: 8}"]
    for watch in ("[other-edge, own-edge]", "[own-edge, other-edge]"):
        spec = sf.load_spec("quickstart", [*changes, f"watch={watch}"])
        report = sf.account(spec)
        run = sf.run(spec, out=tmp_path / watch)
        for column in run.metrics.filter(like="epsilon:"):
            about = [row for row in report.guarantees if f"epsilon:{row.observer}" == column]
            assert run.metrics[column].iloc[-1] == max(row.epsilon for row in about)


SITES = [
    "data={source: digits, partition: {kind: iid, size_sigma: 1}}", "training.rounds=5",
    "topology={kind: star, devices: 3, device_names: [Charité, Bonn, Kiel]}",
]  # fmt: skip


def test_a_row_names_the_site_whose_epsilon_it_is() -> None:
    report = sf.account(sf.load_spec(ROOT / "examples/hospitals/hospitals.yaml", SITES))
    rows = {row.unit: row for row in report.guarantees if row.observer == "cloud"}
    assert set(rows) == {"record:0", "record:1", "record:2"}
    for unit, row in rows.items():
        assert row.epsilon == report.epsilon(unit, "cloud")
        assert (row.stands_for, row.epsilon_range) == (1, None)
    assert len({row.epsilon for row in rows.values()}) == 3
    assert {row.unit: row.sites for row in rows.values()} == {
        "record:0": ("Charité",), "record:1": ("Bonn",), "record:2": ("Kiel",),
    }  # fmt: skip


def test_a_row_of_several_devices_names_the_worst_and_says_how_far_they_range() -> None:
    changes = [SITES[0], SITES[1], "topology={kind: star, devices: 3}"]
    report = sf.account(sf.load_spec(ROOT / "examples/hospitals/hospitals.yaml", changes))
    (row,) = (row for row in report.guarantees if row.observer == "cloud")
    own = [report.epsilon(f"record:{device}", "cloud") for device in range(3)]
    assert row.unit == f"record:{own.index(max(own))}"
    assert (row.stands_for, row.epsilon) == (3, max(own))
    assert row.to_dict()["epsilon_range"] == [min(own), max(own)]
    assert "ε of its units" in report._repr_html_()


def test_in_groups_a_row_is_that_of_a_worker_that_there_is() -> None:
    """Not of the largest rate in all groups: who has it is in another number of groups."""
    spec = load_spec({
        "name": "groups", "protocol": "dp-ogl", "model": {"kind": "softmax"},
        "data": {"source": "synthetic", "examples_per_device": 12, "partition": {"size_sigma": 1}},
        "topology": {"kind": "groups", "structure": "list", "groups": [[0, 1, 2], [2, 3, 4]]},
        "training": {
            "rounds": 2, "local_steps": 1, "batch_size": 2, "learning_rate": 0.1, "batches": "poisson",
        },
        "privacy": {"unit": "record", "clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
    })  # fmt: skip
    report = sf.account(spec)
    rates = report.plan.releases.batches.rates
    assert rates is not None
    assert len(set(rates)) > 2
    for row in report.guarantees:
        assert row.epsilon == report.epsilon(row.unit, row.observer)
    of_all = max(row.epsilon for row in report.guarantees)
    own = max(report.epsilon(f"record:{a}", f"device:{b}") for a in range(5) for b in range(5) if a != b)
    masters = max(report.epsilon(f"record:{a}", f"master:{m}") for a in range(5) for m in range(2))
    assert of_all == max(own, masters)
