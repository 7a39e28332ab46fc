"""Small federations with everything that passes in them, and who receives which of it: said from scratch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato.engine.base import EngineSettings
from sfumato.engine.local import LocalEngine
from sfumato.learning.parameters import ParameterLayout
from sfumato.privacy.observers import Party
from sfumato.protocols.message_hooks import ListenerGroup
from sfumato.protocols.registry import protocol_of
from sfumato.protocols.view_recorder import Recorder, recorder_of
from sfumato.schedule.base import Plan
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.schedule.tree import TreePlan
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.spec.document import Spec

Heard = dict[tuple[int, str, int, int], Tensor]

TRAINING = {"rounds": 2, "steps_per_round": 4, "edge_every": 2, "batch_size": 5, "learning_rate": 0.2}
ONCE = {"rounds": 2, "local_epochs": 1, "batch_size": 5, "learning_rate": 0.2}
SECURE = "secure-aggregation"


def spec_of(**sections: Any) -> Spec:
    document: dict[str, Any] = {
        "name": "views",
        "protocol": "h2fdp",
        "seed": 3,
        "data": {"source": "digits"},
        "model": {"kind": "softmax"},
        "topology": {"kind": "tree", "edges": 3, "devices_per_edge": [3, 4, 5]},
        "trust": {"trusted_edges": [1]},
        "training": TRAINING,
        "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 0.5}},
    }
    return Spec.model_validate(document | sections)


def zones(**sections: Any) -> Spec:
    noise = {"multiplier": 0.5, "placement": {"device": [0, 2], "edge": [1]}}
    privacy = {"clip": {"kind": "update", "norm": 0.5}, "noise": noise}
    return spec_of(**({"protocol": "hdp", "trust": {}, "training": ONCE, "privacy": privacy} | sections))


def groups(transport: str, *, trusted: float | list[int] = 0.0) -> Spec:
    return spec_of(
        protocol="dp-ogl",
        topology={"kind": "groups", "structure": "list", "groups": [[0, 1, 2, 3], [2, 3, 4, 5], [5, 6, 0]]},
        trust={"trusted_aggregators": trusted},
        training={
            "rounds": 2,
            "local_steps": 2,
            "batch_size": 5,
            "learning_rate": 0.2,
            "merge_every": 1,
            "participation": {"rate": 0.6},
        },
        transport={"devices_to_master": transport},
    )


WORLDS = {
    "edges": spec_of(),
    "global only": spec_of(training=TRAINING | {"edge_every": 4}),
    "tiers": spec_of(
        topology={"kind": "tree", "levels": [2, 2, 3], "names": ["region", "cabinet"]},
        trust={"trusted": ["region:0", "cabinet:2"]},
        training={
            "rounds": 2,
            "steps_per_round": 4,
            "aggregate_every": [2, 1],
            "batch_size": 5,
            "learning_rate": 0.2,
        },
    ),
    "secure": zones(transport={"devices_to_edge": SECURE}),
    "secure twice": zones(transport={"devices_to_edge": SECURE, "edge_to_cloud": SECURE}),
    "star": spec_of(
        protocol="dp-fedavg",
        topology={"kind": "star", "devices": 8},
        trust={},
        training=ONCE | {"participation": {"rate": 0.6}},
    ),
    "groups": groups("plain"),
    "trusted groups": groups("plain", trusted=1.0),
    "some trusted groups": groups("plain", trusted=[1]),
    "secure groups": groups(SECURE),
    "some trusted secure groups": groups(SECURE, trusted=[1]),
}
OBSERVERS = {
    "edges": ("cloud", "public", "edge:0", "edge:1", "device:3", "edge:1,device:0", "device:4,device:11"),
    "global only": ("cloud", "edge:0", "edge:1", "device:0"),
    "tiers": ("cloud", "region:0", "region:1", "cabinet:0", "cabinet:3", "device:0", "cabinet:0,device:11"),
    "secure": ("cloud", "public", "edge:0", "edge:1", "device:3", "edge:0,device:1"),
    "secure twice": ("cloud", "public", "edge:0", "edge:1", "device:3", "cloud,edge:2"),
    "star": ("cloud", "public", "device:3", "cloud,device:1"),
    "groups": ("master:0", "master:1", "device:2", "device:6", "master:2,device:3"),
    "trusted groups": ("master:0", "device:2", "device:1,device:6"),
    "some trusted groups": ("master:0", "master:1", "device:2", "device:6", "master:1,device:6"),
    "secure groups": ("master:0", "master:1", "device:2", "master:2,device:3"),
    "some trusted secure groups": ("master:0", "master:1", "device:6", "master:0,device:5"),
}
PLACES = [(world, observer) for world, observers in OBSERVERS.items() for observer in observers]


@dataclass
class Tap:
    """Hears everything, round by round."""

    rounds: list[Heard] = field(default_factory=list)

    def sent(self, number: int, index: int, tier: int, senders: np.ndarray, vectors: Tensor) -> None:
        for sender, vector in zip(senders.tolist(), vectors, strict=True):
            self._keep(number, (index, "sent", tier, sender), vector)

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        for node, value in enumerate(values):
            self._keep(number, (index, "received", tier, node), value)

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        for node, value in enumerate(values):
            self._keep(number, (index, "broadcast", tier, node), value)

    def _keep(self, number: int, key: tuple[int, str, int, int], vector: Tensor) -> None:
        self.rounds += [{} for _ in range(number + 1 - len(self.rounds))]
        self.rounds[number][key] = vector.detach().clone()


@dataclass
class Played:
    """All that passed in a few rounds, and the recorders that listened."""

    plan: Plan
    tap: Tap
    recorders: dict[str, Recorder]
    parameters: int


def play(spec: Spec, observers: tuple[str, ...], rounds: int) -> Played:
    plan = resolve(spec)
    made = TrainingInputs.of(plan)
    layout = ParameterLayout.of(made.model)
    features, labels = map(torch.from_numpy, (made.data.train_features, made.data.train_labels))
    engine = LocalEngine(made.model, features, labels, EngineSettings("cpu", 1, 64 << 20))
    tap = Tap()
    recorders = {name: recorder_of(plan, name, layout.total) for name in observers}
    together = ListenerGroup([tap, *recorders.values()])
    protocol = protocol_of(plan, engine, made.partition, layout.total, together)
    state = protocol.initial(layout.read(made.model))
    for _ in range(rounds):
        state, _ = protocol.run_round(state)
    return Played(plan, tap, recorders, layout.total)


def receives(plan: Plan, observer: str, key: tuple[int, str, int, int]) -> bool:
    """Whether a coalition comes to know of a vector; deliberately not by the ledger."""
    members = parse_coalition(observer, plan.parties)
    return any(_one_receives(plan, member, *key) for member in members)


def _one_receives(plan: Plan, member: Party, index: int, kind: str, tier: int, party: int) -> bool:
    if isinstance(plan, GroupPlan):
        return _in_groups(plan, member, index, kind, party)
    assert isinstance(plan, TreePlan)
    tree = plan.tree

    def parent(tier: int, party: int) -> int:
        return tree.leaf_of(party) if tier == tree.depth else int(tree.parents[tier][party])

    def is_above(tier: int, party: int) -> bool:
        """Whether the party at that tier is the member, or above it."""
        if member.kind == "public":
            return False
        at, who = (tree.depth, member.index) if member.kind == "device" else (member.tier, member.index)
        while at > tier:
            at, who = at - 1, parent(at, who)
        return (at, who) == (tier, party)

    is_node = member.kind == "node"
    if kind == "broadcast":
        return tier == 0 or is_above(tier, party)
    if kind == "received":
        return is_node and (member.tier, member.index) == (tier, party) and plan.hops[tier] != "plain"
    own = tree.depth if member.kind == "device" else member.tier
    if member.kind != "public" and (own, member.index) == (tier, party):
        return True
    here = is_node and (member.tier, member.index) == (tier - 1, parent(tier, party))
    return here and plan.hops[tier - 1] == "plain"


def _in_groups(plan: GroupPlan, member: Party, index: int, kind: str, party: int) -> bool:
    secure = plan.spec.transport.get("devices_to_master") == SECURE
    is_master = member.kind == "node"
    if kind == "sent":
        return party == member.index if not is_master else index == member.index and not secure
    if kind == "received":
        return is_master and party == member.index and secure
    return party == member.index if is_master else party in plan.groups.groups_of(member.index).tolist()
