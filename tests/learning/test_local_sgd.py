from __future__ import annotations

import pytest

from sfumato.errors import SpecError
from sfumato.learning.local_training import LocalSGD


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
