"""Messages over the air that the power limit made weaker are told, with what the paper's rule keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_factory import metrics, quickstart_spec

from sfumato.report.results.power_limit import power_limit_sentences
from sfumato.report.results.series import load_series


@pytest.mark.parametrize(
    ("protocol", "exceeding", "said"),
    [
        ("pfels", 0.0, []),
        ("wfl-p", 1.0, ["To keep within the power limit of their device, 5 of 20 messages were sent"]),
        (
            "pfels",
            1.0,
            ["To keep within the power limit", "The paper's rule for the amplitude keeps the limit"],
        ),
    ],
)
def test_weakened_messages_are_told(
    protocol: str, exceeding: float, said: list[str], run_folder: Callable[..., Path]
) -> None:
    training: dict[str, Any] = {"rounds": 5, "participation": {"kind": "fixed", "count": 4}}
    spec = quickstart_spec(protocol=protocol, training=training)
    frame = metrics(5).assign(power_violations=exceeding)
    (one,) = load_series([run_folder("air", spec, frame=frame)])
    found = power_limit_sentences(one)
    assert len(found) == len(said)
    assert all(sentence.startswith(words) for sentence, words in zip(found, said, strict=True))


def test_nothing_is_told_where_nothing_was_measured(run_folder: Callable[..., Path]) -> None:
    (one,) = load_series([run_folder()])
    assert power_limit_sentences(one) == []
