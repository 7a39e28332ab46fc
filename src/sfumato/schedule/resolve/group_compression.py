"""What compressing messages settles and refuses in groups (docs/dp-ogl.md).

Compressing a clipped update makes it no longer, and which coordinates are sent follows from a shared seed or
from the group's own model, so every release keeps its sensitivity and its place among the exposed sets.
Whatever would break one of the two is refused.
"""

from __future__ import annotations

from sfumato.errors import SpecError
from sfumato.network.groups import BoolArray
from sfumato.spec.document import KIND_OF, Spec

_WHY_NOT = {
    "dp-ogl+": "dp-ogl+ noises a sum of several rounds, each sent with other coordinates",
    "ms-fedavg": "ms-fedavg sends whole models",
}


def check_compression(spec: Spec, trusted: BoolArray, hop: str) -> tuple[str, ...]:
    """What the user should hear of ``compression``; nothing without.

    Raises:
        SpecError: it does not go with the protocol, the transport or who adds noise.
    """
    compression, kind = spec.compression, KIND_OF[spec.protocol]
    if compression is None:
        return ()
    if kind in _WHY_NOT:
        raise SpecError("compression", None, f"must be left out: {_WHY_NOT[kind]}")
    if spec.protocol != kind:
        raise SpecError("compression", None, f"must be left out: {spec.protocol} makes messages of its own")
    if compression.error_feedback:
        allowed = (
            "must be false in groups: what a worker has not sent yet carries its data, and what it read in "
            "other groups, past the releases that account charges"
        )
        raise SpecError("compression.error_feedback", True, allowed)
    if compression.bits is not None and spec.transport.get(hop, "plain") != "plain":
        raise SpecError(
            "compression.bits", compression.bits, "goes with a plain hop: secure aggregation rounds"
        )
    if compression.bits is not None and _workers_noise_messages(spec, trusted):
        allowed = (
            "goes with trusted masters: a sum of noised messages that were rounded one by one has no "
            "Gaussian noise that account could count"
        )
        raise SpecError("compression.bits", compression.bits, allowed)
    if compression.ratio == 1:
        return ()
    told = (
        f"compression lets {compression.ratio:g} of every update through and nothing scales it up: the "
        "average that arrives is smaller than the updates' by about that much (Lemma 1 of PFELS)"
    )
    return (told,)


def _workers_noise_messages(spec: Spec, trusted: BoolArray) -> bool:
    noises = spec.privacy.noise.kind != "none" and not spec.privacy.step_noise
    return noises and not bool(trusted.all())
