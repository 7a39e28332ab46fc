"""One round of a tiered protocol written out message by message: the oracle that the ledger is held against.

Every contribution and every noise draw is a column, every message that anybody sends a row of coefficients.
Of `sfumato.privacy.tree.releases` only the facts (`AggregationFacts`, `TreeReleases`) are used. Contributions
are numbers here; the tests compare whole quadratic forms, and what holds for those holds for vectors. Where
messages arrive summed up, the node is sent the sum alone, and masked messages that only a node with enough of
its children can read; the channel is a party of its own.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from hypothesis import strategies as st

from sfumato.privacy.observers import Party
from sfumato.privacy.tree.facts import AggregationFacts
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.privacy.tree.shape import DeviceClasses

RANK = 1e-9


@dataclass(frozen=True)
class Message:
    """What one party sends: coefficients of the contributions and of the noise draws, and who receives it."""

    step: int
    pieces: np.ndarray
    noise: np.ndarray
    to: frozenset  # of Party
    broadcast_of: tuple | None = None  # (tier, index) of the aggregating node, for broadcasts
    masked_for: Party | None = None  # the node that meets it in a masked sum only


class Round:
    """All messages of a round in which ``drawn`` devices take part (all, by default).

    ``absent`` leaves send nothing.
    """

    def __init__(self, ledger: TreeReleases, drawn=None, absent=()):
        self.ledger = ledger
        self.absent = frozenset(absent)
        self.weights, self.loud = np.ones(int(ledger.devices.sum())), np.ones(int(ledger.devices.sum()))
        classes = ledger.device_classes
        if classes is not None and classes.of_device is not None:
            self.weights = classes.weight[classes.of_device]
            self.loud = classes.noisy[classes.of_device].astype(float)
        counts = ledger.drawn if ledger.denominators is None else ledger.denominators
        self.divisors = np.asarray(counts, dtype=float)
        self.depth = len(ledger.parents)
        self.sizes = [len(p) for p in ledger.parents]
        self.leaf = np.repeat(np.arange(len(ledger.devices)), ledger.devices)
        self.drawn = list(range(len(self.leaf))) if drawn is None else sorted(drawn)
        self.steps = len(ledger.steps)
        self.noises: list[tuple[Party, int, float]] = []  # owner, step, variance
        self.noise_index: dict[tuple[Party, int], int] = {}
        for k, facts in enumerate(ledger.steps):
            for j in self.drawn:
                std = facts.device_std[self.leaf[j]] * self.weights[j] * self.loud[j]
                self._add_noise(Party("device", 0, j), k, std)
            for t in range(self.depth):
                for i in range(self.sizes[t]):
                    self._add_noise(Party("node", t, i), k, facts.node_std[t][i])
                    if facts.channel_std:
                        self._add_noise(("channel", t, i), k, facts.channel_std[t][i])
        self.messages = list(self._play())

    def _add_noise(self, owner, step, std):
        self.noise_index[owner, step] = len(self.noises)
        self.noises.append((owner, step, float(std) ** 2))

    @cached_property
    def variances(self):
        return np.array([v for _, _, v in self.noises])

    def piece(self, device: int, step: int) -> int:
        return device * self.steps + step

    def arrives_summed(self, tier: int) -> bool:
        return bool(self.ledger.hops) and self.ledger.hops[tier] != "plain"

    def upward(self, step, pieces, noise, node) -> Message:
        """One child's message to ``node``: read by it, masked, or (over the air) read by nobody."""
        if not self.arrives_summed(node.tier):
            return Message(step, pieces, noise, frozenset([node]))
        masked = node if self.ledger.hops[node.tier] == "secure-aggregation" else None
        return Message(step, pieces, noise, frozenset(), masked_for=masked)

    def unmasks(self, coalition, node) -> bool:
        """Whether ``node`` is in ``coalition`` with enough of its children to rebuild the others' masks."""
        if node is None or node not in coalition or not self.ledger.unmask_thresholds:
            return False
        if node.tier == self.depth - 1:
            below = [p for p in coalition if p.kind == "device" and self.leaf[p.index] == node.index]
        else:
            children = np.flatnonzero(self.ledger.parents[node.tier + 1] == node.index)
            below = [Party("node", node.tier + 1, int(c)) for c in children]
            below = [p for p in below if p in coalition]
        return len(below) >= self.ledger.unmask_thresholds[node.tier][node.index]

    def with_channel(self, noise, tier, index, step):
        """What the channel adds to what a node receives."""
        if (("channel", tier, index), step) in self.noise_index:
            noise = noise.copy()
            noise[self.noise_index[("channel", tier, index), step]] += 1
        return noise

    def ancestor(self, node: tuple[int, int], tier: int) -> int:
        t, i = node
        while t > tier:
            i = int(self.ledger.parents[t][i])
            t -= 1
        return i

    def under(self, tier: int, index: int, devices=True) -> frozenset:
        """Everybody who hears a broadcast of a node: all nodes below it, itself, all devices below it."""
        nodes = [
            Party("node", t, i)
            for t in range(tier, self.depth)
            for i in range(self.sizes[t])
            if self.ancestor((t, i), tier) == index
        ]
        leaves = {p.index for p in nodes if p.tier == self.depth - 1}
        return frozenset(nodes) | {Party("device", 0, j) for j, c in enumerate(self.leaf) if c in leaves}

    def _play(self):
        P, N = len(self.leaf) * self.steps, len(self.noises)
        zero = (np.zeros(P), np.zeros(N))
        models = [zero for _ in self.ledger.devices]
        sums = {j: np.zeros(P) for j in self.drawn}  # what a device did in this round
        self.inputs = []  # the models that devices start from, for each step and leaf
        for k, facts in enumerate(self.ledger.steps):
            self.inputs.append(list(models))
            values = {}
            for c, model in enumerate(models):
                if not facts.sends(c):  # it trains on
                    continue
                pieces, noise = zero if facts.resends[c] else model
                pieces, noise = pieces.copy(), noise.copy()
                for j in (j for j in self.drawn if self.leaf[j] == c and c not in self.absent):
                    sums[j] = sums[j].copy()
                    sums[j][self.piece(j, k)] = 1
                    sent = np.zeros(P)
                    if facts.resends[c]:
                        sent = sums[j].copy()
                    else:
                        sent[self.piece(j, k)] = 1
                    mine = np.zeros(N)
                    mine[self.noise_index[Party("device", 0, j), k]] = 1
                    yield self.upward(k, sent, mine, Party("node", self.depth - 1, c))
                    pieces += sent / self.divisors[c]
                    noise += mine / self.divisors[c]
                noise = self.with_channel(noise, self.depth - 1, c, k)
                if self.arrives_summed(self.depth - 1):
                    met = frozenset([Party("node", self.depth - 1, c)])
                    yield Message(k, pieces.copy(), noise.copy(), met)
                if c in self.absent:
                    values[self.depth - 1, c] = zero
                    continue
                noise = noise.copy()
                noise[self.noise_index[Party("node", self.depth - 1, c), k]] += 1
                values[self.depth - 1, c] = (pieces, noise)
            for t in range(self.depth - 2, facts.tier - 1, -1):
                for i in range(self.sizes[t]):
                    below = [c for c in range(self.sizes[t + 1]) if self.ledger.parents[t + 1][c] == i]
                    pieces = sum(values[t + 1, c][0] for c in below) / len(below)
                    noise = sum(values[t + 1, c][1] for c in below) / len(below)
                    noise = self.with_channel(noise, t, i, k)
                    if self.arrives_summed(t):
                        yield Message(k, pieces.copy(), noise.copy(), frozenset([Party("node", t, i)]))
                    for c in below:
                        yield self.upward(k, *values[t + 1, c], Party("node", t, i))
                    noise = noise.copy()
                    noise[self.noise_index[Party("node", t, i), k]] += 1
                    values[t, i] = (pieces, noise)
            for c in range(len(models)):
                if facts.broadcasts(c):
                    yield Message(k, *values[self.depth - 1, c], self.under(self.depth - 1, c))
            for i in range(self.sizes[facts.tier]):
                if (facts.tier, i) not in values:
                    continue
                hear = self.under(facts.tier, i)
                if facts.tier == 0:
                    hear = hear | {Party("public")}
                yield Message(k, *values[facts.tier, i], hear, (facts.tier, i))
            models = [
                values[facts.tier, self.ancestor((self.depth - 1, c), facts.tier)] if facts.sends(c) else old
                for c, old in enumerate(models)
            ]

    # --- views ----------------------------------------------------------------------------------

    def seen(self, coalition) -> list[Message]:
        """Messages that a member receives, or several unmask; global averages are everybody's."""
        members = frozenset(coalition) | {Party("public")}
        return [m for m in self.messages if m.to & members or self.unmasks(coalition, m.masked_for)]

    def hidden_averages(self, unit: int) -> list[Message]:
        """Broadcasts made above the unit, seen or not: what the devices around it start from."""
        here = (self.depth - 1, int(self.leaf[unit]))
        return [
            m for m in self.messages
            if m.broadcast_of and self.ancestor(here, m.broadcast_of[0]) == m.broadcast_of[1]
        ]  # fmt: skip

    def all_averages(self) -> list[Message]:
        return [m for m in self.messages if m.broadcast_of]

    def form(self, unit: int, messages, coalition) -> tuple[np.ndarray, np.ndarray]:
        """What ``messages`` tell of the unit's pieces ``x``: ``x' M x``, other people's being known.

        Returns M ``[K, K]``, and directions ``[K, r]`` in which nothing protects.
        """
        columns = [self.piece(unit, k) for k in range(self.steps)]
        A = np.array([m.pieces[columns] for m in messages])
        others = np.array([owner not in coalition for owner, _, _ in self.noises])
        E = np.array([m.noise for m in messages])[:, others] * np.sqrt(self.variances[others])
        values, vectors = np.linalg.eigh(E @ E.T)
        solid = values > RANK * max(1e-300, values.max(initial=0.0))
        B = vectors[:, solid].T @ A / np.sqrt(values[solid])[:, None]
        return B.T @ B, vectors[:, ~solid].T @ A

    def charge_of_step(self, unit: int, step: int, messages, coalition) -> float:
        """mu^2 that one step adds when all noise of earlier steps is given away: others may cancel that."""
        now = [m for m in messages if m.step == step]
        facts = self.ledger.steps[step]
        columns = [self.piece(unit, k) for k in range(self.steps)]
        own = np.array([m.pieces[columns[step]] for m in now]) * facts.message_norm[self.leaf[unit]]
        own = own * self.weights[unit]
        return self._square(own, now, step, coalition)

    def _square(self, shift, messages, step, coalition) -> float:
        """shift' Sigma^+ shift, Sigma of others' noise of ``step``; infinite off its range."""
        fresh = np.array([k == step and owner not in coalition for owner, k, _ in self.noises])
        E = np.array([m.noise for m in messages])[:, fresh] * np.sqrt(self.variances[fresh])
        values, vectors = np.linalg.eigh(E @ E.T)
        solid = values > RANK * max(1e-300, values.max(initial=0.0))
        if np.abs(vectors[:, ~solid].T @ shift).max(initial=0.0) > RANK:
            return float("inf")
        return float(((vectors[:, solid].T @ shift) ** 2 / values[solid]).sum())

    # --- the cut --------------------------------------------------------------------------------

    def cut(self, unit: int, coalition, signs=None) -> dict[int, float]:
        """mu^2 of every seen step, with everybody counted whose input depends on the unit and was not seen.

        Noise of steps before the seen one is in those inputs, so it is given away. ``signs[device, step]``
        picks a corner of what the contributions may do.
        """
        signs = np.ones((len(self.leaf), self.steps)) if signs is None else signs
        shift = np.zeros(len(self.leaf) * self.steps)  # of contributions, not yet determined by what was seen
        moved_by = np.zeros_like(shift)  # in all of the round
        depends = np.zeros(len(self.ledger.devices), dtype=bool)  # models that move with the unit, unseen
        seen, found = self.seen(coalition), {}
        for k, facts in enumerate(self.ledger.steps):
            moves = set()
            for j in self.drawn:
                c = self.leaf[j]
                if facts.sends(c) and (j == unit or depends[c]):
                    moves.add(c)
                    size = facts.message_norm[c] - (
                        sum(f.message_norm[c] for f in self.ledger.steps[:k]) if facts.resends[c] else 0
                    )
                    moved_by[self.piece(j, k)] = signs[j, k] * size * (1 if j == unit else 2)
                    pieces = slice(self.piece(j, 0 if facts.resends[c] else k), self.piece(j, k) + 1)
                    shift[pieces] = moved_by[pieces]  # a message that repeats the round moves by all of it
            now = [m for m in seen if m.step == k]
            for i in range(self.sizes[facts.tier]):
                below = [
                    c for c in range(len(depends)) if self.ancestor((self.depth - 1, c), facts.tier) == i
                ]
                if not all(facts.sends(c) for c in below):
                    continue
                told = any(m.broadcast_of == (facts.tier, i) for m in now)
                moved = any(c in moves or depends[c] for c in below)
                depends[below] = moved and not told
            moves_of_messages = np.array([m.pieces @ shift for m in now])
            if any(self._is_above(m, unit) for m in now):
                found[k] = self._square(moves_of_messages, now, k, coalition)
                shift[:] = 0.0
            else:  # what is met elsewhere does not depend on the unit yet
                assert not moves_of_messages.any()
        return found

    def _is_above(self, message: Message, unit: int) -> bool:
        here = (self.depth - 1, int(self.leaf[unit]))
        place = message.broadcast_of
        return place is not None and self.ancestor(here, place[0]) == place[1]


def make_ledger(fan_out, steps, *, kind="all", rate=1.0, participants=None, rounds=1, **more) -> TreeReleases:
    """A ledger over a tree given as ``fan_out``: children counts tier by tier, the last one of devices."""
    parents = [np.array([-1])]
    for counts in fan_out[:-1]:
        parents.append(np.repeat(np.arange(len(counts)), counts))
    devices = np.array(fan_out[-1])
    taking_part = devices.astype(float) if participants is None else np.asarray(participants, dtype=float)
    names = ("cloud", *("region", "cabinet", "street")[: len(parents) - 2], "edge")[: len(parents)]
    return TreeReleases(
        names=names,
        parents=tuple(parents),
        devices=devices,
        drawn=taking_part,
        draw_kind=kind,
        draw_rate=rate,
        draw_seen_from=len(parents) - 1,
        steps=tuple(steps),
        rounds=rounds,
        **more,
    )


LEVELS = (0.0, 0.5, 1.0, 2.0)


@st.composite
def trees(draw, depths=(1, 4)):
    """Random children counts of a tree of 1 to 4 tiers, at most 12 leaves."""
    depth = draw(st.integers(*depths))
    fan_out, size = [], 1
    for tier in range(depth):
        most = 3 if size <= 4 else 2 if tier == depth - 1 else 1
        counts = draw(st.lists(st.integers(1, most), min_size=size, max_size=size))
        fan_out.append(counts)
        size = sum(counts)
    return fan_out


def _node_stds(draw, fan_out, tier):
    sizes = [1, *(sum(counts) for counts in fan_out[:-1])]
    return tuple(
        np.array(draw(st.lists(st.sampled_from(LEVELS), min_size=n, max_size=n)))
        if t >= tier
        else np.zeros(n)
        for t, n in enumerate(sizes)
    )


@st.composite
def ledgers(draw, kinds=("all", "fixed", "poisson"), uniform=False, depths=(1, 4), resend=True):
    """A random ledger: tree, aggregations, noise here and there and nowhere, participation, readings."""
    fan_out = draw(trees(depths))
    depth, leaves = len(fan_out), len(fan_out[-1])
    tiers = draw(st.lists(st.integers(1, depth - 1), max_size=3)) if depth > 1 else []
    sizes = st.just(1.0) if uniform else st.sampled_from((0.5, 1.0, 3.0))
    repeats = draw(st.booleans()) if depth == 2 and tiers and resend else False
    fresh = np.array(draw(st.lists(st.booleans(), min_size=leaves, max_size=leaves))) if repeats else None
    steps, total = [], np.zeros(leaves)
    for k, tier in enumerate([*tiers, 0]):
        if uniform:
            bound = np.full(leaves, draw(st.sampled_from((0.5, 1.0, 3.0))))
        else:
            bound = np.array(draw(st.lists(sizes, min_size=leaves, max_size=leaves)))
        last = k == len(tiers)
        if repeats and last:
            bound = np.minimum(
                bound, steps[0].message_norm
            )  # the last period is never longer than the others
        total = total + bound
        again = fresh if repeats and last else np.zeros(leaves, dtype=bool)
        bound = np.where(again, total, bound)
        device = np.array(draw(st.lists(st.sampled_from(LEVELS), min_size=leaves, max_size=leaves)))
        steps.append(
            AggregationFacts(f"step {k}", tier, bound, device, _node_stds(draw, fan_out, tier), again)
        )
    kind = draw(st.sampled_from(kinds))
    devices = np.array(fan_out[-1])
    if kind == "fixed":
        count = draw(st.integers(1, int(devices.min())))
        return make_ledger(
            fan_out, steps, kind=kind, rate=count / devices.min(), participants=np.full(leaves, count)
        )
    if kind == "poisson":
        return make_ledger(fan_out, steps, kind=kind, rate=0.5, participants=devices * 0.5)
    return make_ledger(fan_out, steps)


HOPS = ("plain", "secure-aggregation", "air")


@st.composite
def mixed_ledgers(draw, kinds=("all", "fixed"), depths=(1, 3), plain=False):
    """A ledger of one aggregation a round: sums on some hops, a noisy channel, devices that differ."""
    plainer = draw(ledgers(kinds=kinds, depths=depths, resend=False))
    depth, devices = len(plainer.parents), plainer.devices
    facts = plainer.steps[-1]
    hops = ("plain",) * depth if plain else tuple(draw(st.sampled_from(HOPS)) for _ in range(depth))
    channel = tuple(
        np.array(draw(st.lists(st.sampled_from((0.0, 0.7)), min_size=len(p), max_size=len(p))))
        * (hop == "air")
        for p, hop in zip(plainer.parents, hops, strict=True)
    )
    below = [*(np.bincount(p) for p in plainer.parents[1:]), devices]
    shares = tuple(np.array([draw(st.integers(1, int(n))) for n in sizes]) for sizes in below)
    total = int(devices.sum())
    weights = np.array(draw(st.lists(st.sampled_from((0.25, 1.0)), min_size=total, max_size=total)))
    noisy = np.array(draw(st.lists(st.booleans(), min_size=total, max_size=total)))
    return replace(
        plainer,
        steps=(replace(facts, channel_std=channel if draw(st.booleans()) else ()),),
        hops=hops,
        unmask_thresholds=shares if draw(st.booleans()) else (),
        device_classes=DeviceClasses.of(devices, weights, noisy),
        denominators=plainer.drawn * draw(st.sampled_from((0.5, 1.0))),
    )


@st.composite
def coalitions(draw, ledger: TreeReleases, unit: int, most=3):
    """One to ``most`` parties of any kind, never the unit."""
    parties = [Party("public")]
    parties += [Party("node", t, i) for t, p in enumerate(ledger.parents) for i in range(len(p))]
    parties += [Party("device", 0, j) for j in range(int(ledger.devices.sum())) if j != unit]
    return tuple(draw(st.lists(st.sampled_from(parties), min_size=1, max_size=most, unique=True)))


@st.composite
def draws(draw, ledger: TreeReleases, unit: int):
    """A possible cohort that the unit is in."""
    first = np.concatenate([[0], np.cumsum(ledger.devices)])
    chosen = []
    for c, count in enumerate(ledger.devices):
        here = list(range(int(first[c]), int(first[c] + count)))
        if ledger.draw_kind == "all":
            chosen += here
            continue
        must = [unit] if unit in here else []
        rest = draw(st.permutations([j for j in here if j not in must]))
        if ledger.draw_kind == "fixed":
            chosen += (must + list(rest))[: int(ledger.drawn[c])]
        else:
            chosen += must + list(rest)[: draw(st.integers(0, len(rest)))]
    return chosen


def charged(exposure):
    """mu^2 of one round, release by release."""
    return [
        np.inf
        if r.variance == 0 and r.own_sensitivity > 0
        else (r.own_sensitivity + r.propagated_sensitivity) ** 2 / max(r.variance, 1e-300)
        for r in exposure.releases
    ]
