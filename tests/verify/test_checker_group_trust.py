"""`sfumato verify` where some masters are trusted: whole folders pass, forged trust is refused and named."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import certified_folders
import pytest
import yaml
from certified_folders import Documents, Forgery, certified_folder, forge

import sfumato as sf
from sfumato import accounting
from sfumato.schedule.resolve import resolve
from sfumato.spec.document import fingerprint
from sfumato.verify.checker import check_run
from sfumato.verify.group_exposures import CheckedGroups

GROUPS = certified_folders.GROUPS | {
    "topology": {"kind": "groups", "structure": "list", "groups": [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8]]},
    "trust": {"trusted_aggregators": [0]},
    "training": certified_folders.GROUPS["training"] | {"rounds": 4, "merge_every": 2},
}
DRAWN = ["training.participation={kind: poisson, rate: 0.5}"]
MASKED = ["transport={devices_to_master: secure-aggregation}"]
SETTINGS = {
    "all workers": [],
    "drawn workers": DRAWN,
    "masks": MASKED,
    "masks and drawn workers": [*MASKED, *DRAWN],
    "intervals": ["protocol=dp-ogl-local"],
    "replaced": ["privacy.neighbours=replace"],
    "no noise": ["privacy.noise=none"],
    "no noise in a group": ["privacy.noise={multiplier: [0, 1.5, 0]}"],
    "models": ["protocol=ms-fedavg", "training.merge_every=1"],
    "groups that change": [
        "topology.eras=[{from_round: 3, groups: [[0, 1, 2], [3, 4, 5, 6, 8], [2, 6, 7]]}]"
    ],
    "records": ["training.batches=poisson", "privacy.unit=record"],
    "a target": ["privacy.noise={epsilon: 8.0, for: edge}"],
}


@pytest.mark.parametrize("what", SETTINGS)
def test_folders_pass(what: str, tmp_path: Path) -> None:
    spec = sf.load_spec(GROUPS, SETTINGS[what])
    outcome = check_run(certified_folder(tmp_path, spec))
    assert outcome.problems == []
    assert outcome.rows > 0


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = certified_folder(tmp_path_factory.mktemp("original") / "run", sf.load_spec(GROUPS))
    assert check_run(folder).problems == []
    return folder


# --- facts that are not those of the spec -------------------------------------------------------------------

OWNERS = {
    "all masters": ("master",) * 3,
    "no master": ("devices",) * 3,
    "another master": ("devices", "master", "devices"),
}


@pytest.mark.parametrize("what", OWNERS)
def test_figures_under_another_trust_are_refused(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All rows and certificates follow from the facts, but the facts are not those of the spec."""

    def by_others(wanted: Any) -> Any:
        plan = resolve(wanted)
        found = replace(plan)
        found.__dict__["releases"] = replace(plan.releases, noise_owner=OWNERS[what])
        return found

    monkeypatch.setattr(accounting, "resolve", by_others)
    problems = check_run(certified_folder(tmp_path, sf.load_spec(GROUPS))).problems
    wanted = r"noise_added_by: .*; spec.yaml gives \['master', 'devices', 'devices'\]"
    assert any(re.search(wanted, problem) for problem in problems), problems


# --- files that were changed --------------------------------------------------------------------------------


def of_row(unit: str, observer: str, change: Callable[[Documents], None]) -> Forgery:
    """In the row of one pair."""

    def forged(privacy: Documents, ledger: Documents) -> None:
        pairs = [row for row in privacy["guarantees"] if (row["unit"], row["observer"]) == (unit, observer)]
        assert len(pairs) == 1
        change(pairs[0])

    return forged


def owners(value: Any) -> Forgery:
    def forged(privacy: Documents, ledger: Documents) -> None:
        ledger["noise_added_by"] = value

    return forged


def raw_devices(count: int) -> Forgery:
    def forged(privacy: Documents, ledger: Documents) -> None:
        assert privacy["raw_to_trusted_edge"] == {"devices": 4, "of": 9}
        privacy["raw_to_trusted_edge"]["devices"] = count

    return forged


FORGED: dict[str, tuple[Forgery, str]] = {
    "the row of a trusted master": (
        of_row("device:0", "master:0", lambda row: row.update(trusted=False)),
        r"device:0 towards master:0.*: trusted: the row says False; the facts give True",
    ),
    "the row of another master": (
        of_row("device:4", "master:1", lambda row: row.update(trusted=True)),
        r"device:4 towards master:1.*: trusted: the row says True; the facts give False",
    ),
    "how many are raw": (raw_devices(0), r"raw_to_trusted_edge: .*0.*; the facts give .*4"),
    "owners of two groups": (owners(["master", "devices"]), "must be master or devices, for every group"),
    "an owner that is none": (owners("nobody"), "must be master or devices, for every group"),
    "masters": (owners("master"), "noise_added_by: master; spec.yaml gives"),
    "devices": (owners("devices"), "noise_added_by: devices; spec.yaml gives"),
}


@pytest.mark.parametrize("what", FORGED)
def test_forged_trust_is_refused(what: str, original: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(original, tmp_path / "run")
    change, message = FORGED[what]
    forge(folder, change)
    problems = check_run(folder).problems
    assert any(re.search(message, problem) for problem in problems), problems


def the_masters_own_noise(privacy: Documents, ledger: Documents) -> None:
    """Towards the trusted master the noise that it adds itself counts."""
    table = ledger["certificates"]["releases"]
    row = next(
        row
        for row in ledger["certificates"]["rows"]
        if (row["unit"], row["observer"]) == ("device:0", "master:0")
    )
    (draw,) = row["bounds"]["flow"]["draws"]
    table.append(table[draw["releases"][0]] | {"variance": 0.1, "noise": {"aggregators": 0.1}})
    draw["releases"] = [len(table) - 1]


def test_noise_that_a_trusted_master_knows_is_refused(original: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(original, tmp_path / "run")
    forge(folder, the_masters_own_noise)
    wanted = r"device:0 towards master:0.*: flow: .*(noise|variance)"
    problems = check_run(folder).problems
    assert any(re.search(wanted, problem) for problem in problems), problems


def test_rows_of_groups_that_differ_in_trust_do_not_stand_for_each_other(tmp_path: Path) -> None:
    """Two groups that are alike but for trust: a pair of one is counted to the other, where ε is smaller."""
    spec = GROUPS | {"topology": {"kind": "groups", "structure": "clusters", "groups": 2, "devices": 6}}
    folder = certified_folder(tmp_path / "run", sf.load_spec(spec))
    assert check_run(folder).problems == []

    def moved(privacy: Documents, ledger: Documents) -> None:
        peers = [row for row in privacy["guarantees"] if row["relation"] == "device in a common group"]
        worse, better = sorted(peers, key=lambda row: -row["epsilon"])
        assert worse["epsilon"] > better["epsilon"]
        worse["stands_for"] -= 1
        better["stands_for"] += 1

    forge(folder, moved)
    assert any("stands_for" in problem for problem in check_run(folder).problems)


def with_other_spec(folder: Path, change: Callable[[Documents], None]) -> None:
    """The folder with another ``spec.yaml``, and that file's hash wherever one is kept."""
    document = yaml.safe_load((folder / "spec.yaml").read_text("utf-8"))
    change(document)
    found = fingerprint(document)
    document["hashes"]["spec"] = found
    (folder / "spec.yaml").write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    manifest = json.loads((folder / "manifest.json").read_text("utf-8")) | {"spec": found}
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")

    def rehashed(privacy: Documents, ledger: Documents) -> None:
        privacy["hashes"]["spec"] = ledger["hashes"]["spec"] = found

    forge(folder, rehashed)


def trusting(masters: Any) -> Callable[[Documents], None]:
    def change(spec: Documents) -> None:
        assert spec["trust"]["trusted_aggregators"] == [0]
        spec["trust"]["trusted_aggregators"] = masters

    return change


@pytest.mark.parametrize("trusted", [[], [0, 1], [1], [0, 1, 2]])
def test_another_trust_in_the_spec_is_refused(trusted: Any, original: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(original, tmp_path / "run")
    with_other_spec(folder, trusting(trusted))
    problems = check_run(folder).problems
    assert any("noise_added_by" in problem for problem in problems), problems
    assert any("trust says that the noise is by" in problem for problem in problems), problems
    assert not any("hash" in problem or "SHA" in problem for problem in problems), problems


def test_the_spec_as_it_was_is_in_order(original: Path, tmp_path: Path) -> None:
    """The forgery above is found by its trust, not by the way in which it is written."""
    folder = shutil.copytree(original, tmp_path / "run")
    with_other_spec(folder, lambda spec: None)
    assert check_run(folder).problems == []


def test_a_share_of_masters_is_no_rule_of_the_checker(original: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(original, tmp_path / "run")
    with_other_spec(folder, trusting(0.34))
    assert any("no rule for a share of trusted masters" in found for found in check_run(folder).problems)


def test_un_noised_models_need_trusted_masters(tmp_path: Path) -> None:
    spec = GROUPS | {"protocol": "dp-ogl+", "trust": {}}
    folder = certified_folder(tmp_path / "run", sf.load_spec(spec))
    assert check_run(folder).problems == []
    forge(folder, owners(["master", "master", "devices"]))
    assert any("no rule for dp-ogl+ where devices add it" in found for found in check_run(folder).problems)


WRONG: dict[str, tuple[str, Any]] = {
    "trusted groups by their workers' noise": (
        "_groups_with_noisy_workers",
        lambda facts, stated: [True] * 3,
    ),
    "untrusted groups by their masters' noise": (
        "_groups_with_noisy_workers",
        lambda facts, stated: [False] * 3,
    ),
    "trust in the other masters": ("_groups_with_noisy_workers", lambda facts, stated: [True, False, False]),
    "untrusted masters receive the sum": (
        "masters_in",
        lambda facts, coalition: {group: False for kind, _, group in coalition if kind == "master"},
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_checker_with_another_rule_refuses_an_honest_folder(
    what: str, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checker does use whose noise it is, and what masters receive."""
    monkeypatch.setattr(CheckedGroups, *WRONG[what])
    problems = check_run(original).problems
    assert any("noise" in problem or "exposed set" in problem for problem in problems), problems


def test_the_unit_is_no_link_of_pairs_that_are_alike(tmp_path: Path) -> None:
    """Worker 6 alone links groups 1 and 2: towards both of their masters it sends as much."""
    spec = sf.load_spec(GROUPS | {"trust": {"trusted_aggregators": []}})
    assert check_run(certified_folder(tmp_path, spec)).problems == []
