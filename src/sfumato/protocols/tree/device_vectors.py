"""What devices remember from one round to the next: a vector each, of those that ever took part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.protocols.base import check_tensors


@dataclass(frozen=True, eq=False)
class DeviceVectors:
    """A vector of every device, zero until one is written. A device's own is private to it.

    Memory is taken by devices with a vector alone, as many as have taken part.

    Attributes:
        zero: float32 ``[M]``, on the engine's device.
        written: the others, by device.
    """

    zero: Tensor
    written: dict[int, Tensor] = field(default_factory=dict)

    def of(self, devices: npt.NDArray[np.int64]) -> Tensor:
        """Those of ``devices``, ``[p, M]``."""
        if not len(devices):
            return self.zero.new_zeros(0, len(self.zero))
        return torch.stack([self.written.get(device, self.zero) for device in devices.tolist()])

    def copy(self) -> Self:
        """The same vectors, to write others beside them: a state stays as it is."""
        return type(self)(self.zero, dict(self.written))

    def write_(self, devices: npt.NDArray[np.int64], vectors: Tensor) -> None:
        """Write ``vectors`` ``[p, M]`` for ``devices``."""
        own = (vector.clone() for vector in vectors)  # a view would keep its whole chunk in memory
        self.written.update(zip(devices.tolist(), own, strict=True))

    def pack(self) -> list[Tensor]:
        """Which devices have one, ascending int64 ``[k]``, and these ``[k, M]``, on the CPU."""
        devices = np.array(sorted(self.written), dtype=np.int64)
        return [torch.from_numpy(devices), self.of(devices).cpu()]

    @classmethod
    def unpack(cls, packed: Sequence[Tensor], model: Tensor) -> Self:
        """What ``packed`` tells, beside ``model`` ``[M]``; any error at all where it is not that."""
        check_tensors(*packed)
        devices, vectors = packed
        if vectors.shape[1:] != model.shape:
            raise ValueError("vectors of devices are not as long as the model")
        found = cls(torch.zeros_like(model))
        found.write_(devices.numpy(), vectors.to(model.device))
        return found
