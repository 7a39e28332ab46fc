"""What a spec on groups says, as a user writes it: who is in which groups, what is sent when, who adds noise.

Written from docs/spec.md, without the library's schedule.

*Releases.* ``dp-ogl``: one of every group in every round, after an exchange (workers start from the mean of
their groups' models) in rounds 0, S, 2S, ... ``dp-ogl-local``: one every S rounds, always after an exchange,
of a message clipped to sqrt(S) times the bound. ``dp-ogl+``: the same, and in the S - 1 rounds before it what
is learned travels inside the group neither clipped nor noised. Rounds after the last complete interval
release nothing; those of ``dp-ogl+`` travel all the same.

*Noise.* Trusted masters add it to the sum, else every worker to its own message; its standard deviation is
the multiplier times the bound, either way. Where gradients of examples are clipped, the bound is what one
example by itself moves a message by, and lengths are in what it moves a step by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from oracle_record_laws import Records, step_weights


@dataclass(frozen=True)
class Release:
    """When groups release a sum.

    Attributes:
        merges: whether workers start from the mean of their groups' models.
        raw: how many rounds of un-noised, unclipped messages inside the groups precede it.
        noised: whether it is one; else only the raw rounds before it happen.
    """

    merges: bool
    raw: int = 0
    noised: bool = True


@dataclass(frozen=True)
class GroupWorld:
    """Overlapping groups as the oracle plays them.

    Attributes:
        kind: protocol.
        groups: the workers of each.
        bounds: of a message to each group.
        answers: how long an honest worker's message may be for sure.
        stds: of the noise of whoever adds it, each group's.
        rates: probability that a group samples a worker, each time.
        counts: how many workers of each group are drawn, where that is a fixed number; else empty.
        records: how workers draw and clip.
        pieces: local steps behind a message.
        sends, lasts: probabilities that a worker sends its message, and having sent stays to the end.
        faulty: whether dropouts are declared.
        least: share of a session that must survive.
        releases: in order.
        rounds: of training.
        trusted: whether each group's master is.
        masked: whether messages are summed up under masks.
    """

    kind: str
    groups: tuple[tuple[int, ...], ...]
    bounds: tuple[float, ...]
    answers: tuple[float, ...]
    stds: tuple[float, ...]
    rates: tuple[float, ...]
    releases: tuple[Release, ...]
    rounds: int
    trusted: tuple[bool, ...]
    masked: bool
    delta: float
    replace: bool
    records: Records
    pieces: int
    counts: tuple[int, ...] = ()
    sends: float = 1.0
    lasts: float = 1.0
    faulty: bool = False
    least: float | None = None

    @cached_property
    def groups_of(self) -> dict[int, tuple[int, ...]]:
        """Each worker's groups."""
        workers = sorted({worker for group in self.groups for worker in group})
        return {w: tuple(g for g, group in enumerate(self.groups) if w in group) for w in workers}

    def threshold(self, parties: int) -> int:
        """Fewest of a session's parties whose sum may be learnt, and who together open single messages."""
        if self.least is not None:
            return math.ceil(self.least * parties - 1e-12)
        return 2 * parties // 3 + 1

    @staticmethod
    def parse(observer: str) -> tuple[frozenset[int], frozenset[int]]:
        """Masters and workers of a coalition."""
        masters, workers = set(), set()
        for name in observer.split(","):
            kind, _, number = name.partition(":")
            (masters if kind == "master" else workers).add(int(number))
        return frozenset(masters), frozenset(workers)


def read_groups(spec: Mapping[str, Any]) -> GroupWorld:
    """The world of a spec on groups (structures other than labels and graph files)."""
    training, privacy, kind = spec["training"], spec["privacy"], spec["protocol"]
    groups = members(spec["topology"])
    every = training.get("merge_every") or 1
    whole = kind in ("dp-ogl+", "dp-ogl-local")
    pieces = (training.get("local_steps") or 1) * (every if whole else 1)
    clip, noise = privacy.get("clip"), privacy["noise"]
    multipliers = _each(0.0 if noise == "none" else noise["multiplier"], len(groups))
    participation = training.get("participation", "all")
    fixed = participation != "all" and participation["kind"] == "fixed"
    counts = tuple(map(int, _each(participation["count"], len(groups)))) if fixed else ()
    rates = _each(1.0 if participation == "all" or fixed else participation["rate"], len(groups))
    if counts:
        rates = [count / len(group) for count, group in zip(counts, groups, strict=True)]
    workers = sorted({worker for group in groups for worker in group})
    records = Records.read(training, privacy, (spec["data"]["examples_per_device"],) * len(workers))
    if records.clip == "example":
        weight = sum(step_weights(pieces, records.momentum))
        units, stretch = [1.0] * len(groups), weight
        answered = weight * records.sizes[0] if min(records.rates) == 1 else 0.0
    else:
        units, stretch = _each(clip["norm"] if clip else 1.0, len(groups)), math.sqrt(every) if whole else 1.0
        answered = 0.0
    bounds = tuple(unit * stretch for unit in units)
    faults = spec.get("faults") or {}
    dropped = faults.get("dropout_rate", 0.0)
    phases = dropped if isinstance(dropped, Mapping) else {"mask": dropped}
    alive = {
        name: 1.0 - phases.get(name, 0.0) for name in ("advertise", "share", "mask", "consent", "unmask")
    }
    masters = (spec.get("trust") or {}).get("trusted_aggregators")
    return GroupWorld(
        kind=kind,
        groups=groups,
        bounds=bounds,
        answers=(answered,) * len(groups) if records.clip == "example" else bounds,
        stds=tuple(z * bound for z, bound in zip(multipliers, bounds, strict=True)),
        rates=tuple(rates),
        releases=tuple(_releases(kind, training["rounds"], every)),
        rounds=training["rounds"],
        trusted=tuple(masters is None or group in masters for group in range(len(groups))),
        masked="secure-aggregation" in (spec.get("transport") or {}).values(),
        delta=float(privacy.get("delta", 1e-5)),
        replace=privacy.get("neighbours") == "replace",
        records=records,
        pieces=pieces,
        counts=counts,
        sends=alive["advertise"] * alive["share"] * alive["mask"],
        lasts=alive["consent"] * alive["unmask"],
        faulty=bool(faults),
        least=faults.get("survival_threshold"),
    )


def members(topology: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """The workers of every group."""
    structure, count, workers = topology["structure"], topology.get("groups"), topology.get("devices")
    if structure == "list":
        return tuple(tuple(sorted(group)) for group in topology["groups"])
    if structure == "global":
        return (tuple(range(workers)),)
    starts = [group * workers // count for group in range(count + 1)]
    if structure == "clusters":
        return tuple(tuple(range(a, b)) for a, b in pairwise(starts))
    if structure == "ring":
        return tuple(tuple(sorted({w % workers for w in range(a, b + 1)})) for a, b in pairwise(starts))
    if structure == "string":
        return tuple(tuple(range(a, min(b + 1, workers))) for a, b in pairwise(starts))
    raise ValueError(f"{structure}: not a structure that the oracle reads")


def _each(value: float | Sequence[float], count: int) -> list[float]:
    return list(map(float, value)) if isinstance(value, list | tuple) else [float(value)] * count


def _releases(kind: str, rounds: int, every: int) -> list[Release]:
    if kind in ("dp-ogl", "ms-fedavg"):
        return [Release(merges=number % every == 0) for number in range(rounds)]
    raw = every - 1 if kind == "dp-ogl+" else 0
    whole = [Release(merges=True, raw=raw)] * (rounds // every)
    left = rounds % every
    return [*whole, Release(merges=True, raw=left, noised=False)] if raw and left else whole
