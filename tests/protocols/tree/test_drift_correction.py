"""FedProx and SCAFFOLD against plain loops, and what they do to the account."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from tree_worlds import Library, spec_of

from sfumato.accounting import account
from sfumato.errors import SpecError
from sfumato.learning.parameters import ParameterLayout
from sfumato.protocols.tree.local_work import batches_of
from sfumato.radio.costs import TreeCosts
from sfumato.schedule.local_steps import momentum_gain
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.resolve import resolve

RATE, STEPS = 0.3, 3
TRAINING = {"rounds": 4, "local_steps": STEPS, "batch_size": 4, "learning_rate": RATE}
SCAFFOLD = {"drift_correction": "scaffold"}
NONE = {"noise": {"kind": "none"}}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def gradients(library: Library, device: int, chosen: np.ndarray, number: int) -> list[tuple[Tensor, Tensor]]:
    """The batches of a device in a round."""
    batches = batches_of(library.plan, library.partition, chosen, number)
    place = int(np.searchsorted(chosen, device))
    found = []
    for step in range(int(batches.steps[place])):
        rows = batches.rows[place, step, : batches.counts[place, step]].long()
        found.append((library.features[rows], library.labels[rows]))
    return found


def train(
    library: Library, start: Tensor, batches: list[tuple[Tensor, Tensor]], correction: Tensor, mu: float
) -> Tensor:
    """The update of a device that takes these steps in plain torch."""
    model, layout = copy.deepcopy(library.model), ParameterLayout.of(library.model)
    layout.write(start, model)
    for features, labels in batches:
        model.zero_grad()
        nn.functional.cross_entropy(model(features), labels).backward()
        slope = torch.cat([p.grad.flatten() for p in model.parameters()])
        moved = layout.read(model) - RATE * (slope + correction)
        layout.write(start + (moved - start) / (1 + RATE * mu), model)
    return layout.read(model) - start


def clip(update: Tensor, norm: float) -> Tensor:
    return update * min(1.0, norm / float(update.norm()))


@pytest.mark.parametrize("clip_norm", [None, 0.2])
@pytest.mark.parametrize("participation", [{}, {"participation": {"count": 2}}])
def test_scaffold_is_the_papers_with_messages_of_fedavg(
    clip_norm: float | None, participation: dict[str, Any]
) -> None:
    """Algorithm 1, option II, with the change of each control variate sent, as the paper sends it."""
    norm = math.inf if clip_norm is None else clip_norm
    clipping = {} if clip_norm is None else {"clip": {"kind": "update", "norm": clip_norm}}
    library = Library(
        spec_of(
            protocol="dp-fedavg",
            topology={"kind": "star", "devices": 5},
            training=TRAINING | SCAFFOLD | participation,
            privacy=NONE | clipping,
        )
    )
    x, c = library.start.clone(), torch.zeros_like(library.start)
    own = torch.zeros(5, len(x))
    state = library.protocol.initial(library.start)
    for number in range(4):
        chosen = draw_participants(library.plan, number)
        sent, changes = [], []
        for device in chosen.tolist():
            batches = gradients(library, device, chosen, number)
            update = clip(train(library, x, batches, c - own[device], 0.0), norm)
            fresh = own[device] - c - update / (RATE * STEPS)
            sent.append(update)
            changes.append(fresh - own[device])
            own[device] = fresh
        x = x + torch.stack(sent).mean(dim=0)
        c = c + len(chosen) / 5 * torch.stack(changes).mean(dim=0)
        state, _ = library.protocol.run_round(state)
        assert torch.allclose(state.model, x, atol=2e-6)
        assert state.variates is not None
        assert torch.allclose(state.variates.server, c, atol=2e-5)
        assert torch.allclose(state.variates.devices.of(chosen), own[chosen], atol=2e-5)
    assert float(c.norm()) > 0.01


def test_fedprox_is_a_proximal_step_after_every_step() -> None:
    mu = 0.7
    training = TRAINING | {"drift_correction": {"kind": "fedprox", "mu": mu}}
    library = Library(
        spec_of(
            protocol="dp-fedavg",
            topology={"kind": "star", "devices": 5},
            training=training,
            privacy=NONE,
        )
    )
    state, _ = library.protocol.run_round(library.protocol.initial(library.start))
    chosen = np.arange(5)
    zero = torch.zeros_like(library.start)
    updates = [train(library, library.start, gradients(library, d, chosen, 0), zero, mu) for d in range(5)]
    assert torch.allclose(state.model, library.start + torch.stack(updates).mean(dim=0), atol=1e-6)
    plain = Library(
        spec_of(
            protocol="dp-fedavg", topology={"kind": "star", "devices": 5}, training=TRAINING, privacy=NONE
        )
    )
    moved, _ = plain.protocol.run_round(plain.protocol.initial(plain.start))
    assert (state.model - library.start).norm() < 0.95 * (moved.model - plain.start).norm()


def test_fedprox_settles_where_its_objective_has_its_least() -> None:
    """Many full-batch steps: the gradient of the loss plus ``mu/2 |w - w_0|^2`` is zero."""
    mu = 2.0
    training = {
        "rounds": 1, "local_steps": 400, "batch_size": "all", "learning_rate": RATE,
        "drift_correction": {"kind": "fedprox", "mu": mu},
    }  # fmt: skip
    star = {"kind": "star", "devices": 1}
    library = Library(
        spec_of(protocol="dp-fedavg", topology=star, training=training, privacy=NONE), kind="softmax"
    )
    state, _ = library.protocol.run_round(library.protocol.initial(library.start))
    layout = ParameterLayout.of(library.model)
    layout.write(state.model, library.model)
    rows = torch.as_tensor(library.partition.indices(0))
    nn.functional.cross_entropy(library.model(library.features[rows]), library.labels[rows]).backward()
    slope = torch.cat([p.grad.flatten() for p in library.model.parameters()])
    assert torch.allclose(slope, -mu * (state.model - library.start), atol=1e-5)


@given(
    steps=st.integers(1, 8),
    momentum=st.floats(0, 0.95),
    pull=st.floats(0, 5),
    first=st.integers(0, 7),
    seed=st.integers(0, 10_000),
)
def test_proximal_steps_lengthen_no_distance(
    steps: int, momentum: float, pull: float, first: int, seed: int
) -> None:
    """Clipped steps of two worlds that differ from step ``first`` on: the declared bounds hold of both."""
    rng, keep = np.random.default_rng(seed), 1 / (1 + pull)
    aligned = np.array([1.0, 0.0])
    positions, velocities = np.zeros((2, 2)), np.zeros((2, 2))
    for step in range(steps):
        wild = rng.standard_normal(2)
        slopes = np.stack([aligned, aligned if step < first else -aligned])
        if seed % 2:
            slopes = np.stack([wild, wild if step < first else -wild]) / np.linalg.norm(wild)
        velocities = momentum * velocities + slopes
        positions = keep * (positions - velocities)
    bound = momentum_gain(steps, momentum)
    assert np.linalg.norm(positions, axis=1).max() <= bound * (1 + 1e-12)
    left = momentum_gain(steps - min(first, steps), momentum) if first < steps else 0.0
    assert np.linalg.norm(positions[0] - positions[1]) <= 2 * left * (1 + 1e-12)


def epsilons(**sections: Any) -> dict[tuple[str, str], float]:
    found = account(spec_of(**sections)).guarantees
    return {(g.unit, g.observer): g.epsilon for g in found}


@pytest.mark.parametrize("unit", ["device", "record"])
def test_what_is_remembered_is_charged_as_seen(unit: str) -> None:
    """No draw amplifies, of devices or of mini-batches, where devices keep control variates."""
    star = {
        "protocol": "dp-fedavg",
        "topology": {"kind": "star", "devices": 8},
        "trust": {"cloud": True},
        "privacy": {
            "unit": unit, "clip": {"kind": "update", "norm": 0.2}, "noise": {"multiplier": 2.0},
        },
    }  # fmt: skip
    hidden = {"participation": {"rate": 0.25}} if unit == "device" else {"batches": "poisson"}
    seen = {"participation": {"rate": 1.0}} if unit == "device" else {}
    plain = epsilons(**star, training=TRAINING | hidden)
    everywhere = epsilons(**star, training=TRAINING | seen)
    scaffold = epsilons(**star, training=TRAINING | hidden | SCAFFOLD)
    public = next(pair for pair in scaffold if pair[1] == "public")
    assert plain[public] < 0.8 * scaffold[public]
    everyone = next(e for (_, observer), e in everywhere.items() if observer == "public")
    if unit == "record":
        assert scaffold[public] == everyone
    else:  # a draw that is seen has fewer releases of a device, at a larger share of the average
        assert scaffold[public] > plain[public]


def test_fedprox_changes_no_figure() -> None:
    prox = {"drift_correction": {"kind": "fedprox", "mu": 1.0}}
    sections = {
        "privacy": {"clip": {"kind": "step", "norm": 0.2}, "noise": {"multiplier": 2.0}},
        "training": TRAINING | {"edge_every": 1},
    }
    assert epsilons(**sections) == epsilons(**sections | {"training": TRAINING | {"edge_every": 1} | prox})


def test_models_come_with_the_servers_variate() -> None:
    plans = [resolve(spec_of(training=TRAINING | more)) for more in ({}, SCAFFOLD)]
    plain, scaffold = (TreeCosts.of(plan.spec, plan.tree, 10) for plan in plans)
    assert (plain.model_bytes, plain.message_bytes) == (40, 40)
    assert (scaffold.model_bytes, scaffold.message_bytes) == (80, 40)


def test_a_round_leaves_the_state_before_it_as_it_was() -> None:
    library = Library(spec_of(training=TRAINING | SCAFFOLD))
    first, _ = library.protocol.run_round(library.protocol.initial(library.start))
    assert first.variates is not None
    every = np.arange(library.plan.tree.device_count)
    kept = first.variates.devices.of(every)
    once, _ = library.protocol.run_round(first)
    again, _ = library.protocol.run_round(first)
    assert torch.equal(first.variates.devices.of(every), kept)
    assert torch.equal(once.model, again.model)


GROUPS = {
    "protocol": "dp-ogl",
    "topology": {"kind": "groups", "structure": "ring", "groups": 3, "devices": 6},
    "trust": {"trusted_aggregators": 1.0},
    "training": TRAINING,
    "privacy": {"clip": {"kind": "update", "norm": 0.2}, "noise": {"multiplier": 2.0}},
}


def test_fedprox_goes_with_groups() -> None:
    prox = {"drift_correction": {"kind": "fedprox", "mu": 1.0}}
    assert epsilons(**GROUPS) == epsilons(**GROUPS | {"training": TRAINING | prox})


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "groups": (GROUPS, SCAFFOLD, "several groups"),
    "edges aggregate": ({}, {"edge_every": 1} | SCAFFOLD, "one aggregation a round"),
    "epochs": ({}, {"local_steps": None, "local_epochs": 1} | SCAFFOLD, "device's own secret"),
    "momentum": ({}, {"momentum": 0.5} | SCAFFOLD, "more than the sum of its gradients"),
    "clipped steps": (
        {"privacy": {"clip": {"kind": "step", "norm": 1.0}, "noise": {"multiplier": 1.0}}},
        SCAFFOLD,
        "use clip kind update",
    ),
    "weights": ({"protocol": "hdp"}, {"weights": {"examples": 10}} | SCAFFOLD, "counts all devices alike"),
    "dropouts": (
        {"protocol": "hdp", "faults": {"dropout_rate": 0.1}}, SCAFFOLD, "message is lost"
    ),
    "compression": ({"compression": {"kind": "rand-k", "ratio": 0.5}}, SCAFFOLD, "out of the mean"),
    "control": (
        {"control": {"smoothness": 1.0}}, {"drift_correction": {"kind": "fedprox", "mu": 1.0}}, "by a theorem"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_derived_is_refused(name: str) -> None:
    sections, training, reason = REFUSED[name]
    with pytest.raises(SpecError, match=reason):
        resolve(spec_of(**sections | {"training": TRAINING | training}))
