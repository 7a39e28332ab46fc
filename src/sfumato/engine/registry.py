"""Which engine trains a model: the vectorised one wherever ``torch.func.vmap`` can follow the model."""

from __future__ import annotations

import logging

from torch import Tensor, nn

from sfumato.data.features import FeatureSource
from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.engine.base import Engine, EngineSettings
from sfumato.engine.local import LocalEngine
from sfumato.engine.per_device import PerDeviceEngine
from sfumato.engine.ranked import RankedEngine
from sfumato.learning.examples import Examples
from sfumato.learning.gradients import why_not_batched
from sfumato.learning.losses import CROSS_ENTROPY, Loss

LOG = logging.getLogger("sfumato")


def engine_of(
    model: nn.Module,
    features: Tensor | FeatureSource,
    labels: Tensor | FeatureSource,
    settings: EngineSettings,
    loss: Loss = CROSS_ENTROPY,
    ranks: Ranks = ALONE,
) -> Engine:
    """The engine that trains ``model``: many devices at once, or one after another, with a warning.

    Args:
        model: the architecture; its parameters are not read.
        features: ``[N, *shape]``, the data set; or a source from which examples are taken.
        labels: ``[N]``, or the targets that the loss takes ``[N, ...]``; a source of features may be its own.
        settings: device, threads and memory.
        loss: of every example.
        ranks: processes that share the devices; one alone by default.
    """
    none = Examples.of(features, labels, "cpu").none
    reason = why_not_batched(model, *none, loss, settings.device)
    if reason is None:
        engine: LocalEngine | PerDeviceEngine = LocalEngine(model, features, labels, settings, loss)
    else:
        LOG.warning("model: devices are trained one after another, as they cannot be batched: %s", reason)
        engine = PerDeviceEngine(model, features, labels, settings, loss)
    return engine if ranks.count == 1 else RankedEngine(engine, ranks)
