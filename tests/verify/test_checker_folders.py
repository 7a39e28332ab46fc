"""`sfumato verify` on folders as runs write them: every example passes, every forgery is found and named."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import certified_folders
import numpy as np
import pytest
import yaml
from certified_folders import Documents, Forgery, certified_folder, checked_folders, forge, renew_manifest

import sfumato as sf
from sfumato import verify
from sfumato.cli import main
from sfumato.spec.load import builtin_names
from sfumato.verify.checker import CheckOutcome, check_run, document_problems
from sfumato.verify.draws import Draw
from sfumato.verify.facts import FACTS
from sfumato.verify.group_exposures import CheckedGroups
from sfumato.verify.records import hidden_start_problems
from sfumato.verify.releases import sampling_problems

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "examples").rglob("*.yaml"))
SPECS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "spec" / "specs").glob("*.yaml"))
FEW = ["training.rounds=2"]
TREE = certified_folders.TREE | {"training": certified_folders.TREE["training"] | {"rounds": 4}}
STAR = certified_folders.STAR | {"training": certified_folders.STAR["training"] | {"rounds": 5}}
DRAWN = {"merge_every": 2, "participation": {"kind": "poisson", "rate": 0.5}}
GROUPS = certified_folders.GROUPS | {
    "training": certified_folders.GROUPS["training"] | {"rounds": 9} | DRAWN,
    "privacy": TREE["privacy"] | {"noise": {"multiplier": 1.5}},
}
RECORD = TREE | {
    "training": TREE["training"] | {"batches": "poisson"},
    "privacy": TREE["privacy"] | {"unit": "record", "noise": {"multiplier": 3.0}},
}


NOISY_STAR = STAR | {"trust": {"cloud": False}}
ORIGINALS = {
    "tree": TREE,
    "star": STAR,
    "groups": GROUPS,
    "record": RECORD,
    "noisy star": NOISY_STAR,
    "masked star": NOISY_STAR
    | {
        "topology": {"kind": "star", "devices": 40},
        "transport": {"devices_to_cloud": "secure-aggregation"},
    },
    "links": GROUPS | {"training": GROUPS["training"] | {"participation": {"kind": "all"}}},
    "blind": STAR
    | {
        "training": STAR["training"] | {"batches": "poisson", "batch_size": 1},
        "privacy": RECORD["privacy"],
    },
}
"""A spec of every kind that is forged."""


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of each of `ORIGINALS`."""
    return checked_folders(ORIGINALS, tmp_path_factory.mktemp("originals"))


@pytest.mark.parametrize("source", [*builtin_names(), "examples/hdp/c7.yaml", *SPECS])
def test_examples_pass(source, tmp_path):
    path = source if source in builtin_names() else ROOT / source
    outcome = check_run(certified_folder(tmp_path, sf.load_spec(path, FEW)))
    assert outcome.problems == []
    assert outcome.rows > 0


@pytest.mark.slow
@pytest.mark.parametrize("source", EXAMPLES)
def test_all_examples_pass(source, tmp_path):
    outcome = check_run(certified_folder(tmp_path, sf.load_spec(ROOT / source, FEW)))
    assert outcome.problems == []


SETTINGS = {
    "resend": (TREE, ["training.global_update=resend"]),
    "a fixed number": (TREE, ["training.participation={kind: fixed, count: 2}"]),
    "a fixed number, replaced": (
        TREE,
        ["training.participation={kind: fixed, count: 2}", "privacy.neighbours=replace"],
    ),
    "replaced under a blind draw": (STAR, ["privacy.neighbours=replace"]),
    "replaced beside drawn noise": (
        TREE,
        [
            "trust={trusted_edges: [0]}",
            "training.participation={kind: poisson, rate: 0.4}",
            "privacy.neighbours=replace",
            "privacy.unit=both",
            "training.batches=poisson",
        ],
    ),
    "replaced workers of groups": (
        GROUPS,
        ["training.participation={kind: poisson, rate: 0.7}", "privacy.neighbours=replace"],
    ),
    "removed": (STAR, ["privacy.neighbours=remove"]),
    "masks and dropouts": (
        TREE,
        ["transport={devices_to_edge: secure-aggregation}", "faults={dropout_rate: 0.1}"],
    ),
    "noise by the devices of a star": (
        STAR,
        ["trust.cloud=false", "transport={devices_to_cloud: secure-aggregation}"],
    ),
    "noise by the drawn devices of a tree": (
        TREE,
        [
            "trust={}",
            "training.participation={kind: poisson, rate: 0.4}",
            "transport={devices_to_edge: secure-aggregation}",
        ],
    ),
    "some devices of every edge": (
        TREE,
        ["privacy.noise={multiplier: 1.0, placement: {device_fraction: 0.7}}"],
    ),
    "records, replaced": (RECORD, ["privacy.neighbours=replace"]),
    "records under a blind draw": (STAR, ["training.batches=poisson", "privacy.unit=both"]),
    "an adapted clip norm": (TREE, ["privacy.clip={kind: update, norm: 1.0, adapt: {quantile: 0.7}}"]),
    "noise at steps": (
        RECORD,
        ["privacy.clip.kind=example", "privacy.noise={multiplier: 1.0, at: step}", "privacy.unit=both"],
    ),
    "clipped examples under masks": (
        RECORD,
        [
            "privacy.clip.kind=example",
            "privacy.noise={multiplier: 3.0}",
            "privacy.unit=both",
            "trust={}",
            "transport={devices_to_edge: secure-aggregation}",
            "faults={dropout_rate: 0.1}",
        ],
    ),
    "no one trusts masters": (GROUPS, ["trust.trusted_aggregators=[]"]),
    "records in groups": (GROUPS, ["training.batches=poisson", "privacy.unit=record"]),
    "cheapest sets": (
        GROUPS,
        ["training.rounds=13", "training.merge_every=6", "training.participation={kind: all}"],
    ),
    "un-noised inside": (GROUPS, ["protocol=dp-ogl+", "training.rounds=8"]),
    "groups that change": (
        GROUPS,
        [
            "topology.eras=[{from_round: 4, groups: [[0, 1, 2, 3, 9], [4, 5, 6, 7, 8], [8, 9, 10, 11], "
            "[11, 12, 13, 14, 15]]}]",
            "training.participation={kind: all}",
        ],
    ),
    "fixed cohorts": (GROUPS, ["training.participation={kind: fixed, count: 3}", "training.rounds=4"]),
    "fixed cohorts, workers add noise": (
        GROUPS,
        [
            "training.participation={kind: fixed, count: [3, 1, 5, 4]}",
            "trust.trusted_aggregators=[]",
            "training.rounds=4",
        ],
    ),
    "fixed cohorts of groups that change": (
        GROUPS,
        [
            "topology.eras=[{from_round: 4, groups: [[0, 1, 2, 3, 9], [4, 5, 6, 7, 8], [8, 9, 10, 11], "
            "[11, 12, 13, 14, 15]]}]",
            "training.participation={kind: fixed, count: 4}",
        ],
    ),
    "fixed cohorts, masked": (
        GROUPS,
        [
            "training.participation={kind: fixed, count: 4}",
            "trust.trusted_aggregators=[]",
            "transport={devices_to_master: secure-aggregation}",
        ],
    ),
    "intervals": (GROUPS, ["protocol=dp-ogl-local", "training.rounds=8"]),
}


SLOW = (
    "a fixed number",
    "a fixed number, replaced",
    "replaced beside drawn noise",
    "replaced workers of groups",
    "noise by the drawn devices of a tree",
    "records in groups",
    "records, replaced",
    "intervals",
    "fixed cohorts",
    "fixed cohorts, workers add noise",
    "fixed cohorts of groups that change",
    "fixed cohorts, masked",
)
"""Seconds of composition by the accountant."""


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[pytest.mark.slow] * (what in SLOW)) for what in SETTINGS]
)
def test_settings_pass(what, tmp_path):
    spec, changes = SETTINGS[what]
    outcome = check_run(certified_folder(tmp_path, sf.load_spec(spec, changes)))
    assert outcome.problems == []
    assert outcome.rows > 0


# --- forgeries --------------------------------------------------------------------------------------


def rows(ledger: Documents) -> list[Documents]:
    found: list[Documents] = ledger["certificates"]["rows"]
    return found


def row_of(document: Documents, observer: str) -> Documents:
    listed = document.get("guarantees") or rows(document)
    return next(row for row in listed if row["observer"] == observer)


def release_of(ledger: Documents, observer: str, place: int = 0) -> Documents:
    """A release of the flow bound towards an observer, as a row of its own in the table."""
    draw = row_of(ledger, observer)["bounds"]["flow"]["draws"][0]
    table = ledger["certificates"]["releases"]
    table.append(json.loads(json.dumps(table[draw["releases"][place]])))
    draw["releases"][place] = len(table) - 1
    found: Documents = table[-1]
    return found


def more_noise(owner: str, observer: str) -> Forgery:
    def change(privacy: Documents, ledger: Documents) -> None:
        release = release_of(ledger, observer)
        release["noise"][owner] = release["noise"].get(owner, 0.0) + release["variance"]
        release["variance"] *= 2

    return change


def own_noise(privacy: Documents, ledger: Documents) -> None:
    """Towards another edge the noise that it adds itself to its average counts in the global one."""
    release = release_of(ledger, "edge:1", 1)
    assert (release["vector"], list(release["noise"])) == ("the global average", ["devices"])
    added = (ledger["steps"][1]["node_noise_std"][1][1] / 3) ** 2
    assert added > 0
    release["noise"]["aggregators"] = added
    release["variance"] += added


def noise_that_only_the_drawn_add(privacy: Documents, ledger: Documents) -> None:
    """The unit's own noise is there only when it is drawn, so the draw amplifies nothing."""
    release_of(ledger, "public")["noise_is_draw_independent"] = True


def of_drawn_noise(change: Callable[[Documents], None], observer: str = "public") -> Forgery:
    """In the noise of others who may be drawn, of the flow bound towards an observer."""

    def forged(privacy: Documents, ledger: Documents) -> None:
        (noise,) = row_of(ledger, observer)["bounds"]["flow"]["draws"][0]["drawn_noise"]
        change(noise)

    return forged


def more_others(noise: Documents) -> None:
    assert noise["count"] == 39
    noise["count"] = 40


def noisier_others(noise: Documents) -> None:
    noise["variances"] = [2 * v for v in noise["variances"]]


def noise_in_groups(privacy: Documents, ledger: Documents) -> None:
    rows(ledger)[0]["bounds"]["flow"]["draws"][0]["drawn_noise"] = [{"count": 1, "variances": [1.0]}]


def of_mixture(change: Callable[[Documents], None], observer: str = "public") -> Forgery:
    """In the draw of the one term of the flow bound towards an observer."""

    def forged(privacy: Documents, ledger: Documents) -> None:
        (term,) = row_of(ledger, observer)["bounds"]["flow"]["terms"]
        assert term["sampling"]["scales"]
        change(term["sampling"])

    return forged


def smaller_scales(sampling: Documents) -> None:
    """One outcome with a little more noise, of those that are likely."""
    likely = max(sampling["scales"], key=lambda one: float(one[0]))
    likely[1] *= 0.999


def rarer_scales(sampling: Documents) -> None:
    """Rounds with little noise are said to be less likely, those with most of it more."""
    first, last = (
        max(sampling["scales"], key=lambda one: one[1]),
        min(sampling["scales"], key=lambda one: one[1]),
    )
    first[0], last[0] = first[0] / 2, last[0] + first[0] / 2


def impossible_scales(sampling: Documents) -> None:
    sampling["scales"].append([0.5, 0.0])


def rarer_unit(sampling: Documents) -> None:
    sampling["rate"] /= 2


def hidden_mixture(sampling: Documents) -> None:
    del sampling["hidden"]


def fewer_links(privacy: Documents, ledger: Documents) -> None:
    release = next(r for r in ledger["certificates"]["releases"] if r.get("linking"))
    release["linking"] = 0


def of_flow(observer: str, key: str, value: Any) -> Forgery:
    def change(privacy: Documents, ledger: Documents) -> None:
        row_of(ledger, observer)["bounds"]["flow"][key] = value

    return change


def smaller_sensitivity(privacy: Documents, ledger: Documents) -> None:
    release_of(ledger, "cloud")["own_sensitivity"] /= 2


def smaller_cut(privacy: Documents, ledger: Documents) -> None:
    table = ledger["certificates"]["releases"]
    next(r for r in table if r["propagated_sensitivity"] > 0)["propagated_sensitivity"] = 0.0


def fewer_rounds(privacy: Documents, ledger: Documents) -> None:
    bound = row_of(ledger, "cloud")["bounds"]["flow"]
    bound["draws"][0]["count"] -= 1
    for term in bound["terms"]:
        term["count"] -= 1


def smaller_rate(privacy: Documents, ledger: Documents) -> None:
    bound = row_of(ledger, "public")["bounds"]["flow"]
    bound["draws"][0]["sampling"]["rate"] = bound["terms"][0]["sampling"]["rate"] = 0.1


def unseen_draw(privacy: Documents, ledger: Documents) -> None:
    """The draw is hidden from the cloud, which makes it."""
    bound = row_of(ledger, "cloud")["bounds"]["flow"]
    bound["draws"][0]["sampling"].pop("hidden")


def smaller_epsilon(privacy: Documents, ledger: Documents) -> None:
    row = row_of(privacy, "cloud")
    row["epsilon"] = row["bounds"]["flow"]["epsilon"] = row["epsilon"] * 0.99


def smaller_epsilons(privacy: Documents, ledger: Documents) -> None:
    """All of them, by one in ten thousand."""
    for row, certificate in zip(privacy["guarantees"], rows(ledger), strict=True):
        for bound in (row, *row["bounds"].values(), *certificate["bounds"].values()):
            if "epsilon" in bound and bound["epsilon"] != "inf":
                bound["epsilon"] *= 0.9999


def larger_epsilons(privacy: Documents, ledger: Documents) -> None:
    row = row_of(privacy, "cloud")
    row["bounds"]["flow"]["epsilon"] *= 1.5
    row["bound"], row["epsilon"] = "flow", row["bounds"]["flow"]["epsilon"]
    row_of(ledger, "cloud")["bounds"]["flow"]["epsilon"] *= 1.5


def larger_delta(privacy: Documents, ledger: Documents) -> None:
    privacy["delta"] = 1e-4
    for row in rows(ledger):
        row["delta"] = 1e-4


def larger_delta_of_a_row(privacy: Documents, ledger: Documents) -> None:
    row_of(ledger, "cloud")["delta"] = 1e-3


def dropped_release(privacy: Documents, ledger: Documents) -> None:
    bound = row_of(ledger, "cloud")["bounds"]["flow"]
    bound["draws"][0]["releases"].pop()
    bound["terms"].pop()


def other_sum(privacy: Documents, ledger: Documents) -> None:
    """A coarser sum, behind more noise, in place of the average that the observer receives."""
    release_of(ledger, "edge:0")["vector"] = "the average of edge:0"


def larger_multiplier(privacy: Documents, ledger: Documents) -> None:
    row_of(ledger, "cloud")["bounds"]["flow"]["terms"][0]["multiplier"] *= 2


def dropped_row(privacy: Documents, ledger: Documents) -> None:
    place = max(range(len(rows(ledger))), key=lambda n: float(privacy["guarantees"][n]["epsilon"]))
    del privacy["guarantees"][place], rows(ledger)[place]


def dropped_certificate(privacy: Documents, ledger: Documents) -> None:
    rows(ledger).pop()


def no_certificates(privacy: Documents, ledger: Documents) -> None:
    del ledger["certificates"]


def other_relation(privacy: Documents, ledger: Documents) -> None:
    for row in rows(ledger):
        row["relation"] = "replace"


def other_hash(privacy: Documents, ledger: Documents) -> None:
    ledger["hashes"]["spec"] = "0" * 64


def less_exposed(privacy: Documents, ledger: Documents) -> None:
    """Fewer releases of a group than the observer receives."""
    for row in rows(ledger):
        exposed = row["bounds"]["flow"]["exposed_releases_per_group"]
        row["bounds"]["flow"]["exposed_releases_per_group"] = [min(n, 5) for n in exposed]


def less_charged(privacy: Documents, ledger: Documents) -> None:
    for row in rows(ledger):
        for draw in row["bounds"]["flow"]["draws"]:
            draw["count"] -= 1


def facts_with(key: str, value: Any) -> Forgery:
    def change(privacy: Documents, ledger: Documents) -> None:
        ledger[key] = value

    return change


def noisier_facts(privacy: Documents, ledger: Documents) -> None:
    ledger["steps"][0]["node_noise_std"][1] = [2 * std for std in ledger["steps"][0]["node_noise_std"][1]]


def unknown_draw(privacy: Documents, ledger: Documents) -> None:
    row_of(ledger, "public")["bounds"]["flow"]["terms"][0]["sampling"]["kind"] = "shuffled"


def rarer_records(privacy: Documents, ledger: Documents) -> None:
    row_of(ledger, "cloud")["bounds"]["flow"]["record"]["rate"] = 0.01


def rarer_participation(privacy: Documents, ledger: Documents) -> None:
    row_of(ledger, "public")["bounds"]["flow"]["record"]["parts"][0]["participation"] = 0.01


def records_that_move_less(privacy: Documents, ledger: Documents) -> None:
    part = row_of(ledger, "cloud")["bounds"]["flow"]["record"]["parts"][0]
    part["moves"] = [move / 2 for move in part["moves"]]


FORGERIES: dict[str, tuple[str, Forgery, str]] = {
    "noise of aggregators": ("tree", more_noise("aggregators", "cloud"), "noise of aggregators"),
    "noise of devices": ("tree", more_noise("devices", "edge:0"), "noise of devices"),
    "noise of a channel": ("tree", more_noise("channel", "cloud"), "noise of channel"),
    "noise of nobody": ("tree", more_noise("", "cloud"), "its sources add up to"),
    "noise of the observer": ("tree", own_noise, r"towards edge:1\): flow: .*noise of aggregators"),
    "noise of whoever is drawn": ("noisy star", noise_that_only_the_drawn_add, "noise_is_draw_independent"),
    "others who are drawn": ("masked star", of_drawn_noise(more_others), "drawn noise: 40 .* facts give 39"),
    "noise of others": ("masked star", of_drawn_noise(noisier_others), "drawn noise: 39 .* facts give 0"),
    "others who drop out": (
        "masked star",
        facts_with("devices_may_drop_out", True),
        "drawn noise: counts for nothing where devices may drop out",
    ),
    "others who round": (
        "masked star",
        facts_with("rounded_after_noise", True),
        "drawn noise: counts for nothing where messages are rounded",
    ),
    "others on the air": (
        "masked star",
        facts_with("hops", ["air"]),
        "drawn noise: counts for nothing where messages go over the air",
    ),
    "others in groups": ("groups", noise_in_groups, "drawn noise: counts for nothing in groups"),
    "scales": ("masked star", of_mixture(smaller_scales), "terms: scales: μ² is above"),
    "chances of scales": ("masked star", of_mixture(rarer_scales), "terms: scales: μ² is above"),
    "too many scales": ("masked star", of_mixture(impossible_scales), "add up to more than 1"),
    "rate of a mixture": ("masked star", of_mixture(rarer_unit), "terms: must be one mixture"),
    "who sees a mixture": (
        "masked star",
        of_mixture(hidden_mixture),
        "over draws at rate 0.25 that are seen",
    ),
    "ε of a mixture": ("masked star", smaller_epsilons, "which is more"),
    "who links groups": ("links", fewer_links, "linking: the certificate says more in its favour"),
    "sensitivity": ("tree", smaller_sensitivity, "own_sensitivity: stated"),
    "what others pass on": ("tree", smaller_cut, "propagated_sensitivity: stated 0;"),
    "count": ("tree", fewer_rounds, "draw: stated 3 times; it happens 4 times"),
    "rate of a draw": ("star", smaller_rate, "draw: rate: stated 0.1"),
    "who sees a draw": ("star", unseen_draw, r"who sees it\): stated True"),
    "ε in privacy.json": ("tree", smaller_epsilon, r"towards cloud\): flow: ε: the certificate says"),
    "ε in both": ("tree", smaller_epsilons, "which is more"),
    "ε of a sampled release": ("star", smaller_epsilons, "which is more"),
    "ε in groups": ("groups", smaller_epsilons, "which is more"),
    "ε of records": ("record", smaller_epsilons, "which is more"),
    "too large an ε": ("tree", larger_epsilons, "less than rounding explains"),
    "δ": ("tree", larger_delta, "privacy.json: delta: 0.0001; spec.yaml gives"),
    "δ of a row": ("tree", larger_delta_of_a_row, "δ: the certificate says 0.001"),
    "a dropped release": ("tree", dropped_release, "releases a round; the observer meets 2"),
    "another sum": ("tree", other_sum, "the observer meets .*own message"),
    "terms": ("tree", larger_multiplier, "does not follow from the releases"),
    "a dropped row": ("tree", dropped_row, "stand for"),
    "a dropped certificate": ("tree", dropped_certificate, "14 guarantees; ledger.json has 13"),
    "no certificates": ("tree", no_certificates, "it has no certificates"),
    "relation": ("tree", other_relation, "relation: the certificate says replace"),
    "method": ("tree", of_flow("cloud", "method", "trust me"), "no rule for the kind 'trust me'"),
    "a hash": ("tree", other_hash, "ledger.json: hashes.spec"),
    "the exposed set": ("groups", less_exposed, "5 releases of group .*; the observer receives 9"),
    "releases of groups": ("groups", less_charged, "charged 8 times; must be 9"),
    "noise in the facts": ("tree", noisier_facts, r"steps\[0\].node_noise_std\[1\]"),
    "rounds in the facts": ("tree", facts_with("rounds", 3), "rounds: 3; spec.yaml gives 4"),
    "cohorts in the facts": ("tree", facts_with("participants_per_leaf", [9, 9, 9]), "participants_per_leaf"),
    "devices in the facts": ("groups", facts_with("devices", 17), "devices: 17; spec.yaml gives 16"),
    "groups' noise in the facts": (
        "groups",
        facts_with("noise_multiplier_per_group", [9.0] * 4),
        "per_group",
    ),
    "groups' rates in the facts": ("groups", facts_with("poisson_rate_per_group", [0.1] * 4), "poisson_rate"),
    "transport in the facts": ("tree", facts_with("hops", ["plain", "air"]), "spec.yaml gives plain"),
    "an unknown protocol": ("tree", facts_with("kind", "gossip"), "no rule for the kind 'gossip'"),
    "an unknown draw": ("star", unknown_draw, "no rule for the kind 'shuffled'"),
    "rate of records": ("record", rarer_records, "record: rate: stated 0.01"),
    "failure": ("tree", of_flow("cloud", "failure_probability", 0.5), "failure_probability: stated 0.5"),
    "participation of records": ("blind", rarer_participation, "participation: stated 0.01"),
    "moves of records": ("record", records_that_move_less, "shares that move are not those of the facts"),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_forgeries_are_found_and_named(what, originals, tmp_path):
    which, change, message = FORGERIES[what]
    folder = tmp_path / "run"
    shutil.copytree(originals(which), folder)
    forge(folder, change)
    problems = check_run(folder).problems
    assert any(re.search(message, problem) for problem in problems), problems


def test_a_folder_recomputed_with_more_noise_does_not_pass_as_the_spec(originals, tmp_path):
    """All figures are those of twice the noise, with every hash in order; only spec.yaml says otherwise."""
    noisier = TREE | {"privacy": TREE["privacy"] | {"noise": {"multiplier": 1.4}}}
    folder = certified_folder(tmp_path, sf.load_spec(noisier))
    shutil.copy(originals("tree") / "spec.yaml", folder / "spec.yaml")
    hashes = json.loads((originals("tree") / "ledger.json").read_text("utf-8"))["hashes"]

    def change(privacy: Documents, ledger: Documents) -> None:
        privacy["hashes"] = ledger["hashes"] = hashes

    forge(folder, change)
    body = json.loads((folder / "manifest.json").read_text("utf-8")) | {"spec": hashes["spec"]}
    (folder / "manifest.json").write_text(json.dumps(body), "utf-8")
    renew_manifest(folder)
    problems = check_run(folder).problems
    assert problems
    assert all("spec.yaml gives" in problem and "noise_std" in problem for problem in problems)


@pytest.mark.parametrize("name", ["spec.yaml", "privacy.json", "ledger.json", "manifest.json"])
def test_a_changed_byte_is_found(name, originals, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(originals("tree"), folder)
    text = (folder / name).read_text("utf-8")
    digit = next(i for i, letter in enumerate(text) if letter == "1" and i > len(text) // 2)
    (folder / name).write_text(text[:digit] + "2" + text[digit + 1 :], "utf-8")
    assert any("SHA-256" in problem for problem in check_run(folder).problems)


def test_a_manifest_that_was_edited_is_found(originals, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(originals("tree"), folder)
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    (folder / "manifest.json").write_text(json.dumps(manifest | {"finished": True}), "utf-8")
    assert check_run(folder).problems == ["manifest.json: has another SHA-256 than it says of itself"]


def test_a_heavier_device_in_the_units_place_counts():
    release = {"own_sensitivity": 1.0, "propagated_sensitivity": 0.0, "variance": 1.0}
    draw = Draw({"kind": "fixed", "rate": 0.5, "population": 4, "sample": 2}, 3, (release,), 1.0)
    wanted = {"kind": "fixed", "rate": 0.5, "hidden": True, "population": 4, "sample": 2}
    assert list(sampling_problems(draw, wanted, 3, 1.0)) == []
    (problem,) = sampling_problems(draw, wanted, 3, 2.0)
    assert "max_weight_ratio: stated 1.0; the facts give 2" in problem


def test_a_start_from_a_hidden_model_counts_the_record_as_drawn():
    """Groups 0 and 1 share the unit only: its data are in the hidden part of the mean that it starts from."""
    facts = CheckedGroups(
        {
            "kind": "dp-ogl", "rounds": 3, "merge_every": 1, "devices": 4, "noise_added_by": "master",
            "eras": [{"first_epoch": 1, "groups": [[0, 1], [0, 2]]}],
        }
    )  # fmt: skip
    assert facts.charged_sums(0, [3, 0])[1] == {(0, 0): 2}
    table = [{"name": "group 0", "own_sensitivity": 1.0}]
    parts = [{"releases": [0], "count": 3, "moves": [1.0]}]
    (problem,) = hidden_start_problems(parts, facts, [3, 0], 0, table)
    assert "counts as drawn in 0 releases; must in 2" in problem


def test_a_file_that_is_cut_off_is_named(originals, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(originals("tree"), folder)
    (folder / "ledger.json").write_text('{"kind": "tree"', "utf-8")
    assert check_run(folder).problems[0].startswith("ledger.json: cannot be parsed")


def test_a_tree_of_version_02_is_read(originals):
    folder = originals("tree")
    spec = yaml.safe_load((folder / "spec.yaml").read_text("utf-8"))
    privacy, ledger = (
        json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ("privacy", "ledger")
    )
    assert [*document_problems(spec, privacy, {**ledger, "kind": "tiered"}, CheckOutcome())] == []


# --- the command, and the file alone ----------------------------------------------------------------


def test_the_command(originals, tmp_path, capsys):
    assert main(["verify", str(originals("tree"))]) == 0
    assert "14 guarantees checked" in capsys.readouterr().out
    folder = tmp_path / "run"
    shutil.copytree(originals("tree"), folder)
    forge(folder, smaller_epsilons)
    assert main(["verify", str(folder)]) == 1
    assert "mismatch: guarantees[" in capsys.readouterr().out
    assert main(["verify", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err


def test_the_archive_runs_alone(originals, tmp_path):
    checker = tmp_path / "checker.pyz"
    assert main(["verify", "--write-checker", str(checker)]) == 0
    command = [sys.executable, "-I", str(checker), str(originals("star"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 mismatches" in done.stdout
    done = subprocess.run([*command[:3], str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2


def test_it_imports_four_libraries_and_nothing_else_of_sfumato():
    found = set()
    for path in Path(verify.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
    found = {name for name in found if not f"{name}.".startswith("sfumato.verify.")}
    assert {name.partition(".")[0] for name in found} - set(sys.stdlib_module_names) == {
        "numpy", "scipy", "yaml", "dp_accounting",
    }  # fmt: skip


def test_every_kind_of_protocol_has_facts():
    from typing import get_args

    from sfumato.privacy.groups.facts import GroupedKind

    assert set(FACTS) == {"tree", "moving", *get_args(GroupedKind)}


def test_certificates_of_a_large_network_are_small(tmp_path):
    """A hundred thousand devices are a few classes."""
    large = TREE | {"topology": {"kind": "tree", "edges": 100, "devices_per_edge": 1000}}
    folder = certified_folder(tmp_path, sf.load_spec(large))
    assert check_run(folder).problems == []
    assert np.log10((folder / "ledger.json").stat().st_size) < 5.5
