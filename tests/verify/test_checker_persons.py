"""Persons as the unit: the checker charges them as records, and refuses a spec that could part their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from certified_folders import Documents, certified_folder, forge

import sfumato as sf
from sfumato.spec.frozen import FrozenSpec
from sfumato.verify.checker import check_run
from sfumato.verify.spec_records import person_problems


def document(folder: Path, **privacy: Any) -> Documents:
    """A spec of three clinics, 60 persons with three rows each."""
    rows = "\n".join(f"{i % 7},{i % 2},site{i % 60 % 3},p{i % 60}" for i in range(180))
    (folder / "visits.csv").write_text(f"x,label,site,who\n{rows}\n", "utf-8")
    return {
        "name": "persons",
        "protocol": "dp-fedavg",
        "data": {
            "source": str(folder / "visits.csv"), "label_column": "label", "site_column": "site",
            "person_column": "who", "feature_columns": ["x"],
        },
        "topology": {"kind": "star", "devices": 3},
        "training": {
            "rounds": 3, "local_steps": 1, "batches": "poisson", "batch_size": 4, "learning_rate": 0.1,
        },
        "privacy": {
            "unit": "person", "clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 2.0},
        } | privacy,
    }  # fmt: skip


CHARGED = {
    "clipped examples": {},
    "clipped updates, replaced": {"clip": {"kind": "update", "norm": 1.0}, "neighbours": "replace"},
    "noise at steps": {"noise": {"multiplier": 2.0, "at": "step"}},
}


@pytest.mark.parametrize("case", CHARGED)
def test_persons_are_recomputed_and_their_rates_named_as_believed(tmp_path: Path, case: str) -> None:
    folder = certified_folder(tmp_path / "run", sf.load_spec(document(tmp_path, **CHARGED[case])))
    outcome = check_run(folder)
    assert outcome.problems == []
    assert outcome.finite > 0
    (believed,) = [what for what in outcome.unchecked if "believed" in what]
    assert believed.startswith("how many persons each device has: believed, as they are counted in ")


def smaller_rate(privacy: Documents, ledger: Documents) -> None:
    for row in ledger["certificates"]["rows"]:
        row["bounds"]["flow"]["record"]["rate"] *= 0.9


def about_records(privacy: Documents, ledger: Documents) -> None:
    for row in (*privacy["guarantees"], *ledger["certificates"]["rows"]):
        row["unit"] = row["unit"].replace("person", "record")


def unamplified(privacy: Documents, ledger: Documents) -> None:
    del ledger["batches"]


FORGERIES = {
    smaller_rate: "rate: stated",
    about_records: "rows are not about a person",
    unamplified: "record",
}


@pytest.mark.parametrize("change", FORGERIES)
def test_forged_charges_of_persons_are_found(tmp_path: Path, change: Any) -> None:
    folder = certified_folder(tmp_path / "run", sf.load_spec(document(tmp_path)))
    forge(folder, change)
    problems = check_run(folder).problems
    assert any(FORGERIES[change] in problem for problem in problems), problems


PARTED = "may part the rows of one person"
BY_LABELS = {"kind": "labels", "labels_per_device": 1}
SPECS: dict[str, tuple[dict[str, Any], str]] = {
    "no column": ({"data": {"person_column": None}}, "with data.person_column: None"),
    "another unit": ({"privacy": {"unit": "record"}}, "privacy.unit: record, with data.person_column: who"),
    "no persons": ({"data": {"source": "digits", "site_column": None}}, "digits names no persons"),
    "by labels": ({"data": {"partition": BY_LABELS}}, PARTED),
    "within edges by labels": (
        {"data": {"partition": {"kind": "two-level", "edge": {"kind": "iid"}, "device": BY_LABELS}}},
        PARTED,
    ),
}


@pytest.mark.parametrize("case", SPECS)
def test_a_spec_that_does_not_keep_persons_together_is_a_mismatch(tmp_path: Path, case: str) -> None:
    spec = yaml.safe_load(FrozenSpec.of(sf.load_spec(document(tmp_path)), {}, {"sfumato": "0"}).text)
    assert list(person_problems(spec)) == []
    changes, said = SPECS[case]
    for section, values in changes.items():
        spec[section] = {k: v for k, v in (spec[section] | values).items() if v is not None}
    assert any(said in problem for problem in person_problems(spec)), case
