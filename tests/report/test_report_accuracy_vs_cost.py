"""Accuracy against cost: what is drawn is what the run measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from report_factory import metrics, quickstart_spec

from sfumato.report.figures.costs import accuracy_vs_cost_figures, cost_figures, even_costs_table
from sfumato.report.results.series import load_series

Make = Callable[..., Path]


def test_a_point_is_the_accuracy_of_a_round_over_all_that_was_spent_by_then(run_folder: Make) -> None:
    frame = metrics(6, every=2)
    frame["bytes_up"] = [120_000, 120_000, 260_000, 780_000, 920_000, 920_000]
    figures = accuracy_vs_cost_figures(load_series([run_folder("run", quickstart_spec(), frame=frame)]))
    assert [figure.kind for figure in figures] == ["spending-energy", "spending-delay", "spending-bytes"]
    energy, delay, traffic = (figure.data[-1] for figure in figures)
    evaluated = [1, 3, 5]
    assert energy["x"] == pytest.approx(frame["energy_j"].cumsum()[evaluated])
    assert delay["x"] == pytest.approx(frame["delay_s"].cumsum()[evaluated])
    assert traffic["x"] == pytest.approx([0.76, 2.32, 4.68])  # MB, 260 kB of every round down
    for trace in (energy, delay, traffic):
        assert trace["y"] == pytest.approx(frame["accuracy"].dropna())


def test_seeds_are_averaged_in_both_directions(run_folder: Make) -> None:
    frames = [metrics(3, seed=k) for k in range(3)]
    folders = [
        run_folder(f"many/seed-{k}", quickstart_spec(seed=k), frame=frame) for k, frame in enumerate(frames)
    ]
    trace = accuracy_vs_cost_figures(load_series(folders))[0].data[-1]
    assert trace["x"] == pytest.approx(np.mean([frame["energy_j"].cumsum() for frame in frames], axis=0))
    assert trace["y"] == pytest.approx(np.mean([frame["accuracy"] for frame in frames], axis=0))


def test_runs_of_very_different_cost_get_a_log_axis(run_folder: Make) -> None:
    cheap, dear = metrics(4), metrics(4)
    dear["energy_j"] *= 1000
    folders = [
        run_folder("cheap", quickstart_spec(name="cheap"), frame=cheap),
        run_folder("dear", quickstart_spec(name="dear"), frame=dear),
    ]
    energy, delay, *_ = accuracy_vs_cost_figures(load_series(folders))
    assert energy.layout["xaxis"]["type"] == "log"
    assert "type" not in delay.layout["xaxis"]
    assert energy.data[-1]["x"][-1] == pytest.approx(dear["energy_j"].sum() / 1e3)  # kJ


def test_uses_of_the_channel_are_drawn_where_they_were_counted(run_folder: Make) -> None:
    frame = metrics(3).assign(channel_uses=[4000, 6000, 5000])
    figure = accuracy_vs_cost_figures(load_series([run_folder("air", quickstart_spec(), frame=frame)]))[-1]
    assert figure.kind == "spending-uses"
    assert figure.data[-1]["x"] == pytest.approx([4.0, 10.0, 15.0])
    assert figure.layout["xaxis"]["title"]["text"] == "cumulative uses of subcarriers, thousand"


def test_nothing_is_drawn_of_what_was_not_measured(run_folder: Make) -> None:
    frame = metrics(3, radio=False).assign(bytes_up=0, bytes_down=0)
    assert accuracy_vs_cost_figures(load_series([run_folder("silent", quickstart_spec(), frame=frame)])) == []
    never = run_folder("never", quickstart_spec(), frame=metrics(3, every=0), finished=False)
    assert accuracy_vs_cost_figures(load_series([never])) == []


def test_a_cost_that_grows_evenly_is_a_row_of_a_table_and_no_figure(run_folder: Make) -> None:
    frame = metrics(6, every=2).assign(energy_j=[2.0, 2.1, 1.9, 2.0, 2.05, 1.95])
    folders = [run_folder(name, quickstart_spec(name=name), frame=frame) for name in ("one", "two")]
    alone = [figure.kind for figure in accuracy_vs_cost_figures(load_series(folders[:1]))]
    assert alone == ["spending-delay"]
    (one,) = load_series(folders[:1])
    table = even_costs_table(one)
    for cell in ("traffic up", "520 kB", "3.12 MB", "energy to transmit", "2 J", "12 J"):
        assert f">{cell}<" in table
    assert "time to transmit" not in table
    uneven = metrics(6).assign(energy_j=np.arange(6) + 1.0, bytes_up=np.arange(6) + 1, bytes_down=0)
    (other,) = load_series([run_folder("uneven", quickstart_spec(), frame=uneven)])
    assert "energy" not in even_costs_table(other)
    assert "traffic" not in even_costs_table(other)


def test_costs_that_are_alike_in_all_runs_are_not_drawn(run_folder: Make) -> None:
    frame = metrics(6, every=2).assign(energy_j=2.0)
    dear = frame.assign(energy_j=3.0)
    folders = [run_folder(name, quickstart_spec(name=name), frame=frame) for name in ("one", "two")]
    alike = [figure.kind for figure in accuracy_vs_cost_figures(load_series(folders))]
    assert alike == ["spending-delay"]
    folders.append(run_folder("dear", quickstart_spec(name="dear"), frame=dear))
    beside = [figure.kind for figure in accuracy_vs_cost_figures(load_series(folders))]
    assert beside == ["spending-energy", "spending-delay"]


def test_energy_and_time_are_shown_only_where_a_spec_asks_for_them(run_folder: Make) -> None:
    frame = metrics(6, every=2)
    silent = {key: value for key, value in quickstart_spec().items() if key != "radio"}
    unasked = run_folder("unasked", silent, frame=frame)
    asked = run_folder("asked", quickstart_spec(name="asked"), frame=frame)
    (alone,) = load_series([unasked])
    assert not {"spending-energy", "spending-delay"} & {f.kind for f in accuracy_vs_cost_figures([alone])}
    assert "to transmit" not in even_costs_table(alone)
    both = {figure.kind for figure in accuracy_vs_cost_figures(load_series([unasked, asked]))}
    assert {"spending-energy", "spending-delay"} <= both


def test_what_stays_the_same_is_a_row_and_no_figure(run_folder: Make) -> None:
    frame = metrics(4).assign(clip_fraction=1.0, noise_std=[0.5, 0.0, 0.5, 0.0])
    (one,) = load_series([run_folder("one", quickstart_spec(), frame=frame)])
    table = even_costs_table(one)
    assert '>100.0 %</td><td class="n">–<' in table
    assert '>0.5 in 2 rounds, else 0</td><td class="n">–<' in table
    assert not {"clip", "noise"} & {figure.kind for figure in cost_figures([one])}
    changing = frame.assign(clip_fraction=[1.0, 0.5, 0.2, 0.1], noise_std=[0.5, 0.4, 0.3, 0.2])
    (other,) = load_series([run_folder("other", quickstart_spec(), frame=changing)])
    assert {"clip", "noise"} <= {figure.kind for figure in cost_figures([other])}
