"""Which noise mechanism a spec asks for."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from sfumato.mechanisms.base import NoiseMechanism
from sfumato.mechanisms.gaussian import GaussianNoise
from sfumato.schedule.noise_mechanism import named_mechanism
from sfumato.spec.document import Spec


def mechanism_of(spec: Spec) -> NoiseMechanism[Tensor]:
    """The mechanism of everybody who adds noise to real numbers: Gaussian unless the spec names another."""
    found = named_mechanism(spec)
    return GaussianNoise() if found is None else cast("NoiseMechanism[Tensor]", found)
