"""What has no effect is refused: every key of the spec is declared as used, or a protocol refuses it."""

import pytest
import yaml
from key_effects import DECLARED, PROBES, base_of, behaviour_of, changed, keys_of_models

from sfumato.errors import SpecError
from sfumato.families import FAMILIES
from sfumato.spec import used_keys
from sfumato.spec.frozen import FrozenSpec
from sfumato.spec.load import load_spec

COMBINATIONS = [
    (protocol, kind) for family in FAMILIES for protocol, kinds in family.protocols.items() for kind in kinds
] + [("h2fdp", "deep"), ("hdp", "deep")]
STATED = {
    "trust.cloud", "trust.trusted", "trust.trusted_edges", "trust.trusted_aggregators",  # who is trusted
    "topology.device_names", "topology.group_names", "topology.worker_names",  # what people read
    "data.row",  # what people read
    "topology.supernodes",  # who serves; nobody adds noise to shift with it
    "transport",  # what the protocol does anyway
    "air.power_control",  # here power binds, whatever the rule: tests/schedule/test_air_power_control.py
}  # fmt: skip
"""Keys whose values may make no difference in federations as small as these, each with the reason."""


def test_every_key_is_declared():
    assert keys_of_models() == DECLARED


def test_conditions_are_about_declared_keys():
    assert set(used_keys.CONDITIONS) <= DECLARED


def test_every_condition_is_probed_on_both_sides():
    refused, taken = set(), set()
    for probe in PROBES:
        for protocol, kind in COMBINATIONS:
            if probe.key not in used_keys.CONDITIONS:
                continue
            document = base_of(protocol, kind)
            for key, value in probe.beside.items():
                document = changed(document, key, value)
            try:
                load_spec(changed(document, probe.key, probe.value))
                taken.add(probe.key)
            except SpecError as error:
                if error.allowed == used_keys.CONDITIONS[probe.key].allowed:
                    refused.add(probe.key)
    no_noise = {"privacy.mechanism"}  # it needs code of one's own: tests/test_extending.py
    assert refused == set(used_keys.CONDITIONS)
    assert taken == set(used_keys.CONDITIONS) - no_noise


@pytest.mark.parametrize(("protocol", "kind"), COMBINATIONS)
def test_sections_of_another_family_are_refused(protocol, kind):
    values = {
        "air": {},
        "control": {},
        "training.merge_every": 2,
        "trust.trusted_aggregators": [],
    }
    assert set(values) == {key for family in FAMILIES for key in family.keys}
    for family in FAMILIES:
        if protocol in family.protocols:
            continue
        for key in family.keys:
            with pytest.raises(SpecError) as caught:
                load_spec(changed(base_of(protocol, kind), key, values[key]))
            assert caught.value.place == key
            assert caught.value.allowed == f"goes with topology.kind: {' or '.join(family.topologies)} only"


def test_the_spec_of_a_run_is_read_as_it_is(monkeypatch):
    document = changed(base_of("dp-ogl", "groups"), "control", {})
    with monkeypatch.context() as before:  # as a version that did not refuse it wrote it
        before.setattr("sfumato.spec.document.unused_keys", lambda spec: ())
        frozen = yaml.safe_load(FrozenSpec.of(load_spec(document), {}, {}).text)
    assert load_spec(frozen).control is not None
    with pytest.raises(SpecError, match=r"control: goes with topology\.kind"):
        load_spec({key: value for key, value in frozen.items() if key != "hashes"})


def test_a_tree_from_a_file_is_as_deep_as_the_file_says(tmp_path):
    from sfumato.schedule.resolve import resolve

    file = tmp_path / "sites.yaml"
    file.write_text("names: [region, edge]\nsites:\n- sites: [{devices: 3}, {devices: 3}]\n", "utf-8")
    document = changed(base_of("h2fdp", "tree"), "topology", {"kind": "tree", "file": str(file)})
    spec = load_spec(changed(document, "training.edge_every", 2))
    with pytest.raises(SpecError, match=r"training\.edge_every: got 2; goes with edges under the cloud"):
        resolve(spec)


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "kind"), COMBINATIONS)
def test_whatever_is_not_refused_has_an_effect(protocol, kind):
    """Of the values of a key that a protocol takes, at least one changes guarantees, costs or training."""
    plain, taken, telling = {}, set(), set()
    for probe in PROBES:
        document = base_of(protocol, kind)
        for key, value in probe.beside.items():
            document = changed(document, key, value)
        try:
            before = plain.get(repr(document)) or behaviour_of(document)
            after = behaviour_of(changed(document, probe.key, probe.value))
        except SpecError:
            continue
        plain[repr(document)] = before
        taken.add(probe.key)
        if after != before or "ignored" in " ".join(before.notes):
            telling.add(probe.key)
    assert taken - telling - STATED == set()
