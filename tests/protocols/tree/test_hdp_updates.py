"""What HDP's devices send: FedSGD's one step, per-layer clips, weights and both denominators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_secure_uplink import hdp
from tree_worlds import Library

from sfumato.data.partition import Partition
from sfumato.errors import SpecError
from sfumato.learning.parameters import ParameterLayout
from sfumato.protocols.tree.rounds import TreeProtocol

OWN = {"kind": "mypackage.nets:make"}  # a model of one's own, whose layers only the run can count
SGD = {"rounds": 2, "local_epochs": 1, "batch_size": "all", "learning_rate": 0.3}
LOOSE = {"clip": {"kind": "update", "norm": 1e3}, "noise": "none"}


class Ear:
    def __init__(self) -> None:
        self.messages: dict[int, torch.Tensor] = {}
        self.zones = torch.zeros(0)

    def sent(self, number: int, index: int, tier: int, senders: Any, vectors: torch.Tensor) -> None:
        if tier == 2:
            self.messages |= dict(zip(senders.tolist(), vectors.clone(), strict=True))

    def received(self, number: int, index: int, tier: int, values: torch.Tensor) -> None:
        if tier == 1:
            self.zones = values.clone()

    def broadcast(self, *_: Any) -> None: ...


def heard(library: Library) -> Ear:
    ear = Ear()
    protocol = TreeProtocol(library.plan, library.engine, library.partition, len(library.start), ear)
    protocol.run_round(protocol.initial(library.start))
    return ear


def gradient(library: Library, device: int) -> torch.Tensor:
    """Of the mean loss on all of a device's data, at the initial model."""
    rows = library.partition.indices(device)
    loss = torch.nn.functional.cross_entropy(library.model(library.features[rows]), library.labels[rows])
    found = torch.autograd.grad(loss, list(library.model.parameters()))
    return torch.cat([part.reshape(-1) for part in found])


@pytest.mark.parametrize("hops", [{}, {"devices_to_edge": "secure-aggregation"}])
def test_fedsgd_sends_one_step_on_all_of_a_devices_data(hops: Any) -> None:
    library = Library(hdp(0, training=SGD, privacy=LOOSE, transport=hops))
    ear = heard(library)
    for device in range(15):
        torch.testing.assert_close(ear.messages[device], -0.3 * gradient(library, device), rtol=0, atol=1e-5)


def test_layers_are_clipped_each_to_its_own_norm() -> None:
    clip = {"kind": "update", "per_layer": [0.02, 0.3]}
    library = Library(hdp(0, privacy={"clip": clip, "noise": "none"}, training=SGD, transport={}, model=OWN))
    spans = ParameterLayout.of(library.model).layer_spans
    for device, message in heard(library).messages.items():
        whole = -0.3 * gradient(library, device)
        for (start, stop), norm in zip(spans, (0.02, 0.3), strict=True):
            layer = whole[start:stop]
            wanted = layer * min(1.0, norm / float(layer.norm()))
            torch.testing.assert_close(message[start:stop], wanted, rtol=1e-5, atol=1e-6)


def test_as_many_norms_as_layers() -> None:
    clip = {"kind": "update", "per_layer": [0.02, 0.3, 1.0]}
    library = Library(hdp(0, privacy={"clip": clip, "noise": "none"}, transport={}, model=OWN))
    with pytest.raises(SpecError, match="one norm for each of the 2 layers"):
        library.play(1)


def weighted(denominator: Any, sizes: np.ndarray, hops: Any) -> Library:
    training = SGD | {"weights": {"kind": "capped", "examples": 12}, "denominator": denominator}
    sections = {"data": {"source": "digits", "partition": {"kind": "iid", "size_sigma": 0.5}}}
    spec = hdp(0, training=training, privacy=LOOSE, transport=hops, **sections)
    return Library(spec, sizes)


@pytest.mark.parametrize("hops", [{}, {"devices_to_edge": "secure-aggregation"}])
@pytest.mark.parametrize("denominator", ["fixed", {"kind": "clipped", "min_weight": 1e-3}])
def test_weights_and_denominators(denominator: Any, hops: Any) -> None:
    library = weighted(denominator, np.arange(15) % 3 * 4 + 3, hops)
    ear, plan = heard(library), library.plan
    weights = plan.weights_of(np.arange(15))
    assert 0 < weights.min() <= weights.max() <= 1
    first = 0
    for zone, size in enumerate((5, 4, 6)):
        devices = range(first, first + size)
        total = sum(weights[d] * -0.3 * gradient(library, d) for d in devices)
        over = sum(weights[d] for d in devices)  # everybody takes part: both denominators are all there is
        torch.testing.assert_close(ear.zones[zone] - library.start, (total / over).float(), rtol=0, atol=5e-6)
        first += size


def test_who_holds_nothing_sends_nothing() -> None:
    library = Library(hdp(0.5, training=SGD), np.array([0, 4, 5] * 5))
    assert isinstance(library.partition, Partition)
    states = library.play(1)
    assert torch.isfinite(states[1].model).all()
