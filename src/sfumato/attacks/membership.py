"""Membership attacks: is an example in a device's data, and are a device's data in the training?

*Record level*: members are examples that a device holds; non-members are held-out examples of the same
labels that no device holds. *Device level*: members are devices with their data; non-members are made up of
as many held-out examples of the same labels that no device holds. So neither labels nor sizes distinguish
them: only what the model learned from the data does. An attack uses the observer's observations, the
protocol, and its own data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sfumato.attacks.attack_context import AttackContext
from sfumato.attacks.observations import Observation
from sfumato.attacks.results import AttackMeasurement, measurements
from sfumato.attacks.roc import ROC, pooled_roc
from sfumato.attacks.shadow_models import LikelihoodRatio
from sfumato.engine.tiles import intra_op_threads
from sfumato.progress import Progress, silent, track
from sfumato.random import Stream, generator

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Scores = tuple[FloatArray, FloatArray]

MOST_RECORDS = 50
PAIRS_OF_SHADOWS = 8
TWINS = 8
_RECORDS, _DEVICES = 10, 11


@intra_op_threads(1)
def measure_membership(context: AttackContext, progress: Progress = silent) -> tuple[AttackMeasurement, ...]:
    """Run all membership attacks on the observations of ``context``: who is a member, a record or a device?

    Args:
        context: targets, with what the observer saw of each.
        progress: called with the number of targets that are done.

    Returns:
        One measurement for each attack on records, then one for each on devices, pooled over all targets.
    """
    records, devices = [], []
    for target in track(context.targets, progress):
        observations = context.observations[target]
        records.append(_record_scores(context, target, observations))
        devices.append(_device_scores(context, target, observations))
    return (
        *measurements(context, "record", _pooled_curves(records)),
        *measurements(context, "device", _pooled_curves(devices)),
    )


def _pooled_curves(targets: Sequence[Mapping[str, Scores]]) -> dict[str, ROC]:
    """Attack to one ROC curve over the trials of all targets.

    ``targets``: of each target the scores of members and non-members by attack.
    """
    return {attack: pooled_roc([scores[attack] for scores in targets]) for attack in targets[0]}


@dataclass(frozen=True, eq=False)
class MemberSplit:
    """Members and non-members among examples: as many of each label in both, and no example in both.

    Attributes:
        members: rows that the device holds.
        non_members: held-out rows that no device holds.
    """

    members: IntArray
    non_members: IntArray

    @property
    def rows(self) -> IntArray:
        """Row numbers of the members, then of the non-members, ``[members + non-members]``."""
        return np.concatenate([self.members, self.non_members])


def split_members(context: AttackContext, target: int) -> MemberSplit:
    """Members, training rows of device ``target``, and as many non-members, held-out rows of the same labels.

    At most `MOST_RECORDS` each, drawn at random.
    """
    rng = generator(context.plan.spec.seed, Stream.ATTACK, _RECORDS, target)
    others, members = context.population.matched_candidates(context.population.partition.indices(target), rng)
    kept = rng.permutation(len(members))[:MOST_RECORDS]
    return MemberSplit(members[kept], others[kept])


def _record_scores(
    context: AttackContext, target: int, observations: Sequence[Observation]
) -> dict[str, Scores]:
    """By attack, the scores of records of device ``target``: members ``[k]``, non-members ``[k]``."""
    split = split_members(context, target)
    size, count = len(context.population.partition.indices(target)), len(split.members)
    threshold, online, offline = (np.zeros(2 * count) for _ in range(3))
    for number, observation in enumerate(observations):
        seen = context.attacker.confidences(observation.end[None], split.rows)[0]
        threshold += -np.logaddexp(0.0, -seen)  # minus the loss
        inside, held = _shadow_data(context, target, number, split, size)
        updates = context.attacker.updates(observation, held, _RECORDS, target, 1, number)
        models = context.attacker.models_with_others(observation, updates, _RECORDS, target, 2, number)
        with_it, without = lira_scores(seen, context.attacker.confidences(models, split.rows), inside)
        online += with_it
        offline += without
    found = {"loss threshold": threshold, "LiRA, offline": offline, "LiRA, online": online}
    return {attack: (scores[:count], scores[count:]) for attack, scores in found.items()}


def _shadow_data(
    context: AttackContext, target: int, number: int, split: MemberSplit, size: int
) -> tuple[npt.NDArray[np.bool_], list[IntArray]]:
    """The data of shadow devices: of every pair, one holds each example; the attacker's data fill them up.

    Args:
        number: of the observation, for the address of draws.
        split: the examples in question.
        size: examples of each shadow device.
        context: of the attack.
        target: number of the device.

    Returns:
        Which examples each shadow device holds ``[shadows, rows]``, and all rows that it holds.
    """
    rng = generator(context.plan.spec.seed, Stream.ATTACK, _RECORDS, target, 0, number)
    total, own = len(split.rows), context.population.own
    inside = np.zeros((2 * PAIRS_OF_SHADOWS, total), dtype=np.bool_)
    for pair in range(PAIRS_OF_SHADOWS):
        order = rng.permutation(total)
        inside[2 * pair, order[: total // 2]] = True
        inside[2 * pair + 1] = ~inside[2 * pair]
    filling = size - total // 2
    held = [
        np.concatenate([split.rows[mask], rng.choice(own, size=filling, replace=filling > len(own))])
        for mask in inside
    ]
    return inside, held


def lira_scores(
    seen: FloatArray, shadows: FloatArray, inside: npt.NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Likelihood ratios of Carlini et al. (2022, Algorithm 1), with Gaussians fitted to few shadow models.

    Means are fitted to each example, one variance to all of them, as the paper advises for few models.

    Args:
        seen: logit-scaled confidences under the model attacked, ``[R]``.
        shadows: the same under the shadow models, ``[S, R]``.
        inside: which examples each shadow model was trained on, ``[S, R]``.

    Returns:
        Online: log-likelihood with the example minus that without it, ``[R]``. Offline: distance above the
        mean of models without the example, in standard deviations, ``[R]``.
    """
    mean_in, spread_in = _fitted_gaussians(shadows, inside)
    mean_out, spread_out = _fitted_gaussians(shadows, ~inside)
    z_in, z_out = (seen - mean_in) / spread_in, (seen - mean_out) / spread_out
    return (z_out**2 - z_in**2) / 2 + np.log(spread_out / spread_in), z_out


def _fitted_gaussians(values: FloatArray, mask: npt.NDArray[np.bool_]) -> tuple[FloatArray, float]:
    """Mean of every column of ``values`` over its ``mask``, both ``[S, R]``, and one std for all columns."""
    counts = mask.sum(axis=0)
    means = np.where(mask, values, 0.0).sum(axis=0) / counts
    squares = np.where(mask, (values - means) ** 2, 0.0).sum()
    return means, float(np.sqrt(squares / (mask.sum() - len(counts)) + 1e-12))


def _device_scores(
    context: AttackContext, target: int, observations: Sequence[Observation]
) -> dict[str, Scores]:
    """By attack, two scores: of device ``target``, and of a made-up device with the same labels."""
    rng = generator(context.plan.spec.seed, Stream.ATTACK, _DEVICES, target)
    everybody = context.population
    mine = everybody.partition.indices(target)
    asked = (mine, everybody.rows_of_same_labels(mine, everybody.candidates, rng))
    twins = [everybody.rows_of_same_labels(mine, everybody.own, rng) for _ in range(TWINS)]
    scores = np.zeros((2, 2))
    for number, observation in enumerate(observations):
        shadow_devices = context.attacker.shadow_devices(observation)
        others = context.attacker.updates(observation, twins, _DEVICES, target, 2, number)
        for row, rows in enumerate(asked):
            # the update also depends on the batches. Two draws differ by 2 s^2, which estimates s^2; around
            # their mean a third draw has variance s^2 + s^2 / 2.
            twice = context.attacker.updates(observation, [rows, rows], _DEVICES, target, row, number)
            own_spread = float(torch.square(twice[0] - twice[1]).mean()) * 0.75
            spread = (own_spread + float(others.var(dim=0).mean())) / 2
            ratio = LikelihoodRatio(twice.mean(dim=0), others.mean(dim=0), spread)
            scores[row] += ratio.score(observation, shadow_devices)
    return {
        "likelihood ratio": (scores[:1, 0], scores[1:, 0]),
        "inner product": (scores[:1, 1], scores[1:, 1]),
    }
