"""Values that would have no effect are refused, or what they say is said to be without effect."""

import pytest

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.findings.found import findings_of_plan
from sfumato.schedule.resolve import resolve

TREE = {
    "name": "small",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 3},
    "training": {"rounds": 3, "local_steps": 2, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}
GROUPS = TREE | {
    "protocol": "dp-ogl",
    "topology": {"kind": "groups", "structure": "list", "groups": [[0, 1], [1, 2]]},
    "training": TREE["training"] | {"merge_every": 1},
}
ALONE = TREE | {"topology": {"kind": "tree", "edges": 3, "devices_per_edge": 1}}
STAR = TREE | {"protocol": "dp-fedavg", "topology": {"kind": "star", "devices": 3}}
CONTROLLED = TREE | {
    "training": TREE["training"] | {"local_steps": 8, "edge_every": 4},
    "privacy": {"clip": {"kind": "step", "norm": 1.0}, "noise": {"multiplier": 2.0}},
    "control": {"max_steps": 8},
    "trust": {"trusted_edges": [0]},
}


def refused(document, *changes):
    with pytest.raises(SpecError) as caught:
        resolve(sf.load_spec(document, changes))
    return str(caught.value).removeprefix("overrides: ")


@pytest.mark.parametrize("kind", ["mlp", "cnn", "cnn-small", "resnet18", "vgg11", "mypackage.nets:make"])
def test_bias_goes_with_softmax(kind):
    said = refused(TREE, f"model={{kind: '{kind}', bias: false}}")
    assert said == (
        "model.bias: got False; goes with kind: softmax: the layers of other models have their biases"
    )
    sf.load_spec(TREE, ["model={kind: softmax, bias: false}"])


@pytest.mark.parametrize("kind", ["softmax", "cnn", "cnn-small", "resnet18", "vgg11", "mypackage.nets:make"])
@pytest.mark.parametrize("hidden", ["64", "[64, 32]"])
def test_hidden_goes_with_mlp(kind, hidden):
    said = refused(TREE, f"model={{kind: '{kind}', hidden: {hidden}}}")
    assert said == f"model.hidden: got {hidden}; goes with kind: mlp, whose layers' widths it is"
    sf.load_spec(TREE, [f"model={{kind: mlp, hidden: {hidden}}}"])


@pytest.mark.parametrize("kind", ["softmax", "mlp", "cnn", "cnn-small", "resnet18", "mypackage.nets:make"])
def test_norm_goes_with_vgg11(kind):
    said = refused(TREE, f"model={{kind: '{kind}', norm: none}}")
    assert said.startswith("model.norm: got 'none'; goes with kind: vgg11")
    sf.load_spec(TREE, ["model={kind: vgg11, norm: none}"])


@pytest.mark.parametrize(
    ("key", "listed", "place"),
    [
        ("trusted_edges", "[0, 1, 0]", "trusted_edges[2]: got 0"),
        ("trusted", "['edge:1', 'edge:1']", "trusted[1]: got 'edge:1'"),
        ("from", "{0: [1], 2: [0, 0]}", "from.2[1]: got 0"),
    ],
)
def test_a_trusted_party_is_listed_once(key, listed, place):
    said = refused(TREE, f"trust={{{key}: {listed}}}")
    assert said == f"trust.{place}; is listed already: list each party once"


def test_a_trusted_master_is_listed_once():
    said = refused(GROUPS, "trust={trusted_aggregators: [1, 1]}")
    assert said == "trust.trusted_aggregators[1]: got 1; is listed already: list each party once"


def test_control_needs_a_weight():
    said = refused(CONTROLLED, "control={energy: 0, delay: 0, optimality_gap_weight: 0}")
    assert said.startswith("control: must have energy, delay or optimality_gap_weight above 0")
    for key in ("energy", "delay", "optimality_gap_weight"):
        weights = dict.fromkeys(("energy", "delay", "optimality_gap_weight"), 0) | {key: 1}
        resolve(sf.load_spec(CONTROLLED, [f"control={weights}".replace("'", "")]))


@pytest.mark.parametrize("each", ["3", "[2, 3, 1]"])
def test_control_s_most_devices_are_those_of_an_edge(each):
    edges = f"topology.devices_per_edge={each}"
    said = refused(CONTROLLED, edges, "control.max_devices=4")
    assert said == "control.max_devices: got 4; must be at most 3, the most devices that any edge has"
    resolve(sf.load_spec(CONTROLLED, [edges, "control.max_devices=3"]))


def findings_of(plan, kind):
    """The findings of ``kind`` of a plan."""
    found = findings_of_plan(plan, plan.spec.privacy.delta)
    return [finding.text for finding in found if finding.kind == kind]


def late(plan):
    """The findings of a plan on changes after the last round."""
    return findings_of(plan, "changes")


@pytest.mark.parametrize(
    ("document", "change", "said"),
    [
        (
            TREE,
            "topology.moves={trace: [[2, 0, 1], [4, 0, 2], [9, 1, 0]]}",
            "2 of 3 changes of topology.moves are",
        ),
        (TREE, "topology.moves={trace: [[4, 0, 1]]}", "1 of 1 changes of topology.moves is"),
        (TREE, "trust={from: {0: [0], 3: [1], 4: [2]}}", "1 of 2 changes of trust.from is"),
        (
            GROUPS,
            "topology.eras=[{from_round: 3, groups: [[0, 2], [1, 2]]}, "
            "{from_round: 4, groups: [[0, 1], [1, 2]]}]",
            "1 of 2 changes of topology.eras is",
        ),
    ],
)
def test_changes_after_the_last_round_are_said_to_change_nothing(document, change, said):
    spec = sf.load_spec(document, [change])
    expected = [f"{said} after the last round, 3, and change{'s' * said.endswith('is')} nothing"]
    told = [one["text"] for one in sf.account(spec).to_dict()["findings"] if one["kind"] == "changes"]
    assert told == expected
    assert late(resolve(resolve(spec).spec)) == expected  # of the spec in a run folder, too
    longer = sf.load_spec(document, [change, "training.rounds=9"])
    assert late(resolve(longer)) == []


@pytest.mark.parametrize(
    ("document", "watch", "missing"),
    [
        (TREE, "[cloud, own-edge, other-edge, edge, peer, other-device, device, public]", None),
        (TREE, None, None),
        (TREE, "[]", None),
        (ALONE, "[peer, cloud]", "peer"),
        (STAR, "[own-edge, cloud, other-edge, own-edge]", "own-edge, other-edge"),
        (GROUPS, "[edge, peer, device]", None),
        (GROUPS, "[cloud, device, public]", "cloud, public"),
    ],
)
def test_kinds_of_observers_that_nobody_is_are_said_to_be_watched_in_vain(document, watch, missing):
    spec = sf.load_spec(document, [] if watch is None else [f"watch={watch}"])
    if missing is None:
        assert findings_of(resolve(spec), "watch") == []
        return
    [said] = findings_of(resolve(spec), "watch")
    assert said.startswith(f"watch names {missing}, and in this network no device has an observer of th")
    assert [one["text"] for one in sf.account(spec).to_dict()["findings"] if one["kind"] == "watch"] == [said]


def test_drawn_moves_are_never_after_the_end():
    assert late(resolve(sf.load_spec(TREE, ["topology.moves={rate: 1.0}"]))) == []


def test_moves_in_a_file_are_looked_at_too(tmp_path):
    (tmp_path / "moves.csv").write_text("round,device,edge\n2,0,1\n7,0,2\n")
    spec = sf.load_spec(TREE, [f"topology.moves={{file: {tmp_path / 'moves.csv'}}}"])
    assert late(resolve(spec)) == [
        "1 of 2 changes of topology.moves is after the last round, 3, and changes nothing"
    ]


@pytest.mark.parametrize("kind", ["mlp", "cnn-small", "mypackage.nets:make"])
def test_another_kind_of_model_leaves_the_keys_of_the_former_behind(kind):
    """As with other sections that come in kinds, so that built-in specs can be tried with other models."""
    assert sf.load_spec("h2fdp-fmnist").model.bias is False
    found = sf.load_spec("h2fdp-fmnist", [f"model.kind={kind}"]).model
    assert (found.kind, found.bias) == (kind, True)
    changes = ["model.kind=softmax", "model.bias=false"]
    wide = sf.load_spec(TREE | {"model": {"kind": "mlp", "hidden": 64}}, changes)
    assert (wide.model.kind, wide.model.bias, wide.model.hidden) == ("softmax", False, 200)
    assert sf.load_spec(TREE, ["model.hidden=[9]", "model.kind=mlp"]).model.hidden == (9,)
    assert sf.load_spec("h2fdp-fmnist", ["model.kind=softmax"]).model.bias is False
