"""A person is audited like a record of a device that has as many records as persons."""

from pathlib import Path

import pytest

import sfumato as sf
from sfumato.auditing.audit import audit_pair
from sfumato.errors import SpecError
from sfumato.schedule.resolve import resolve

CLINICS = "examples/persons/clinics.yaml"


def test_a_person_of_the_example_is_attacked_within_its_guarantee() -> None:
    changes = ["training.rounds=20", "privacy.noise={multiplier: 1.5}"]
    plan = resolve(sf.load_spec(Path(CLINICS), changes))
    found = audit_pair(plan, "person:ulm", "cloud", trials=2_000)
    print(f"ε ≥ {found.lower.epsilon:.3f} of {found.upper:.3f}")
    assert found.unit == "person:2"
    assert 0.3 * found.upper < found.lower.epsilon <= found.upper
    with pytest.raises(SpecError, match=r"must be person:N or device:N"):
        audit_pair(plan, "record:2", "cloud", trials=2_000)
