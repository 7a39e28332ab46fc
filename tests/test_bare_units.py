"""A unit named by its number, or by a device's name, alone is of the kind that the spec protects."""

import json
import math

import pytest

import sfumato as sf
from sfumato.auditing.audit import audit_pair
from sfumato.cli import main
from sfumato.errors import SpecError
from sfumato.schedule.resolve import resolve

RECORDS = {
    "name": "records",
    "protocol": "dp-fedavg",
    "data": {"source": "digits"},
    "topology": {"kind": "star", "devices": 3, "device_names": ["bonn", "kiel", "ulm"]},
    "training": {"rounds": 2, "local_steps": 1, "batch_size": 8, "batches": "poisson", "learning_rate": 0.1},
    "privacy": {"unit": "record", "clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}


def spec_of(unit):
    return sf.load_spec({**RECORDS, "privacy": RECORDS["privacy"] | {"unit": unit}})


@pytest.mark.parametrize("bare", [1, "1", "kiel"])
def test_on_a_record_spec_it_is_a_record(bare):
    report = sf.account(spec_of("record"))
    assert report.epsilon(bare, "cloud") == report.epsilon("record:1", "cloud") < math.inf
    assert report.epsilon("device:1", "cloud") == math.inf  # a clip of examples bounds no device
    asked = sf.account(spec_of("record"), unit=bare, observer="cloud").guarantees
    assert [(row.unit, row.epsilon) for row in asked] == [("record:1", report.epsilon("record:1", "cloud"))]
    of_unit = sf.account(spec_of("record"), unit=bare).guarantees
    of_kind = sf.account(spec_of("record"), unit=bare, observer="device").guarantees
    assert {row.unit for row in (*of_unit, *of_kind)} == {"record:1"}


@pytest.mark.parametrize("bare", [1, "1", "kiel"])
def test_on_a_device_spec_it_is_a_device(bare):
    spec = spec_of("device")
    assert {row.unit for row in sf.account(spec, unit=bare).guarantees} == {"device:1"}
    assert sf.account(spec, unit="record:1", observer="cloud").guarantees[0].unit == "record:1"


@pytest.mark.parametrize("bare", [1, "1", "kiel"])
def test_on_a_spec_of_both_it_is_refused(bare):
    spec, said = spec_of("both"), "must be device:1 or record:1, as privacy.unit is both"
    with pytest.raises(SpecError, match=rf"unit: got '{bare}'; {said}"):
        sf.account(spec).epsilon(bare, "cloud")
    for observer in (None, "cloud", "device"):
        with pytest.raises(SpecError, match=said):
            sf.account(spec, unit=bare, observer=observer)
    assert sf.account(spec).epsilon("record:1", "cloud") < sf.account(spec).epsilon("device:1", "cloud")


def test_on_the_command_line(tmp_path, capsys):
    (tmp_path / "spec.yaml").write_text(sf.dump_spec(spec_of("record")))
    assert main(["account", str(tmp_path / "spec.yaml"), "--unit", "1", "--json"]) == 0
    assert {row["unit"] for row in json.loads(capsys.readouterr().out)["guarantees"]} == {"record:1"}


def test_an_audit_takes_it_as_the_account_does():
    plan = resolve(spec_of("record"))
    assert audit_pair(plan, "1", "cloud", trials=200).unit == "record:1"
