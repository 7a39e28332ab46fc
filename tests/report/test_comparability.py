"""Runs whose figures cannot be compared are shown with a notice; others without."""

import math
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from report_factory import claim, guarantee, make_folder, metrics, quickstart_spec

from sfumato.privacy.claim import Claim, ClaimedDraw
from sfumato.radio.channels import radio_of
from sfumato.report import compare
from sfumato.report.figures.claims import claims_figure, claims_table
from sfumato.report.figures.costs import cost_figures
from sfumato.report.page.sections import page_of
from sfumato.report.results.claim_sentences import claims_sentence
from sfumato.report.results.comparability import notices, radio_model
from sfumato.report.results.network import read_network
from sfumato.report.results.observer_labels import labels_for
from sfumato.report.results.series import load_series
from sfumato.run_folder.recorded_privacy import WorstCoalition
from sfumato.spec.load import load_spec
from sfumato.spec.radio import AirRadio

LABELS = labels_for(read_network(quickstart_spec()))
GAIN = {"kind": "constant", "mean": 0.1}


def test_notices_name_what_differs() -> None:
    assert notices([1e-5, 1e-5], ["gains", "gains"]) == []
    (deltas,) = notices([1e-5, 1e-3], ["gains"])
    assert "different δ (1e-5, 1e-3)" in deltas
    (radios,) = notices([1e-5], ["gains", "link budget"])
    assert "different radio models" in radios


@pytest.mark.parametrize("protocol", ["h2fdp", "dp-fedavg", "pfels"])
@pytest.mark.parametrize(
    "radio",
    [None, {"preset": "h2fdp"}, {"preset": "pfels"}, {"power_dbm": 20}, {"gain": GAIN, "snr_db": [2, 3]}],
)  # fmt: skip
def test_the_radio_model_is_that_of_the_channels(protocol: str, radio: dict[str, Any] | None) -> None:
    topology = (
        {"kind": "tree", "edges": 2, "devices_per_edge": 3}
        if protocol == "h2fdp"
        else {"kind": "star", "devices": 9}
    )
    document = {
        "name": "a", "protocol": protocol, "data": {"source": "digits"}, "topology": topology,
        "training": {"rounds": 1, "local_steps": 1, "batch_size": 1, "learning_rate": 0.1},
    } | ({} if radio is None else {"radio": radio})  # fmt: skip
    spec = load_spec(document)
    expected = "gains" if isinstance(radio_of(spec), AirRadio) else "link budget"
    assert radio_model(document) == radio_model(spec.model_dump(mode="json", exclude_none=True)) == expected
    assert radio_model(spec.model_dump(mode="json")) == expected


def folder(path: Path, delta: float = 1e-5, **privacy: Any) -> Path:
    rows = [
        guarantee("device:0", "edge:0", math.inf, 1) | {"relation": "own edge", "trusted": True},
        guarantee("device:40", "edge:1", 99.62, 1) | {"relation": "own edge", "trusted": False},
        guarantee("device:0", "edge:1", 6.04, 1) | {"relation": "edge elsewhere", "trusted": False},
        guarantee("device:0", "cloud", 8.0, 1) | {"relation": "cloud", "trusted": False},
    ]
    said = {"spec": "case", "delta": delta, "guarantees": rows, "claims": []} | privacy
    make_folder(path, spec=quickstart_spec(), frame=metrics(3, epsilons={"cloud": 8.0}), privacy=said)
    return path


def test_edges_that_are_trusted_are_counted_and_no_epsilon(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", raw_to_trusted_edge={"devices": 120, "of": 200})
    (row,) = compare([path]).table().to_dict("records")
    assert (row["epsilon_own_edge"], row["epsilon_other_edge"], row["epsilon_cloud"]) == (99.62, 6.04, 8.0)
    assert row["raw_to_trusted_edge"] == "120 of 200"
    page = page_of(load_series([path]), tmp_path)
    assert "that is trusted with raw updates: 120 devices" in page
    assert '<div class="warn"><dt>its own edge, if not trusted</dt><dd>99.62</dd>' in page
    assert "<div><dt>the cloud</dt><dd>8</dd>" in page


def test_runs_at_different_delta_are_compared_with_a_notice(tmp_path: Path) -> None:
    one, other = folder(tmp_path / "a"), folder(tmp_path / "b", delta=1e-3)
    assert compare([one, one]).notices == []
    assert len(compare([one, other]).notices) == 1
    assert '<p class="notice">The ε here are at different δ' in page_of(load_series([one, other]), tmp_path)


def test_findings_of_a_run_are_those_of_its_account_and_of_its_metrics(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", findings=[{"kind": "delta", "text": "δ is large"}])
    series = load_series([path])
    assert "δ is large" in series[0].findings.others
    assert "<li>δ is large.</li>" in page_of(series, tmp_path)


def test_claims_about_one_round_are_counted(tmp_path: Path) -> None:
    claims = [
        claim(1.5, 0.9, why="a") | {"source": "PFELS Thm. 3, one round"},
        claim(1.5, 99.0, why="b") | {"source": "PFELS Thm. 3, all 5 rounds"},
    ]
    page = page_of(load_series([folder(tmp_path / "a", claims=claims)]), tmp_path)
    assert '<dt id="paper-PFELS-Theorem-3">PFELS, Theorem 3</dt>' in page
    page = re.sub("</?a[^>]*>", "", page)
    assert "and uses it beyond); it holds. Provable for one round: 0.9" in page
    assert "0.9 towards the cloud; for all 5 rounds: 99." in page
    assert "so one round is plotted. Over all rounds the rigorous ε is up to 99." in page
    page = page_of(load_series([folder(tmp_path / "b", claims=claims[1:])]), tmp_path)
    assert "so one round is plotted" not in page


def test_figures_in_a_report_are_rounded_against_us(tmp_path: Path) -> None:
    rows = [guarantee("device:0", "cloud", 45.4466, 1) | {"relation": "cloud"}]
    page = page_of(load_series([folder(tmp_path / "a", guarantees=rows)]), tmp_path)
    assert "no device exceeds ε&nbsp;=&nbsp;45.45 at δ&nbsp;=&nbsp;1e-5" in page
    assert "45.44<" not in page


def uneven() -> Any:
    return metrics(3).assign(energy_j=[1.0, 2.0, 9.0])


def energies(series: list[Any]) -> list[Any]:
    return [figure for figure in cost_figures(series) if figure.kind == "energy"]


def test_energies_of_two_radios_have_no_axis_in_common(tmp_path: Path) -> None:
    gains = quickstart_spec(radio={"gain": GAIN, "snr_db": [2, 3]})
    make_folder(tmp_path / "link", spec=quickstart_spec(), frame=uneven())
    make_folder(tmp_path / "gains", spec=gains, frame=uneven())
    link, relative = load_series([tmp_path / "link"]), load_series([tmp_path / "gains"])
    runs = {"link": [*link, *link], "gains": [*relative, *relative], "both": [*link, *relative]}
    titles = {name: [f.layout["yaxis"]["title"]["text"] for f in energies(of)] for name, of in runs.items()}
    assert titles["both"] == []
    assert all(title.endswith("J") for title in titles["link"])
    assert titles["link"]
    assert titles["gains"]
    assert all(title.endswith("× noise") for title in titles["gains"])


def told(*figures: float, **facts: str) -> Claim:
    return Claim.from_dict(claim(*figures, **facts))


def test_reasons_of_claims_are_told_once_with_whom_they_are_about() -> None:
    claims = [
        told(1.0, 8.0, observer="cloud", why="all see it (H1); only the cloud"),
        told(1.0, 9.0, observer="public", why="all see it (H1)."),
    ]
    shown = unescape(claims_table(claims, LABELS, " (δ = 1e-5)"))
    assert "<li>All see it (H1).</li><li>Towards the cloud: Only the cloud.</li>" in shown
    assert "errata" not in shown
    twice = [replace(claims[0], source="one round"), replace(claims[0], source="all rounds", why="late")]
    assert "One round: all see it (H1); only the cloud. All rounds: late.</li>" in claims_table(twice, LABELS)


def test_claims_at_few_observers_are_told_one_by_one() -> None:
    claims = [
        told(9.0, value, unit=unit, observer=observer, why="")
        for value, unit, observer in (
            (8.0, "device:0", "public"), (24.9, "device:0", "cloud"), (30.0, "device:40", "cloud"),
        )
    ]  # fmt: skip
    (said,) = claims_sentence(claims[:2], LABELS)
    holds = "it holds towards the public, not towards the cloud"
    provable = "Provable: 8 towards the public and 24.9 towards the cloud."
    assert (
        said
        == f"H2FDP Prop. 3.1 claims ε = 9 for one data point; for a device as a whole {holds}. {provable}"
    )
    (said,) = claims_sentence(claims, LABELS)
    whose = " (120 devices under edges 0, 2, 3)"  # of the others nothing is claimed towards the public
    assert said.endswith(f"{holds}. Provable: 8 towards the public{whose} and 24.9 to 30 towards the cloud.")
    mixed = [replace(claims[1], claimed_epsilon=25.0), claims[2]]
    assert "it holds for 1 of 2 classes of pairs." in claims_sentence(mixed, LABELS)[0]


def test_a_claim_that_colluders_break_says_with_how_many_it_holds() -> None:
    claims = [told(3.78, 2.643, unit="device:40", observer="edge:1", why="")]
    pooled = [
        WorstCoalition("device:40", size, 1.0, 0, beside, 0)
        for size, beside in ((1, 2.805), (5, 3.9), (6, 4.461))
    ]
    (said,) = claims_sentence(claims, LABELS, coalitions=pooled)
    assert (
        "; for a device as a whole it holds towards their own edge, also if up to 4 devices collude with "
        "that edge, not if more do." in said
    )
    (said,) = claims_sentence(claims, LABELS, coalitions=pooled[:1])
    assert "; for a device as a whole it holds. " in said
    figure = claims_figure(claims, LABELS, pooled)
    assert figure is not None
    assert (
        "it holds towards their own edge, also if up to 4 devices collude with that edge, not if more do."
        in figure.caption
    )


def test_rows_of_claims_with_the_same_name_say_who_observes() -> None:
    claims = [told(3.0, 2.0, unit="device:0", observer=f"device:{n}", why="") for n in (45, 85)]
    figure = claims_figure(claims, LABELS)
    assert figure is not None
    ticks = [" ".join(one.split("<br>")) for one in figure.layout["yaxis"]["ticktext"]]
    assert len(set(ticks)) == 2
    assert ticks[0].endswith(" (such as device 45)")


def test_what_is_wrong_with_a_claim_is_told_with_it_but_once() -> None:
    claims = [
        told(1.5, 52.4, observer="public", why="the proof is void (P1); the draw can be heard"),
        told(1.5, 63.1, observer="cloud", why="the proof is void (P1); this observer sees who is drawn (P3)"),
    ]
    draws: tuple[ClaimedDraw, ClaimedDraw] = ("none", "seen")
    claims = [
        replace(one, source="PFELS Thm. 3, one round", one_round=True, draw=draw)
        for one, draw in zip(claims, draws, strict=True)
    ]
    claims.append(
        replace(claims[1], source="PFELS Thm. 3, all 5 rounds", rigorous_epsilon=90.9, one_round=False)
    )
    (said,) = claims_sentence(claims, LABELS)
    assert "52.4 towards the public and 63.1 towards the cloud for a device that is drawn; " in said
    assert "for all 5 rounds, before the draws: 90.9. The proof is void (P1)." in said
    assert "void" not in claims_sentence(claims, LABELS, ["the proof is void (P1): use another"])[0]
    assert "void" not in claims_sentence([*claims, replace(claims[0], claimed_epsilon=60.0)], LABELS)[0]


def test_a_claim_about_a_round_is_told_with_what_is_provable_of_it_and_of_all() -> None:
    figures = {("one round", "public"): 7.83, ("one round", "cloud"): 9.73}
    figures |= {("all 5 rounds", whom): 14.05 for whom in ("public", "cloud")}
    claims = [
        Claim(
            f"PFELS Thm. 3, {what}", "device:0", whom, 1.5, epsilon, "", "gdp", one_round=what == "one round"
        )
        for (what, whom), epsilon in figures.items()
    ]
    (said,) = claims_sentence(claims, LABELS)
    assert said.startswith(
        "PFELS Thm. 3 would claim ε = 1.5 a round (the paper states it for ε below 1, and uses it beyond); "
        "it does not hold. Provable for one round: 7.83"
    )
    assert said.endswith("7.83 towards the public and 9.73 towards the cloud; for all 5 rounds: 14.05.")


def test_runs_of_different_units_are_neither_ranked_nor_drawn_together(
    run_folder: Any, tmp_path: Path
) -> None:
    def of(unit: str, epsilon: float, name: str) -> Path:
        rows = [guarantee(f"{unit}:0", "cloud", epsilon), guarantee(f"{unit}:0", "public", epsilon)]
        privacy = {"spec": name, "delta": 1e-5, "guarantees": rows, "claims": []}
        frame = metrics(4, epsilons={"cloud": epsilon})
        made: Path = run_folder(name, quickstart_spec(name=name), frame=frame, privacy=privacy)
        return made

    folders = [of("record", 1.76, "hospitals"), of("device", 8.0, "quickstart"), of("device", 4.0, "other")]
    compared = compare(folders)
    assert list(compared.table()["unit"]) == ["record", "device", "device"]
    (said,) = compared.notices
    assert "of one record in hospitals; of one device in quickstart and other" in said
    page = unescape(page_of(load_series(folders), tmp_path))
    first = page.split('aria-label="Headline"')[1].split("</section>")[0]
    assert first.index("The ε here are of different units") < first.index("<table>")
    assert first.count("The ε here are of different units") == 1
    assert "Smallest ε" not in page
    assert "against ε" not in page
    assert "ε of one record over rounds" in page
    assert "ε of one device over rounds" in page
    alike = unescape(page_of(load_series(folders[1:]), tmp_path))
    assert "against ε" in alike
    assert "different units" not in alike
