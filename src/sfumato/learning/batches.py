"""Which examples each device's mini-batches hold: drawn for all devices at once, before training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.errors import SpecError

Rows = NDArray[np.integer]


class BatchDraws(Protocol):
    """The random draws that batches need, as NumPy's ``Generator`` has them, or a party's secret source."""

    def permuted(self, x: NDArray[Any], /, *, axis: int) -> NDArray[Any]:
        """A copy of ``x`` in which every line along ``axis`` is shuffled independently."""

    def geometric(self, p: float, /, *, size: int) -> NDArray[np.int64]:
        """``size`` draws of the number of trials up to the first success, of probability ``p`` each."""

    def integers(self, low: NDArray[Any], high: NDArray[Any], /) -> NDArray[np.int64]:
        """Uniform whole numbers from ``low`` to below ``high``, entry by entry, in their shape."""


@dataclass(frozen=True)
class BatchPlan:
    """The mini-batches of P devices. Private: which examples a device uses in a step.

    Attributes:
        rows: int32 ``[P, S, B]``, rows of the data set; past ``counts`` and ``steps`` they are 0 and unused.
        counts: int32 ``[P, S]``, how many rows of a batch are valid (the first ones).
        steps: int64 ``[P]``, how many steps a device takes: 0 without data; later steps change nothing.
        divisor: what every batch's sum of gradients is divided by, public; ``None``: by its own count.
    """

    rows: Tensor
    counts: Tensor
    steps: Tensor
    divisor: int | None = None

    @property
    def devices(self) -> int:
        """P, the number of devices."""
        return self.rows.shape[0]

    @property
    def width(self) -> int:
        """B, the number of examples of the widest batch."""
        return self.rows.shape[2]

    @property
    def used(self) -> Tensor:
        """Which of `rows` are valid, bool ``[P, S, B]``."""
        return torch.arange(self.width) < (self.counts * self._taken)[:, :, None]

    @property
    def draws(self) -> Tensor:
        """How many examples the batches of each device hold in all, int64 ``[P]``."""
        return (self.counts * self._taken).sum(dim=1)

    @property
    def _taken(self) -> Tensor:
        """Which of the S steps each device takes, bool ``[P, S]``."""
        return torch.arange(self.counts.shape[1]) < self.steps[:, None]

    @cached_property
    def distinct(self) -> Tensor:
        """How many rows of the data set each device uses, int64 ``[P]``."""
        rows = torch.where(self.used, self.rows, -1).flatten(1).numpy()
        rows.sort(axis=1)  # many times as fast as torch's
        return torch.from_numpy((np.diff(rows, axis=1, prepend=-1) != 0).sum(axis=1))

    def of(self, devices: slice | Tensor) -> BatchPlan:
        """The plan of some of the P devices, in the order given; ``devices``: a slice, or int64 ``[p]``."""
        return replace(self, rows=self.rows[devices], counts=self.counts[devices], steps=self.steps[devices])

    def between(self, first: int, last: int) -> BatchPlan:
        """The part of the plan from step ``first`` (from 0) up to, and without, step ``last``."""
        return replace(
            self,
            rows=self.rows[:, first:last].contiguous(),
            counts=self.counts[:, first:last].contiguous(),
            steps=(self.steps - first).clamp(0, last - first),
        )

    def last_before(self, last: int, counts: Tensor) -> BatchPlan:
        """The part of the plan with, for device p, the last ``counts[p]`` of its first ``last`` steps.

        ``counts``: int64 ``[P]``. The part has as many steps as the largest count; a device with fewer has
        empty batches after its own.
        """
        each = torch.arange(int(counts.max()) if len(counts) else 0)
        places = (last - counts[:, None] + each).clamp(0, self.rows.shape[1] - 1)
        valid = each < counts[:, None]
        rows = torch.where(valid[:, :, None], self.rows[torch.arange(self.devices)[:, None], places], 0)
        return replace(
            self,
            rows=rows,
            counts=torch.where(valid, self.counts.gather(1, places), 0),
            steps=torch.minimum((self.steps - (last - counts)).clamp(min=0), counts),
        )

    def to(self, device: torch.device) -> BatchPlan:
        """A copy of the plan with its tensors on a torch device."""
        return replace(
            self, rows=self.rows.to(device), counts=self.counts.to(device), steps=self.steps.to(device)
        )


def plan_steps(
    devices: Sequence[Rows], *, steps: int, batch_size: int | Literal["all"], rng: BatchDraws
) -> BatchPlan:
    """Draw the same number of mini-batches for every device.

    Batches are cut from reshuffled passes over a device's data, without replacement inside a pass; what is
    left of a pass when no full batch fits goes back. A device with fewer examples than a batch uses all of
    them in every step. A device without data takes no step.

    Args:
        devices: for each device, the rows of the data set that it holds.
        steps: steps of each device.
        batch_size: examples a batch; ``"all"`` of a device's own.
        rng: a generator of the batches' stream.

    Raises:
        SpecError: ``steps`` or ``batch_size`` is below 1.
    """
    _require_at_least_one("training.local_steps", steps)
    sizes, each, width = _sizes_of(devices, batch_size)
    plan = _empty_draft(len(sizes), steps, width)
    for members, size, rows in _by_size(devices, sizes):
        if size < each:
            plan.rows[members, :, :size] = rows[:, None, :]
            plan.counts[members] = size
            continue
        a_pass = size // each
        passes = -(-steps // a_pass)
        order = rng.permuted(rows.repeat(passes, axis=0), axis=1)
        cut = order[:, : a_pass * each].reshape(len(members), passes * a_pass, each)
        plan.rows[members] = cut[:, :steps]
        plan.counts[members] = each
    return plan.to_plan(np.where(sizes > 0, steps, 0))


def plan_epochs(
    devices: Sequence[Rows], *, epochs: int, batch_size: int | Literal["all"], rng: BatchDraws
) -> BatchPlan:
    """Draw the mini-batches of ``epochs`` passes of every device over its own data.

    Each epoch shuffles a device's data and cuts it into batches, of which the last may be short (a step is
    the mean over what is there). Devices of unequal size take unequal numbers of steps.

    Args:
        devices: for each device, the rows of the data set that it holds.
        epochs: passes over the data.
        batch_size: examples a batch; ``"all"`` of a device's own.
        rng: a generator of the batches' stream.

    Returns:
        The rows of every batch of every device, in order of steps.

    Raises:
        SpecError: ``epochs`` or ``batch_size`` is below 1.
    """
    _require_at_least_one("training.local_epochs", epochs)
    sizes, each, width = _sizes_of(devices, batch_size)
    an_epoch = -(-sizes // each)
    plan = _empty_draft(len(sizes), epochs * int(an_epoch.max(initial=0)), width)
    for members, size, rows in _by_size(devices, sizes):
        batches = -(-size // each)
        order = rng.permuted(rows.repeat(epochs, axis=0), axis=1)
        padded = np.zeros((len(order), batches * each), np.int32)
        padded[:, :size] = order
        cut = padded.reshape(len(members), epochs * batches, each)
        plan.rows[members, : epochs * batches] = cut[:, :, :width]
        counts = np.full(batches, each)
        counts[-1] = size - (batches - 1) * each
        plan.counts[members, : epochs * batches] = np.tile(counts, epochs)
    return plan.to_plan(an_epoch * epochs)


def plan_poisson(
    devices: Sequence[Rows],
    *,
    steps: int,
    batch_size: int,
    rngs: Sequence[BatchDraws],
    persons: Sequence[Rows] | None = None,
) -> BatchPlan:
    """Draw Poisson mini-batches: every example of a device is in every step with an independent probability.

    A device of n examples draws each with probability ``min(1, batch_size / n)``. Sums of gradients are to be
    divided by ``batch_size``, whatever is drawn. Batches may be empty; a device without data takes no step.

    With ``persons`` the examples are persons: who is drawn brings one of its rows, each as likely as the
    others, chosen anew for every step. So a batch never holds two rows of one person, however many there are.

    Args:
        devices: for each device, the rows of the data set that it holds.
        steps: steps of each device.
        batch_size: examples a batch, expected.
        rngs: a generator for each device, used for nothing else.
        persons: for each device, where the rows of each of its persons begin among its own, and their number.

    Raises:
        SpecError: ``steps`` or ``batch_size`` is below 1.
    """
    _require_at_least_one("training.local_steps", steps)
    held = _sizes_of(devices, batch_size)[0]
    sizes = held if persons is None else np.array([len(own) - 1 for own in persons], np.int64)
    drawn = [
        _draws(size * steps, min(1.0, batch_size / max(1, size)), rng)
        for size, rng in zip(sizes.tolist(), rngs, strict=True)
    ]
    device = np.repeat(np.arange(len(sizes)), list(map(len, drawn)))
    step, example = np.divmod(np.concatenate([np.zeros(0, np.int64), *drawn]), sizes[device])
    if persons:
        example = _rows_brought(persons, np.split(example, np.cumsum(list(map(len, drawn))))[:-1], rngs)
    batch = device * steps + step
    counts = np.bincount(batch, minlength=len(sizes) * steps)
    place = np.arange(len(batch)) - (np.cumsum(counts) - counts)[batch]
    draft = _empty_draft(len(sizes), steps, max(1, int(counts.max(initial=1))))
    draft.counts[:] = counts.reshape(draft.counts.shape)
    rows = np.concatenate([np.zeros(0, np.int32), *devices])
    draft.rows[device, step, place] = rows[(np.cumsum(held) - held)[device] + example]
    return draft.to_plan(np.where(sizes > 0, steps, 0), batch_size)


def _rows_brought(
    persons: Sequence[Rows], drawn: Sequence[NDArray[np.int64]], rngs: Sequence[BatchDraws]
) -> NDArray[np.int64]:
    """Draw a row for each time that a person is drawn, device after device, in the order of ``drawn``.

    Rows are places among those of the device, int64, as many as ``drawn`` has numbers; empty if nobody is
    drawn.

    Args:
        persons: as of `plan_poisson`.
        drawn: for each device, numbers of the persons who are drawn, in the order of steps.
        rngs: a generator for each device.
    """
    brought = [
        rng.integers(own[whose], own[whose + 1]) for own, whose, rng in zip(persons, drawn, rngs, strict=True)
    ]
    return np.concatenate([np.zeros(0, np.int64), *brought])


def _draws(trials: int, rate: float, rng: BatchDraws) -> NDArray[np.int64]:
    """Draw which of ``trials`` independent trials succeed, each with probability ``rate`` > 0.

    Gaps between them are drawn (geometric), so that the work is in proportion to the successes.

    Returns:
        Indices of the successes from 0, ascending.
    """
    found = [np.zeros(0, np.int64)]
    last = -1
    while last < trials:
        expected = (trials - 1 - last) * rate
        gaps = rng.geometric(rate, size=int(expected + 4 * expected**0.5) + 8)
        places = last + np.cumsum(gaps)
        found.append(places)
        last = int(places[-1])
    every = np.concatenate(found)
    return every[: np.searchsorted(every, trials)]


@dataclass(frozen=True)
class _Draft:
    rows: NDArray[np.int32]
    counts: NDArray[np.int32]

    def to_plan(self, steps: NDArray[np.int64], divisor: int | None = None) -> BatchPlan:
        """Turn these rows and counts into a plan of tensors.

        Args:
            steps: that each device takes, ``[P]``.
            divisor: what every batch's sum of gradients is divided by; ``None``: by its own count.
        """
        rows, counts, taken = (torch.from_numpy(part) for part in (self.rows, self.counts, steps))
        return BatchPlan(rows, counts, taken, divisor)


def _sizes_of(
    devices: Sequence[Rows], batch_size: int | Literal["all"]
) -> tuple[NDArray[np.int64], int, int]:
    """Count the examples of every device ``[P]``, of a batch, and of the widest batch that there can be.

    Raises:
        SpecError: ``batch_size`` is below 1.
    """
    sizes = np.fromiter(map(len, devices), np.int64, len(devices))
    each = int(sizes.max(initial=1)) if batch_size == "all" else batch_size
    _require_at_least_one("training.batch_size", each)
    return sizes, each, int(min(each, sizes.max(initial=0)))


def _empty_draft(devices: int, steps: int, width: int) -> _Draft:
    """Make zero rows int32 ``[devices, steps, width]`` and counts int32 ``[devices, steps]``.

    ``width``: number of examples of the widest batch.
    """
    return _Draft(np.zeros((devices, steps, width), np.int32), np.zeros((devices, steps), np.int32))


def _by_size(
    devices: Sequence[Rows], sizes: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.intp], int, NDArray[np.int32]]]:
    """Yield devices with data in groups of equal size, the smallest first; those without data are left out.

    Yields:
        Their indices ``[group]``, how many rows each has, and these rows ``[group, size]``.
    """
    by_size = np.argsort(sizes, kind="stable")
    starts = np.flatnonzero(np.diff(sizes[by_size], prepend=-1))
    for members in np.split(by_size, starts[1:]):
        if len(members) and sizes[members[0]] > 0:
            rows = np.stack([devices[device] for device in members]).astype(np.int32, copy=False)
            yield members, int(sizes[members[0]]), rows


def _require_at_least_one(place: str, value: int) -> None:
    """Raise `SpecError` for the key ``place`` if ``value`` is below 1."""
    if value < 1:
        raise SpecError(place, value, "must be at least 1")
