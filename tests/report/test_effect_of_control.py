"""What adaptive control saves is told by a run without control beside it; else how to find out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_factory import metrics, quickstart_spec

from sfumato.report.figures.control import stop_reasons
from sfumato.report.page.differences import differences_in_words
from sfumato.report.results.effect_of_control import (
    commands_without_control,
    effect_of_control,
    effects_among,
    unknown_effect,
)
from sfumato.report.results.series import Series, load_series
from sfumato.spec.radio import LinkRadio

Make = Callable[..., Path]
CONTROL = {"energy": 1.0, "delay": 1.0}
RADIO = {"preset": "h2fdp"}


def with_costs(accuracy: float, scale: float, rounds: int = 4) -> pd.DataFrame:
    costs = {"energy_j": 2.0 * scale, "delay_s": 0.5 * scale, "bytes_up": 100, "bytes_down": 100}
    return metrics(rounds).assign(accuracy=accuracy, **costs)


def controlled(**more: Any) -> dict[str, Any]:
    return quickstart_spec(**({"control": CONTROL, "radio": RADIO} | more))


def series_of(folder: Path) -> Series:
    return load_series([folder])[0]


def test_savings_are_told_against_the_run_without_control(run_folder: Make) -> None:
    folder = run_folder("c", controlled(), frame=with_costs(0.75, 1.0))
    assert effect_of_control(series_of(folder)) == []
    run_folder("other-seed", quickstart_spec(seed=7, radio=RADIO), frame=with_costs(0.9, 9.0))
    run_folder("noisier", quickstart_spec(radio=RADIO, privacy={"delta": 1e-3}), frame=with_costs(0.9, 9.0))
    assert effect_of_control(series_of(folder)) == []  # neither differs by control alone
    run_folder("plain", quickstart_spec(radio=RADIO), frame=with_costs(0.8, 2.0))
    said, noise = effect_of_control(series_of(folder))
    assert said == (
        "With control: 50.0 % less energy (8 J, not 16 J), 50.0 % less time to transmit (2 s, not 4 s), as "
        "much traffic (800 B, not 800 B) and 5.0 points less accuracy (75.0 %, not 80.0 %; one seed each), "
        "compared with the run in the folder plain, which is the same without control."
    )
    assert noise.startswith("What the noise costs in accuracy is not known")


def test_what_costs_more_is_told_as_more(run_folder: Make) -> None:
    folder = run_folder("c", controlled(), frame=with_costs(0.75, 1.0, rounds=8))
    run_folder("plain", quickstart_spec(radio=RADIO), frame=with_costs(0.75, 0.8))
    (said, _) = effect_of_control(series_of(folder))
    assert "2.5 times the energy (16 J, not 6.4 J)" in said
    assert "equal accuracy (75.0 %, not 75.0 %" in said


def test_energies_of_two_radios_are_not_compared(run_folder: Make) -> None:
    folder = run_folder("c", controlled(), frame=with_costs(0.75, 1.0))
    run_folder("plain", quickstart_spec(radio={"preset": "none"}), frame=with_costs(0.8, 2.0))
    said = effect_of_control(series_of(folder))[0]
    assert "energy" not in said
    assert "time to transmit" not in said
    assert "traffic" in said


def test_the_radio_that_control_takes_where_none_is_named_is_the_same_radio(run_folder: Make) -> None:
    """The command that trains the run without control names h2fdp, which a run writes out key by key."""
    written = LinkRadio().model_dump(mode="json", exclude_none=True)
    folder = run_folder("c", controlled(radio=None), frame=with_costs(0.75, 4.0))
    plain = run_folder("plain", quickstart_spec(radio=written), frame=with_costs(0.75, 1.0))
    said = "4 times the energy (32 J, not 8 J), 4 times the time to transmit (8 s, not 2 s)"
    assert said in effect_of_control(series_of(folder))[0]
    both = load_series([folder, plain])
    assert [sentence.split(", compared with")[0] for sentence in effects_among(both)] == [
        f"With control, in c: {said}, as much traffic (800 B, not 800 B) and equal accuracy (75.0 %, not "
        "75.0 %; one seed each)"
    ]
    assert effects_among(both[:1]) == effects_among(both[1:]) == []
    assert differences_in_words(both) == (
        "The runs differ in one setting, adaptive control: yes in c and none in plain."
    )


def test_without_such_a_run_the_commands_measure_both(run_folder: Make) -> None:
    one = series_of(run_folder("c", controlled(), frame=with_costs(0.75, 1.0)))
    assert unknown_effect(one) == (
        "Whether adaptive control was worth it is not known: no run without control lies beside this one. "
        "The commands below tell what control saves or costs, and what the noise costs in accuracy."
    )
    _, commands = commands_without_control(one)
    assert commands.splitlines() == [
        "sfumato run c/spec.yaml --set control=null --baseline --out c-without-control",
        "sfumato report c c-without-control c-without-control-without-noise --out c-control.html",
    ]
    silent = controlled(privacy={"delta": 1e-5, "noise": {"kind": "none"}})
    none = series_of(run_folder("s", silent, frame=with_costs(0.75, 1.0)))
    assert unknown_effect(none).endswith("The commands below tell what control saves or costs.")
    assert "--baseline" not in commands_without_control(none)[1]


@pytest.mark.parametrize(
    ("ended", "steps", "said"),
    [
        (
            "all local steps are done",
            40.0,
            "Adaptive control made 4 rounds, together all 160 local steps of the spec (8 rounds of 20).",
        ),
        (
            "all local steps are done",
            39.0,
            "Adaptive control made 4 rounds, together 156 of the 160 local steps of the spec (8 rounds of "
            "20); the 4 left are fewer than a round needs.",
        ),
        (
            "the privacy budget is spent",
            40.0,
            "adaptive control ended after 4 rounds: the privacy budget is spent.",
        ),
    ],
)
def test_the_rounds_of_control_are_told_by_why_it_ended(
    run_folder: Make, ended: str, steps: float, said: str
) -> None:
    training = quickstart_spec()["training"] | {"rounds": 8, "local_steps": 20}
    one = series_of(
        run_folder("c", controlled(training=training), frame=with_costs(0.75, 1.0).assign(interval=steps))
    )
    one.first.__dict__["ledger"] = {"realised": {"ended": ended}}
    assert [said in sentence for sentence in stop_reasons(one)] == [True]
