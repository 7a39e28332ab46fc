"""Hints of `sfumato init --csv`: each is given on one side of its rule, and not on the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sfumato.new_spec.hints import hints, may_say_persons
from sfumato.new_spec.questions import Given
from sfumato.new_spec.table import OwnTable, open_own_table

ROWS = 1_200


@pytest.fixture
def frame() -> pd.DataFrame:
    """Visits of 400 persons at four clinics."""
    rng, row = np.random.default_rng(5), np.arange(ROWS)
    return pd.DataFrame(
        {
            "who": [f"N{number:04}" for number in row % 400],
            "clinic": [f"clinic {number % 4}" for number in row],
            "age": rng.integers(18, 95, ROWS),
            "weight": rng.normal(70, 9, ROWS).round(1),
            "sex": [("m", "f")[number] for number in rng.integers(0, 2, ROWS)],
            "flare": [("no", "yes")[number] for number in rng.integers(0, 2, ROWS)],
        }
    )


def table_of(frame: pd.DataFrame, folder: Path) -> OwnTable:
    frame.to_csv(folder / "visits.csv", index=False)
    return open_own_table(folder / "visits.csv")


def hinted(frame: pd.DataFrame, folder: Path, **given: Any) -> str:
    table = table_of(frame, folder)
    decided = Given(**{"label": "flare", "site": "clinic", "epsilon": 4.0} | given).with_defaults(table)
    return "\n".join(hints(decided, table))


def test_a_column_of_persons_that_was_forgotten(frame: pd.DataFrame, tmp_path: Path) -> None:
    said = hinted(frame, tmp_path)
    assert "column who repeats (400 values in 1,200 rows)" in said
    assert "protect all rows of one person: --person who" in said or "person='who'" in said
    assert said.count("repeats") == 1  # neither age nor sex
    assert "repeats" not in hinted(frame, tmp_path, person="who")
    assert "repeats" not in hinted(frame.assign(who=[f"N{row}" for row in range(ROWS)]), tmp_path)


def test_who_said_that_persons_have_one_row_is_contradicted_by_names_only(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    assert "repeats" not in hinted(frame, tmp_path, several=False)
    assert "column who repeats" in hinted(frame, tmp_path, several=True)
    called = frame.rename(columns={"who": "patient_id"})
    assert "column patient_id repeats" in hinted(called, tmp_path, several=False)


@pytest.mark.parametrize("values", ["numbers", "few numbers at one clinic each", "called so"])
def test_persons_that_are_numbers(values: str, frame: pd.DataFrame, tmp_path: Path) -> None:
    row = np.arange(ROWS)
    match values:
        case "numbers":
            name, frame["fall"] = "fall", 10_000 + row % 400
        case "few numbers at one clinic each":
            name, frame["fall"] = "fall", row % 40
        case _:
            name, frame["patient"] = "patient", row % 7
    table = table_of(frame, tmp_path)
    assert may_say_persons(name, "clinic", table)
    assert f"column {name} repeats" in hinted(frame, tmp_path)
    assert not may_say_persons("age", "clinic", table)
    assert not may_say_persons("weight", "clinic", table)


def test_a_feature_of_one_value(frame: pd.DataFrame, tmp_path: Path) -> None:
    assert "every row has the same country" in hinted(frame.assign(country=1), tmp_path)
    assert "every row has the same" not in hinted(frame.assign(country=frame.index % 2), tmp_path)


def test_an_identifier_by_another_name(frame: pd.DataFrame, tmp_path: Path) -> None:
    assert "another fall" not in hinted(frame, tmp_path)
    frame["fallnummer"] = np.arange(100_000, 100_000 + ROWS)
    assert "every row has another fallnummer" in hinted(frame, tmp_path)
    assert "another fallnummer" not in hinted(frame, tmp_path, ids=("fallnummer",))
    frame.loc[0, "fallnummer"] = 100_001
    assert "another fallnummer" not in hinted(frame, tmp_path)


def test_label_and_site_the_other_way_round(frame: pd.DataFrame, tmp_path: Path) -> None:
    assert "other way round" not in hinted(frame, tmp_path)
    said = hinted(frame, tmp_path, label="clinic", site="flare")
    assert "clinic (4 values) is predicted, and flare (2 values) says whose a row is" in said


def test_a_label_of_numbers_is_no_class(frame: pd.DataFrame, tmp_path: Path) -> None:
    assert "no class" not in hinted(frame, tmp_path)
    said = hinted(frame, tmp_path, label="weight")
    assert "weight holds numbers, so a number is predicted and no class" in said
    assert "columns of classes: sex, flare" in said


def test_two_sites_see_each_other(frame: pd.DataFrame, tmp_path: Path) -> None:
    assert "two sites" not in hinted(frame, tmp_path)
    assert "there are two sites: each can subtract" in hinted(frame, tmp_path, site="sex")
    assert "there are two sites" in hinted(frame, tmp_path, site=None, sites=2)


def test_categories_that_are_left_out(frame: pd.DataFrame, tmp_path: Path) -> None:
    assert "sex is left out as text; to learn from it, write 0 and 1" in hinted(frame, tmp_path)


def test_decimal_commas_in_a_file_of_commas(frame: pd.DataFrame, tmp_path: Path) -> None:
    frame["weight"] = [f"{kilograms}".replace(".", ",") for kilograms in frame["weight"]]
    said = hinted(frame, tmp_path)
    assert "weight: numbers with decimal commas in a file of commas are text" in said
    assert "column weight repeats" not in said


def test_a_text_among_numbers(frame: pd.DataFrame, tmp_path: Path) -> None:
    """One value keeps a column out: its row is named, and it is not taken for a column of persons."""
    assert "is left out, as row" not in hinted(frame, tmp_path)
    frame["weight"] = ["n.a." if row == 7 else f"{value}" for row, value in enumerate(frame["weight"])]
    said = hinted(frame, tmp_path)
    assert "weight is left out, as row 8 has 'n.a.': leave such rows out of the file, or write" in said
    assert "column weight repeats" not in said


def test_dates_and_numbers_with_units_are_left_out_with_what_to_write(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    row = np.arange(ROWS)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(row % 400, unit="D")
    changed = frame.assign(born=days, seen=days.strftime("%d.%m.%Y"), dose=[f"{n % 12 + 1} mg" for n in row])
    said = hinted(changed, tmp_path, person="who")
    for name in ("born", "seen"):
        assert f"{name} is left out, as it holds dates: write a number in its place, such as days" in said
    assert "dose is left out as text, as its first value is '1 mg': write the number alone" in said
    assert "sex is left out as text; to learn from it" in said
    assert "--person seen" not in hinted(changed, tmp_path)
    plain = hinted(frame, tmp_path, person="who")
    assert "holds dates" not in plain
    assert "write the number alone" not in plain
