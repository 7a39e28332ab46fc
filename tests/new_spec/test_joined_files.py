"""`sfumato init --csv A --csv B`: several files, one a site, become one table."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sfumato.cli import main
from sfumato.errors import DataError, SpecError
from sfumato.new_spec.joined_files import joined_sites

ROWS = {"bonn": "61;1,5;yes\n44;2,5;no\n", "kiel": "30;0,5;no\n70;3,5;yes\n"}
OPTIONS = ["--label", "ill", "--epsilon", "4", "--scale", "age=0:100,dose=0:10"]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, rows in ROWS.items():
        Path(f"{name}.csv").write_text("age;dose;ill\n" + 20 * rows, "utf-8")


def given(*names: str) -> list[str]:
    return [word for name in names for word in ("--csv", name)]


def test_the_files_become_one_table_whose_sites_are_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", *given("bonn.csv", "kiel.csv"), *OPTIONS]) == 0
    assert "sites.yaml: 2 sites (rows: bonn 40, kiel 40); 2 features" in capsys.readouterr().out
    with Path("sites.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    assert [row.pop("site") for row in rows] == ["bonn"] * 40 + ["kiel"] * 40
    assert rows[1] == {"age": "44", "dose": "2,5", "ill": "no"}
    assert Path("sites.csv").stat().st_mode & 0o077 == 0  # private rows


def test_columns_are_matched_by_name_not_by_place() -> None:
    Path("kiel.csv").write_text("\ufeffill;age;dose\nno;30;0,5\n", "utf-8")
    with joined_sites([Path("bonn.csv"), Path("kiel.csv")], "both") as table:
        assert table.path.name == "both.csv"
    assert Path("both.csv").read_text("utf-8").splitlines()[-1] == "30;0,5;no;kiel"


def test_what_failed_can_be_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    """The joined file does not stay behind an error; one that is the same is used, another is kept."""
    both = given("bonn.csv", "kiel.csv")
    assert main(["init", *both, "--label", "sick", "--epsilon", "4"]) == 2
    assert not Path("sites.csv").exists()
    assert main(["init", *both, *OPTIONS]) == 0
    Path("sites.yaml").unlink()
    assert main(["init", *both, *OPTIONS]) == 0
    Path("kiel.csv").write_text("age;dose;ill\n1;1,5;no\n", "utf-8")
    Path("sites.yaml").unlink()
    capsys.readouterr()
    assert main(["init", *both, *OPTIONS]) == 2
    assert "exists, and the files would be put together there: give a NAME" in capsys.readouterr().err
    assert "70;3,5;yes;kiel" in Path("sites.csv").read_text("utf-8")


def test_a_spec_that_exists_is_said_before_files_are_put_together(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sites.yaml").write_text("mine\n", "utf-8")
    assert main(["init", *given("bonn.csv", "kiel.csv"), *OPTIONS]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "sites.yaml: exists already" in err
    assert not Path("sites.csv").exists()


def test_row_numbers_without_a_heading_are_no_feature(capsys: pytest.CaptureFixture[str]) -> None:
    """R and pandas write them so; each file counts from 1, so they repeat in the table."""
    for name, rows in ROWS.items():
        lines = [f"{number};{row}" for number, row in enumerate((20 * rows).splitlines())]
        Path(f"{name}.csv").write_text("\n".join([";age;dose;ill", *lines, ""]), "utf-8")
    assert main(["init", *given("bonn.csv", "kiel.csv"), *OPTIONS]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 features" in said
    assert "left out: a column without a heading" in said
    assert "hint: a column has no heading and is left out: R and pandas write row numbers so" in said
    assert "repeats" not in said
    with joined_sites([Path("bonn.csv"), Path("kiel.csv")], "sites") as table:
        assert table.names[0] == ""


@pytest.mark.parametrize(
    ("kiel", "said"),
    [
        ("age;ill\n30;no\n", "must have the columns of bonn.csv; only bonn.csv has dose"),
        ("age;dose;ill;bmi\n30;0,5;no;20\n", "must have the columns of bonn.csv; only kiel.csv has bmi"),
        ("age,dose,ill\n30,0.5,no\n", "has another separator than bonn.csv"),
        ("age;dose;ill;site\n30;0,5;no;x\n", "has a column site already: put the files together"),
    ],
)
def test_files_that_are_not_alike_are_refused_in_a_line(kiel: str, said: str) -> None:
    Path("kiel.csv").write_text(kiel, "utf-8")
    with pytest.raises(SpecError) as refused, joined_sites([Path("bonn.csv"), Path("kiel.csv")], None):
        pass
    assert said in str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_a_row_of_another_length_is_named() -> None:
    """Of a large file only the beginning is read when it is opened."""
    rows = 150_000 * "30;0,5;no\n"
    Path("kiel.csv").write_text(f"age;dose;ill\n{rows}30;0,5\n", "utf-8")
    with (
        pytest.raises(DataError, match=r"kiel\.csv: row 150002 has 2 values, the headings 3"),
        joined_sites([Path("bonn.csv"), Path("kiel.csv")], None),
    ):
        pass


def test_text_that_is_not_utf8_far_below_is_refused() -> None:
    rows = 150_000 * b"30;0,5;no\n"
    Path("kiel.csv").write_bytes(b"age;dose;ill\n" + rows + b"30;0,5;n\xe4\n")
    with (
        pytest.raises(DataError, match=r"kiel\.csv: cannot be read as a CSV file in UTF-8"),
        joined_sites([Path("bonn.csv"), Path("kiel.csv")], None),
    ):
        pass
    assert not Path("sites.csv").exists()


def test_files_of_one_name_are_sites_by_their_folders() -> None:
    paths = [Path("bonn/rows.csv"), Path("kiel/rows.csv")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(Path(f"{path.parent.name}.csv").read_text("utf-8"), "utf-8")
    with joined_sites(paths, None) as table:
        assert {line.rpartition(";")[2] for line in table.path.read_text("utf-8").splitlines()[1:]} == set(
            ROWS
        )
    with pytest.raises(SpecError, match="must be called differently"), joined_sites([paths[0]] * 2, "x"):
        pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--csv", "bonn.csv", "kiel.csv"], "write --csv before each: --csv bonn.csv --csv kiel.csv"),
        ([*given("bonn.csv", "kiel.csv"), "--site", "ward"], "must be left out: each file is a site"),
    ],
)
def test_other_ways_to_give_several_files(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *words, *OPTIONS]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
