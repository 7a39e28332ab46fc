"""A noise mechanism from outside this package, as far as accounting needs it: its law. Imports no torch."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

from sfumato.errors import SpecError
from sfumato.privacy.noise_law import GAUSSIAN, NoiseLaw
from sfumato.spec.document import Spec
from sfumato.user_code import call_user_code

_PLACE = "privacy.mechanism"


def named_mechanism(spec: Spec) -> Any | None:
    """The mechanism that ``privacy.mechanism`` names; ``None`` where it names none.

    Raises:
        SpecError: it cannot be imported or made, or is no noise mechanism.
    """
    return None if spec.privacy.mechanism is None else _made(spec.privacy.mechanism)


def law_of(spec: Spec) -> NoiseLaw:
    """The law of the noise that parties add.

    Raises:
        SpecError: see `named_mechanism`, or the mechanism does not go with another section.
    """
    found = named_mechanism(spec)
    if found is None:
        return GAUSSIAN
    law: NoiseLaw = found.law
    _refuse_what_does_not_fit(spec, law)
    return law


@lru_cache(maxsize=8)
def _made(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    module = call_user_code(_PLACE, name, "cannot be imported", lambda: importlib.import_module(module_name))
    factory = call_user_code(_PLACE, name, "cannot be looked up", lambda: getattr(module, attribute, None))
    if factory is None:
        raise SpecError(_PLACE, name, f"module {module_name} has no {attribute}")
    made = call_user_code(_PLACE, name, "the factory failed", lambda: factory())
    if not isinstance(getattr(made, "law", None), NoiseLaw) or not callable(getattr(made, "add_", None)):
        raise SpecError(_PLACE, name, "must make a noise mechanism, with a law and a method add_")
    return made


def _refuse_what_does_not_fit(spec: Spec, law: NoiseLaw) -> None:
    name = spec.privacy.mechanism
    other = next((how for how in spec.transport.values() if how != "plain"), None)
    if other is not None:
        raise SpecError(_PLACE, name, f"goes with plain transport only; {other} has a mechanism of its own")
    if spec.control is not None:
        raise SpecError(
            _PLACE, name, "must be left out with control, whose privacy filter is for Gaussian noise"
        )
    noise = spec.privacy.noise
    stated = getattr(noise, "calibrated_from", None) or noise
    if law.why_not_composed and stated.kind in ("target", "formula"):
        raise SpecError(
            "privacy.noise",
            stated.kind,
            f"must be a multiplier: the epsilon of {law.name} noise is not known",
        )
