"""Which uplink a plan's devices have: one place that knows them all."""

from __future__ import annotations

import torch

from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.mechanisms.registry import mechanism_of
from sfumato.protocols.device_vectors import DeviceVectors
from sfumato.protocols.tree.uplinks.air import AirUplink
from sfumato.protocols.tree.uplinks.base import Uplink
from sfumato.protocols.tree.uplinks.compressed import CompressedUplink
from sfumato.protocols.tree.uplinks.plain import PlainUplink
from sfumato.protocols.tree.uplinks.secure import SecureUplink
from sfumato.schedule.tree import TreePlan


def uplink_of(
    plan: TreePlan,
    device: torch.device,
    parameters: int,
    memory: DeviceVectors | None = None,
    ranks: Ranks = ALONE,
) -> Uplink:
    """Make the uplink by which the devices of ``plan`` reach their leaves (lowest aggregators).

    Args:
        plan: says how.
        device: where tensors are.
        parameters: M.
        memory: with error feedback, what each device has not sent so far; written to.
        ranks: each of which hands over the messages of some devices.
    """
    carrier = _carrier_of(plan, device, parameters, ranks)
    compression = plan.spec.compression
    return carrier if compression is None else CompressedUplink(plan, compression, carrier, memory)


def _carrier_of(plan: TreePlan, device: torch.device, parameters: int, ranks: Ranks) -> Uplink:
    """Make the uplink without compression: over the air, with secure aggregation, or plain.

    Args:
        plan: says which.
        device: where tensors are.
        parameters: M.
        ranks: processes of the run; each hands over the messages of some devices.
    """
    if plan.air is not None:
        return AirUplink(plan, plan.air, parameters, device, ranks)
    if "secure-aggregation" in plan.hops:
        return SecureUplink(plan, device, ranks=ranks)
    return PlainUplink(plan, device, mechanism_of(plan.spec), ranks)
