"""How a message of a device moves by one of its records: its values in either world, and how likely each is.

The device trains on batches that it draws itself, every record in every local step with probability q, and
nobody else sees these draws. Its other records may follow any rule. Played here is one in which they notice
when the record was drawn for the first time in a message, as the model then is another one, and turn round:

- *whole updates are clipped*: a message is one end of its ball unless the record was drawn, then the other;
- *steps are clipped*: the same of every step, from the one on in which the record was drawn first;
- *examples are clipped*: the record adds its gradient to every step that it is drawn in; of the others, those
  drawn into later steps of the message turn round, or start to send. Where every step is noised they cannot
  tell that the record was drawn, and add nothing.

Worlds: the record's gradient is zero in one of them, or (replaced) the negative of that in the other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Law = tuple[tuple[float, float], ...]
"""Probability and value, for every value that a message may have."""

MOST_VALUES = 1500


def step_weights(steps: int, momentum: float) -> list[float]:
    """What every step's gradient weighs in a message of so many steps, with momentum that starts at rest."""
    return [sum(momentum**age for age in range(steps - step)) for step in range(steps)]


@dataclass(frozen=True)
class MessageLaw:
    """A message in the two worlds, in units of the clip."""

    with_record: Law
    without: Law

    @property
    def reach(self) -> float:
        """Half the distance between its outermost values."""
        values = [value for _, value in self.with_record + self.without]
        return (max(values) - min(values)) / 2


@dataclass(frozen=True)
class Records:
    """How devices draw and clip.

    Attributes:
        clip: ``update``, ``step`` or ``example``.
        rates: q, of every device; empty where batches are shuffled, so that a record may be in each message.
        sizes: records of every device.
        momentum: of local steps.
        noised_steps: whether noise is added to the sum of every step.
    """

    clip: str
    rates: tuple[float, ...]
    sizes: tuple[int, ...]
    momentum: float = 0.0
    noised_steps: bool = False

    @classmethod
    def read(cls, training: Mapping[str, Any], privacy: Mapping[str, Any], sizes: tuple[int, ...]) -> Records:
        """What a spec says."""
        drawn, noise = training.get("batches") == "poisson", privacy["noise"]
        return cls(
            clip=(privacy.get("clip") or {}).get("kind", "update"),
            rates=tuple(min(1.0, training["batch_size"] / size) for size in sizes) if drawn else (),
            sizes=sizes,
            momentum=training.get("momentum", 0.0),
            noised_steps=isinstance(noise, Mapping) and noise.get("at") == "step",
        )

    def laws(self, device: int, steps: int, *, replaced: bool) -> list[MessageLaw]:
        """Attacks on a record: what becomes of a message of so many local steps of its device."""
        rate = self.rates[device] if self.rates else 1.0
        weights = step_weights(steps, self.momentum)
        if self.clip == "example":
            others = 0 if self.noised_steps or steps == 1 else self.sizes[device] - 1
            return [
                _examples(weights, rate, others, before, replaced=replaced)
                for before in ((-1.0, 0.0) if others else (0.0,))
            ]
        if self.clip == "update":
            weights = [1.0, *[0.0] * (steps - 1)]
        found = [_turned(weights, rate, -1.0, replaced=False, whole=self.clip == "update")]
        if replaced:
            found.append(_turned(weights, rate, 0.0, replaced=True, whole=self.clip == "update"))
        return found


def _turned(weights: list[float], rate: float, before: float, *, replaced: bool, whole: bool) -> MessageLaw:
    """Steps are ``before`` until the record is drawn, then 1, or -1 in the other world of a replaced one."""
    drawn = [rate * (1 - rate) ** step for step in range(len(weights))]
    never = (1 - rate) ** len(weights)

    def law(after: float) -> Law:
        values: dict[float, float] = defaultdict(float)
        values[before * sum(weights)] += never
        for step, p in enumerate(drawn):
            first = 0 if whole else step
            values[before * sum(weights[:first]) + after * sum(weights[first:])] += p
        return _listed(values)

    return MessageLaw(law(1.0), law(-1.0) if replaced else _listed({before * sum(weights): 1.0}))


def _examples(weights: list[float], rate: float, others: int, before: float, *, replaced: bool) -> MessageLaw:
    """Other records add ``before`` each until the record was drawn and 1 each after it."""
    counts = [math.comb(others, k) * rate**k * (1 - rate) ** (others - k) for k in range(others + 1)]

    def law(gradient: float, after: float) -> Law:
        values: dict[tuple[float, bool], float] = {(0.0, False): 1.0}  # the sum, whether it was drawn before
        for weight in weights:
            step: dict[tuple[float, bool], float] = defaultdict(float)
            for (value, turned), p in values.items():
                for number, q in enumerate(counts):
                    each = number * (after if turned else before)
                    if q * p < 1e-300:
                        continue
                    step[_near(value + weight * each), turned] += p * q * (1 - rate)
                    step[_near(value + weight * (each + gradient)), True] += p * q * rate
            values = step
        total: dict[float, float] = defaultdict(float)
        for (value, _), p in values.items():
            total[value] += p
        return _listed(total)

    if replaced:
        return MessageLaw(law(1.0, 1.0), law(-1.0, -1.0))
    return MessageLaw(law(1.0, 1.0), law(0.0, before))


def _near(value: float) -> float:
    return round(value, 9)


def _listed(values: Mapping[float, float]) -> Law:
    return tuple((p, value) for value, p in sorted(values.items()) if p > 0)


def summed(laws: list[Law], weights: list[float]) -> Law | None:
    """The law of a weighted sum of independent messages; ``None`` where it has too many values."""
    total: dict[float, float] = {0.0: 1.0}
    for law, weight in zip(laws, weights, strict=True):
        if weight == 0:
            continue
        if len(total) * len(law) > 40 * MOST_VALUES:
            return None
        step: dict[float, float] = defaultdict(float)
        for value, p in total.items():
            for q, other in law:
                step[float(f"{value + weight * other:.11g}")] += p * q
        total = step
        if len(total) > MOST_VALUES:
            return None
    return _listed(total)
