"""Rounds over the air whose coordinates are independent trials.

How loud devices send depends on the length of the whole message: power control looks at the number of
parameters, and who would break its power limit makes its message smaller. An audit settles both for the model
of the spec and for the longest message that there may be, and plays the amplitudes that follow. Then
coordinates share nothing but what is public. Channels, and what devices do not know of them, are those of the
spec's seed.

Only some coordinates may travel. They are chosen by a shared seed or by the model, which everybody knows, so
the longest message may lie in them alone. The choice itself is not played; how much power it leaves for a
coordinate is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.schedule.air.power_control import AirPlan, AirTransmission
from sfumato.schedule.model_size import parameter_count
from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PlayedAir(AirPlan):
    """The amplitudes of another plan over the air, for messages whose bound is so many times as long.

    Attributes:
        real: settles the amplitudes.
        size: parameters of its model.
        scale: how many times as long as there the longest message is.
    """

    real: AirPlan
    size: int
    scale: float

    @cached_property
    def envelope(self) -> FloatArray:
        """The largest alignment of each leaf in any round, ``[leaves]``: the audited plan's times `scale`.

        See `AirPlan.envelope`.
        """
        return self.real.envelope * self.scale

    def sending(
        self, number: int, index: int, devices: IntArray, device_noise: FloatArray, parameters: int
    ) -> AirTransmission:
        """The transmission of aggregation ``index`` in simulated round ``number``; see `AirPlan.sending`.

        A message at the clip norm without noise arrives reduced to what power limits allow. One with noise
        arrives whole, as the accountant counts it.
        """
        noise = device_noise * self.scale
        found = self.real.sending(number, index, devices, noise, self.size)
        most, whole = np.sqrt(found.limit), np.ones(len(devices))
        yields = (noise == 0) & (found.amplitude > most)
        kept = np.divide(most, found.amplitude, out=whole, where=yields)
        return AirTransmission(
            found.alignment * self.scale,
            found.sends,
            found.amplitude * self.scale,
            found.arrives * kept,
            np.full(len(devices), np.inf),
        )


@dataclass(frozen=True, eq=False)
class AirTreePlan(TreePlan):
    """A plan whose devices send as in another.

    Attributes:
        played: how they send.
    """

    played: AirPlan | None = None

    @cached_property
    def air(self) -> AirPlan | None:
        """How devices send over the air in the simulated rounds: `played`; see `TreePlan.air`."""
        return self.played


def require_independent_coordinates(plan: TreePlan) -> None:
    """Refuse a plan in which coordinates of a message are dependent, or their unknown number matters.

    Raises:
        SpecError: messages are rounded or remembered, or the number of parameters is not known.
    """
    compression = plan.spec.compression
    if compression is not None and (compression.bits is not None or compression.error_feedback):
        key = "bits" if compression.bits is not None else "error_feedback"
        allowed = "cannot be audited: it makes the coordinates of a message dependent"
        raise SpecError(f"compression.{key}", None, allowed)
    if plan.air is not None and parameter_count(plan.spec) is None:
        allowed = "cannot be audited over the air: its number of parameters decides how loud devices send"
        raise SpecError("model.kind", plan.spec.model.kind, allowed)


def with_amplitudes_of(plan: TreePlan, real: TreePlan, scale: float) -> TreePlan:
    """``plan`` with the amplitudes of ``real``, so that devices transmit as loudly as in the audited run.

    ``scale``: longest message of ``plan`` over that of ``real``. ``plan`` itself where nothing is sent over
    the air or the number of parameters is not known.
    """
    air, size = real.air, parameter_count(real.spec)
    if air is None or size is None:
        return plan
    played = PlayedAir(air.spec, air.tree, air.participants, air.channels, air, size, scale)
    given = {field.name: getattr(plan, field.name) for field in fields(TreePlan)}
    whole = given | {"spec": plan.spec.model_copy(update={"compression": None}), "played": played}
    return AirTreePlan(**whole)
