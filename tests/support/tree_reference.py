"""docs/concepts.md played one device after another: slow, plain, and knowing nothing of the library's plan.

Only addresses of random streams, the cutting of data into batches and the shape of a model are shared with
the library. Who noises what, by how much and what is averaged how is worked out here once more.
"""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.learning.batches import BatchPlan, plan_epochs, plan_steps
from sfumato.mechanisms.gaussian import add_gaussian_
from sfumato.random import Stream, generator, key_at


@dataclass
class Node:
    """An aggregator; devices hang on the last tier's nodes only."""

    tier: int
    index: int
    trusted: bool
    children: list[Node] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    public_count: float = 0.0  # devices that take part in a round, or are expected to

    def leaves(self) -> list[Node]:
        return [leaf for child in self.children for leaf in child.leaves()] if self.children else [self]


@dataclass
class World:
    cloud: Node
    depth: int
    model: nn.Module
    features: Tensor
    labels: Tensor
    rows: list[np.ndarray]  # of each device
    seed: int
    aggregations: list[tuple[int, int]]  # (after which local step, by which tier)
    learning_rate: list[float]  # of each round
    batch_size: int
    clip_kind: str | None
    clip_norm: float = math.inf
    multiplier: float = 0.0
    momentum: float = 0.0
    adamw: dict[str, float] | None = None  # of torch, in place of SGD
    epochs: int | None = None
    participation: tuple[str, float] = ("all", 1.0)
    dp_fedavg: bool = False
    resend: bool = False
    server: dict[str, float | str] = field(default_factory=lambda: {"optimizer": "sgd"})


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def fill(model: nn.Module, vector: Tensor) -> None:
    with torch.no_grad():
        for p, part in zip(
            model.parameters(), vector.split([p.numel() for p in model.parameters()]), strict=True
        ):
            p.copy_(part.reshape(p.shape))


def clipped(vector: Tensor, bound: float) -> Tensor:
    norm = float(vector.double().norm())
    return vector if norm <= bound else vector * (bound / norm)


def participants(world: World, number: int) -> list[int]:
    kind, value = world.participation
    leaves = world.cloud.leaves()
    everybody = [device for leaf in leaves for device in leaf.devices]
    rng = generator(world.seed, Stream.PARTICIPATION, number)
    if kind == "poisson":
        return [d for d, u in zip(everybody, rng.random(len(everybody)), strict=True) if u < value]
    if kind == "fixed":
        drawn = [rng.choice(len(leaf.devices), size=int(value), replace=False) for leaf in leaves]
        return [leaf.devices[i] for leaf, some in zip(leaves, drawn, strict=True) for i in sorted(some)]
    return everybody


def local_sgd(world: World, start: Tensor, batches: BatchPlan, p: int, steps: range, rate: float) -> Tensor:
    """(7), (8): what a device's model moved by in these steps. Momentum and moments start anew."""
    model = copy.deepcopy(world.model)
    fill(model, start)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=world.momentum)
    if world.adamw is not None:
        betas = (world.adamw["beta1"], world.adamw["beta2"])
        eps, decay = world.adamw["epsilon"], world.adamw["decay"]
        optimizer = torch.optim.AdamW(model.parameters(), rate, betas, eps, decay)
    for step in steps:
        if step >= int(batches.steps[p]):
            break
        rows = batches.rows[p, step, : int(batches.counts[p, step])].long()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(world.features[rows]), world.labels[rows]).backward()
        if world.clip_kind == "step":
            room = 1 - (8 * farthest(len(steps), world.momentum) + 1056) * 1.01 * 2.0**-24  # for rounding
            whole = torch.cat([q.grad.reshape(-1) for q in model.parameters()])
            gradient = clipped(whole, world.clip_norm * room)
            sizes = [q.numel() for q in model.parameters()]
            for q, part in zip(model.parameters(), gradient.split(sizes), strict=True):
                q.grad.copy_(part.reshape(q.shape))
        optimizer.step()
    update = flat(model) - start
    return clipped(update, world.clip_norm) if world.clip_kind == "update" else update


def farthest(steps: int, momentum: float) -> float:
    """How far clipped steps of norm 1 can go with step size 1, spelled out."""
    velocity = position = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1.0
        position += velocity
    return position


@dataclass
class Played:
    model: Tensor
    participants: list[int]
    edge_models: list[list[Tensor]]  # after each aggregation, of each leaf


class Reference:
    def __init__(self, world: World) -> None:
        self.world = world
        self.memory: list[Tensor] = []
        self.rounds = 0

    def noise(self, std: float, *key: int) -> Tensor:
        noise = torch.zeros(1, len(flat(self.world.model)))
        add_gaussian_(noise, np.array([std]), lambda _: key_at(self.world.seed, Stream.NOISE, *key))
        return noise[0]

    def play(self, start: Tensor, number: int) -> Played:
        world = self.world
        chosen = participants(world, number)
        rng = generator(world.seed, Stream.BATCHES, number)
        rows = [world.rows[d] for d in chosen]
        if world.epochs is not None:
            batches = plan_epochs(rows, epochs=world.epochs, batch_size=world.batch_size, rng=rng)
            steps_in_all = batches.rows.shape[1]
        else:
            steps_in_all = world.aggregations[-1][0]
            batches = plan_steps(rows, steps=steps_in_all, batch_size=world.batch_size, rng=rng)
        place = {device: p for p, device in enumerate(chosen)}
        leaves = world.cloud.leaves()
        edge_model = {leaf.index: start.clone() for leaf in leaves}
        whole_round = {d: torch.zeros_like(start) for d in chosen}
        done, history = 0, []
        for which, (step, tier) in enumerate(world.aggregations):
            is_last = which == len(world.aggregations) - 1
            if is_last and world.epochs is not None:
                step = steps_in_all
            average: dict[int, Tensor] = {}
            bound: dict[int, float] = {}
            for leaf in leaves:
                again = world.resend and is_last and which > 0 and leaf.trusted
                bound[leaf.index] = self.bound(number, step - done, again)
                total = torch.zeros_like(start)
                for device in (d for d in leaf.devices if d in place):
                    message = local_sgd(
                        world,
                        edge_model[leaf.index],
                        batches,
                        place[device],
                        range(done, step),
                        world.learning_rate[number],
                    )
                    whole_round[device] += message
                    if again:
                        message = whole_round[device]
                        if world.clip_kind == "update":
                            message = clipped(message, world.clip_norm)
                    total += message
                    if not leaf.trusted and world.multiplier:
                        std = world.multiplier * bound[leaf.index]
                        if world.dp_fedavg:
                            std /= math.sqrt(leaf.public_count)
                        total += self.noise(std, number, which, world.depth, device)
                base = start if again else edge_model[leaf.index]
                average[leaf.index] = base + total / leaf.public_count
            for root in self.nodes(world.cloud, tier):
                value, _ = self.aggregate(root, root, average, bound, number, which)
                for leaf in root.leaves():
                    edge_model[leaf.index] = value
            history.append([edge_model[leaf.index] for leaf in leaves])
            done = step
        return Played(self.serve(start, edge_model[0] - start), chosen, history)

    def bound(self, number: int, steps: int, again: bool) -> float:
        world = self.world
        if world.clip_kind != "step":
            return world.clip_norm
        rate, pieces = world.learning_rate[number], [steps]
        if again:
            ends = [0, *(step for step, _ in world.aggregations)]
            pieces = [b - a for a, b in itertools.pairwise(ends)]
        return rate * world.clip_norm * sum(farthest(piece, world.momentum) for piece in pieces)

    def nodes(self, node: Node, tier: int) -> list[Node]:
        if node.tier == tier:
            return [node]
        return [found for child in node.children for found in self.nodes(child, tier)]

    def aggregate(
        self,
        node: Node,
        root: Node,
        average: dict[int, Tensor],
        bound: dict[int, float],
        number: int,
        which: int,
    ) -> tuple[Tensor, float]:
        """What a node sends on, and how much of it a device whose message is still raw there accounts for."""
        world = self.world
        if node.children:
            parts = [self.aggregate(c, root, average, bound, number, which) for c in node.children]
            value = torch.stack([part for part, _ in parts]).mean(dim=0)
            raw = max(sensitivity for _, sensitivity in parts) / len(node.children)
        else:
            value = average[node.index]
            raw = bound[node.index] / node.public_count if node.trusted else 0.0
        leaves_trusted_hands = node is root or not self.parent(node).trusted
        if node.trusted and raw > 0 and leaves_trusted_hands and world.multiplier:
            value = value + self.noise(world.multiplier * raw, number, which, node.tier, node.index)
        return value, 0.0 if leaves_trusted_hands else raw

    def parent(self, node: Node) -> Node:
        above = self.nodes(self.world.cloud, node.tier - 1)
        return next(candidate for candidate in above if node in candidate.children)

    def serve(self, model: Tensor, update: Tensor) -> Tensor:
        server = self.world.server
        rate = float(server.get("learning_rate", 1.0))
        self.rounds += 1
        if server["optimizer"] == "sgd":
            self.memory = self.memory or [torch.zeros_like(model)]
            self.memory[0] = float(server.get("momentum", 0.0)) * self.memory[0] + update
            return model + rate * self.memory[0]
        b1, b2, eps = (float(server[name]) for name in ("beta1", "beta2", "epsilon"))
        self.memory = self.memory or [torch.zeros_like(model), torch.zeros_like(model)]
        m = self.memory[0] = b1 * self.memory[0] + (1 - b1) * update
        v = self.memory[1] = b2 * self.memory[1] + (1 - b2) * update**2
        m, v = m / (1 - b1**self.rounds), v / (1 - b2**self.rounds)
        return model + rate * m / (v.sqrt() + eps)
