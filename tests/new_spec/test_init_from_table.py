"""`sfumato init --csv`: a table of one's own becomes a spec that account and run accept at once."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import sfumato as sf
from sfumato.cli import main
from sfumato.errors import SpecError
from sfumato.new_spec.decisions import ranges_in
from sfumato.new_spec.questions import Given, ask_for_missing
from sfumato.new_spec.table import open_own_table

ROWS = 120
DECIDED = ["--label", "ill", "--site", "clinic", "--epsilon", "4"]
SCALED = ["--scale", "age=0:100,bmi=10:60"]


def patients(**columns: Any) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    age = rng.integers(20, 90, ROWS)
    return pd.DataFrame(
        {
            "patient_id": np.arange(ROWS),
            "clinic": [("bonn", "kiel", "ulm")[row % 3] for row in range(ROWS)],
            "age": age,
            "bmi": rng.normal(25, 3, ROWS).round(1),
            "note": ["text"] * ROWS,
            "ill": (age > 55).astype(int),
        }
        | columns
    )


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    patients().to_csv("patients.csv", index=False)


def written(name: str = "patients") -> dict[str, Any]:
    document = yaml.safe_load(Path(f"{name}.yaml").read_text("utf-8"))
    assert isinstance(document, dict)
    return document


@pytest.mark.usefixtures("no_report")
def test_what_is_written_is_run_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--csv", "patients.csv", *DECIDED, *SCALED, "--row", "a patient"]) == 0
    said = capsys.readouterr().out
    assert "3 sites (rows: bonn 40, kiel 40, ulm 40); 2 features; ill is predicted: one of 0, 1" in said
    assert "left out: patient_id (identifier), note (no numbers)" in said
    assert "about one row (a patient), at δ = 1e-5" in said
    assert "the server (cloud)       ε ≤ 4 " in said
    assert "finding" not in said
    following = ["run patients.yaml --baseline", "verify runs/patients", "statement runs/patients"]
    assert "next: " + "\n      ".join(f"sfumato {command}" for command in following) in said
    spec = written()
    assert spec["data"]["feature_columns"] == ["age", "bmi"]
    assert spec["data"]["scale"] == {"age": [0, 100], "bmi": [10, 60]}
    assert spec["topology"]["device_names"] == ["bonn", "kiel", "ulm"]
    report = sf.account(sf.load_spec("patients.yaml"))
    assert max(row.epsilon for row in report.guarantees) == pytest.approx(4, abs=1e-3)
    assert {row.unit_kind for row in report.guarantees} == {"record"}
    assert main(["run", "patients.yaml", "--set", "training.rounds=2", "--quiet"]) == 0
    assert main(["verify", "runs/patients"]) == 0


def test_a_range_is_never_computed_from_rows() -> None:
    """Two tables with the same columns and other numbers make the same spec, but for the names of sites."""
    assert main(["init", "one", "--csv", "patients.csv", *DECIDED]) == 0
    patients(age=np.arange(ROWS) * 1000, bmi=-np.arange(ROWS) / 7).to_csv("patients.csv", index=False)
    assert main(["init", "two", "--csv", "patients.csv", *DECIDED]) == 0
    one, two = written("one"), written("two")
    assert "scale" not in one["data"]
    assert one | {"name": ""} == two | {"name": ""}


@pytest.mark.usefixtures("no_report")
def test_semicolons_commas_and_parquet_give_the_same_data(capsys: pytest.CaptureFixture[str]) -> None:
    frame = patients()
    frame.to_csv("german.csv", index=False, sep=";", decimal=",")
    frame.to_csv("tabs.csv", index=False, sep="\t")
    frame.to_parquet("columns.parquet", index=False)
    found = {}
    for file in ("patients.csv", "german.csv", "tabs.csv", "columns.parquet"):
        assert main(["init", "--csv", file, *DECIDED, *SCALED]) == 0
        written_file = file.replace(".csv", ".yaml").replace(".parquet", ".yaml")
        spec = sf.load_spec(written_file, ["training.rounds=2"])
        run = sf.run(spec.model_copy(update={"name": "x"}), out=file + ".run", progress=False)
        found[file] = run.metrics["loss"].iloc[-1]
    assert len(set(found.values())) == 1
    assert written("german")["data"]["separator"] == ";"
    assert written("german")["data"]["decimal"] == ","
    told = capsys.readouterr().out
    assert "columns are separated by semicolons, numbers have decimal commas: " in told
    assert "data.separator and data.decimal say so" in " ".join(told.split())


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([1 + row % 2 for row in range(ROWS)], "one of 1, 2"),
        ([float(row % 2) for row in range(ROWS)], "one of 0, 1"),
        ([("no", "yes")[row % 2] for row in range(ROWS)], "one of no, yes"),
        ([row % 2 + 0.5 for row in range(ROWS)], "a number"),
        ([1 + row % 12 for row in range(ROWS)], "one of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ... (12 values)"),
    ],
)
def test_labels(labels: list[Any], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    patients(ill=labels).to_csv("patients.csv", index=False)
    assert main(["init", "--csv", "patients.csv", *DECIDED, *SCALED]) == 0
    out = capsys.readouterr().out
    assert f"ill is predicted: {said}" in out
    assert ("labels begin at 1" in out) == (1 in labels and 2 in labels)
    assert written()["data"].get("task") == ("regression" if said == "a number" else None)
    assert main(["run", "patients.yaml", "--set", "training.rounds=1", "--quiet"]) == 0


def test_a_whole_site_and_rows_without_sites(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--label", "ill", "--sites", "4", "--epsilon", "2", "--protect", "device", "--delta", "1e-6"]
    assert main(["init", "--csv", "patients.csv", *options]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "4 sites, among whom 120 rows are dealt evenly" in said
    assert "all rows of one of 4 sites are protected together" in said
    assert "no range is stated for age, bmi: from numbers far above 1 little or nothing is learned" in said
    assert "--scale age=LOW:HIGH,bmi=LOW:HIGH" in said
    assert "data.scale" not in said
    spec = written()
    assert spec["privacy"]["unit"] == "device"
    assert spec["privacy"]["delta"] == 1e-6
    assert spec["topology"] == {"kind": "star", "devices": 4}


def visits(rows: int = 5) -> pd.DataFrame:
    """Forty patients at three clinics, each with as many rows."""
    whose = np.arange(40 * rows) % 40
    return pd.DataFrame(
        {
            "patient_id": whose,
            "clinic": np.array(["bonn", "kiel", "ulm"])[whose % 3],
            "age": 20 + whose,
            "bmi": np.random.default_rng(1).normal(25, 3, len(whose)).round(1),
            "ill": (whose > 20).astype(int),
        }
    )


@pytest.mark.usefixtures("no_report")
def test_four_commands_from_a_table_to_a_verified_statement_for_persons(
    capsys: pytest.CaptureFixture[str],
) -> None:
    visits().to_csv("visits.csv", index=False)
    assert main(["init", "--csv", "visits.csv", *DECIDED, *SCALED, "--person", "patient_id"]) == 0
    said = capsys.readouterr().out
    assert "3 sites (persons: bonn 14, kiel 13, ulm 13); 2 features" in said
    assert "left out: patient_id (whose row it is)" in said
    assert "about one person (all rows with one patient_id), at δ = 1e-5" in said
    assert "bonn has 14 persons: noise hides most of what so few persons say" in said
    spec = written("visits")
    assert spec["data"]["person_column"] == "patient_id"
    assert spec["privacy"]["unit"] == "person"
    assert spec["training"]["batch_size"] == 2  # a fifth of the fewest persons, not rows
    assert main(["run", "visits.yaml", "--set", "training.rounds=2", "--quiet"]) == 0
    assert main(["verify", "runs/visits"]) == 0
    assert "how many persons each device has: believed" in capsys.readouterr().out
    assert main(["statement", "runs/visits"]) == 0
    statement = json.loads(Path("statement.json").read_text("utf-8"))
    assert statement["units"] == {
        "person": "any one person of one site: all its rows with one value of “patient_id”"
    }
    assert any("one row" in line for line in statement["threat_model"])
    assert "0 mismatches" in statement["verified"]
    assert {row["unit"].partition(":")[0] for row in statement["guarantees"]} == {"person"}


def test_a_table_whose_ids_repeat_is_said_to_have_persons(capsys: pytest.CaptureFixture[str]) -> None:
    visits().to_csv("visits.csv", index=False)
    assert main(["init", "--csv", "visits.csv", *DECIDED]) == 0
    assert "protect all rows of one person: --person patient_id" in " ".join(capsys.readouterr().out.split())
    visits(rows=1).to_csv("once.csv", index=False)
    assert main(["init", "--csv", "once.csv", *DECIDED]) == 0
    assert "--person" not in capsys.readouterr().out


def test_sites_called_by_numbers_are_kept_apart(capsys: pytest.CaptureFixture[str]) -> None:
    patients(clinic=[row % 3 + 1 for row in range(ROWS)]).to_csv("patients.csv", index=False)
    assert main(["init", "--csv", "patients.csv", *DECIDED]) == 0
    assert "results call sites by numbers: 1 is device:0" in capsys.readouterr().out
    assert "device_names" not in written()["topology"]


MISTAKES: dict[str, tuple[list[str], str]] = {
    "nothing decided": (["--csv", "patients.csv"], "init: needs --label, --site (or --sites), --epsilon"),
    "label misspelt": (["--csv", "patients.csv", *DECIDED, "--label", "il"], "did you mean 'ill'?"),
    "site is the label": (["--csv", "patients.csv", *DECIDED, "--site", "ill"], "must not be the column"),
    "site is an id": (["--csv", "patients.csv", *DECIDED, "--id", "clinic"], "--id: got 'clinic'"),
    "persons of no column": (
        ["--csv", "patients.csv", *DECIDED, "--protect", "person"],
        "--person: is required with --protect person",
    ),
    "a person and a record": (
        ["--csv", "patients.csv", *DECIDED, "--person", "patient_id", "--protect", "record"],
        "must be person, or left out, with --person",
    ),
    "person is the label": (["--csv", "patients.csv", *DECIDED, "--person", "ill"], "--person: got 'ill'"),
    "site of one value": (["--csv", "patients.csv", *DECIDED, "--site", "note"], "has 1 different values"),
    "label of one value": (["--csv", "patients.csv", *DECIDED, "--label", "note"], "nothing to predict"),
    "scale without numbers": (["--csv", "patients.csv", *DECIDED, "--scale", "age"], "COLUMN=LOW:HIGH"),
    "scale turned round": (["--csv", "patients.csv", *DECIDED, "--scale", "age=9:1"], "lower number first"),
    "scale of an id": (
        ["--csv", "patients.csv", *DECIDED, "--scale", "patient_id=0:1"], "is no feature: only features"
    ),
    "scale of text": (["--csv", "patients.csv", *DECIDED, "--scale", "note=0:1"], "holds no numbers"),
    "scale of a text among numbers": (
        ["--csv", "unknown.csv", *DECIDED, "--scale", "bmi=0:1"], "row 9 has 'unknown' among its numbers"
    ),
    "no features left": (
        ["--csv", "patients.csv", *DECIDED, "--id", "age", "--id", "bmi", "--id", "patient_id"],
        "leave a column of numbers to learn from",
    ),
    "two sources of sites": (["--csv", "patients.csv", *DECIDED, "--sites", "3"], "must be left out: --site"),
    "spreadsheet": (["--csv", "patients.xlsx", *DECIDED], "save it as CSV"),
    "file misspelt": (["--csv", "patient.csv", *DECIDED], "did you mean 'patients.csv'?"),
    "table as a name": (["patients.csv"], "write: sfumato init --csv patients.csv"),
    "options without a table": (["--label", "ill"], "--label: goes with --csv FILE"),
    "no headings": (["--csv", "bare.csv", *DECIDED], "the first line must name the columns"),
    "gap": (
        ["--csv", "gap.csv", *DECIDED],
        "a value is missing in the column bmi in 2 rows (first in row 8 of the data): leave these rows out",
    ),
    "label missing": (["--csv", "unlabelled.csv", *DECIDED], "the column ill in 1 row (first in row 1 "),
    "decimal comma in ε": (["--csv", "patients.csv", *DECIDED, "--epsilon", "4,0"], "(write 4.0)"),
    "δ above a tenth": (["--csv", "patients.csv", *DECIDED, "--delta", "0.5"], "far below 1 over the number"),
    "patients as the unit": (
        ["--csv", "patients.csv", *DECIDED, "--protect", "patient"],
        "for 'patient' write person: all rows of one, with --person COLUMN",
    ),
    "decimal comma in a range": (
        ["--csv", "patients.csv", *DECIDED, "--scale", "age=0:100,bmi=10,5:60"], "like 10.5"
    ),
    "decimal commas in a file of commas": (
        ["--csv", "quoted.csv", *DECIDED, "--scale", "bmi=10:60"], "decimal commas, in a file with commas"
    ),
    "one id of two misspelt": (
        ["--csv", "patients.csv", *DECIDED, "--id", "age,bmj"], "--id: got 'bmj'; is no column (did"
    ),
    "a key of training": (
        ["--csv", "patients.csv", *DECIDED, "--rounds", "50"],
        "--rounds: is no option; write: training.rounds in the spec, once it is written, or --set "
        "training.rounds=50 with sfumato run",
    ),
    "name as an option": (["--csv", "patients.csv", *DECIDED, "--out", "x"], "sfumato init NAME"),
    "features as an option": (["--csv", "patients.csv", *DECIDED, "--features", "age,bmi"], "--id COLUMN"),
    "sites not said": (
        ["--csv", "patients.csv", "--label", "ill", "--epsilon", "4"],
        "needs --site (or --sites); on a terminal it asks; columns of text with few values: clinic",
    ),
    "negative labels": (["--csv", "signed.csv", *DECIDED], "must not be negative; it has -1, 1"),
    "ε of nothing": (
        ["--csv", "patients.csv", *DECIDED, "--epsilon", "0"], "from 0.001 to 1,000; 1 to 8 are usual"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bare.csv").write_text("1,2,3\n4,5,6\n", "utf-8")
    gap = patients()
    gap.loc[[7, 9], "bmi"] = np.nan
    gap.to_csv("gap.csv", index=False)
    patients(ill=["", *("no", "yes") * 59, "no"]).to_csv("unlabelled.csv", index=False)
    patients(bmi=[f"{20 + row % 9},5" for row in range(ROWS)]).to_csv("quoted.csv", index=False)
    patients(bmi=[*range(20, 28), "unknown", *[25] * (ROWS - 9)]).to_csv("unknown.csv", index=False)
    patients(ill=[row % 2 * 2 - 1 for row in range(ROWS)]).to_csv("signed.csv", index=False)
    options, said = MISTAKES[name]
    assert main(["init", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1, err
    assert not list(Path().glob("*.yaml"))


def test_a_file_that_exists_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Path("patients.yaml").write_text("mine\n", "utf-8")
    assert main(["init", "--csv", "patients.csv", *DECIDED]) == 2
    assert "patients.yaml: exists already" in capsys.readouterr().err
    assert Path("patients.yaml").read_text("utf-8") == "mine\n"


def test_a_terminal_is_asked_what_is_missing() -> None:
    answers = iter(
        [
            "il",
            "ill",
            "clinic",
            "maybe",
            "yes",
            "none",
            "patient_id",
            "patient",
            "0:100",
            "60:10",
            "none",
            "record",
            "zero",
            "2",
            "1e-6",
        ]
    )
    questions: list[str] = []
    wrong: list[str] = []

    def ask(question: str, default: str) -> str:
        questions.append(question)
        return next(answers)

    table = open_own_table(Path("patients.csv"))
    given = ask_for_missing(Given(), table, ask, wrong.append)
    assert next(answers, None) is None
    assert given.with_defaults(table) == Given(
        label="ill",
        site="clinic",
        ids=("patient_id",),
        scale={"age": (0.0, 100.0)},
        row="patient",
        several=True,
        protect="record",
        epsilon=2.0,
        delta=1e-6,
    ).with_defaults(table)
    assert [text.partition(":")[0] for text in wrong] == ["label", "several", "scale", "epsilon"]
    assert any("Public range of bmi" in question for question in questions)


def test_a_terminal_is_asked_whose_rows_they_are() -> None:
    answers = iter(["ill", "clinic", "yes", "patient", "patient_id", "bmi", "visit", "0:100", "4", "1e-6"])
    wrong: list[str] = []
    given = ask_for_missing(
        Given(), open_own_table(Path("patients.csv")), lambda question, default: next(answers), wrong.append
    )
    decided = given.with_defaults(open_own_table(Path("patients.csv")))
    assert next(answers, None) is None
    assert (decided.person, decided.ids, decided.protect) == ("patient_id", ("bmi",), "person")
    assert [text.partition(":")[0] for text in wrong] == ["person"]


def test_a_command_on_a_terminal_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("ill\nclinic\n\n\n\n\n\n\n\n\n"))
    assert main(["init", "--csv", "patients.csv"]) == 0
    out, err = capsys.readouterr()
    assert "Which column is to be predicted?" in err
    assert "who will learn what about one row (record)" in out
    assert written()["data"]["feature_columns"] == ["age", "bmi"]


def test_ranges_in_a_text() -> None:
    assert ranges_in(["a=0:1,b c=-2:3e2", "d=1=0:5"]) == {"a": (0, 1), "b c": (-2, 300), "d=1": (0, 5)}
    for wrong in ("a", "a=1", "a=1:1", "a=nan:1", "a=0:inf", "=0:1"):
        with pytest.raises(SpecError, match="LOW:HIGH"):
            ranges_in([wrong])
