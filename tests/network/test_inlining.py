"""A resolved spec depends on no file beside it: trees, graphs and distances are written out."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from places import ROOT

from sfumato.errors import SpecError
from sfumato.network.inlining import inlined
from sfumato.schedule.resolve import resolve
from sfumato.spec import dump_spec, load_spec
from sfumato.spec.document import fingerprint
from sfumato.user_text import parse_yaml

SITES = """
names: [region, hospital]
sites:
  - {name: north, trusted: true, sites: [{devices: 4}, {name: 12, devices: 2}]}
  - {sites: [{name: south, trusted: true, devices: 3}]}
"""
TRAINING = "{rounds: 2, local_steps: 4, aggregate_every: [4, 2], batch_size: 5, learning_rate: 0.1}"


def of_tree(path: Path, *more: str):
    path.write_text(SITES)
    sets = [f"topology={{kind: tree, file: '{path}'}}", "trust={}", f"training={TRAINING}"]
    return load_spec("quickstart", [*sets, "data.partition=iid", *more])


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_tree_is_the_same_from_its_file_and_from_the_resolved_spec(tmp_path):
    file = tmp_path / "sites.yaml"
    plan = resolve(of_tree(file))
    assert plan.spec.hashes == {"topology.file": sha256(file)}
    file.unlink()
    again = resolve(load_spec(parse_yaml(dump_spec(plan.spec), "spec.yaml")))
    assert again.spec == plan.spec
    assert [tier.name for tier in again.tree.tiers] == ["cloud", "region", "hospital"]
    assert again.tree.tiers[1].trusted.tolist() == [True, False]
    assert again.tree.tiers[2].trusted.tolist() == [False, False, True]
    assert again.tree.tiers[2].labels == ("hospital:0", "12", "south")
    assert again.tree.parents[2].tolist() == [0, 0, 1]
    assert again.tree.devices.tolist() == plan.tree.devices.tolist() == [4, 2, 3]


def test_other_keys_of_the_topology_are_kept(tmp_path):
    spec = of_tree(tmp_path / "sites.yaml", "topology.zones=random")
    assert inlined(spec).topology.zones == spec.topology.zones != None  # noqa: E711


def test_a_graph_of_groups_is_written_out(tmp_path):
    file = tmp_path / "graph.json"
    links = [{"source": f"device:{d}", "target": f"master:{m}"} for d, m in [(0, 0), (1, 0), (1, 1), (2, 1)]]
    nodes = [{"id": name} for name in ("device:0", "device:1", "device:2", "master:0", "master:1")]
    file.write_text(json.dumps({"nodes": nodes, "edges": links}))
    sets = [f"topology={{kind: groups, structure: graph, file: '{file}'}}"]
    spec = load_spec(ROOT / "examples" / "dp-ogl" / "ri.yaml", sets)
    plan = resolve(spec)
    assert plan.spec.hashes == {"topology.file": sha256(file)}
    assert plan.spec.topology.file is None
    assert plan.spec.topology.groups == ((0, 1), (1, 2))
    assert plan.groups.as_lists() == ((0, 1), (1, 2))
    file.unlink()
    assert resolve(plan.spec).spec == plan.spec


def test_distances_are_written_out(tmp_path):
    file = tmp_path / "distances.txt"
    file.write_text("\n".join(str(10 + d / 7) for d in range(200)))
    plan = resolve(load_spec("quickstart", [f"radio={{preset: h2fdp, distances_m: '{file}'}}"]))
    assert plan.spec.hashes == {"radio.distances_m": sha256(file)}
    assert np.array_equal(plan.spec.radio.distances_m, 10 + np.arange(200) / 7)
    file.unlink()
    assert resolve(plan.spec).spec == plan.spec


def test_a_spec_without_files_stays_as_it_is():
    spec = load_spec("quickstart")
    assert inlined(spec) is spec


def test_a_file_that_changed_has_another_hash(tmp_path):
    file = tmp_path / "sites.yaml"
    before = resolve(of_tree(file)).spec
    file.write_text(SITES.replace("devices: 3", "devices: 30"))
    after = resolve(before.model_copy(update={"topology": of_tree_section(file)})).spec
    assert after.hashes != before.hashes
    assert after.topology.sites[1].sites[0].devices == 30


def of_tree_section(file: Path):
    return load_spec("quickstart", [f"topology={{kind: tree, file: '{file}'}}", "trust={}"]).topology


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("sites: []", "sites: got []; must have at least 1 entries"),
        ("sites: [{devices: 0}]", "sites[0].devices: got 0; must be a whole number from 1 to 10,000,000"),
        ("names: [a, b]\nsites: [{devices: 3}]", "sites[0]: has devices; at this level"),
        ("names: [a]\nsites: [{sites: [{devices: 1}]}]", "sites[0]: has sites; at this level"),
        ("sites: [{devices: 3, x: 1}]", "sites[0].x: got 1; there is no such key"),
        ("sites: [{devices: 3, trusted: 1}]", "sites[0].trusted: got 1; must be true or false"),
        ("sites: [{name: a}]", "sites[0]: must have devices (at the last level) or sites"),
        ("sites: [{devices: 10000000}, {devices: 1}]", "sites: must make at most 10,000,000 devices"),
        ("names: []\nsites: [{devices: 1}]", "names: got []; must have at least 1 entries"),
        ("names: [device]\nsites: [{devices: 1}]", "names: got ['device']; must not be cloud, device"),
        ("names: ['a:b']\nsites: [{devices: 1}]", "names: got ['a:b']; must be names of at most 40"),
        ("names: [a]", "must be a mapping with sites"),
        ("[]", "must be a mapping with sites"),
        ("sites: [", "is not valid YAML"),
    ],
)
def test_a_topology_file_that_is_wrong_is_named(written, said, tmp_path):
    file = tmp_path / "sites.yaml"
    spec = of_tree(file)
    file.write_text(written)
    with pytest.raises(SpecError) as caught:
        resolve(spec)
    assert str(caught.value).startswith(("topology.file: sites.yaml: ", "topology.file: sites.yaml, line "))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


class TestFingerprint:
    def test_is_of_what_is_said_however_it_is_written(self, tmp_path):
        spec = resolve(of_tree(tmp_path / "sites.yaml")).spec
        document = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        read = parse_yaml("# a comment\n" + dump_spec(spec), "spec.yaml")
        assert fingerprint(read) == fingerprint(dict(reversed(document.items())))
        assert fingerprint(read | {"versions": {"torch": "9"}}) == fingerprint(read)
        assert fingerprint(read | {"hashes": read["hashes"] | {"spec": "x"}}) == fingerprint(read)
        assert fingerprint(read | {"hashes": {"topology.file": "x"}}) != fingerprint(read)
        assert fingerprint(read | {"seed": 1}) != fingerprint(read)

    def test_a_spec_that_was_edited_is_refused(self, tmp_path):
        spec = resolve(load_spec("quickstart")).spec
        document = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        whole = document | {"hashes": {"spec": fingerprint(document)}}
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump(whole))
        assert load_spec(path, ["training.rounds=99"]).training.rounds == 99
        for change in ({"seed": 7}, {"hashes": {"spec": 3}}, {"hashes": {"spec": "é", "data": "x"}}):
            path.write_text(yaml.safe_dump(whole | change))
            with pytest.raises(SpecError, match=r"spec\.yaml: hashes\.spec: is .* edited or damaged"):
                load_spec(path)
        path.write_text(yaml.safe_dump(document | {"seed": 7}))
        assert load_spec(path).seed == 7
