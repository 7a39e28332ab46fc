"""The one aggregation of a round, written out message by message, for given participants and coalitions.

Every contribution and every noise draw is a column, every message that anybody sends a row of coefficients.
Where messages arrive summed up, the node is sent the sum alone, and masked messages that only a node with
enough of its children can read; the channel is a party of its own. Of `sfumato.privacy.tree` only the facts
are used.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sfumato.privacy.observers import Party
from sfumato.privacy.tree.releases import TreeReleases

RANK = 1e-9


class Message(NamedTuple):
    """What one party sends: coefficients of contributions and of noise, and who receives it."""

    pieces: np.ndarray
    noise: np.ndarray
    to: Party | None
    masked_for: Party | None = None  # the node that meets it in a masked sum only


class Aggregation:
    """All messages of a round in which ``drawn`` devices take part (all, by default).

    ``absent`` leaves send nothing.
    """

    def __init__(self, declared: TreeReleases, drawn=None, absent=()):
        (self.facts,) = declared.steps
        self.releases, self.absent, self.depth = declared, frozenset(absent), len(declared.parents)
        self.leaf = np.repeat(np.arange(len(declared.devices)), declared.devices)
        self.weights, loud = np.ones(len(self.leaf)), np.ones(len(self.leaf))
        classes = declared.device_classes
        if classes is not None and classes.of_device is not None:
            self.weights, loud = classes.weight[classes.of_device], classes.noisy[classes.of_device]
        self.divisors = declared.drawn if declared.denominators is None else declared.denominators
        self.drawn = range(len(self.leaf)) if drawn is None else sorted(drawn)
        stds = self.facts.device_std[self.leaf] * self.weights * loud
        self.stds = {Party("device", 0, j): float(stds[j]) for j in self.drawn}
        for t, parents in enumerate(declared.parents):
            for i in range(len(parents)):
                self.stds[Party("node", t, i)] = float(self.facts.node_std[t][i])
                self.stds["channel", t, i] = self.facts.channel_of(t, i) ** 0.5
        self.owners = list(self.stds)
        self.messages = list(self._messages())

    def _noise_of(self, owner) -> np.ndarray:
        return np.array([float(other == owner) for other in self.owners])

    def _messages(self) -> Iterator[Message]:
        nothing = np.zeros(len(self.leaf)), np.zeros(len(self.owners))
        sent = {}
        for t in range(self.depth - 1, -1, -1):
            for i in range(len(self.releases.parents[t])):
                node, last = Party("node", t, i), t == self.depth - 1
                if last:
                    here = [j for j in self.drawn if self.leaf[j] == i and i not in self.absent]
                    unit = np.eye(len(self.leaf))
                    terms = [(unit[j], self._noise_of(Party("device", 0, j))) for j in here]
                else:
                    terms = [sent[t + 1, c] for c in self._children(node)]
                summed = bool(self.releases.hops) and self.releases.hops[t] != "plain"
                masked = node if summed and self.releases.hops[t] == "secure-aggregation" else None
                for term in terms:
                    yield Message(*term, None if summed else node, masked)
                divisor = self.divisors[i] if last else len(terms)
                pieces = sum((term[0] for term in terms), nothing[0]) / divisor
                noise = sum((term[1] for term in terms), nothing[1]) / divisor
                noise = noise + self._noise_of(("channel", t, i))
                if summed:
                    yield Message(pieces, noise, node)
                kept = not (last and i in self.absent)
                sent[t, i] = (pieces, noise + self._noise_of(node)) if kept else nothing
        yield Message(*sent[0, 0], Party("public"))

    def _children(self, node: Party) -> list[int]:
        return np.flatnonzero(self.releases.parents[node.tier + 1] == node.index).tolist()

    def _unmasks(self, coalition, node: Party | None) -> bool:
        """Whether ``node`` is in ``coalition`` with enough of its children to rebuild the others' masks."""
        if node is None or node not in coalition or not self.releases.unmask_thresholds:
            return False
        if node.tier == self.depth - 1:
            below = [p for p in coalition if p.kind == "device" and self.leaf[p.index] == node.index]
        else:
            below = [c for c in self._children(node) if Party("node", node.tier + 1, c) in coalition]
        return len(below) >= self.releases.unmask_thresholds[node.tier][node.index]

    def charge(self, unit: int, coalition) -> float:
        """What ``coalition`` learns of the unit's contribution: μ², infinite where nothing protects it."""
        members = {*coalition, Party("public")}
        seen = [m for m in self.messages if m.to in members or self._unmasks(coalition, m.masked_for)]
        shift = np.array([m.pieces[unit] for m in seen]) * self.weights[unit]
        shift *= self.facts.message_norm[self.leaf[unit]]
        stds = np.array([0.0 if owner in members else std for owner, std in self.stds.items()])
        values, vectors = np.linalg.eigh((E := np.array([m.noise for m in seen]) * stds) @ E.T)
        solid = values > RANK * max(1e-300, values.max(initial=0.0))
        if np.abs(vectors[:, ~solid].T @ shift).max(initial=0.0) > RANK:
            return float("inf")
        return float(((vectors[:, solid].T @ shift) ** 2 / values[solid]).sum())
