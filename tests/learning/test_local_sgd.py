from __future__ import annotations

import pytest

from sfumato.errors import SpecError
from sfumato.learning.local_training import AdamMoments, LocalSGD


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ((0.0,), "learning_rate"),
        ((float("nan"),), "learning_rate"),
        ((0.1, 1.0), "momentum"),
        ((0.1, -0.1), "momentum"),
        ((0.1, 0.0, 0.0), "clip"),
        ((0.1, 0.0, float("inf")), "clip"),
    ],
)
def test_refusals(values: tuple[float, ...], place: str) -> None:
    with pytest.raises(SpecError, match=place):
        LocalSGD(*values)


def test_refusals_of_decay_and_adam() -> None:
    assert LocalSGD(0.1, weight_decay=10.0).decay_factor == 0
    for decay in (10.1, -0.1, float("nan")):
        with pytest.raises(SpecError, match="weight_decay"):
            LocalSGD(0.1, weight_decay=decay)
    for values in ((1.0,), (0.9, 1.0), (0.9, 0.9, 0.0), (0.9, 0.9, float("inf"))):
        with pytest.raises(SpecError, match="optimizer"):
            AdamMoments(*values)
    for more in ({"momentum": 0.5}, {"step_clip": 1.0}):
        with pytest.raises(SpecError, match="goes without momentum and clips of steps"):
            LocalSGD(0.1, adam=AdamMoments(), **more)
