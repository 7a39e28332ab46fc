"""Only some coordinates of every message travel; another uplink carries them (docs/pfels.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sfumato.mechanisms.compression import bounded_, rand_k, top_k
from sfumato.protocols.device_vectors import DeviceVectors
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.tree.uplinks.base import Collector, IntArray, Received, Uplink
from sfumato.radio.costs import kept_coordinates
from sfumato.schedule.tree import TreePlan
from sfumato.spec.transport import Compression


@dataclass(frozen=True)
class CompressedUplink:
    """Picks coordinates that everybody knows, and puts what arrives back in its place.

    Attributes:
        plan: says what messages are bounded by.
        compression: which coordinates.
        inner: carries them.
        memory: with error feedback, what each device has not sent so far; written to.
    """

    plan: TreePlan
    compression: Compression
    inner: Uplink
    memory: DeviceVectors | None = None

    def open(
        self, number: int, index: int, devices: IntArray, models: Tensor, listener: Listener | None
    ) -> Collector:
        """Begin an aggregation in which devices send only the chosen coordinates; returns its collector.

        Args:
            number: of the round.
            index: of the aggregation in it.
            devices: who will send, ascending ``[P]``.
            models: what each leaf's devices start from, ``[leaves, M]``; top-k takes the largest of the
                first.
            listener: hears whole vectors, 0 where a coordinate is not sent; ``None``: nobody.
        """
        kept = kept_coordinates(self.compression, models.shape[1])
        if self.compression.kind == "rand-k":
            found = rand_k(models.shape[1], kept, seed=self.plan.spec.seed, key=(number, index))
        else:
            found = top_k(models[0].cpu(), kept)  # all leaves start from the global model
        coordinates = found.to(models.device)
        length = models.shape[1]
        ear = None if listener is None else _Expanding(listener, coordinates, length)
        inner = self.inner.open(number, index, devices, models[:, coordinates], ear)
        return _Collector(self, number, index, inner, coordinates, length)


@dataclass
class _Collector:
    uplink: CompressedUplink
    number: int
    index: int
    inner: Collector
    coordinates: Tensor
    length: int

    def add(self, devices: IntArray, leaves: IntArray, messages: Tensor) -> None:
        """Pass on the chosen coordinates of messages; with error feedback, keep the rest in ``memory``.

        Args:
            devices: who sends, ascending ``[p]``.
            leaves: the leaf of each, ``[p]``.
            messages: float32 ``[p, M]``, within their bounds, not noised; may be changed in place.
        """
        memory = self.uplink.memory
        if memory is None:
            self.inner.add(devices, leaves, messages[:, self.coordinates])
            return
        plan, whole = self.uplink.plan, messages.add_(memory.of(devices))
        sent = whole[:, self.coordinates]
        bounds = plan.bounds_of(self.index, devices) * plan.message_scale(self.number)
        bounded_(sent, torch.as_tensor(bounds, dtype=torch.float32, device=messages.device))
        whole[:, self.coordinates] -= sent
        memory.write_(devices, whole)
        self.inner.add(devices, leaves, sent)

    def received(self) -> Received:
        """What the inner collector received, with averages expanded to M coordinates; called once."""
        received = self.inner.received()
        averages = _expanded(received.averages, self.coordinates, self.length)
        return replace(received, averages=averages, coordinates=self.coordinates)


@dataclass(frozen=True)
class _Expanding:
    """Lets a listener hear whole vectors."""

    listener: Listener
    coordinates: Tensor
    length: int

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Tell the listener that ``senders`` ``[p]`` send ``vectors`` ``[p, k]``, with 0 elsewhere.

        ``number`` is the round, ``index`` the aggregation, ``tier`` the senders'.
        """
        whole = _expanded(vectors, self.coordinates, self.length)
        self.listener.sent(number, index, tier, senders, whole)

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Tell the listener that nodes received ``values`` ``[nodes, k]``, with 0 at coordinates not sent.

        ``number`` is the round, ``index`` the aggregation, ``tier`` the nodes'.
        """
        self.listener.received(number, index, tier, _expanded(values, self.coordinates, self.length))

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Tell the listener that nodes broadcast ``values`` ``[nodes, k]``, with 0 at coordinates not sent.

        ``number`` is the round, ``index`` the aggregation, ``tier`` the nodes'.
        """
        self.listener.broadcast(number, index, tier, _expanded(values, self.coordinates, self.length))


def _expanded(values: Tensor, coordinates: Tensor, length: int) -> Tensor:
    """Vectors ``[n, length]`` with ``values`` ``[n, k]`` at ``coordinates``, and 0 elsewhere."""
    whole = values.new_zeros(len(values), length)
    whole[:, coordinates] = values
    return whole
