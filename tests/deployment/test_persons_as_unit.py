"""Devices draw persons, each of whom brings one row; nobody else is told how many rows a person has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from deployed_parties import Stage, staged
from forked_parties import play_without
from handed_over import checked, free_addresses, written
from rehearsals import UNLIMITED, model_bytes, on_the_grid, rehearsed, spec_of, terms_of

from sfumato.accounting import account
from sfumato.cli import main
from sfumato.data.dataset import Dataset
from sfumato.deployment.consent import Consent, ConsentRefusedError, agree, proposed_consent
from sfumato.deployment.doors import Doors
from sfumato.deployment.invitation import CONSENT, TERMS, read_terms, start_party, write_invitation
from sfumato.deployment.local_data import OwnRows
from sfumato.deployment.local_parties import rows_of
from sfumato.deployment.party_folder import PartyFolder
from sfumato.deployment.randomness import SystemRandomness
from sfumato.deployment.rows_file import packed_rows, read_rows
from sfumato.errors import DataError
from sfumato.run_folder.reader import load_run
from sfumato.simulation.run import run
from sfumato.verify.checker import check_run

pytestmark = pytest.mark.usefixtures("no_report")

SITES, PERSONS = 4, 5
ANY = dict(UNLIMITED.epsilon["device"])
FREE = UNLIMITED.model_copy(update={"epsilon": {"device": ANY, "person": ANY}})


def table(folder: Path, *, more: int = 0) -> Path:
    """Visits of five persons at each of four sites, one to four of each; ``more`` of the first person."""
    rng, rows = np.random.default_rng(3), []
    for site in range(SITES):
        for person in range(PERSONS):
            visits = 1 + (site + person) % 4 + (more if site == person == 0 else 0)
            rows += [(f"p{site}{person}", f"site{site}") for _ in range(visits)]
    rng.shuffle(rows)
    lines = [f"{who},{where},{age},{age > 50}" for who, where in rows if (age := int(rng.integers(20, 90)))]
    path = folder / f"visits-{more}.csv"
    path.write_text("\n".join(["who,site,age,ill", *lines]) + "\n")
    return path


def star(source: Path, **changed: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": "persons",
        "protocol": "dp-fedavg",
        "seed": 5,
        "data": {
            "source": str(source),
            "label_column": "ill",
            "site_column": "site",
            "person_column": "who",
            "feature_columns": ["age"],
            "test_fraction": 0.2,
        },
        "model": {"kind": "softmax"},
        "topology": {"kind": "star", "devices": SITES},
        "training": {
            "rounds": 3,
            "local_steps": 2,
            "batch_size": 2,
            "learning_rate": 0.1,
            "batches": "poisson",
        },
        "privacy": {
            "unit": "person",
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"multiplier": 1.0},
        },
    }
    return document | changed


def two_levels(source: Path) -> dict[str, Any]:
    topology = {"kind": "tree", "edges": 2, "devices_per_edge": 2}
    document = star(source, protocol="h2fdp", topology=topology, trust={"trusted_edges": [0]})
    data = {key: value for key, value in document["data"].items() if key != "site_column"}
    return document | {"data": data, "training": document["training"] | {"edge_every": 1}}


@pytest.fixture(name="stage")
def fixture_stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(star(table(tmp_path)), tmp_path) as stage:
        yield stage


def own_rows(stage: Stage, device: int) -> Dataset:
    return rows_of(stage.inputs.data, stage.inputs.partition, device)


@pytest.mark.parametrize("kind", [star, two_levels])
def test_the_model_is_that_of_run_on_the_same_grid(kind: Any, tmp_path: Path) -> None:
    spec = spec_of(kind(table(tmp_path)))
    with on_the_grid():
        expected = run(spec, out=tmp_path / "expected", device="cpu", progress=False)
    played = rehearsed(spec, tmp_path, consent=FREE)
    assert model_bytes(played) == model_bytes(expected.folder)
    assert check_run(played.path).problems == []
    figures = {(row.unit, row.observer): row.epsilon for row in account(spec).guarantees}
    assert {(row.unit, row.observer): row.epsilon for row in played.privacy.guarantees} == figures
    assert {unit.split(":")[0] for unit, _ in figures} == {"person"}


@pytest.mark.slow
def test_processes_over_tls_with_masks_coins_and_a_lost_device(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that is allowed together; ε are those of account, and persons are the only unit."""
    document = star(table(tmp_path), faults={"dropout_rate": 0.1})
    document["transport"] = {"devices_to_cloud": "secure-aggregation"}
    document["training"] = document["training"] | {"participation": {"kind": "poisson", "rate": 0.5}}
    assert main(written(tmp_path, document, free_addresses("cloud"))) == 0
    out = tmp_path / "out"
    assert "was proposed" in checked(out, capsys)
    play_without(out, "device-2", monkeypatch)
    assert "goes on without device:2 (is not connected)" in caplog.text
    played = load_run(out / "cloud" / "run")
    assert check_run(played.path).problems == []
    figures = {(row.unit, row.observer): row.epsilon for row in account(spec_of(document)).guarantees}
    assert {(row.unit, row.observer): row.epsilon for row in played.privacy.guarantees} == figures
    assert {unit.split(":")[0] for unit, _ in figures} == {"person"}


def test_a_batch_has_one_row_of_a_person_whatever_their_order_in_the_file(stage: Stage) -> None:
    """Rows of the file are mixed; of the batches, drawn for real, none has two rows of one person."""
    found = own_rows(stage, 0)
    mixed = np.random.default_rng(1).permutation(len(found.train_labels))
    assert found.train_persons is not None
    data = replace(
        found,
        train_features=found.train_features[mixed],
        train_labels=found.train_labels[mixed],
        train_persons=found.train_persons[mixed],
    )
    own = OwnRows(0, stage.terms, data)
    assert own.persons is not None
    held = int(stage.terms.examples[0])
    assert len(own.persons) == held + 1
    whose = np.repeat(np.arange(held), np.diff(own.persons))
    ages = {int(who): sorted(data.train_features[data.train_persons == who, 0]) for who in data.train_persons}
    together = [
        sorted(own._features[a:b, 0].tolist()) for a, b in zip(own.persons, own.persons[1:], strict=False)
    ]
    assert sorted(map(tuple, together)) == sorted(map(tuple, ages.values()))  # nobody's rows were exchanged
    drawn, seen = 0, set()
    for number in range(300):
        context = number.to_bytes(32, "big")
        plan = SystemRandomness().batches(stage.terms.plan, 0, own.size, 1, context, own.persons)
        for rows, count in zip(plan.rows[0].tolist(), plan.counts[0].tolist(), strict=True):
            persons = whose[rows[:count]].tolist()
            assert len(set(persons)) == len(persons)
            drawn, seen = drawn + count, seen | set(rows[:count])
    assert seen == set(range(own.size))
    expected, spread = 300 * 2 * 2, (300 * 2 * 2 * (1 - 2 / held)) ** 0.5  # batch_size of every step
    assert abs(drawn - expected) < 6 * spread


def test_one_who_has_more_rows_changes_nothing_that_others_are_told(tmp_path: Path) -> None:
    """terms.yaml and session are the same, and the device of that person agrees with either file."""
    found = []
    for more in (0, 7):
        folder = tmp_path / f"stage-{more}"
        folder.mkdir()
        document = star(table(tmp_path, more=more))
        document["data"]["source"] = str(tmp_path / "visits.csv")
        (tmp_path / f"visits-{more}.csv").rename(tmp_path / "visits.csv")
        with staged(document, folder) as stage:
            OwnRows(0, stage.terms, own_rows(stage, 0))
            party = folder / "parties" / "device-0"
            PartyFolder.open_or_create(party).close()
            write_invitation(party, Doors.of_folders([party]), stage.terms, 0, own_rows(stage, 0))
            said = yaml.safe_load((party / TERMS).read_text())
            terms = terms_of(spec_of(document), stage.terms.parameters, tuple(bytes([n]) for n in range(5)))
            found.append((said["facts"], terms.session, len(own_rows(stage, 0).train_labels)))
            assert (read_terms(party)[1].examples == stage.terms.examples).all()
    assert found[0][:2] == found[1][:2]
    assert found[0][2] < found[1][2]


def test_another_number_of_persons_or_none_is_refused(stage: Stage) -> None:
    data, held = own_rows(stage, 0), int(stage.terms.examples[0])
    assert data.train_persons is not None
    same = replace(data, train_persons=np.zeros_like(data.train_persons))
    with pytest.raises(DataError, match=f"holds 1 persons; the spec was accounted for with {held}"):
        OwnRows(0, stage.terms, same)
    with pytest.raises(DataError, match="device:0: the file of its rows must have persons"):
        OwnRows(0, stage.terms, replace(data, train_persons=None))


def test_a_file_of_rows_says_whose_they_are(stage: Stage, tmp_path: Path) -> None:
    data, path = own_rows(stage, 0), tmp_path / "rows.npz"
    path.write_bytes(packed_rows(data))
    assert data.train_persons is not None
    expected = np.unique(data.train_persons, return_inverse=True)[1]
    assert (read_rows(path).train_persons == expected).all()
    count = len(data.train_labels)
    given = {"features": data.train_features, "labels": data.train_labels, "outputs": [2]}
    np.savez(path, persons=[f"p{number % 3}" for number in range(count)], **given)
    assert (read_rows(path).train_persons == np.arange(count) % 3).all()
    for wrong in (np.arange(count - 1), np.arange(count) / 2, np.zeros((count, 1), int)):
        np.savez(path, persons=wrong, **given)
        with pytest.raises(DataError, match="persons must be one whole number, or one text, a row"):
            read_rows(path)


def consent_of(stage: Stage, epsilon: dict[str, Any], **more: Any) -> Consent:
    proposed = proposed_consent(stage.terms, 0, stage.ledger(0)).model_dump()
    return Consent.model_validate(proposed | {"epsilon": epsilon} | more)


def test_a_proposed_consent_is_about_persons_and_the_words_say_who_that_is(stage: Stage) -> None:
    proposed = proposed_consent(stage.terms, 0, stage.ledger(0))
    assert set(proposed.epsilon) == {"person"}
    words = agree(stage.terms, 0, proposed, stage.ledger(0)).words
    assert any("learns of person:0 at most ε = " in sentence for sentence in words)
    assert any("of somebody who has two, or is at other devices too, more may be learnt" in w for w in words)


def test_limits_of_units_that_have_no_figure_refuse_the_run(stage: Stage) -> None:
    both = {"person": ANY, "record": ANY}
    with pytest.raises(ConsentRefusedError, match=r"says epsilon\.record, and a run whose unit is person"):
        agree(stage.terms, 0, consent_of(stage, both), stage.ledger(0))
    with pytest.raises(ConsentRefusedError, match=r"says nothing at epsilon\.person"):
        agree(stage.terms, 0, consent_of(stage, {"device": ANY}), stage.ledger(0))
    low = {"person": ANY, "device": dict.fromkeys(ANY, 0.01)}
    with pytest.raises(ConsentRefusedError, match=r"its consent allows 0\.01 at epsilon\.device"):
        agree(stage.terms, 0, consent_of(stage, low), stage.ledger(0))


@pytest.mark.parametrize("first", ["person", "record"])
def test_a_total_is_not_dodged_by_runs_of_records_and_of_persons(first: str, tmp_path: Path) -> None:
    """What a run of records tells of a person is not known: there is no total of both, so none is claimed."""
    path = table(tmp_path)
    documents = {}
    for unit in ("person", "record"):
        document = star(path)
        document["privacy"] = document["privacy"] | {"unit": unit}
        if unit == "record":
            document["data"] = {k: v for k, v in document["data"].items() if k != "person_column"}
        documents[unit] = document
    then = "record" if first == "person" else "person"
    total = {"epsilon": 1e6, "delta": 0.5}
    with staged(documents[first], tmp_path) as stage:
        once = consent_of(stage, {first: dict.fromkeys(ANY, 1e4)}, total=total)
        agree(stage.terms, 0, once, stage.ledger(0)).book()
        again = terms_of(spec_of(documents[first]), stage.terms.parameters, stage.terms.keys, label="again")
        agree(again, 0, once, stage.ledger(0)).book()  # the same unit: there is a total
        terms = terms_of(spec_of(documents[then]), stage.terms.parameters, stage.terms.keys, label="other")
        other = consent_of(stage, {then: dict.fromkeys(ANY, 1e4)}, total=total)
        with pytest.raises(ConsentRefusedError, match=f"in which the ε of a {then} was not computed"):
            agree(terms, 0, other, stage.ledger(0))


def test_a_party_starts_from_its_folder_and_answers(tmp_path: Path) -> None:
    """The ledger that is proposed is that of the same rows without persons."""
    folder = tmp_path / "parties" / "device-0"
    opened = PartyFolder.open_or_create(folder)
    with staged(star(table(tmp_path)), tmp_path, first=opened.identity) as stage:
        opened.close()
        data = own_rows(stage, 0)
        write_invitation(folder, Doors.of_folders([folder]), stage.terms, 0, data)
        with_persons = yaml.safe_load((folder / CONSENT).read_text())["ledger"]
        started = start_party(folder)
        (question, *_) = stage.cloud().ask(0, np.zeros(stage.terms.parameters, np.float32))
        stage.cloud().receive(*started.party.receive(question))
        assert stage.cloud().missing == list(range(1, SITES))
        started.close()
        (folder / CONSENT).unlink()
        write_invitation(
            folder, Doors.of_folders([folder]), stage.terms, 0, replace(data, train_persons=None)
        )
        assert yaml.safe_load((folder / CONSENT).read_text())["ledger"] == with_persons
