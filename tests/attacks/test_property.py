import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from member_worlds import played, scenes

from sfumato.attacks import attack
from sfumato.attacks.attack_context import AttackContext
from sfumato.attacks.property import last_layer_scores, measure_properties
from sfumato.attacks.results import measurements
from sfumato.attacks.roc import ROC
from sfumato.attacks.shadow_models import ShadowDevices
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout

ERROR = 1e-6


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Mapping[float | None, AttackContext]:
    """What an untrusted edge saw, without noise and behind much."""
    folder = tmp_path_factory.mktemp("property")
    return {m: scenes(folder / f"run-{m}", ("edge:0",), multiplier=m)["edge:0"] for m in (None, 4.0)}


def test_bare_updates_give_labels_away(seen: Mapping[float | None, AttackContext]) -> None:
    context = seen[None]
    truth = context.population.labels_held[list(context.targets)]
    found = measure_properties(context)
    assert {one.attack for one in found} == {"shadow devices", "last layer"}
    for one in found:
        assert (one.roc.members, one.roc.non_members) == (truth.sum(), (~truth).sum())
        assert one.roc.auc.value > 0.95


def test_noise_keeps_labels_within_the_bound(seen: Mapping[float | None, AttackContext]) -> None:
    for one in measure_properties(seen[4.0]):
        assert one.epsilon < 4
        assert not one.roc.exceeds(epsilon=one.epsilon, delta=one.delta, error=ERROR)


def test_common_labels_break_no_promise(seen: Mapping[float | None, AttackContext]) -> None:
    """Who says of every device that it holds the labels most devices hold is right, and knows nothing."""
    share = np.linspace(0.1, 0.9, 10)
    truth = np.random.default_rng(0).random((1_000, 10)) < share
    guesses = np.broadcast_to(share, truth.shape)
    (found,) = measurements(seen[4.0], "label", {"prior": ROC.of(guesses[truth], guesses[~truth])})
    assert found.roc.exceeds(epsilon=0.1, delta=found.delta, error=ERROR)
    assert not replace(found, epsilon=0.1).exceeds
    assert replace(found, level="record", epsilon=0.1).exceeds


def test_where_all_devices_hold_all_labels_nothing_is_measured(tmp_path: Path) -> None:
    run = played(
        tmp_path / "run",
        ("edge:0",),
        multiplier=None,
        data={"source": "digits", "partition": {"kind": "iid"}},
        topology={"kind": "tree", "edges": 2, "devices_per_edge": 2},
        training={"rounds": 1, "steps_per_round": 1, "edge_every": 1},
    )
    result = attack(run, observer="edge:0", kind="property", progress=False)
    assert result["results"] == []
    assert "every device holds every label" in result["notes"][0]
    assert json.loads((run / "attacks" / "property-edge-0.json").read_text("utf-8")) == result


@pytest.mark.parametrize("bias", [True, False])
def test_rows_are_found_with_and_without_bias(seen: Mapping[float | None, AttackContext], bias: bool) -> None:
    classes = 3
    model = build_model("mlp", shape=(4,), classes=classes, seed=0, hidden=5, bias=bias)
    layout, rng = ParameterLayout.of(model), torch.Generator().manual_seed(0)
    holds = np.arange(30)[:, None] % classes == np.arange(classes)[None]
    updates = 0.01 * torch.randn(30, layout.total, generator=rng)
    name = [n for n in layout.names if n.endswith("weight")][-1]
    start = dict(zip(layout.names, layout.spans, strict=True))[name][0]
    for row, label in enumerate(np.arange(30) % classes):
        updates[row, start + 5 * label : start + 5 * label + 5] += 1.0
    context = seen[None]
    observation = replace(
        context.observations[context.targets[0]][0],
        start=torch.zeros(layout.total),
        end=updates[1],
        share=1.0,
    )
    scores = last_layer_scores(observation, ShadowDevices(updates, holds), layout, classes)
    assert scores.argmax() == 1
    # a model whose last layer has no row a label gives no score
    assert not last_layer_scores(observation, ShadowDevices(updates, holds), layout, classes + 1).any()
