"""The same training without any noise: what changes in a spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec
from sfumato.spec.used_keys import AIR_PROTOCOLS, anybody_adds_noise


def settings_without_noise(document: Mapping[str, Any]) -> list[str]:
    """The settings with which nobody adds noise to what a spec trains, nor does a receiver.

    Over the air the receiver's noise stays whatever is added, so messages are sent one by one instead. The
    clip stays: what differs in accuracy is the price of noise alone.
    """
    settings = ["privacy.noise=none"]
    if document["protocol"] in AIR_PROTOCOLS:
        settings.append("protocol=dp-fedavg")
    over_air = [hop for hop, kind in (document.get("transport") or {}).items() if kind == "air"]
    settings += [f"transport.{hop}=plain" for hop in over_air]
    return settings + (["air=null"] if document.get("air") else [])


def twin_without_noise(spec: Spec) -> Spec:
    """The twin of ``spec``: the same data, seed, schedule and clip, and no noise of anybody.

    Raises:
        SpecError: nobody adds noise in ``spec``, or without noise something else must change.
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
        raise no_twin(error) from None


def no_twin(error: SpecError) -> SpecError:
    """The error where a spec without noise is refused for the reason in ``error``."""
    return SpecError(Argument("baseline"), None, f"this spec has no twin without noise: {error}")
