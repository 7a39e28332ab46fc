"""Small deployments, and what `run` draws injected into their parties."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from rehearsed_groups import SimulatedGroupRandomness, put_groups_on_the_grid, rows_from_0

from sfumato.deployment.consent import Consent
from sfumato.deployment.messages import RoundPosition
from sfumato.deployment.rehearsal import rehearse
from sfumato.deployment.terms import DeploymentTerms
from sfumato.learning.batches import BatchPlan
from sfumato.protocols.tree.local_work import batches_of
from sfumato.protocols.tree.uplinks import registry
from sfumato.protocols.tree.uplinks.secure import SecureUplink
from sfumato.random import Stream, key_at
from sfumato.run_folder.reader import MODEL_FILE, RunFolder
from sfumato.schedule.base import Plan
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.spec import load_spec
from sfumato.spec.document import Spec

PURPOSE = "a test"

STAR: dict[str, Any] = {
    "name": "star",
    "protocol": "dp-fedavg",
    "seed": 5,
    "data": {"source": "synthetic", "examples_per_device": 12},
    "model": {"kind": "softmax"},
    "topology": {"kind": "star", "devices": 3},
    "training": {"rounds": 3, "local_steps": 2, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
}
TREE: dict[str, Any] = STAR | {
    "name": "tree",
    "protocol": "h2fdp",
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 2},
    "trust": {"trusted_edges": [0]},
    "training": STAR["training"] | {"local_steps": 4, "edge_every": 2},
}
"""One edge is trusted: it adds noise, and its devices send raw messages. Those of the other add noise."""

GROUPS: dict[str, Any] = STAR | {
    "name": "ring",
    "protocol": "dp-ogl",
    "topology": {"kind": "groups", "structure": "ring", "devices": 6, "groups": 3},
    "training": STAR["training"] | {"merge_every": 2},
    "trust": {"trusted_aggregators": [0]},
}
"""Two workers are in one group, four in two; the noise of one group is its master's."""

UNLIMITED = Consent.model_validate(
    {
        "purposes": [PURPOSE],
        "delta": 1e-5,
        "neighbours": "zero-out",
        "ledger": "in the folder of the test",
        "epsilon": {
            unit: dict.fromkeys(("cloud", "public", "own-edge", "other-edge", "peer", "other-device"), "any")
            for unit in ("device", "record")
        },
        "total": {"epsilon": 1.0, "delta": 0.5},
    }
)


def spec_of(document: dict[str, Any], **changed: Any) -> Spec:
    return load_spec({**document, **changed})


@dataclass
class SimulatedRandomness:
    """What `run` draws for one party of a plan: whoever knows the seed knows every secret."""

    plan: TreePlan
    inputs: TrainingInputs
    party: int
    source = "injected"

    def noise_key(self, position: RoundPosition, context: bytes = b"") -> bytes:
        tree = self.plan.tree
        cloud = tree.device_count
        if self.party < cloud:
            return key_at(self.plan.spec.seed, Stream.NOISE, *position, tree.depth, self.party)
        place = (0, 0) if self.party == cloud else (1, self.party - cloud - 1)
        return key_at(self.plan.spec.seed, Stream.NOISE, *position, *place)

    def batches(
        self, plan: TreePlan, number: int, size: int, times: int, context: bytes = b"", persons: Any = None
    ) -> BatchPlan:
        chosen = draw_participants(plan, number)
        if self.party not in chosen:  # `run` draws none: any will do, as zeros are sent
            chosen = np.array([self.party], dtype=np.int64)
        place = torch.tensor([int(np.searchsorted(chosen, self.party))])
        drawn = batches_of(plan, self.inputs.partition, chosen, number).of(place)
        return rows_from_0(drawn, self.inputs.partition.indices(self.party), size)

    def takes_part(self, plan: TreePlan, number: int, context: bytes = b"") -> bool:
        return self.party in draw_participants(plan, number)

    def chosen(
        self, plan: TreePlan, node: int, number: int, count: int, context: bytes = b""
    ) -> npt.NDArray[np.int64]:
        found = np.flatnonzero(np.isin(plan.tree.devices_under(node), draw_participants(plan, number)))
        assert len(found) == count
        return found


def drawn_by_run(
    plan: Plan, inputs: TrainingInputs, party: int
) -> SimulatedRandomness | SimulatedGroupRandomness:
    """What `run` draws for one party of a plan, of a tree or of groups."""
    if isinstance(plan, TreePlan):
        return SimulatedRandomness(plan, inputs, party)
    assert isinstance(plan, GroupPlan)
    return SimulatedGroupRandomness(plan, inputs, party)


def rehearsed(spec: Spec, folder: Path, *, simulated: bool = True, **options: Any) -> RunFolder:
    """A rehearsal in ``folder``; with what `run` draws, unless ``simulated`` is false."""
    if simulated:
        from sfumato.schedule.resolve import resolve

        plan = resolve(spec)
        inputs = TrainingInputs.of(plan)
        options["randomness"] = lambda party: drawn_by_run(plan, inputs, party)
    given = {"purpose": PURPOSE, "consent": UNLIMITED} | options
    given["consent"] = given["consent"].model_copy(update={"ledger": str(folder / "ledger")})
    return rehearse(spec, out=folder / "run", parties=folder / "parties", **given)


@contextmanager
def on_the_grid() -> Iterator[None]:
    """Let `run` send plain messages as whole numbers too, and train every device by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            registry, "_carrier_of", lambda plan, device, parameters, ranks: SecureUplink(plan, device)
        )
        put_groups_on_the_grid(patch)
        patch.setattr("sfumato.engine.local._TILE_BYTES", 1)
        yield


def model_bytes(folder: RunFolder) -> bytes:
    """The bytes of all parameters of a run's model."""
    state = torch.load(folder.path / MODEL_FILE, map_location="cpu", weights_only=True)
    return b"".join(name.encode() + value.numpy().tobytes() for name, value in state.items())


def terms_of(spec: Spec, parameters: int, keys: tuple[bytes, ...], label: str = "test") -> DeploymentTerms:
    return DeploymentTerms.of(spec, parameters=parameters, purpose=PURPOSE, label=label, keys=keys)
