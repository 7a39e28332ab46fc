"""Costs that are stated before a run, beside those that the run measures."""

import math
from typing import Any

import pytest
from places import EXAMPLES

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.planning.costs import training_cost
from sfumato.schedule.resolve import resolve

pytestmark = pytest.mark.usefixtures("no_report")

TREE: dict[str, Any] = {
    "name": "costs",
    "protocol": "h2fdp",
    "data": {"source": "digits"},
    "topology": {"edges": 3, "devices_per_edge": 4},
    "training": {"rounds": 4, "local_steps": 2, "batch_size": 8, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
    "evaluate_every": 4,
}
GROUPS: dict[str, Any] = {
    **{key: TREE[key] for key in ("name", "data", "evaluate_every")},
    "protocol": "dp-ogl",
    "topology": {"kind": "groups", "structure": "ring", "groups": 3, "devices": 12},
    "training": {"rounds": 6, "merge_every": 3, "local_steps": 1, "batch_size": 8, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}
STAR: dict[str, Any] = {**TREE, "protocol": "pfels", "topology": {"devices": 12}}
DROPOUTS = {"dropout_rate": 0.2}
LATER = [[*range(5)], [*range(4, 12)], [0, 11]]


def changed(base: dict[str, Any], **changes: Any) -> sf.Spec:
    """``base`` with ``section__key=value`` set."""
    whole = {key: dict(value) if isinstance(value, dict) else value for key, value in base.items()}
    for name, value in changes.items():
        section, _, key = name.partition("__")
        if key:
            whole.setdefault(section, {})[key] = value
        else:
            whole[section] = value
    return sf.Spec.model_validate(whole)


def measured(spec: sf.Spec, tmp_path) -> dict[str, float]:
    run = sf.run(spec, out=tmp_path / "run")
    return run.metrics[["energy_j", "delay_s", "bytes_up", "bytes_down"]].sum().to_dict()


CASES = {
    "tree": (TREE, {}),
    "edges every other step": (TREE, {"training__edge_every": 1}),
    "drawn by chance": (TREE, {"training__participation": {"kind": "poisson", "rate": 0.5}}),
    "a fixed number": (TREE, {"training__participation": {"kind": "fixed", "count": 2}}),
    "secure aggregation": (
        TREE,
        {"transport": {"devices_to_edge": "secure-aggregation", "edge_to_cloud": "secure-aggregation"}},
    ),
    "dropouts": (TREE, {"faults": DROPOUTS}),
    "dropouts under secure aggregation": (
        TREE,
        {"faults": DROPOUTS, "transport": {"devices_to_edge": "secure-aggregation"}},
    ),
    "compression": (TREE, {"compression": {"kind": "rand-k", "ratio": 0.3}}),
    "few bits": (TREE, {"compression": {"kind": "rand-k", "ratio": 0.5, "bits": 4}}),
    "few bits and dropouts": (
        TREE,
        {"compression": {"kind": "rand-k", "ratio": 0.5, "bits": 4}, "faults": DROPOUTS},
    ),
    "devices that move": (TREE, {"topology__moves": {"rate": 0.3}}),
    "a norm that adapts": (TREE, {"privacy__clip": {"kind": "update", "norm": 1.0, "adapt": {}}}),
    "scaffold": (TREE, {"training__drift_correction": "scaffold"}),
    "no radio": (TREE, {"radio": "none"}),
    "supernodes": ({**TREE, "protocol": "hdp"}, {"topology__supernodes": "elected"}),
    "groups": (GROUPS, {}),
    "groups drawn by chance": (GROUPS, {"training__participation": {"kind": "poisson", "rate": 0.5}}),
    "groups under secure aggregation": (
        GROUPS,
        {"transport": {"devices_to_master": "secure-aggregation"}, "faults": DROPOUTS},
    ),
    "intervals": (
        {**GROUPS, "protocol": "dp-ogl+"},
        {"training__participation": {"kind": "poisson", "rate": 0.5}},
    ),
    "intervals alone": ({**GROUPS, "protocol": "dp-ogl-local"}, {}),
    "groups that change": (GROUPS, {"topology__eras": [{"from_round": 3, "groups": LATER}]}),
    "ms-fedavg": ({**GROUPS, "protocol": "ms-fedavg"}, {"privacy": {}, "training__merge_every": 1}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_stated_costs_are_what_a_run_measures(case, tmp_path):
    base, changes = CASES[case]
    spec = changed(base, **changes)
    stated, found = training_cost(resolve(spec)), measured(spec, tmp_path)
    assert not stated.energy_is_bound
    assert (stated.bytes_up, stated.bytes_down) == (found["bytes_up"], found["bytes_down"])
    assert stated.bytes_up > 0
    if spec.counts_radio:
        assert stated.energy_j == pytest.approx(found["energy_j"], rel=1e-9)
        assert stated.delay_s == pytest.approx(found["delay_s"], rel=1e-9)
    else:
        assert math.isnan(stated.energy_j)


@pytest.mark.parametrize("control", ["pfels", "wfl-p", "wfl-pdp"])
def test_over_the_air_energy_is_bounded_and_the_rest_is_known(control, tmp_path):
    spec = changed(
        STAR, protocol=control, privacy__noise={"multiplier": 0.3} if control == "wfl-pdp" else "none"
    )
    stated, found = training_cost(resolve(spec)), measured(spec, tmp_path)
    assert stated.energy_is_bound
    assert (stated.bytes_up, stated.bytes_down) == (found["bytes_up"], found["bytes_down"])
    assert stated.delay_s == pytest.approx(found["delay_s"], rel=1e-9)
    assert 0 < found["energy_j"] <= stated.energy_j


def test_many_rounds_are_estimated_from_some(tmp_path):
    spec = changed(
        TREE,
        training__rounds=60,
        training__participation={"kind": "poisson", "rate": 0.5},
        model={"kind": "softmax"},
    )
    stated, found = training_cost(resolve(spec)), measured(spec, tmp_path)
    assert stated.bytes_up == pytest.approx(found["bytes_up"], rel=0.2)
    assert stated.bytes_up != found["bytes_up"]


def test_what_a_run_chooses_itself_is_refused():
    with pytest.raises(SpecError, match=r"control.*in a run"):
        training_cost(resolve(sf.load_spec(EXAMPLES / "h2fdp" / "control.yaml")))
