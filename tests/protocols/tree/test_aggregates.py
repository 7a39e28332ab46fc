"""What trusted nodes add noise to: a record moves it by what is charged, however large the weights are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from resumed_specs import groups_of, spec_of
from torch import Tensor

from sfumato.engine.base import EngineSettings
from sfumato.schedule.resolve import resolve
from sfumato.simulation.training_loop import Session
from sfumato.spec.document import Spec

RATE, NORM, BATCH = 1e-4, 0.1, 5
POISSON = {"rounds": 1, "local_steps": 1, "batch_size": BATCH, "learning_rate": RATE, "batches": "poisson"}
EXAMPLE = {"clip": {"kind": "example", "norm": NORM}, "noise": {"multiplier": 1.0}}
STEP = {"clip": {"kind": "step", "norm": NORM}, "noise": {"multiplier": 1.0}}


class Raw:
    """Stands for the noise mechanism, adds nothing, and keeps what it was given to noise."""

    def __init__(self) -> None:
        self.given: list[Tensor] = []

    def add_(self, rows: Tensor, stds: np.ndarray, key_of: Callable[[int], bytes]) -> None:
        noised = torch.from_numpy(np.flatnonzero(stds))
        if len(noised):
            self.given.append(rows[noised].double())


def noised_in(spec: Spec, monkeypatch: pytest.MonkeyPatch, *, mirrored: int | None) -> list[Tensor]:
    """What gets noise in a round of a model with large weights; with a record in its mirror image."""
    raw = Raw()
    for place in ("tree.rounds", "tree.uplinks.registry", "groups.operations"):
        monkeypatch.setattr(f"sfumato.protocols.{place}.mechanism_of", lambda spec: raw)
    session = Session.prepare(resolve(spec), EngineSettings("cpu", 1, 1 << 26))
    engine: Any = session.protocol._engine if hasattr(session.protocol, "_engine") else None
    engine = engine or session.protocol._operations._engine  # type: ignore[attr-defined]
    if mirrored is not None:
        features = engine._examples.features.clone()
        features[mirrored] *= -1
        engine._examples = replace(engine._examples, features=features)
    session.protocol.run_round(session.protocol.initial(session.start * 64))
    return raw.given


def star(privacy: dict[str, Any]) -> Spec:
    star = {"kind": "star", "devices": 5}
    return spec_of(
        protocol="dp-fedavg", topology=star, trust={"cloud": True}, training=POISSON, privacy=privacy
    )


def edges(privacy: dict[str, Any]) -> Spec:
    return spec_of(training=POISSON, privacy=privacy, trust={"trusted_edges": 1.0})


def masters(privacy: dict[str, Any]) -> Spec:
    plain = groups_of("dp-ogl", 1)
    training = plain.training.model_dump() | POISSON | {"participation": "all"}
    return Spec.model_validate(plain.model_dump() | {"training": training, "privacy": privacy})


@pytest.mark.parametrize(
    ("make", "privacy", "most"),
    [
        (star, EXAMPLE, 2 * RATE * NORM / BATCH / 5),
        (star, STEP, 2 * RATE * NORM / 5),
        (edges, EXAMPLE, 2 * RATE * NORM / BATCH / 3),
        (masters, EXAMPLE, 2 * RATE * NORM / BATCH),
    ],
)
def test_a_record_moves_what_is_noised_by_what_is_charged(
    make: Callable[[dict[str, Any]], Spec],
    privacy: dict[str, Any],
    most: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = make(privacy)
    before = noised_in(spec, monkeypatch, mirrored=None)
    assert before
    largest = 0.0
    for record in range(12):
        after = noised_in(spec, monkeypatch, mirrored=record)
        moved = [float((a - b).norm()) for a, b in zip(before, after, strict=True)]
        largest = max(largest, *moved)
    assert 0.1 * most < largest <= most
