"""Tests that need a part of the machine: skipped and counted where it is missing, or failed on demand."""

from __future__ import annotations

import needs
import pytest

pytest_plugins = ["pytester"]

FILE = """
    import pytest

    @pytest.mark.needs("something")
    def test_one(): pass

    @pytest.mark.needs("here", "something")
    def test_two(): pass

    @pytest.mark.needs("machine")
    def test_three(): pass

    @pytest.mark.needs("here")
    def test_four(): pass
"""
PARTS = {
    "something": needs.Need(lambda: False, "install something"),
    "machine": needs.Need(lambda: False, "another machine", required=False),
    "here": needs.Need(lambda: True, "never said"),
}


@pytest.fixture
def ran(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(needs, "NEEDS", PARTS)
    pytester.makeini("[pytest]\nmarkers = needs")
    pytester.makepyfile(FILE)

    def run(value: str | None, *arguments: str) -> pytest.RunResult:
        monkeypatch.delenv(needs.VARIABLE, raising=False)
        if value is not None:
            monkeypatch.setenv(needs.VARIABLE, value)
        return pytester.runpytest_inprocess("-p", "needs", "-rs", *arguments)

    return run


def closing(result: pytest.RunResult) -> str:
    """The last line but the totals."""
    return result.outlines[-2]


def test_are_skipped_where_it_is_missing_and_counted_in_one_closing_line(ran) -> None:
    result = ran(None)
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["SKIPPED*py:3: needs something: install something"])
    assert closing(result) == (
        "skipped: 2 for want of something (install something), 1 for want of machine (another machine)"
    )


def test_fail_where_all_is_demanded_but_for_what_no_package_brings(ran) -> None:
    result = ran("all")
    result.assert_outcomes(passed=1, errors=2, skipped=1)
    result.stdout.fnmatch_lines(["SFUMATO_REQUIRE=all, and this test needs something: install something"])
    assert closing(result) == "skipped: 1 for want of machine (another machine)"


def test_nothing_is_said_where_nothing_is_missing(ran) -> None:
    result = ran("all", "-k", "four")
    result.assert_outcomes(passed=1, deselected=3)
    assert "for want of" not in result.stdout.str()


def test_another_value_of_the_variable_is_refused(ran) -> None:
    result = ran("chromium")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*SFUMATO_REQUIRE: got 'chromium'; must be all, or not set"])


def test_a_part_without_an_entry_is_an_error(ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "NEEDS", {})
    result = ran(None)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    assert "KeyError: 'something'" in result.stdout.str() + result.stderr.str()
