import math
import string
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SpecError, SpecProblemsError
from sfumato.spec import builtin_names, builtin_text, dump_spec, load_spec

OTHERS = sorted((Path(__file__).parent / "specs").glob("*.yaml"))
TEXTS = [builtin_text(name) for name in builtin_names()] + [path.read_text("utf-8") for path in OTHERS]
DOCUMENTS = [yaml.safe_load(text) for text in TEXTS]


def refusal(source, *overrides) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load_spec(source, overrides)
    assert caught.value.exit_status == 2
    assert "=" not in caught.value.place.removeprefix("overrides: ")  # no union tags
    return caught.value


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_specs_of_later_protocols_are_valid(path):
    assert load_spec(path).name == path.stem


@pytest.mark.parametrize("name", ["dp-fedavg", "h2fdp-fmnist", "quickstart", "three-tier"])
def test_builtin_specs_load_by_name_and_as_file(name, tmp_path):
    assert name in builtin_names()
    path = tmp_path / "copy.yaml"
    path.write_text(builtin_text(name), encoding="utf-8")
    assert (
        load_spec(name)
        == load_spec(path)
        == load_spec(str(path))
        == load_spec(yaml.safe_load(path.read_text()))
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["name"])
def test_dumped_specs_load_back_equal(document, tmp_path):
    spec = load_spec(document)
    path = tmp_path / "dumped.yaml"
    path.write_text(dump_spec(spec), encoding="utf-8")
    assert load_spec(path) == spec


COUNT = st.integers(1, 1000)
LINE = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")))
POSITIVE = st.floats(1e-9, 1e9)
NOISES = st.one_of(
    st.just("none"),
    st.fixed_dictionaries({"multiplier": POSITIVE}),
    st.fixed_dictionaries({"epsilon": POSITIVE, "for": st.sampled_from(["cloud", "edge", "device:3"])}),
    st.fixed_dictionaries({"formula": st.just("h2fdp"), "epsilon": POSITIVE, "c2": POSITIVE}),
    st.fixed_dictionaries(
        {
            "sources": st.lists(
                st.fixed_dictionaries(
                    {
                        "owners": st.lists(LINE.filter(bool), min_size=1),
                        "multipliers": st.lists(POSITIVE, min_size=1),
                    }
                ),
                min_size=1,
            ),
            "calibrated_from": st.none() | st.just({"multiplier": 1}),
        }
    ),
)
PARTITIONS = st.one_of(
    st.sampled_from(["iid", "natural"]),
    st.fixed_dictionaries({"labels_per_device": COUNT}),
    st.fixed_dictionaries({"alpha": POSITIVE, "empty_devices": st.sampled_from(["allow", "refuse"])}),
    st.just({"edge": "iid", "device": {"alpha": 0.5}}),
)
RATES = st.one_of(
    POSITIVE,
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["constant", "inverse-sqrt", "cosine"]), "initial": POSITIVE}
    ),
    st.just({"kind": "step", "initial": 1, "decay": 0.5, "every": 3}),
)


@settings(deadline=None)
@given(
    noise=NOISES,
    partition=PARTITIONS,
    rate=RATES,
    participation=st.sampled_from(["all", {"rate": 0.25}, {"count": 2}]),
    trusted=st.floats(0, 1) | st.lists(st.integers(0, 4), unique=True),
    seed=st.integers(0, 2**53),
    source=st.text(string.printable[:-5], min_size=1),
    versions=st.dictionaries(LINE, LINE),
)
def test_any_valid_spec_survives_a_round_trip(
    noise, partition, rate, participation, trusted, seed, source, versions
):
    document = yaml.safe_load(builtin_text("quickstart"))
    document["privacy"]["noise"] = noise
    document["data"] = {"source": "s" + source, "partition": partition}
    document["training"] |= {"learning_rate": rate, "participation": participation}
    document |= {"seed": seed, "trust": {"trusted_edges": trusted}, "versions": versions}
    spec = load_spec(document)
    assert load_spec(yaml.safe_load(dump_spec(spec))) == spec


def test_numbers_may_be_strings_as_yaml_reads_1e_5():
    spec = load_spec("quickstart", ["privacy.delta=1e-5", "training.batch_size=1e1"])
    assert spec.privacy.delta == 1e-5
    assert spec.training.batch_size == 10


def test_a_bare_word_stands_for_its_kind():
    spec = load_spec("quickstart", ["privacy.noise=none", "training.participation=all", "data.partition=iid"])
    assert (spec.privacy.noise.kind, spec.training.participation.kind, spec.data.partition.kind) == (
        "none",
        "all",
        "iid",
    )


@pytest.mark.parametrize(
    ("change", "place", "value", "allowed"),
    [
        ("training.edge_every=30", "training.edge_every", 30, "must be at most local_steps, which is 20"),
        ("privacy.noise.epsilon=0", "privacy.noise.epsilon", 0, "from 1e-12 to 1e+12"),
        ("privacy.noise.epsilon=-1", "privacy.noise.epsilon", -1, "from 1e-12 to 1e+12"),
        ("privacy.delta=0", "privacy.delta", 0, "from 1e-30 to 0.999999999"),
        ("privacy.delta=1", "privacy.delta", 1, "from 1e-30 to 0.999999999"),
        ("privacy.clip=null", "privacy.clip", None, "noise needs a clip"),
        ("training.participation={count: 41}", "training.participation.count", 41, "at most 40"),
        ("training.participation={rate: 1.5}", "training.participation.rate", 1.5, "from 1e-09 to 1"),
        ("training.rounds=.nan", "training.rounds", None, "whole number"),
        ("training.rounds=true", "training.rounds", True, "whole number"),
        ("training.rounds=", "training.rounds", None, "is empty"),
        ("training.batch_size=1.5", "training.batch_size", 1.5, "from 1 to 1,000,000,000, or all"),
        ("trust.trusted_edges=2", "trust.trusted_edges", 2, "share from 0 to 1, or a list"),
        ("trust.trusted_edges=[0, x]", "trust.trusted_edges[1]", "x", "whole number"),
        ("trust.cloud=1", "trust.cloud", 1, "true or false"),
        ("topology.devices_per_edge=[1, 2]", "topology.devices_per_edge", [1, 2], "must list 5 numbers"),
        ("topology.edges=100000000", "topology.edges", 10**8, "to 100,000: each is named in the"),
        ("topology.devices_per_edge=3000000", "topology.devices_per_edge", 3 * 10**6, "at most 10,000,000"),
        ("topology.levels=[2, 2]", "topology", None, "exactly one of edges"),
        ("protocol=hfl_dp", "protocol", "hfl_dp", "did you mean 'hfl-dp'?"),
            ("protocol=dp-fedavg", "topology.kind", "tree", "must be star with protocol dp-fedavg"),
        ("model.kind=cn", "model.kind", "cn", "package.module:factory"),
        ("model.hidden=[]", "model.hidden", [], "at least 1"),
        ("privacy.clip.kind=updat", "privacy.clip.kind", "updat", "step, example (did you mean 'update'?)"),
        ("privacy.noise.kind=foo", "privacy.noise.kind", "foo", "must be one of none, multiplier, target"),
        ("training.participation=fixd", "training.participation", "fixd", "fixed (with count)"),
        ("data.partition={alpha: .inf}", "data.partition.alpha", math.inf, "from 1e-12 to 1e+12"),
        ("data.examples_per_device=5", "data.examples_per_device", 5, "source: synthetic only"),
        ("data.source=synthetic", "data.examples_per_device", None, "is required"),
        ("training.local_epochs=1", "training", None, "give local_steps or local_epochs; found both"),
        ("transport.a=carrier-pigeon", "transport.a", "carrier-pigeon", "plain, secure-aggregation, air"),
        ("name=a/b", "name", "a/b", "letters, digits"),
        ("watch=cloud", "watch", "cloud", "must be a list"),
        ("radio={gain: {kind: constant, mean: 1}, snr_db: [3]}", "radio.snr_db", [3.0], "two numbers"),
    ],
)  # fmt: skip
def test_a_refusal_names_file_key_value_and_what_is_allowed(change, place, value, allowed, tmp_path):
    key, _, text = change.partition("=")
    document = yaml.safe_load(builtin_text("quickstart"))
    section = document
    for part in key.split(".")[:-1]:
        section = section.setdefault(part, {})
    section[key.split(".")[-1]] = yaml.safe_load(text)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    error = refusal(path)
    assert error.place == f"{path}: {place}"
    assert value is None or error.value == value
    assert allowed in error.allowed
    assert "Value error" not in str(error)
    assert str(error).startswith(f"{path}: {place}:")


@pytest.mark.parametrize(
    ("base", "changes", "place", "allowed"),
    [
        (
            "dp-fedavg",
            {"training": {"local_epochs": None, "local_steps": 2, "edge_every": 1}},
            "training.edge_every",
            "no edges",
        ),
        ("dp-fedavg", {"trust": {"trusted_edges": [0]}}, "trust.trusted_edges", "use trust.cloud"),
        (
            "dp-fedavg",
            {"training": {"participation": {"count": 1001}}},
            "training.participation.count",
            "1000",
        ),
        ("dp-fedavg", {"topology": {"devices": 10**10}}, "topology.devices", "to 10,000,000: lists"),
        ("three-tier", {"training": {"aggregate_every": [10]}}, "training.aggregate_every", "2 here"),
        ("three-tier", {"training": {"aggregate_every": [5, 10]}}, "training.aggregate_every", "level above"),
        ("three-tier", {"topology": {"names": ["region"]}}, "topology.names", "must list 2 names"),
        ("three-tier", {"topology": {"names": ["cloud", "b"]}}, "topology.names", "must not be cloud"),
        ("three-tier", {"topology": {"names": None}}, "topology.names", "is required"),
        ("three-tier", {"training": {"edge_every": 5}}, "training.aggregate_every", "give one"),
        ("quickstart", {"training": {"merge_every": 5}}, "training.merge_every", "groups only"),
        ("quickstart", {"training": {"batch_size": None}}, "training.batch_size", "is empty"),
    ],
)
def test_sections_that_do_not_fit_each_other_are_refused(base, changes, place, allowed):
    document = yaml.safe_load(builtin_text(base))
    for section, keys in changes.items():
        document.setdefault(section, {}).update(keys)
    error = refusal(document)
    assert error.place == place
    assert allowed in error.allowed


def test_all_problems_are_said_at_once_unknown_keys_first():
    document = yaml.safe_load(builtin_text("quickstart"))
    document["training"]["bach_size"] = document["training"].pop("batch_size")
    document["training"]["rounds"] = 0
    document["privacy"] |= {"delta": 3, "epsilon": 8}
    document["colour"] = "red"
    error = refusal(document)
    assert isinstance(error, SpecProblemsError)
    assert error.place == "colour"
    places = [problem.place for problem in error.problems]
    unknown, wrong = ["training.bach_size", "privacy.epsilon"], ["training.rounds", "privacy.delta"]
    assert places[0] == "colour"
    assert sorted(places[1:3]) == sorted(unknown)
    assert sorted(places[3:]) == sorted(wrong)
    said = str(error).splitlines()
    assert len(said) == 5
    assert "did you mean 'batch_size'?" in str(error)


def test_problems_between_sections_are_said_at_once():
    document = yaml.safe_load(builtin_text("quickstart"))
    document["privacy"].pop("clip")
    document["faults"] = {"supernode_failure_rate": 0.1}
    document["training"]["server"] = {"beta1": 0.5}
    places = [problem.place for problem in refusal(document).problems]
    assert places == ["privacy.clip", "faults.supernode_failure_rate", "training.server.beta1"]


def test_problems_between_right_sections_are_said_beside_those_of_other_sections():
    document = yaml.safe_load(builtin_text("quickstart"))
    document["privacy"].pop("clip")  # of privacy alone: noise needs a clip
    document["data"]["examples_per_device"] = 8  # of data alone: goes with source: synthetic
    document["training"]["rounds"] = 0
    places = [problem.place for problem in refusal(document).problems]
    assert places == ["training.rounds", "privacy.clip", "data.examples_per_device"]


def test_nothing_is_said_that_follows_from_a_wrong_section():
    document = yaml.safe_load(builtin_text("quickstart"))
    document["faults"] = {"supernode_failure_rate": 0.1}  # does not go with fixed supernodes
    document["topology"]["edges"] = 0
    assert refusal(document).place == "topology.edges"
    document["topology"]["edges"] = 5
    assert refusal(document).place == "faults.supernode_failure_rate"
    document["protocol"] = "dp-ogl"  # which does not go with a tree
    document["training"]["rounds"] = 0
    places = [problem.place for problem in refusal(document).problems]
    assert places == ["training.rounds", "topology.kind"]


def test_of_very_many_problems_the_first_are_shown():
    document = yaml.safe_load(builtin_text("quickstart"))
    document["watch"] = [{} for _ in range(30)]
    error = refusal(document)
    assert len(error.problems) == 21
    assert "has 10 more problems" in str(error)


def test_lines_of_a_file_are_named(tmp_path):
    path = tmp_path / "mine.yaml"
    text = builtin_text("quickstart").replace("rounds: 15", "rounds: 0")
    path.write_text(text + "watch:\n- cloud\n- 3\n")
    with pytest.raises(SpecProblemsError) as raised:
        load_spec(path)
    lines = text.splitlines()
    for problem, wanted in zip(raised.value.problems, ["rounds: 0", "- 3"], strict=True):
        number = int(problem.allowed.rpartition("line ")[2].rstrip(")"))
        assert wanted in [*lines, "watch:", "- cloud", "- 3"][number - 1]
    with pytest.raises(SpecError) as alone:
        load_spec(path, ["training.rounds=0", "watch=[cloud]"])
    assert "line" not in alone.value.allowed


def test_a_missing_key_is_described():
    document = yaml.safe_load(builtin_text("quickstart"))
    del document["privacy"]["noise"]["for"]
    error = refusal(document)
    assert error.place == "privacy.noise.for"
    assert error.allowed.startswith("is required: an observer kind")


def laughs(form: str) -> str:
    names = zip("abcdefgh", "bcdefghi", strict=True)
    return "".join(f"{new}: &{new} {form.format(', '.join(['*' + old] * 10))}\n" for old, new in names)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("- 1\n", "must be a mapping"),
        ("just words", "must be a mapping"),
        ("name: [1\n", "line 2, column 1: is not valid YAML"),
        ("name: a: b\n", "line 1, column 8: is not valid YAML"),
        ("\tname: a", "is not valid YAML"),
        ("name: a\nname: b\n", "line 2: key 'name' is given twice (first in line 1)"),
        ("training: {rounds: 1, rounds: 2}", "'rounds' is given twice"),
        ("name: a\n---\nname: b\n", "another document"),
        ("name: !!python/object/apply:os.system [ls]", "apply:os.system' are not read: write the value"),
        ("? [a]\n: 1", "a key must be a plain word"),
        ("1.5: 2", "1.5: a key must be a word"),
        ("trust: {from: {0: [], '0': []}}", "key '0' is given twice"),
        ("on: 2", "YAML reads yes, no, on and off as booleans"),
        ("name: &a [*a]", "must not refer to what it is part of"),
        ("name: *b", "found undefined alias"),
        ("name: !!set {a, b}", "tags such as"),
        ("name: \x01", "is not valid YAML"),
        ("name: " + "9" * 5000, "at most 100 digits"),
        ("[" * 500, "at most 32 deep"),
        ("a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + laughs("[{}]"), "holds more than 1,000,000 values"),
        ("a: &a {k: 1}\n" + laughs("{{<<: [{}]}}"), "holds more than 1,000,000 values"),
    ],
)  # fmt: skip
def test_malformed_files_are_refused_in_one_sentence(text, said, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    error = refusal(path)
    assert str(error).startswith(str(path))
    assert said in str(error)
    assert "\n" not in str(error)


def test_files_that_are_none_are_refused(tmp_path):
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"name: \xff\xfe")
    assert "UTF-8" in str(refusal(binary))
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (8 * 2**20 + 1))
    assert "larger than 8 MiB" in str(refusal(large))
    assert "is a folder" in str(refusal(tmp_path))
    (tmp_path / "spec.yaml").write_text("name: a")
    assert f"the spec of this run is {tmp_path / 'spec.yaml'}" in str(refusal(tmp_path))
    missing = refusal("quickstar")
    assert "did you mean 'quickstart'?" in str(missing)
    assert all(name in str(missing) for name in builtin_names())
    assert "neither a file nor" in str(refusal(tmp_path / "none.yaml"))
    assert "neither a file nor" in str(refusal("a\0b"))
    assert len(str(refusal("x" * 5000))) < 300


def test_a_byte_order_mark_and_shared_values_are_fine(tmp_path):
    path = tmp_path / "bom.yaml"
    text = (
        builtin_text("quickstart")
        .replace("batch_size: 8", "batch_size: &n 8")
        .replace("rounds: 15", "rounds: 15")
    )
    path.write_bytes(b"\xef\xbb\xbf" + text.encode() + b"evaluate_every: *n\n")
    assert load_spec(path).evaluate_every == 8


def test_mappings_that_hold_themselves_are_refused():
    document = yaml.safe_load(builtin_text("quickstart"))
    document["data"]["partition"] = document["data"]
    assert "too large" in str(refusal(document))


def test_files_that_a_spec_names_are_looked_for_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    (tmp_path / "sites.yaml").write_text("sites: []")
    document = yaml.safe_load(builtin_text("quickstart")) | {
        "topology": {"kind": "tree", "file": "sites.yaml"}
    }
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(document))
    assert load_spec(path).topology.file == str(tmp_path / "sites.yaml")
    document["topology"]["file"] = "elsewhere.yaml"
    path.write_text(yaml.safe_dump(document))
    assert load_spec(path).topology.file == "elsewhere.yaml"


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 50)
    | st.sampled_from([10**400, -(10**30), 2**53 + 1, math.inf, -math.inf, math.nan, 1e-320, 0.5, 1.5])
    | st.text(max_size=8)
    | st.sampled_from(
        ["all", "none", "iid", "natural", "1e-5", "nan", "fixed", "plain", "cloud", "kind", "=list"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.text(max_size=6) | st.sampled_from(
    [
        "kind",
        "rate",
        "count",
        "multiplier",
        "epsilon",
        "for",
        "sources",
        "placement",
        "levels",
        "edges",
        "names",
        "alpha",
        "edge",
        "device",
        "initial",
        "file",
        "radio",
        "compression",
        "transport",
        "towards",
        "server",
    ]
)


@st.composite
def mutated(draw):
    document = yaml.safe_load(draw(st.sampled_from(TEXTS)))
    for _ in range(draw(st.integers(1, 3))):
        holder, key = document, draw(st.sampled_from(sorted(document)))
        while isinstance(holder[key], dict) and holder[key] and draw(st.booleans()):
            holder = holder[key]
            key = draw(st.sampled_from(sorted(holder)))
        match draw(st.sampled_from(["delete", "replace", "add", "wrap", "move"])):
            case "delete" if len(document) > 1 or holder is not document:
                del holder[key]
            case "replace":
                holder[key] = draw(JUNK)
            case "add":
                holder[draw(KEYS)] = draw(JUNK)
            case "wrap":
                holder[key] = draw(
                    st.sampled_from([[holder[key]], {"kind": holder[key]}, {key: holder[key]}])
                )
            case _:
                holder[draw(KEYS)] = holder[key]
    return document


@given(mutated())
@settings(max_examples=400, deadline=None)
def test_whatever_is_wrong_is_a_spec_error_or_nothing(document):
    spec, said = None, []
    try:
        spec = load_spec(document)
    except SpecProblemsError as error:
        said = [str(problem) for problem in error.problems]
        assert len(said) > 1
    except SpecError as error:
        said = [str(error)]
    if spec is None:
        assert all(said)
        assert not any("\n" in one or "Value error" in one for one in said)
    else:
        assert load_spec(yaml.safe_load(dump_spec(spec))) == spec


@given(
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
@settings(max_examples=200, deadline=None)
def test_no_bytes_break_the_reader(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    assert str(refusal(path)).startswith(str(path))


def test_names_are_dumped_as_they_are_written(tmp_path):
    spec = load_spec("quickstart", ["data.source=patients.csv", "data.label_column=Größe"])
    assert "label_column: Größe\n" in dump_spec(spec)
    (tmp_path / "dumped.yaml").write_text(dump_spec(spec), encoding="utf-8")
    assert load_spec(tmp_path / "dumped.yaml").data == spec.data
