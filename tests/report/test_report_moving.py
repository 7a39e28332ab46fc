"""Networks that move: own edges are told apart by trust, and the first screen says who moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_factory import metrics, quickstart_spec

from sfumato.report.drawings.moving import moved_sentence, places_figure
from sfumato.report.page.sections import page_of
from sfumato.report.results.network import read_network
from sfumato.report.results.observer_labels import labels_for
from sfumato.report.results.series import load_series


def moving_spec(**trust: Any) -> dict[str, Any]:
    topology = {
        "kind": "tree", "edges": 3, "devices_per_edge": 3, "moves": {"trace": [[2, 0, 1], [3, 0, 2]]},
    }  # fmt: skip
    training = {"rounds": 4, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1}
    return quickstart_spec(topology=topology, training=training, trust=trust or {"trusted_edges": [0, 1]})


@pytest.mark.parametrize(
    ("unit", "edge", "title"),
    [
        ("device:0", 0, "trusted edges they are ever under"),
        ("device:0", 1, "trusted edges they are ever under"),
        ("device:0", 2, "untrusted edges they are ever under"),
        ("device:1", 0, "trusted edges they are ever under"),
        ("device:1", 2, "edges elsewhere"),
        ("device:6", 2, "untrusted edges they are ever under"),
    ],
)
def test_own_edges_are_told_apart_by_trust(unit: str, edge: int, title: str) -> None:
    column = labels_for(read_network(moving_spec())).column(unit, f"edge:{edge}")
    assert column.title == title
    assert (column.kind == "own-edge") == ("ever under" in title)


def test_who_moves_is_said() -> None:
    (said,) = moved_sentence(read_network(moving_spec()))
    assert said == (
        "1 of 9 devices changes its edge; every ε is for exactly these changes, known beforehand and public."
        " With other changes the same noise may give another ε."
    )
    assert moved_sentence(read_network(quickstart_spec())) == []


def test_edges_are_named_in_the_legend_and_in_rows() -> None:
    spec = moving_spec()
    spec["topology"] = {
        "kind": "tree", "level_names": ["depot"], "moves": {"trace": [[2, 0, 1], [3, 0, 2]]},
        "sites": [{"name": name, "devices": 3} for name in ("north", "harbour", "airport")],
    }  # fmt: skip
    spec["trust"] = {"trusted": ["depot:0"]}
    network = read_network(spec)
    figure = places_figure(network)
    assert figure is not None
    legend = [trace["name"] for trace in figure.data if trace.get("showlegend")]
    assert legend == ["north", "harbour", "airport", "square: trusted with raw updates in these rounds"]
    assert "device 0 to harbour" in figure.table


def test_a_row_is_of_devices_with_as_many_rounds_at_trusted_edges() -> None:
    """Device 0 is at edge 0 in round 1, at edge 1 in round 2, both trusted, and then at edge 2."""
    labels = labels_for(read_network(moving_spec()))
    rows = [labels.row(f"device:{device}") for device in (0, 1, 3, 6)]
    titles = ["device 0 (2 of 4 rounds at trusted edges)", "5 devices (all 4 rounds at trusted edges)"]
    assert [row.title for row in rows[:3]] == [titles[0], titles[1], titles[1]]
    assert min(rows, key=lambda row: row.order) == rows[3]


def test_shown_devices_are_of_all_edges() -> None:
    spec = moving_spec()
    spec["topology"]["devices_per_edge"] = 40
    figure = places_figure(read_network(spec))
    assert figure is not None
    shown = figure.layout["yaxis"]["ticktext"]
    assert (shown[0], shown[-1], len(shown)) == ("0", "119", 24)
    assert "A white square: in these rounds, up to the next change, the edge is trusted" in figure.caption


def test_devices_that_move_are_shown_first() -> None:
    spec = moving_spec()
    spec["topology"] |= {"devices_per_edge": 40, "moves": {"trace": [[2, 60, 0], [3, 61, 0]]}}
    figure = places_figure(read_network(spec))
    assert figure is not None
    assert figure.layout["yaxis"]["ticktext"][:2] == ["60", "61"]
    shown = "24 of 120 devices are shown: first the 2 that move, then 22 of the others, evenly spaced"
    assert shown in figure.caption
    assert len(figure.layout["yaxis"]["ticktext"]) == 24


def test_pages_of_moving_devices_say_for_which_moves_epsilon_is(run_folder: Callable[..., Path]) -> None:
    moving, still = (
        page_of(load_series([run_folder(name, spec, frame=metrics(4))]), Path())
        for name, spec in (("moving", moving_spec()), ("still", quickstart_spec()))
    )
    said = "every ε is for exactly these changes, known beforehand and public."
    assert (said in moving, said in still) == (True, False)
    assert ("Other moves have other ε" in moving, "Other moves have other ε" in still) == (True, False)


def test_the_caption_of_a_list_says_nothing_of_rows_and_colours(run_folder: Callable[..., Path]) -> None:
    page = page_of(load_series([run_folder()]), Path())
    plot, listed = (
        page.split(f'<span class="{name}">')[1].split("</span>")[0] for name in ("of-plot", "of-list")
    )
    assert "(row)" in plot
    assert "Lighter is more private" in plot
    assert listed.startswith("The largest ε")
    assert "(row)" not in listed
    assert "Lighter" not in listed
