"""What adaptive control remembers between rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch

from sfumato.distributed.ranks import Ranks
from sfumato.protocols.adaptive.seen_models import SeenModels
from sfumato.protocols.base import check_tensors
from sfumato.protocols.tree.state import TreeState
from sfumato.schedule.control.adaptive import RoundSettings

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AdaptiveState:
    """What the protocol remembers between rounds.

    Attributes:
        inner: of the rounds of a tree.
        steps: local steps done.
        settings: of the next round.
        smoothness: beta as the next round's step size was set from.
        ended: why there is no next round; empty as long as there is one.
        spent: mu squared, of every device and observer, ``[devices, observers]``.
        seen: models of the last rounds, see `SeenModels`.
        history: the settings of the rounds done.
    """

    kind: ClassVar[str] = "controlled"

    inner: TreeState
    steps: int
    settings: RoundSettings
    smoothness: float
    ended: str
    spent: FloatArray
    seen: SeenModels
    history: tuple[RoundSettings, ...]

    @property
    def round(self) -> int:
        """The number of rounds that are done."""
        return self.inner.round

    @property
    def is_shared(self) -> bool:
        """Always false: under control every rank (process) has the whole state."""
        return False

    def whole(self) -> Self:
        """The state itself, as every rank (process) has all of it."""
        return self

    def divided_among(self, ranks: Ranks) -> Self:
        """The state itself, as nothing of it is divided among ``ranks`` (processes)."""
        return self

    def pack(self) -> dict[str, Any]:
        """The whole state as numbers, text and CPU tensors by name, for a checkpoint."""
        return {
            "inner": self.inner.pack(),
            "steps": self.steps,
            "setting": _pack_settings(self.settings),
            "smoothness": self.smoothness,
            "ended": self.ended,
            "spent": torch.from_numpy(self.spent),
            "models": self.seen.models.cpu(),
            "lengths": list(self.seen.lengths),
            "variances": list(self.seen.variances),
            "history": [_pack_settings(setting) for setting in self.history],
        }

    @classmethod
    def unpack(cls, packed: Mapping[str, Any], device: str) -> Self:
        """Rebuild the state from what `pack` gave, with tensors on ``device``.

        Raises:
            Exception: of any class, where ``packed`` is no such state.
        """
        check_tensors(packed["spent"], packed["models"])
        return cls(
            TreeState.unpack(packed["inner"], device),
            int(packed["steps"]),
            _unpack_settings(packed["setting"]),
            float(packed["smoothness"]),
            str(packed["ended"]),
            packed["spent"].numpy(),
            SeenModels(
                packed["models"].to(device),
                tuple(map(float, packed["lengths"])),
                tuple(map(float, packed["variances"])),
            ),
            tuple(_unpack_settings(setting) for setting in packed["history"]),
        )


def _pack_settings(setting: RoundSettings) -> list[Any]:
    """A round's settings as a list: steps, trusted and untrusted participants, rate, noise factor."""
    numbers = (list(n) if isinstance(n, tuple) else n for n in (setting.trusted, setting.untrusted))
    return [setting.steps, *numbers, setting.rate, setting.noise]


def _unpack_settings(packed: list[Any]) -> RoundSettings:
    """The settings of a round from the list that `_pack_settings` made."""
    steps, trusted, untrusted, rate, noise = packed
    s_t, s_u = (tuple(map(int, n)) if isinstance(n, list) else n for n in (trusted, untrusted))
    return RoundSettings(steps, s_t, s_u, rate, noise)
