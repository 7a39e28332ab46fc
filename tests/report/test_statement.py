"""`sfumato statement`: what the page and the JSON say of a plan, and nothing that is untrue."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from statements import SPEC, Text, made, page_of, words_of

import sfumato as sf
from sfumato.cli import main
from sfumato.findings.tables import warn_of_unscaled_columns
from sfumato.report.statement.content import PlayedRun
from sfumato.report.statement.why import RULES
from sfumato.report.statement.words import two_values
from sfumato.rounding import certainty, upper_bound

ROOT = Path(__file__).parents[2]


def test_of_a_plan(tmp_path, capsys):
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(SPEC), "utf-8")
    page = tmp_path / "statement.html"
    assert main(["statement", str(path), "--out", str(page)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(page), str(page.with_suffix(".json"))]
    found = json.loads(page.with_suffix(".json").read_text("utf-8"))
    report = sf.account(sf.load_spec(SPEC))
    assert [row["epsilon"] for row in found["guarantees"]] == [
        row["epsilon"] for row in report.to_dict()["guarantees"]
    ]
    assert found["units"] == {"device": "all data of one device"}
    assert found["trust"]["trusted_with_raw_updates"] == ["edge:1"]
    assert found["noise"]["parties"] == [
        {"parties": ["edge:1", "edge:0/devices", "edge:2/devices"], "multipliers": [0.7, 0.7]},
    ]
    assert found["versions"]["sfumato"]
    text = Text(page.read_text("utf-8"))
    assert "verified" not in found
    assert "script" not in text.tags
    assert "hospitals" in text.words
    assert "δ = 1e-5" in text.words


def test_devices_that_are_under_trusted_and_untrusted_edges_count_towards_both():
    moves = {"trace": [[2, 3, 0]]}  # device 3 leaves edge 1, which is trusted, for edge 0, which is not
    found = made(sf.load_spec(SPEC | {"topology": SPEC["topology"] | {"moves": moves}}))
    own = [row for row in found.privacy.guarantees if row.relation.kind == "own-edge"]
    assert {row.trusted for row in own if row.unit == "device:3"} == {True, False}
    words, still = words_of(found), words_of(made(sf.load_spec(SPEC)))
    assert "do not count them" not in words + still
    assert "3 of 9 devices send their updates without noise, in some rounds or in all, to an" in words
    assert "3 of 9 devices send their updates without noise, to an" not in still
    assert "3 of 9 devices send their updates without noise to an aggregator that they trust." in still
    for said in (words, still):
        assert "Towards all others these devices count in the other rows." in said


def test_an_edge_is_told_from_those_that_are_trusted():
    some, nobody = (
        words_of(made(sf.load_spec(SPEC | {"trust": {"trusted_edges": edges}}))) for edges in ([1], [])
    )
    assert "The device's own edge (where it is not trusted)" in some
    assert "The cloud (where it is not trusted)" not in some
    assert "where it is not trusted" not in nobody


def test_labels_are_of_rows_and_not_of_persons_or_devices_with_several():
    assert two_values("record", ["no", "yes"], "ill") == "“ill” is no or yes"
    assert two_values("person", ["no", "yes"], "ill") == "such as ill or not ill"
    assert two_values("device", ["no", "yes"], "ill") == "such as with or without a certain row"
    of_device = words_of(replace(made(sf.load_spec(SPEC)), labels=("no", "yes")))
    assert "no or yes" not in of_device


def test_advice_to_whoever_trains_is_not_for_auditors():
    """A feature without a range is no news about privacy; the run and its report say it."""
    plan, scale = made(sf.load_spec(SPEC)), str(warn_of_unscaled_columns(["age"], {}))
    told = {"findings": ("δ is large", scale), "kinds_of_findings": ("delta", "unscaled")}
    found = replace(plan, privacy=replace(plan.privacy, **told))
    assert found.findings == ("δ is large",)
    assert "data.scale" not in words_of(found)


def test_a_statement_of_something_else_is_left_as_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.json").write_text(json.dumps(SPEC | {"name": "one"}), "utf-8")
    (tmp_path / "two.json").write_text(json.dumps(SPEC | {"name": "two"}), "utf-8")
    assert main(["statement", "one.json"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == ["statement.html", "statement.json"]
    towards, folder = said.err.splitlines()
    assert towards.startswith("ε of a device at most (δ = 1e-5): the cloud ") or "the cloud " in towards
    assert folder == f"in the folder {tmp_path}"
    assert main(["statement", "one.json"]) == 0  # the same again
    before = (tmp_path / "statement.html").read_bytes()
    capsys.readouterr()
    assert main(["statement", "two.json"]) == 2
    said = capsys.readouterr()
    assert "--out: got 'statement.html'; is a statement of one (A plan, before any run)" in said.err
    assert "name another file, such as two-statement.html" in said.err
    assert (tmp_path / "statement.html").read_bytes() == before
    assert main(["statement", "two.json", "--out", "statement.html"]) == 0


def test_the_largest_of_each_relation():
    found = made(sf.load_spec(SPEC)).to_dict()
    by_relation = {(row["observer_is"], row["trusted_by_the_unit"]): row for row in found["largest"]}
    assert by_relation["own edge", True]["epsilon"] == "inf"
    assert by_relation["own edge", True]["pairs_without_a_guarantee"] == 3
    own = by_relation["own edge", False]
    assert own["epsilon"] == max(
        row["epsilon"] for row in found["guarantees"] if row["relation"] == "own edge" and not row["trusted"]
    )
    assert sum(row["pairs"] for row in found["largest"]) == 9 * (3 + 1 + 1 + 8)


def test_who_receives_raw_updates_without_being_trusted_is_not_called_harmless():
    """HDP's placements do not ask whom devices trust."""
    found = made(sf.load_spec(ROOT / "examples" / "hdp" / "c7.yaml", ["training.rounds=2"]))
    assert found.trusted == []
    words = Text(page_of(found)).words
    assert "Nobody is declared as trusted with raw" in words
    assert "90 pairs of a unit and an observer have no guarantee" in words
    assert "only messages about the model are sent" in words
    assert "has a guarantee (a finite ε)" not in words


@pytest.mark.parametrize("name", ["pfels", "ogl-ring", "ogl-example2"])
def test_other_networks(name):
    found = made(sf.load_spec(ROOT / "tests" / "spec" / "specs" / f"{name}.yaml", ["training.rounds=2"]))
    words = Text(page_of(found)).words
    assert ("The receiver's own noise is counted" in words) == (name == "pfels")
    assert found.spec["name"] in words


def test_both_units_and_another_relation():
    changes = [
        "privacy.unit=both",
        "training.batches=poisson",
        "privacy.neighbours=replace",
        "privacy.noise.multiplier=8",
    ]
    words = Text(page_of(made(sf.load_spec(SPEC, changes)))).words
    assert (
        "Protected is a whole device (all its data together) and one record (one row, or one example,"
        in words
    )
    assert "Hidden is which data a certain device or record has; which devices there are is public." in words
    assert "The device itself–has the data" in words
    assert "The device that holds the data–has the data" in words
    assert "A device as a whole is not protected" not in words
    assert "The unit of privacy is all data of one device. The compared worlds differ in this" in words
    assert "The unit of privacy is any one record (one row, one example) of one device." in words
    assert "any other data instead of its own" in words


def test_the_page_must_be_html(tmp_path, capsys):
    assert main(["statement", "quickstart", "--out", str(tmp_path / "s.pdf")]) == 2
    assert "must end with .html" in capsys.readouterr().err


def test_an_auditor_reads_the_verdict_first():
    statement = made(sf.load_spec(SPEC))
    words = Text(page_of(statement)).words
    short = words.partition("In short")[2].partition("What each observer can learn")[0]
    (cloud,) = [row for row in statement.largest if row.worst.observer == "cloud"]
    most = (
        f"ε is at most {upper_bound(cloud.worst.epsilon)} (δ = 1e-5): a guess of 50 : 50 on whether the data"
    )
    assert most in short.partition("the cloud")[2]
    assert "Not protected at all (ε = ∞) from: the device's own edge, trusted with raw updates." in short
    table = words.partition("What each observer can learn")[2]
    at = [
        table.index(who) for who in ("The device itself", "own edge, trusted with raw updates", "The public")
    ]
    assert at == sorted(at)  # who has the data first, then the largest ε


HOSPITALS = SPEC | {
    "protocol": "dp-fedavg",
    "seed": 7,
    "data": {"source": "digits", "partition": {"kind": "iid", "size_sigma": 0.8}},
    "topology": {"kind": "star", "devices": 3, "device_names": ["bonn", "kiel", "ulm"]},
    "trust": {"cloud": False},
    "training": {"rounds": 3, "local_steps": 1, "batches": "poisson", "batch_size": 17, "learning_rate": 1.0},
    "privacy": {
        "unit": "record", "clip": {"kind": "example", "norm": 1.0}, "noise": {"epsilon": 4, "for": "cloud"},
    },
}  # fmt: skip


def test_what_an_observer_could_gain_about_a_record_of_a_site_is_said_in_words():
    statement = made(sf.load_spec(HOSPITALS))
    page = page_of(statement)
    learned = page.partition("What each observer can learn")[2].partition("What is not protected")[0]
    epsilons = {row.site: row.epsilon["cloud"] for row in statement.sites}
    worst, best = max(epsilons, key=epsilons.__getitem__), min(epsilons, key=epsilons.__getitem__)
    assert sorted(epsilons) == ["bonn", "kiel", "ulm"]
    assert "3 sites (bonn, kiel and ulm) train one model together on the data set digits. " in page
    ends = f"Protected least: {worst}, ε = {upper_bound(epsilons[worst])}; most: {best}"
    assert ends in Text(page).words.partition("What each observer can learn")[0]
    for site, epsilon in epsilons.items():
        (line,) = (row for row in learned.split("<tr>") if f">{site}</td>" in row)
        for value in (upper_bound(epsilon), certainty(epsilon), certainty(epsilon, 0.01)):
            assert f">{value}</td>" in line
    assert ">Another site</td>" in learned


def test_where_nobody_adds_noise_nothing_is_called_protected():
    privacy = SPEC["privacy"] | {"noise": "none"}
    words = Text(page_of(made(sf.load_spec(SPEC | {"privacy": privacy})))).words
    assert "Nothing is protected: there is no guarantee (ε = ∞) towards any observer." in words
    assert "Protected is" not in words


def test_what_is_not_protected_is_said_of_a_record():
    statement = made(sf.load_spec(HOSPITALS))
    words = Text(page_of(statement)).words
    assert "The site that holds the data–has the datahas the data" in words  # a line of the table
    assert (
        "A site as a whole is not protected: to what is learned of all its data together there is no" in words
    )
    assert statement.to_dict()["not_protected"] == list(statement.not_protected)


def test_a_run_says_when_it_was_and_what_is_taken_on_trust():
    plan = made(sf.load_spec(HOSPITALS))
    run = PlayedRun(
        "all recomputed: 0 mismatches.",
        unchecked=("how many records each device has: believed; ask whoever has the data",),
        written="2026-11-26",
    )
    words = Text(page_of(replace(plan, source="A run (finished)", made="2026-11-27", run=run))).words
    assert (
        "A run (finished) · its files are of 26 November 2026 · stated on 27 November 2026 · spec " in words
    )
    assert f"spec hospitals, hash {plan.hashes['spec'][:12]}…" in words
    assert "This was a simulation, and its seed is so small that others would guess it." in words
    assert "Not recomputed: how many records each site has. Believed; ask whoever has the data." in words
    assert "did not pass the check" not in words
    deployed = Text(page_of(replace(plan, run=replace(run, draws=("a chip",), purpose="find flu")))).words
    assert "simulation" not in deployed.partition("Who is trusted")[0]
    assert "drawn from: a chip." in deployed
    assert "Its stated purpose: find flu." in deployed
    assert "Purpose of the training: ____" not in deployed
    wrong = Text(page_of(replace(plan, run=replace(run, mismatches=("guarantees[0]: ε: 1",))))).words
    assert "1 figure of the run did not pass the check. Do not rely on this statement." in wrong


def test_every_reason_is_given_once_with_its_words_explained_on_the_page():
    page = page_of(made(sf.load_spec(HOSPITALS)))
    why = page.partition("Show why each ε is what it is")[2].partition("Show every guarantee")[0]
    assert "3 releases are counted" in Text(why).words
    linked, explained = (
        set(re.findall(r'href="#(rule-[a-z-]+)"', why)),
        set(re.findall(r'id="(rule-[a-z-]+)"', why)),
    )
    assert linked == explained >= {"rule-multiplier", "rule-zero-out", "rule-unseen", "rule-pld"}
    for rule in RULES.values():  # as headings of docs/accounting.md
        section = rule.section.removeprefix("Accounting, ")
        assert re.search(
            rf"^##+ {re.escape(section)}$", (ROOT / "docs/accounting.md").read_text("utf-8"), re.M
        )


def test_how_sure_an_observer_may_become_from_a_small_suspicion():
    assert certainty(1.0, 0.01) == "2.7 %"  # 0.01 e / (0.99 + 0.01 e) = 2.672 %
    assert certainty(4.0, 0.01) == "35.6 %"
    assert certainty(4.0) == "98.3 %"
