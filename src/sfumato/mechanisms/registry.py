"""Which noise mechanism a spec asks for."""

from __future__ import annotations

from functools import lru_cache

from torch import Tensor

from sfumato.errors import SpecError
from sfumato.mechanisms.base import NoiseMechanism
from sfumato.mechanisms.gaussian import GaussianNoise
from sfumato.privacy.release import NoiseLaw
from sfumato.spec.document import Spec
from sfumato.spec.privacy import Mechanism
from sfumato.user_code import call_user_code, find_factory

_PLACE = "privacy.mechanism"


def mechanism_of(spec: Spec) -> NoiseMechanism[Tensor]:
    """The noise mechanism for float messages that the spec names; Gaussian if it names none.

    Raises:
        SpecError: it cannot be imported or made, is no noise mechanism, or has not the law that is stated.
    """
    named = spec.privacy.mechanism
    return GaussianNoise() if named is None else _make_mechanism(named)


@lru_cache(maxsize=8)
def _make_mechanism(mechanism: Mechanism) -> NoiseMechanism[Tensor]:
    """Call the user's factory of a mechanism and check what it returns.

    Raises:
        SpecError: it cannot be imported or called, is no noise mechanism, or has not the law that is stated.
    """
    name = mechanism.kind
    factory = find_factory(_PLACE, name)
    made: NoiseMechanism[Tensor] = call_user_code(_PLACE, name, "the factory failed", lambda: factory())
    if not isinstance(getattr(made, "law", None), NoiseLaw) or not callable(getattr(made, "add_", None)):
        raise SpecError(_PLACE, name, "must make a noise mechanism, with a law and a method add_")
    if mechanism.law == "gaussian" and made.law.why_not_composed:
        raise SpecError(
            f"{_PLACE}.law", "gaussian", f"must be other: the noise of {name} is {made.law.name} noise"
        )
    return made
