"""Old names of keys: some are read as the new key, the others are refused with a line that says it."""

from __future__ import annotations

import pytest
import yaml

from sfumato import SpecError, dump_spec, load_spec
from sfumato.spec.document import field_of, sections_at
from sfumato.spec.renamed_keys import ALIASES, RENAMED, with_new_keys
from sfumato.spec.topology import GroupTopology

BASE = {
    "name": "base",
    "protocol": "h2fdp",
    "data": {"source": "digits"},
    "topology": {"kind": "tree", "levels": [2, 2, 2], "level_names": ["region", "edge"]},
    "training": {"rounds": 2, "local_steps": 4, "batch_size": 2, "learning_rate": 0.1},
}


def nested(key, value):
    """``value`` under the dotted ``key``."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def merged(one, other):
    both = dict(one)
    for key, value in other.items():
        both[key] = (
            merged(one[key], value) if isinstance(one.get(key), dict) and isinstance(value, dict) else value
        )
    return both


@pytest.mark.parametrize("new", [*ALIASES.values(), *RENAMED.values()])
def test_the_new_key_is_there(new):
    *path, name = new.split(".")
    assert any(field_of(section, name) for section in sections_at(path))


@pytest.mark.parametrize("old", [*ALIASES, *RENAMED])
def test_the_old_key_is_gone(old):
    *path, name = old.split(".")
    assert not any(field_of(section, name) for section in sections_at(path) if section is not GroupTopology)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_key_is_refused_with_the_new_one(old, new):
    with pytest.raises(SpecError) as caught:
        load_spec(merged(BASE, nested(old, 0.25)))
    assert str(caught.value) == f"{old}: got 0.25; is called {new} now"
    with pytest.raises(SpecError, match=rf"overrides: {old}.* is called {new} now"):
        load_spec(BASE, [f"{old}=0.25"])
    section, _, key = old.rpartition(".")
    with pytest.raises(SpecError, match=rf"overrides: {old}: got 0.25; is called {new} now"):
        load_spec(BASE, [f"{section}={{{key}: 0.25}}"])


ALIASED = [
    {"topology": {"kind": "tree", "levels": [2, 2, 2], "names": ["region", "edge"]}},
    {"training": {"rounds": 2, "steps_per_round": 6, "batch_size": 2, "learning_rate": 0.1}},
    {"training": {**BASE["training"], "global_step": "increment"}},
    {
        "protocol": "hdp",
        "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 4},
        "privacy": {
            "clip": {"kind": "update", "norm": 1},
            "noise": {"multiplier": 1, "placement": {"clients": 0.5, "cloud": True}},
        },
    },
]


@pytest.mark.parametrize("case", range(len(ALIASED)))
def test_an_alias_is_read_as_the_new_key(case):
    spec = load_spec(BASE | ALIASED[case])
    text = dump_spec(spec)
    old, new = list(ALIASES.items())[case]
    assert f"{new.rpartition('.')[2]}:" in text
    assert f" {old.rpartition('.')[2]}:" not in text
    assert load_spec(yaml.safe_load(text)) == spec


def test_errors_speak_of_the_key_that_was_written():
    with pytest.raises(SpecError, match=r"^training\.steps_per_round: got 0; must be a whole number"):
        load_spec(
            BASE | {"training": {"rounds": 2, "steps_per_round": 0, "batch_size": 2, "learning_rate": 1}}
        )
    with pytest.raises(SpecError, match=r"^training\.local_steps: got 0; must be a whole number"):
        load_spec(merged(BASE, {"training": {"local_steps": 0}}))


def test_an_alias_beside_its_new_key_is_refused():
    with pytest.raises(
        SpecError, match=r"training\.steps_per_round.* is another name of training\.local_steps"
    ):
        load_spec(merged(BASE, {"training": {"steps_per_round": 4}}))


def test_an_override_may_use_either_name():
    for key in ("training.steps_per_round", "training.local_steps"):
        assert load_spec(BASE, [f"{key}=8"]).training.local_steps == 8
    edges = "topology={kind: tree, edges: 2, devices_per_edge: 2}"
    resend = [edges, "training.edge_every=2", "training.global_step=resend"]
    assert load_spec(BASE, resend).training.global_update == "resend"


def test_what_is_no_section_is_left_to_the_models():
    assert with_new_keys({"training": 3, "faults": None, "air": {"csi": []}}) == {}
