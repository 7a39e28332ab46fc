"""ε in words, and the accuracy that privacy costs."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_factory import guarantee, metrics, quickstart_privacy, quickstart_spec

from sfumato.report.figures.curves import personal_figure, score_figures
from sfumato.report.page.party_words import with_words_for_parties
from sfumato.report.page.sections import page_of
from sfumato.report.page.who_adds_noise import noise_part
from sfumato.report.results.cost_of_privacy import costs_of_noise, scores_without_noise
from sfumato.report.results.epsilon_words import draw_sentence, epsilon_in_words, unit_sentences
from sfumato.report.results.series import load_series
from sfumato.report.statement.words import unit_in_words
from sfumato.rounding import certainty

Make = Callable[..., Path]


@given(st.floats(0, 16))
def test_certainty_is_rounded_up_and_near(epsilon: float) -> None:
    shown = float(certainty(epsilon).removesuffix(" %"))
    exact = 100 / (1 + math.exp(-epsilon))
    assert shown >= exact * (1 - 1e-12)
    assert 100 - shown >= 0.49 * (100 - exact)
    assert shown < 100


def test_words_for_known_values() -> None:
    assert [certainty(epsilon) for epsilon in (0, 1, 8, 10)] == ["50 %", "73.2 %", "99.97 %", "99.996 %"]
    assert [certainty(epsilon) for epsilon in (26.5, 400)] == ["99.9999999997 %", "100 %"]
    assert epsilon_in_words("record", 40.0).endswith(
        "whether a record's data were used can become almost certain."
    )
    assert epsilon_in_words("record", 0.9).endswith(" sure, leaving δ aside.")
    assert epsilon_in_words("record", 4.0).endswith(
        "can become at most 98.3 % sure, leaving δ aside (Ponomareva et al. "
        "2023 call ε ≤ 1 strong, ε ≤ 10 reasonable)."
    )
    assert epsilon_in_words("record", 8.0).endswith(
        " sure, leaving δ aside: little protection, though Ponomareva et al. 2023 call ε ≤ 10 reasonable."
    )


def test_privacy_costs_what_a_run_without_noise_reaches_more(run_folder: Make, tmp_path: Path) -> None:
    private, silent, other = metrics(4), metrics(4), metrics(4)
    private["accuracy"], silent["accuracy"], other["accuracy"] = 0.875, 0.9, 0.99
    none = quickstart_spec(name="silent", protocol="hfl")
    elsewhere = quickstart_spec(name="elsewhere", protocol="hfl", data={"source": "mnist"})
    folders = [
        run_folder("private", quickstart_spec(name="private"), frame=private),
        run_folder("silent", none, frame=silent),
        run_folder("elsewhere", elsewhere, frame=other),
    ]
    said = costs_of_noise(load_series(folders))[0].sentence
    assert said.startswith("The noise costs 2.5 points of accuracy: private ends at 87.5 %, and silent")
    assert costs_of_noise(load_series(folders[:1])) == []
    assert "The noise costs 2.5 points" in page_of(load_series(folders), tmp_path)
    alone = page_of(load_series(folders[:1]), tmp_path)
    assert "and the run in the folder silent, which has no noise, at 90.0&nbsp;%" in alone
    assert "--set privacy.noise=none" not in alone
    shutil.rmtree(folders[1])
    assert "--set privacy.noise=none" in page_of(load_series(folders[:1]), tmp_path)
    assert "--set privacy.noise=none" not in page_of(load_series(folders[2:]), tmp_path)


@pytest.mark.parametrize(
    ("reached", "said"),
    [
        (0.89258, "The noise costs 0.8 points of accuracy: private ends at 89.26 %, and silent"),
        (0.89248, "The noise costs 0.8 points of accuracy: private ends at 89.2 %, and silent"),
        (0.90001, "No cost of the noise is seen: private ends at 90.0 %, and silent"),
    ],
)
def test_what_noise_costs_is_the_difference_of_the_exact_scores(
    run_folder: Make, reached: float, said: str
) -> None:
    """It is rounded once, and what is shown subtracts to it: 90.0 less 89.3 would be 0.7."""
    private, silent = metrics(4), metrics(4)
    private["accuracy"], silent["accuracy"] = reached, 0.90044
    folders = [
        run_folder("private", quickstart_spec(name="private"), frame=private),
        run_folder("silent", quickstart_spec(name="silent", protocol="hfl"), frame=silent),
    ]
    assert costs_of_noise(load_series(folders))[0].sentence.startswith(said)


@pytest.mark.parametrize(("reached", "said"), [(0.3, "The noise costs 0.05 of MAE: "), (0.25, "No cost of ")])
def test_a_run_without_accuracy_is_judged_by_its_own_score(
    run_folder: Make, reached: float, said: str
) -> None:
    private, silent = metrics(4), metrics(4)
    private["accuracy"] = silent["accuracy"] = math.nan
    private["mae"], silent["mae"] = reached, 0.25
    folders = [
        run_folder("private", quickstart_spec(name="private"), frame=private),
        run_folder("silent", quickstart_spec(name="silent", protocol="hfl"), frame=silent),
    ]
    assert costs_of_noise(load_series(folders))[0].sentence.startswith(said)


@pytest.mark.parametrize("above", [0.0, 0.01])
def test_noise_that_costs_nothing_is_said_to(run_folder: Make, above: float) -> None:
    private, silent = metrics(4), metrics(4)
    private["accuracy"], silent["accuracy"] = 0.9 + above, 0.9
    folders = [
        run_folder("private", quickstart_spec(name="private"), frame=private),
        run_folder("silent", quickstart_spec(name="silent", protocol="hfl"), frame=silent),
    ]
    assert costs_of_noise(load_series(folders))[0].sentence.startswith("No cost of the noise is seen: ")


@pytest.mark.parametrize(("shares", "never"), [([0.0] * 4, True), ([0.0, 0.0, 0.01, 0.0], False)])
def test_a_clip_that_never_acted_costs_nothing(run_folder: Make, shares: list[float], never: bool) -> None:
    folders = [
        run_folder("private", quickstart_spec(name="private"), frame=metrics(4).assign(clip_fraction=shares)),
        run_folder(
            "silent", quickstart_spec(name="silent", protocol="hfl"), frame=metrics(4).assign(clip_fraction=0)
        ),
    ]
    said = costs_of_noise(load_series(folders))[0].sentence
    assert ("The clip never acted in either run, so clipping costs nothing here." in said) == never
    assert ("Both runs clip" in said) != never


def test_scores_that_jump_are_compared_by_their_means(run_folder: Make) -> None:
    """The last value of a jumping accuracy is luck: it would say that noise costs nothing."""
    jumping = [0.8 + 0.05 * (-1) ** (number + 1) for number in range(60)]
    silent = metrics(60).assign(accuracy=[0.84] * 60)
    folders = [
        run_folder("private", quickstart_spec(name="private"), frame=metrics(60).assign(accuracy=jumping)),
        run_folder("silent", quickstart_spec(name="silent", protocol="hfl"), frame=silent),
    ]
    series = load_series(folders)
    said = costs_of_noise(series)[0].sentence
    assert said == (
        "The noise costs 4.0 points of accuracy: private ends at 80.0 % on average "
        "over the last 10 evaluations, and silent, which has no noise, at 84.0 % (one seed each). "
        "In the last round alone they have 85.0 % and 84.0 %. "
        "Both runs clip, so what clipping costs is not in this figure."
    )
    bold, dashed = [
        trace for trace in score_figures(series[:1], series[1])[0].data if trace["line"]["width"] == 2
    ]
    assert bold["y"][9:] == [pytest.approx(0.8)] * 51
    assert dashed["line"]["dash"] != "solid"


def test_a_twin_that_jumps_is_drawn_as_a_mean_too(run_folder: Make) -> None:
    jumping = [0.8 + 0.05 * (-1) ** (number + 1) for number in range(60)]
    smooth = metrics(60).assign(accuracy=[0.84] * 60)
    private = run_folder("private", quickstart_spec(name="private"), frame=smooth)
    spec = quickstart_spec(name="silent", protocol="hfl")
    silent = run_folder("silent", spec, frame=metrics(60).assign(accuracy=jumping))
    one, twin = load_series([private, silent])
    traces = score_figures([one], twin)[0].data
    assert [trace["line"]["width"] for trace in traces] == [1, 2, 1, 2]
    assert traces[3]["y"][9:] == [pytest.approx(0.8)] * 51


def test_lines_with_and_without_noise_join_released_models_only(run_folder: Make) -> None:
    """Of DP-OGL+ models in between are dots in both."""
    noisy = quickstart_spec(name="private", protocol="dp-ogl+")
    noisy["training"] |= {"merge_every": 2}
    silent = noisy | {"name": "silent", "privacy": noisy["privacy"] | {"noise": "none"}}
    frame = metrics(4).assign(accuracy=[0.9, 0.4, 0.8, 0.3], personal_accuracy=[0.9, 0.4, 0.8, 0.3])
    one, twin = load_series([run_folder(each["name"], each, frame=frame) for each in (noisy, silent)])
    for figure in (*score_figures([one], twin), personal_figure([one], twin)):
        assert figure is not None
        lines = [trace for trace in figure.data if trace["mode"] != "markers"]
        assert [trace["x"] for trace in lines] == [[2, 4], [2, 4]]
        assert [trace["line"]["dash"] for trace in lines] == ["solid", "dash"]


def test_what_noise_costs_models_of_workers_is_drawn_and_told(run_folder: Make) -> None:
    frames = [metrics(4).assign(personal_accuracy=value) for value in (0.5, 0.625)]
    private = run_folder("private", quickstart_spec(name="private"), frame=frames[0])
    silent = run_folder("silent", quickstart_spec(name="silent", protocol="hfl"), frame=frames[1])
    one, twin = load_series([private, silent])
    figure = personal_figure([one], twin)
    assert figure is not None
    assert [(trace["name"], trace["y"][-1]) for trace in figure.data] == [
        ("private", 0.5), ("without noise", 0.625),
    ]  # fmt: skip
    assert scores_without_noise([], twin) == [
        "Without noise: accuracy on data like the workers' own 62.5 % after the last round."
    ]
    assert scores_without_noise([], None) == []


@pytest.mark.parametrize(
    ("key", "value"), [("rounds", 3), ("steps_per_round", 1), ("batch_size", 4), ("learning_rate", 9.0)]
)
def test_runs_that_differ_in_more_than_noise_are_not_compared(
    run_folder: Make, key: str, value: float
) -> None:
    spec = quickstart_spec(name="silent", protocol="hfl")
    spec["training"] = spec["training"] | {key: value}
    folders = [
        run_folder("private", quickstart_spec(name="private"), frame=metrics(4)),
        run_folder("silent", spec, frame=metrics(3 if key == "rounds" else 4)),
    ]
    assert costs_of_noise(load_series(folders)) == []


def test_a_key_that_only_later_versions_write_makes_no_difference(run_folder: Make) -> None:
    spec = quickstart_spec(name="silent", protocol="hfl")
    spec["model"] = (
        {"kind": spec["model"], "trained": "all"}
        if isinstance(spec["model"], str)
        else spec["model"] | {"trained": "all"}
    )
    folders = [
        run_folder("private", quickstart_spec(name="private"), frame=metrics(4)),
        run_folder("silent", spec, frame=metrics(4)),
    ]
    assert len(costs_of_noise(load_series(folders))) == 1


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_sites_are_called_so_and_a_range_of_records_has_its_reason(
    run_folder: Make, tmp_path: Path, weights: str
) -> None:
    rows = [
        guarantee(f"record:{number}", "cloud", epsilon, 1, relation="cloud") | {"sites": [site]}
        for number, (epsilon, site) in enumerate([(4.0, "kiel"), (3.5, "bonn")])
    ]
    spec = quickstart_spec(
        protocol="dp-fedavg",
        topology={"kind": "star", "devices": 2, "device_names": ["kiel", "bonn"]},
        trust={},
        privacy={
            "delta": 1e-5,
            "clip": {"kind": "example", "norm": 1.0},
            "noise": {
                "kind": "sources",
                "sources": [{"owners": ["cloud/devices"], "multipliers": [2.0]}],
            },
        },
    )
    spec["training"] = {"rounds": 4, "batches": "poisson", "batch_size": 8, "weights": {"kind": weights}}
    privacy = quickstart_privacy() | {"guarantees": rows, "claims": []}
    folder = run_folder("sites", spec, privacy=privacy, frame=metrics(4))
    ledger = {"batches": {"rate_per_device": [8 / 39, 8 / 47]}}
    (run,) = (one := load_series([folder])[0]).runs
    run.__dict__["ledger"] = ledger  # as if it were read
    page = page_of([one], tmp_path)
    assert "ε by class of site and observer" in page
    assert "noise added by site" in page
    assert "Noise is added by the sites under the cloud." in page
    assert "Protected least towards the cloud: kiel" in page
    fewer = "The fewer records a site has (kiel 39 and bonn 47), the more often each is drawn"
    assert (fewer in page) == (weights == "uniform")
    assert "The cloud and 2 sites; " in page
    assert "Every site takes part in every round." in page
    assert ">site that adds noise</li>" in page
    shown = page.partition("<pre")[0]
    assert not re.findall(r">[^<]*\b[Dd]evices?\b(?!:)", shown)  # but in names of keys and parties
    assert "devices: 2" in page  # the spec is as it is


def test_a_device_is_renamed_in_text_alone() -> None:
    html = '<p title="a device">A device:0 of topology.devices; Devices (unit: device).</p><pre>device</pre>'
    (said,) = with_words_for_parties([html], "site")
    kept = '<p title="a device">A device 0 of topology.devices; Sites (unit: device).</p><pre>device</pre>'
    assert said == kept
    assert with_words_for_parties([html], "device") == [html.replace("device:0", "device 0")]


def test_a_person_brings_one_row_to_a_step() -> None:
    noise = {"clip": {"kind": "example", "norm": 1.0}, "parties": []}
    one, every = (noise_part(noise, {"rounds": 3}, persons=persons) for persons in (True, False))
    said = "a person that is drawn brings one of their rows, chosen anew: its gradient is clipped to norm 1."
    assert said in one
    assert said not in every
    assert "The gradient of every example is clipped to norm 1." in every
    said = " ".join(unit_sentences({"data": {"person_column": "patient"}}, "person", "device"))
    assert said.startswith(
        "A person is all rows with one value of patient; at most one of them is in a local "
    )
    assert "step. Their own device sees these rows, and a device" in said


def test_a_record_is_told_with_how_many_a_device_has_and_who_is_protected_less() -> None:
    spec = {"privacy": {"clip": {"kind": "example"}}}
    first, second = unit_sentences(spec, "record", "site", "287 or 288")
    assert first == "A record is one example, which its own site has. A site has 287 or 288 records."
    assert second == (
        "Somebody with several records is protected less, and a site as a whole, with all its data, has no "
        "finite ε."
    )
    assert unit_sentences(spec, "record", "site")[0] == "A record is one example, which its own site has."


def test_the_draw_of_records_that_epsilon_rests_on_is_told() -> None:
    """With the steps where everybody takes part in all of them; nothing where nothing is drawn."""
    training = {"rounds": 10, "local_steps": 4}
    assert draw_sentence(training, [0.11111, 0.1115], "record") == [
        "For each of the 40 local steps a record is drawn with probability 0.1111 to 0.1115; these ε hold "
        "while nobody sees the draw."
    ]
    some = training | {"participation": {"kind": "poisson", "rate": 0.5}}
    assert draw_sentence(some, [0.25], "person")[0].startswith("For a local step a person is drawn with ")
    assert draw_sentence(training, [], "record") == draw_sentence(training, [1.0], "record") == []


def test_what_a_row_is_is_said_of_records_and_of_the_rows_of_persons() -> None:
    assert (
        unit_in_words("record", "site", {"row": "a patient"}) == "one record (the row of a patient at a site)"
    )
    assert unit_in_words("record", "site", {}) == "one record (one row, or one example, of a site)"
    of_persons = {"row": "a visit", "person_column": "who"}
    said = "one person (all rows, a visit each, of a site with the same who)"
    assert unit_in_words("person", "site", of_persons) == said
    (what, _) = unit_sentences({"data": of_persons}, "person", "site")
    assert what.startswith("A person is all rows (a visit each) with one value of who;")
