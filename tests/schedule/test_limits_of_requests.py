"""What asks for too much, or never ends, is refused in one line: the examples of issue 13, item 6."""

import os
import resource
from pathlib import Path

import pytest
import yaml
from places import ROOT

from sfumato.cli import main
from sfumato.spec import builtin_text

GIB = 2**30
HEX = "0x" + "f" * 4300
ALIASES = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
EXAMPLES = ROOT / "examples"
GROUPS, AIR = str(EXAMPLES / "dp-ogl" / "cl.yaml"), str(EXAMPLES / "pfels" / "pfels.yaml")
ELSEWHERE = {
    "tree": ("quickstart", "topology={{kind: tree, file: {}}}"),
    "groups": (GROUPS, "topology={{kind: groups, structure: graph, file: {}}}"),
    "distances": ("quickstart", "radio={{distances_m: {}}}"),
}


@pytest.fixture(autouse=True)
def little_memory(tmp_path, monkeypatch):
    """What a broken guard would let in ends here, not in a machine without memory."""
    monkeypatch.chdir(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (3 * GIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.fixture
def refused(capsys):
    """What a command says that ends with status 2 and one short line."""

    def call(*arguments: str) -> str:
        assert main(list(arguments)) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert len(said.err) < 600
        return said.err

    return call


@pytest.mark.parametrize(
    ("spec", "change", "said"),
    [
        ("dp-fedavg", "topology.devices=1000000000", "topology.devices: got 1000000000; must be a whole "
         "number from 1 to 10,000,000: lists of a number a device must fit into memory"),
        (GROUPS, "topology.devices=1000000000", "from 1 to 1,000,000: groups look at every worker's"),
        ("quickstart", "topology.devices_per_edge=1000000000", "must make at most 10,000,000 devices in all"),
        ("quickstart", "training.rounds=1000000000", "training.rounds: got 1000000000; must be a whole "
         "number from 1 to 1,000,000: a run keeps a row of every round"),
        ("quickstart", "training.local_steps=1000000", "training.local_steps: got 1000000; must be a "
         "whole number from 1 to 100,000: devices do them one after the other"),
        ("quickstart", "training.participation={rate: 1e-300}", "training.participation.rate: got '1e-300'; "
         "must be a number from 1e-09 to 1"),
        ("quickstart", "privacy.clip.norm=1e300", "privacy.clip.norm: got '1e300'; must be a number from "
         "1e-12 to 1e+12"),
        (AIR, "radio.snr_db=[2, 2147483648]", "radio.snr_db[1]: got 2147483648; must be a number from "
         "-300 to 300"),
        ("quickstart", f"training.rounds={HEX}", "--set training.rounds, line 1: a number may have at "
         "most 100 digits"),
        ("quickstart", "topology={levels: [2, 2, 5], names: [device, edge]}", "'device' is given"),
        ("quickstart", "topology={levels: [2, 2, 5], names: [cloud, edge]}", "'cloud' is given"),
        ("quickstart", "topology={levels: [2, 2, 5], names: [edge, edge]}", "must differ from each other"),
        ("quickstart", "privacy.clip=" + "[" * 5000, "may be at most 32 deep"),
        ("quickstart", "data={source: digits, source: digits}", "key 'source' is given twice"),
        ("quickstart", "watch=[" + ",".join(["device:0"] * 200) + "]", "watch: "),
    ],
    ids=lambda value: value[-40:],
)  # fmt: skip
def test_what_a_spec_may_not_ask_for(spec, change, said, refused):
    for command in ("validate", "account", "run"):
        assert said in refused(command, spec, "--set", change)


def test_as_many_seeds(refused):
    assert "--seeds: got 99999999999; must be from 1 to 10,000" in refused(
        "run", "quickstart", "--seeds", "99999999999"
    )
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (builtin_text("quickstart").replace("rounds: 15", f"rounds: {HEX}"), "a number may have at most 100"),
        (builtin_text("quickstart") + ALIASES, "holds more than 1,000,000 values"),
        ("training: " + "[" * 100_000, "sections and lists may be at most 32 deep"),
        ("training: " + "{a: " * 100_000, "sections and lists may be at most 32 deep"),
        (builtin_text("quickstart") + "name: again\n", "key 'name' is given twice (first in line"),
        ("name: &a [*a]", "an alias must not refer to what it is part of"),
        ("#" * (8 * 2**20 + 1), "is larger than 8 MiB"),
    ],
    ids=["hex", "aliases", "lists", "sections", "twice", "recursive", "long"],
)
def test_what_a_spec_file_may_not_hold(text, said, refused):
    Path("mine.yaml").write_text(text, encoding="utf-8")
    assert said in refused("validate", "mine.yaml")


@pytest.mark.parametrize("key", ELSEWHERE)
@pytest.mark.parametrize("name", ["/dev/zero", "/dev/stdin", "pipe", "/", "missing", "huge"])
def test_files_that_never_end_or_are_none(key, name, refused):
    os.mkfifo("pipe")
    with Path("huge").open("wb") as file:
        file.truncate(20 * GIB)  # takes no room
    spec, change = ELSEWHERE[key]
    said = refused("account", spec, "--set", change.format(name))
    place = "radio.distances_m" if key == "distances" else "topology.file"
    assert f"sfumato: --set {place}: got " in said
    assert any(why in said for why in ("regular file", "must be a file", "No such file", "larger than 8 MiB"))


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "huge", "/"])
def test_specs_that_are_no_files(name, refused):
    os.mkfifo("pipe")
    with Path("huge").open("wb") as file:
        file.truncate(20 * GIB)
    said = refused("validate", name)
    assert any(why in said for why in ("regular file", "is a folder", "larger than 8 MiB"))


@pytest.mark.parametrize(
    ("key", "file", "text", "said"),
    [
        ("tree", "tree.yaml", ALIASES, "holds more than 1,000,000 values"),
        ("tree", "tree.yaml", "sites: " + "[" * 100_000, "may be at most 32 deep"),
        ("tree", "tree.yaml", "sites: []\nsites: []", "key 'sites' is given twice"),
        ("tree", "tree.yaml", f"sites: [{{devices: {HEX}}}]", "a number may have at most 100 digits"),
        ("tree", "tree.yaml", "sites: [{devices: 1000000000}]", "whole number from 1 to 10,000,000"),
        ("tree", "tree.yaml", "names: [device]\nsites: [{devices: 2}]", "'device' is given"),
        ("groups", "graph.json", "[" * 100_000, "nested too deeply"),
        ("groups", "graph.json", '{"nodes": [], "nodes": [], "edges": []}', "key 'nodes' is given twice"),
        ("groups", "graph.json", '{"nodes": [{"id": ' + "9" * 5000 + '}], "edges": []}', "graph.json"),
        ("distances", "distances.txt", "1e300\n", "must be a number from 1 to 1e+09"),
        ("distances", "distances.txt", "9" * 5000, "must be a number from 1 to 1e+09"),
    ],
)
def test_what_other_files_may_not_hold(key, file, text, said, refused):
    Path(file).write_text(text, encoding="utf-8")
    spec, change = ELSEWHERE[key]
    assert said in refused("account", spec, "--set", change.format(file))


def test_no_two_parties_have_one_name(refused):
    """A level called ``device`` gave two observers ``device:1``."""
    document = yaml.safe_load(builtin_text("quickstart"))
    document["topology"] = {"names": ["device"], "sites": [{"devices": 2}, {"devices": 2}]}
    Path("mine.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    assert "mine.yaml: topology.names: " in refused("validate", "mine.yaml")
