"""Tests named in a list are left out by `-m "not slow"`, and names of no test are refused."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import slow

pytest_plugins = ["pytester"]


@pytest.fixture
def ran(pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytester.makeini("[pytest]\nmarkers = slow\n    listed\n    quick\ntestpaths = .")
    pytester.makepyfile(test_of="import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_one(n): pass")

    def run(listed: str, *arguments: str) -> pytest.RunResult:
        (tmp_path / "slow.txt").write_text(listed)
        monkeypatch.setattr(slow, "LIST", tmp_path / "slow.txt")
        return pytester.runpytest_inprocess("-p", "slow", *arguments)

    return run


@pytest.mark.parametrize(("chosen", "passed"), [("not slow", 1), ("slow", 1), ("not slow or listed", 2)])
def test_listed_cases_are_slow(chosen: str, passed: int, ran) -> None:
    ran("# why\ntest_of.py::test_one[2]\n", "-m", chosen).assert_outcomes(
        passed=passed, deselected=2 - passed
    )


@pytest.mark.parametrize(("chosen", "passed"), [("not slow", 0), ("slow", 2), ("not slow or listed", 1)])
def test_the_last_part_of_the_list_is_slow_and_not_run_by_ci(chosen: str, passed: int, ran) -> None:
    text = f"# why\ntest_of.py::test_one[2]\n{slow.NOT_IN_CI}\ntest_of.py::test_one[1]\n"
    ran(text, "-m", chosen).assert_outcomes(passed=passed, deselected=2 - passed)


@pytest.mark.parametrize(("chosen", "passed"), [("not slow", 0), ("slow", 2), ("not slow or listed", 1)])
def test_a_function_stands_for_its_cases_but_those_that_are_not_run_by_ci(
    chosen: str, passed: int, ran
) -> None:
    text = f"test_of.py::test_one\n{slow.NOT_IN_CI}\ntest_of.py::test_one[1]\n"
    ran(text, "-m", chosen).assert_outcomes(passed=passed, deselected=2 - passed)


@pytest.mark.parametrize(("chosen", "passed"), [("not slow", 1), ("not slow or listed", 3), ("slow", 3)])
@pytest.mark.parametrize("names", ["", "test_of.py::test_one\n"], ids=["", "the list names them"])
def test_make_test_runs_the_first_cases_of_a_rule_and_ci_more(
    names: str, chosen: str, passed: int, ran, pytester: pytest.Pytester
) -> None:
    parametrized = "@pytest.mark.parametrize('n', slow.first_quick(range(4), 1, 3))"
    pytester.makepyfile(test_of=f"import pytest, slow\n{parametrized}\ndef test_one(n): pass")
    ran(names, "-m", chosen).assert_outcomes(passed=passed, deselected=4 - passed)


def test_names_of_no_test_are_refused_where_all_are_collected(ran) -> None:
    assert ran("test_of.py::test_gone\n").ret == pytest.ExitCode.USAGE_ERROR
    ran("test_of.py::test_gone\n", "test_of.py").assert_outcomes(passed=2)


def test_the_list_is_made_from_what_pytest_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "slow.txt").write_text(f"c.py::gone\n{slow.NOT_IN_CI}\nd.py::kept\n")
    monkeypatch.setattr(slow, "LIST", tmp_path / "slow.txt")
    printed = "1.20s setup    a.py::test[x y]\n0.90s call     a.py::test[x y]\n1.9s call  b.py::quick\n"
    printed += "9s call d.py::kept\nnoise\n"
    printed += "3s call e.py::many[1]\n1.5s call e.py::many[2]\n3s call f.py::few[1]\n.5s call f.py::few[2]\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(printed))
    monkeypatch.setattr(sys, "argv", ["slow.py", "2"])
    slow.main()
    head, *names = capsys.readouterr().out.splitlines()
    assert head.startswith("# Cases that took more than 2 seconds")
    assert names == ["a.py::test[x y]", "e.py::many", "f.py::few[1]", slow.NOT_IN_CI, "d.py::kept"]
