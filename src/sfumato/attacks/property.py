"""Property attacks: does a device hold any example of a label?

Trials are all pairs of an attacked device and a label; pairs in which the device does not hold the label are
the non-members. If every device holds every label, nothing is measured.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.attacks.attack_context import AttackContext
from sfumato.attacks.observations import Observation
from sfumato.attacks.results import AttackMeasurement, measurements
from sfumato.attacks.roc import ROC
from sfumato.attacks.shadow_models import LikelihoodRatio, ShadowDevices
from sfumato.engine.tiles import intra_op_threads
from sfumato.learning.parameters import ParameterLayout
from sfumato.progress import Progress, silent, track

FloatArray = npt.NDArray[np.float64]


@intra_op_threads(1)
def measure_properties(context: AttackContext, progress: Progress = silent) -> tuple[AttackMeasurement, ...]:
    """Attack which labels each target holds, by all property attacks; () if all devices hold all labels.

    ``progress`` is called with the number of targets that are done. Returns one measurement for each attack,
    pooled over all targets and labels.
    """
    truth = context.population.labels_held[list(context.targets)]
    if truth.all() or not truth.any():
        return ()
    by_shadows, by_rows = np.zeros(truth.shape), np.zeros(truth.shape)
    for row, target in enumerate(track(context.targets, progress)):
        for observation in context.observations[target]:
            shadow_devices = context.attacker.shadow_devices(observation)
            by_shadows[row] += shadow_scores(observation, shadow_devices)
            by_rows[row] += last_layer_scores(
                observation, shadow_devices, context.layout, context.population.classes
            )
    scores = {"shadow devices": by_shadows, "last layer": by_rows}
    curves = {attack: ROC.of(found[truth], found[~truth]) for attack, found in scores.items()}
    return measurements(context, "label", curves)


def shadow_scores(observation: Observation, shadow_devices: ShadowDevices) -> FloatArray:
    """The score of every label ``[classes]``: the log-likelihood ratio that the device holds it, or does not.

    ``observation``: of the attacked device; the two laws are fitted to ``shadow_devices``, with and without.

    0 for a label that fewer than two of the shadow devices hold, or fewer than two lack.
    """
    scores = np.zeros(shadow_devices.labels_held.shape[1])
    for label, holds in enumerate(shadow_devices.labels_held.T):
        if 1 < holds.sum() < len(holds) - 1:
            with_it = shadow_devices.updates[torch.from_numpy(holds)]
            without = shadow_devices.updates[torch.from_numpy(~holds)]
            spread = float((with_it.var(dim=0) + without.var(dim=0)).mean()) / 2
            ratio = LikelihoodRatio(with_it.mean(dim=0), without.mean(dim=0), spread)
            scores[label] = ratio.score(observation, shadow_devices)[0]
    return scores


def last_layer_scores(
    observation: Observation, shadow_devices: ShadowDevices, layout: ParameterLayout, classes: int
) -> FloatArray:
    """A score of every label ``[classes]``, by the movement of its row of the last layer.

    With cross-entropy a row moves towards the inputs of its own label and away from all others, so a device
    that holds the label moves it in the opposite direction to one that does not (Zhao et al. 2020). The score
    is the projection of the row's movement on the mean movement by shadow devices with the label. It is 0
    everywhere for a model whose last layer does not have one row for each label.
    """
    usual = observation.share * (observation.other_devices + 1) * shadow_devices.mean
    seen = _last_layer_rows(observation.end - observation.start - usual, layout, classes)
    known = _last_layer_rows(shadow_devices.updates - shadow_devices.mean, layout, classes)
    if seen is None or known is None:
        return np.zeros(classes)
    scores = np.zeros(classes)
    for label, holds in enumerate(shadow_devices.labels_held.T):
        if 1 < holds.sum() < len(holds) - 1:
            way = known[torch.from_numpy(holds), label].mean(dim=0)
            scores[label] = float(seen[label] @ way / way.norm().clamp(min=1e-12)) / observation.share
    return scores


def _last_layer_rows(flat: Tensor, layout: ParameterLayout, classes: int) -> Tensor | None:
    """The last layer's weights, and biases if it has any, by label: ``[..., classes, inputs]``."""
    named = layout.unflatten(flat)
    prefix = layout.names[-1].rpartition(".")[0]
    last = [named[name] for name in layout.names if name.rpartition(".")[0] == prefix]
    parts = [part if part.dim() > flat.dim() else part[..., None] for part in last]
    if any(part.shape[flat.dim() - 1] != classes or part.dim() != flat.dim() + 1 for part in parts):
        return None
    return torch.cat(parts, dim=-1)
