"""What it costs that all who add noise have one multiplier where devices move or trust changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sfumato.rounding import number
from sfumato.spec.privacy import NoiseBySource, NoiseByTarget

if TYPE_CHECKING:
    from sfumato.schedule.tree import TreePlan


def cost_of_shared_multiplier(plan: TreePlan) -> str | None:
    """A sentence with the noise of devices and of edges, and what devices would need; ``None`` without a
    cost.

    Over several trees `calibrate_over_time` scales all noise by one factor. A trusted edge adds it once. The
    noise of n devices under another edge adds up to √n times that of one of them, so that towards the cloud
    1/√n of it would do, as `calibrate_tree` gives them on one tree.
    """
    noise = plan.spec.privacy.noise
    target = noise.calibrated_from if isinstance(noise, NoiseBySource) else None
    if not (isinstance(target, NoiseByTarget) and target.towards == "cloud"):
        return None
    if not plan.eras or plan.is_sampled:
        return None
    of_devices, of_edges = plan.noise.device, plan.noise.node[-1]
    if not (of_devices.any() and of_edges.any()):
        return None
    edge, each = plan.tree.tiers[-1].name, float(of_devices.max())
    count = round(float(plan.tree.devices[of_devices.any(axis=1)].mean()))
    together, enough = each * math.sqrt(count), each / math.sqrt(count)
    return (
        f"while devices move or trust changes, all who add noise have one multiplier, {number(each)}: a "
        f"trusted {edge} adds it once, but under another {edge} each of about {count:,} devices does, and "
        f"the noise in their sum is √{count:,} times as much, {number(together)}; so the same ε costs more "
        f"accuracy than on a network that stands still, where each of them adds {number(enough)}; a "
        f"plan (sfumato plan, sf.plan) for cloud={target.epsilon:g} sizes the noise of every {edge} and of "
        "devices apart"
    )
