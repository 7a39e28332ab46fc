"""Trees by their numbers of children, and random facts of trees for hypothesis."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from sfumato.privacy.observers import Party
from sfumato.privacy.tree.facts import AggregationFacts
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.privacy.tree.shape import DeviceClasses


def make_ledger(fan_out, steps, *, kind="all", rate=1.0, participants=None, rounds=1, **more) -> TreeReleases:
    """Declared releases over a tree given as ``fan_out``: children tier by tier, the last of devices."""
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
    """Random declared releases: tree, aggregations, noise here and there, participation, readings."""
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
    """Declared releases of one aggregation a round: sums on hops, a noisy channel, unequal devices."""
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
def coalitions(draw, declared: TreeReleases, unit: int, most=3):
    """One to ``most`` parties of any kind, never the unit."""
    parties = [Party("public")]
    parties += [Party("node", t, i) for t, p in enumerate(declared.parents) for i in range(len(p))]
    parties += [Party("device", 0, j) for j in range(int(declared.devices.sum())) if j != unit]
    return tuple(draw(st.lists(st.sampled_from(parties), min_size=1, max_size=most, unique=True)))


def charged(exposure):
    """mu^2 of one round, release by release."""
    return [
        np.inf
        if r.variance == 0 and r.own_sensitivity > 0
        else (r.own_sensitivity + r.propagated_sensitivity) ** 2 / max(r.variance, 1e-300)
        for r in exposure.releases
    ]
