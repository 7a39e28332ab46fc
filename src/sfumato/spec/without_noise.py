"""The same training without any noise: what changes in a spec."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.spec.document import SPEC_HASH, Spec
from sfumato.spec.load import load_spec
from sfumato.spec.privacy import ClipSettings
from sfumato.spec.used_keys import AIR_PROTOCOLS, anybody_adds_noise

_TRAINED_BY = ("seed", "data", "model", "topology", "training", "compression", "faults", "control")
"""Sections of a spec that the training depends on, beside the protocol, the clip and the transport."""
_SILENT = {"h2fdp": "hfl", "dp-ogl": "ms-fedavg"} | dict.fromkeys(AIR_PROTOCOLS, "dp-fedavg")
"""A protocol to one that trains in the same way and adds no noise, nor does a receiver."""


def settings_without_noise(document: Mapping[str, Any]) -> list[str]:
    """The overrides ``key=value`` of a spec after which neither a party nor a radio receiver adds noise.

    Over the air the receiver's noise stays whatever is added, so messages are sent one by one instead. The
    clip stays, so that accuracies differ by noise alone. ``document``: the spec as plain data.
    """
    settings = ["privacy.noise=none"]
    if document["protocol"] in AIR_PROTOCOLS:
        settings.append("protocol=dp-fedavg")
    over_air = [hop for hop, kind in (document.get("transport") or {}).items() if kind == "air"]
    settings += [f"transport.{hop}=plain" for hop in over_air]
    return settings + (["air=null"] if document.get("air") else [])


def twin_without_noise(spec: Spec) -> Spec:
    """``spec`` without anybody's noise, with the same data, seed, schedule and clip.

    Raises:
        SpecError: nobody adds noise in ``spec``, it has ``control``, or it is not valid without noise.
    """
    argument = Argument("baseline")
    if not anybody_adds_noise(spec) and not spec.sends_over_the_air:
        raise SpecError(
            argument, None, "must be left out: this spec adds no noise, so it is its own baseline"
        )
    if spec.control is not None:
        allowed = "does not go with control: it stops and draws by the noise, so a twin has another schedule"
        raise SpecError(argument, None, allowed)
    document = spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"hashes", "versions"})
    try:
        return load_spec(document, settings_without_noise(document))
    except SpecError as error:
        raise no_twin_error(error) from None


def no_twin_error(error: SpecError) -> SpecError:
    """The error to raise where `twin_without_noise` finds that ``error`` refuses the spec without noise."""
    return SpecError(Argument("baseline"), None, f"this spec has no twin without noise: {error}")


def trains_alike_but_for_noise(noisy: Mapping[str, Any], silent: Mapping[str, Any]) -> bool:
    """Whether the resolved specs ``noisy`` and ``silent`` train alike but for noise.

    Then their scores differ by noise alone. What only decides about noise and figures may differ: trust, δ,
    radio, names, versions. A key that one of them lacks counts as its default, as earlier versions wrote
    fewer keys.
    """
    protocol = str(noisy["protocol"])
    if silent["protocol"] not in (protocol, _SILENT.get(protocol)):
        return False
    if _sent(noisy) != _sent(silent) or _inputs(noisy) != _inputs(silent):
        return False
    if any(not _sections_agree(name, noisy.get(name), silent.get(name)) for name in _TRAINED_BY):
        return False
    privacy, other = noisy.get("privacy") or {}, silent.get("privacy") or {}
    if privacy.get("unit", "device") != other.get("unit", "device"):
        return False  # how mini-batches are drawn follows from it
    return _sections_agree("clip", privacy.get("clip"), other.get("clip"))


def _sent(document: Mapping[str, Any]) -> dict[str, Any]:
    """How messages are sent, by hop, in the spec ``document``, where they are not simply sent one by one."""
    hops = document.get("transport") or {}
    return {hop: how for hop, how in hops.items() if how not in ("plain", "air")}


def _inputs(document: Mapping[str, Any]) -> dict[str, Any]:
    """SHA-256 of the inputs of a run by name, from its spec ``document``."""
    return {name: value for name, value in (document.get("hashes") or {}).items() if name != SPEC_HASH}


def _sections_agree(name: str, one: Any, other: Any) -> bool:
    """Whether ``one`` and ``other``, sections called ``name``, are equal once missing keys have defaults."""
    if one == other:
        return True
    try:
        return bool(_section(name).validate_python(one) == _section(name).validate_python(other))
    except ValidationError:
        return False


@cache
def _section(name: str) -> TypeAdapter[Any]:
    """What reads the section ``name`` of a spec."""
    kind: Any = ClipSettings | None if name == "clip" else Spec.model_fields[name].annotation
    return TypeAdapter(kind)
