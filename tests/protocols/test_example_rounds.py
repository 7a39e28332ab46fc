"""Rounds with clips of examples and noise at steps or on messages; what such specs are told and refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from local_reference import one_example_at_a_time
from resumed_specs import EXAMPLES, POISSON, groups_of, spec_of

from sfumato.accounting import account
from sfumato.auditing.audit import audit
from sfumato.engine.base import EngineSettings
from sfumato.errors import SpecError
from sfumato.learning.batches import plan_poisson
from sfumato.learning.local_training import LocalSGD
from sfumato.mechanisms.gaussian import add_gaussian_
from sfumato.planning.problem import resolve_to_plan
from sfumato.random import Stream, generator, key_at
from sfumato.schedule.resolve import resolve
from sfumato.simulation.pilot import pilot
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.simulation.training_loop import Session
from sfumato.spec.document import Spec

NORM, MULTIPLIER, RATE, BATCH = 0.5, 0.5, 0.2, 5
ON_MESSAGES = EXAMPLES | {"noise": {"multiplier": MULTIPLIER}}


def tree(**sections: Any) -> Spec:
    """Two edges of three devices, of which the second is trusted; two aggregations of two steps."""
    return spec_of(**({"training": POISSON, "privacy": EXAMPLES} | sections))


def star(**sections: Any) -> Spec:
    training = {
        "rounds": 3,
        "local_steps": 1,
        "batch_size": BATCH,
        "learning_rate": RATE,
        "batches": "poisson",
    }
    return spec_of(
        protocol="dp-fedavg",
        topology={"kind": "star", "devices": 5},
        trust={},
        **({"training": training, "privacy": EXAMPLES} | sections),
    )


def groups(protocol: str = "dp-ogl", **sections: Any) -> Spec:
    plain = groups_of(protocol, 1)
    training = plain.training.model_dump() | {"batches": "poisson", "participation": "all"}
    return Spec.model_validate(plain.model_dump() | {"training": training, "privacy": EXAMPLES} | sections)


class Played:
    """The first round of a spec, and the update of every device by a plain loop."""

    def __init__(self, spec: Spec) -> None:
        self.plan = resolve(spec)
        self.inputs = TrainingInputs.of(self.plan)
        self.session = Session.prepare(self.plan, EngineSettings("cpu", 1, 1 << 26))
        state, self.stats = self.session.protocol.run_round(self.session.protocol.initial(self.session.start))
        self.model, self.state = self.session.protocol.model(state), state
        data = self.inputs.data
        self.data = (torch.from_numpy(data.train_features), torch.from_numpy(data.train_labels))

    def update(self, address: tuple[int, ...], key: tuple[int, ...], std: float, steps: int) -> torch.Tensor:
        """Of one device: its draws are at ``address`` of their stream, its noise at ``key``."""
        seed, device = self.plan.spec.seed, address[-1]
        rngs = [generator(seed, Stream.POISSON_BATCHES, 0, *address)]
        rows = [self.inputs.partition.indices(device)]
        batches = plan_poisson(rows, steps=steps, batch_size=BATCH, rngs=rngs)
        start, sgd = self.session.start, LocalSGD(RATE, example_clip=NORM)

        def key_of(step: int) -> bytes:
            return key_at(seed, Stream.STEP_NOISE, *key, step)

        return one_example_at_a_time(self.inputs.model, start, self.data, batches, 0, sgd, std, key_of)


@pytest.mark.parametrize("at", ["step", "message"])
def test_a_round_of_a_star_is_its_devices_loops(at: str) -> None:
    played = Played(star(privacy=EXAMPLES if at == "step" else ON_MESSAGES))
    std = MULTIPLIER * NORM
    messages = []
    for device in range(5):
        update = played.update((device,), (0, 0, device), std if at == "step" else 0.0, 1)
        if at == "message":  # noise of the sum's sensitivity to one example, shared out among five devices
            key = key_at(played.plan.spec.seed, Stream.NOISE, 0, 0, 1, device)
            share = std * RATE / BATCH / math.sqrt(5)
            add_gaussian_(update[None], np.array([share]), lambda _, key=key: key)
        messages.append(update)
    expected = played.session.start + torch.stack(messages).mean(dim=0)
    torch.testing.assert_close(played.model, expected, rtol=1e-5, atol=1e-6)
    assert math.isnan(played.stats.noise_std) == (at == "step")
    assert 0 < played.stats.clip_fraction <= 1


@pytest.mark.parametrize("at", ["step", "message"])
def test_a_round_of_groups_is_its_workers_loops(at: str) -> None:
    """With noise on messages a master adds that of one example: two steps of its share of a batch."""
    played = Played(groups(privacy=EXAMPLES if at == "step" else ON_MESSAGES))
    models, std = [], MULTIPLIER * NORM
    for group, members in enumerate([[0, 1, 2, 3], [2, 3, 4, 5], [0, 5, 6]]):
        at_steps = std if at == "step" else 0.0
        updates = [played.update((group, w), (0, group, w), at_steps, 2) for w in members]
        total = torch.stack(updates).sum(dim=0)
        if at == "message":
            key = key_at(played.plan.spec.seed, Stream.NOISE, 0, group)
            add_gaussian_(total[None], np.array([2 * std * RATE / BATCH]), lambda _, key=key: key)
        models.append(played.session.start + total / len(members))
    torch.testing.assert_close(played.state.models, torch.stack(models), rtol=1e-5, atol=1e-6)


def test_both_aggregations_of_a_round_have_noise_of_their_own() -> None:
    """The first step of every piece of local work is numbered 0: the aggregation is in the key."""
    quiet = {"clip": {"kind": "example", "norm": 1e-9}, "noise": {"multiplier": 1e9, "at": "step"}}
    training = POISSON | {"steps_per_round": 2, "edge_every": 1}
    one_device = {"kind": "tree", "edges": 1, "devices_per_edge": 1}
    played = Played(tree(privacy=quiet, training=training, topology=one_device, trust={}))
    first, second = (torch.zeros(1, len(played.model)) for _ in range(2))
    seed = played.plan.spec.seed
    for index, noise in enumerate((first, second)):
        key = key_at(seed, Stream.STEP_NOISE, 0, index, 0, 0)
        add_gaussian_(noise, np.array([RATE / BATCH]), lambda _, key=key: key)
    expected = played.session.start - (first + second)[0]
    torch.testing.assert_close(played.model, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "spec",
    [
        tree(),
        tree(privacy=ON_MESSAGES),
        tree(privacy=ON_MESSAGES, protocol="hfl-dp", trust={}),
        star(),
        star(privacy=ON_MESSAGES),
        groups(),
        groups("dp-ogl-local"),
        groups(privacy=ON_MESSAGES),
    ],
    ids=[
        "tree",
        "tree, messages",
        "hfl-dp, messages",
        "star",
        "star, messages",
        "groups",
        "local",
        "groups, messages",
    ],
)
def test_no_device_has_a_guarantee_where_examples_are_clipped(spec: Spec) -> None:
    report = account(spec)
    assert report.guarantees
    assert all(row.epsilon == math.inf for row in report.guarantees)
    assert report.claims == ()
    assert all("without a bound" in row.why for row in report.guarantees)


def test_resolving_again_changes_nothing() -> None:
    for spec in (tree(), tree(privacy=ON_MESSAGES), star(), groups(), groups(privacy=ON_MESSAGES)):
        plan = resolve(spec)
        again = resolve(Spec.model_validate(plan.spec.model_dump()))
        assert again.spec == plan.spec
        assert again.releases.to_dict() == plan.releases.to_dict()


@pytest.mark.parametrize(
    ("spec", "place", "said"),
    [
        (groups("dp-ogl+", privacy=ON_MESSAGES), "privacy.noise.at", "must be step"),
        (groups("ms-fedavg"), "privacy.clip.kind", "must be left out"),
    ],
)
def test_what_is_not_there_is_refused(spec: Spec, place: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        resolve(spec)
    assert caught.value.place == place


@pytest.mark.parametrize("refuses", [pilot, resolve_to_plan, audit])
def test_pilots_plans_and_audits_are_refused(refuses: Any) -> None:
    with pytest.raises(SpecError, match="update or step") as caught:
        refuses(tree())
    assert caught.value.place == "privacy.clip.kind"
