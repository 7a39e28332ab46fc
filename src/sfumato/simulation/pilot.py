"""`pilot`: norms of messages without noise and clipping, to choose a clip norm on public data."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sfumato.engine.base import EngineSettings
from sfumato.engine.tiles import intra_op_threads
from sfumato.errors import SpecError
from sfumato.schedule.resolve import resolve
from sfumato.simulation.training_loop import Session
from sfumato.spec.document import Spec
from sfumato.user_code import allow_user_code


@dataclass(frozen=True)
class PilotResult:
    """Norms of messages without noise and clipping.

    They are not accounted for: do not publish them for private data.

    Attributes:
        what: the kind of messages.
        quantiles: norm at each of a few quantiles.
        rounds: number of rounds.
        messages: number of messages.
    """

    what: str
    quantiles: dict[float, float]
    rounds: int
    messages: int


def pilot(spec: Spec, *, rounds: int = 3, device: str = "auto") -> PilotResult:
    """Norms of devices' messages without noise and clipping, to choose a clip norm on public data.

    With ``clip: {kind: step}`` the norms are those of mini-batch gradients, else of whole messages.

    Args:
        spec: of the protocol.
        rounds: how many to train.
        device: auto, cpu or cuda.

    Raises:
        SpecError: the spec is wrong.
    """
    with allow_user_code():
        plan = resolve(spec)
    if plan.spec.privacy.clips_examples:
        allowed = "must be update or step: a pilot measures norms of messages and of mini-batch gradients"
        raise SpecError("privacy.clip.kind", "example", allowed)
    session = Session.prepare(plan, EngineSettings.default(device))
    with intra_op_threads(1):
        found = session.protocol.pilot(session.start, rounds)
    levels = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    norms = found.norms.double() if len(found.norms) else torch.zeros(1, dtype=torch.float64)
    values = torch.quantile(norms, torch.tensor(levels, dtype=torch.float64))
    quantiles = dict(zip(levels, values.tolist(), strict=True))
    return PilotResult(found.what, quantiles, found.rounds, len(found.norms))
