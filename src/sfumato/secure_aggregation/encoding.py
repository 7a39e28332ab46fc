"""Applies a quantisation plan: clip, scale, round at random, add noise; and back.

One 256-bit key makes all of a device's random choices, in two streams derived from it: the same key, the same
bits, whether the sum is then formed under masks or not. In the field the key is fresh and secret.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sfumato.secure_aggregation.discrete_gaussian import sample_discrete_gaussian
from sfumato.secure_aggregation.masks import RingVector, ring_type
from sfumato.secure_aggregation.quantisation import QuantisationPlan
from sfumato.wire.errors import QuantisationError
from sfumato.wire.key_stream import KeyStream
from sfumato.wire.keys import digest

_MOST_TRIES = 64


def encode(vector: npt.NDArray[np.floating], plan: QuantisationPlan, key: bytes) -> RingVector:
    """A device's vector as ring elements: clipped, scaled, rounded at random, with its noise added.

    Args:
        vector: ``[dimension]``; private.
        plan: public.
        key: 32 bytes, which all random choices follow from; private, used once.

    Returns:
        Unsigned integers ``[dimension]`` modulo 2^bits, to be summed; `decode` makes a sum real numbers.

    Raises:
        QuantisationError: the vector's length is not the plan's, it is not finite, or none of many tries to
            round it meets the norm bound.
    """
    steps = round_at_random(vector, plan, KeyStream(digest(b"rounding", key)))
    if plan.noise_std:
        steps += sample_discrete_gaussian(plan.dimension, plan.noise_std, KeyStream(digest(b"noise", key)))
    return steps.astype(ring_type(plan.bits))  # modulo 2^bits, two's complement


def round_at_random(
    vector: npt.NDArray[np.floating], plan: QuantisationPlan, stream: KeyStream
) -> npt.NDArray[np.int64]:
    """Clip, scale and round a vector at random, again until the norm bound holds; int64 ``[dimension]``.

    Raises:
        QuantisationError: the vector's length is not the plan's, it is not finite, or none of many tries
            meets the bound.
    """
    if vector.shape != (plan.dimension,):
        raise QuantisationError(f"vector: got shape {vector.shape}; must be ({plan.dimension},)")
    scaled = vector.astype(np.float64)
    norm = float(np.linalg.norm(scaled))
    if not np.isfinite(norm):
        raise QuantisationError("vector: has a norm that is not finite")
    scaled *= plan.scale * min(1.0, plan.clip / norm if norm else 1.0)
    floor = np.floor(scaled)
    fraction = scaled - floor
    for _ in range(_MOST_TRIES):
        rounded = floor + (stream.units(plan.dimension) < fraction)
        if float(np.dot(rounded, rounded)) <= (plan.sensitivity * (1 - 1e-10)) ** 2:
            return rounded.astype(np.int64)
    raise QuantisationError("vector: rounding does not meet its norm bound; rounding_failure is too large")


def decode(total: RingVector, plan: QuantisationPlan) -> npt.NDArray[np.float64]:
    """Real numbers ``[dimension]`` from a sum of ring elements, read as signed and divided by the scale.

    Raises:
        QuantisationError: not elements of the plan's ring.
    """
    if total.dtype != ring_type(plan.bits):
        raise QuantisationError(f"total: got {total.dtype}; must be uint{plan.bits}")
    return total.view(f"<i{plan.bits // 8}").astype(np.float64) / plan.scale
