"""What an attacker can compute: the updates of shadow devices, which hold data that it chooses.

It knows the protocol, the models it received and the scale of the noise, and has its own data from the
devices' distribution: half of the held-out examples. The other half are non-members for the attacks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import log_softmax

from sfumato.attacks.observations import Observation
from sfumato.data.dataset import Dataset
from sfumato.data.features import read_all
from sfumato.data.partition import Partition
from sfumato.engine.base import Engine, EngineSettings
from sfumato.engine.registry import engine_of
from sfumato.learning.dropout import DropoutDraws
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.gaussian import add_gaussian_
from sfumato.protocols.tree.local_work import draw_batches, local_task
from sfumato.random import Stream, generator, key_at
from sfumato.spec.document import Spec

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

SHADOW_DEVICES = 64
_MOST_FLOATS = 1 << 28  # of shadow devices' updates that are kept
_SPLIT = 0
_DROPOUT = 0xD309  # the attacker does not know the devices' masks, and draws its own
_LEAST_VARIANCE = 1e-20  # float32 updates of one and the same data differ by more


@dataclass(frozen=True, eq=False)
class Population:
    """The rows that devices and the attacker hold. The attacker itself knows its own rows only.

    Attributes:
        features: float32 ``[N, ...]``: training examples, then held-out ones.
        labels: int64 ``[N]``.
        partition: rows of the devices.
        own: rows of the attacker.
        candidates: held-out rows that neither a device nor the attacker holds.
        classes: number of labels.
    """

    features: Tensor
    labels: IntArray
    partition: Partition
    own: IntArray
    candidates: IntArray
    classes: int

    @classmethod
    def of(cls, data: Dataset, partition: Partition, seed: int) -> Population:
        """The devices' data, with the held-out examples divided at random into two halves.

        One half are candidates for non-members, the other is the attacker's own. ``seed``: of the run.
        """
        held_out = np.arange(len(data.test_labels), dtype=np.int64) + len(data.train_labels)
        held_out = generator(seed, Stream.ATTACK, _SPLIT).permutation(held_out)
        half = len(held_out) // 2
        return cls(
            torch.from_numpy(np.concatenate([read_all(data.train_features), read_all(data.test_features)])),
            np.concatenate([data.train_labels, data.test_labels]),
            partition,
            np.sort(held_out[:half]),
            np.sort(held_out[half:]),
            data.facts.classes,
        )

    def matched_candidates(self, rows: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Pair held-out candidates with ``rows`` of the same labels, at random, as many as possible.

        Returns (candidates, rows paired with them), ``[k]`` each.
        """
        found, partners = [], []
        for label in np.unique(self.labels[rows]):
            mine = rng.permutation(rows[self.labels[rows] == label])
            theirs = rng.permutation(self.candidates[self.labels[self.candidates] == label])
            count = min(len(mine), len(theirs))
            partners.append(mine[:count])
            found.append(theirs[:count])
        return np.concatenate(found), np.concatenate(partners)

    def rows_of_same_labels(self, rows: IntArray, among: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw as many rows of ``among`` of each label as ``rows`` has, in ascending order of labels.

        Rows are drawn again where ``among`` has too few of a label; for a label that it lacks, rows of any
        label are drawn. All, the result ``[len(rows)]`` too, are numbers of training rows.
        """
        found = []
        for label, count in zip(*np.unique(self.labels[rows], return_counts=True), strict=True):
            fitting = among[self.labels[among] == label]
            fitting = fitting if len(fitting) else among
            found.append(rng.choice(fitting, size=count, replace=len(fitting) < count))
        return np.concatenate(found)

    @property
    def labels_held(self) -> npt.NDArray[np.bool_]:
        """Whether each device holds each label, ``[devices, classes]``."""
        held = np.zeros((self.partition.devices, self.classes), dtype=np.bool_)
        for device in range(self.partition.devices):
            held[device, self.labels[self.partition.indices(device)]] = True
        return held


@dataclass(frozen=True, eq=False)
class ShadowDevices:
    """Devices that the attacker made up from its own data: samples of typical updates.

    Attributes:
        updates: clipped, ``[B, M]``.
        labels_held: whether each holds each label, ``[B, classes]``.
    """

    updates: Tensor
    labels_held: npt.NDArray[np.bool_]

    @property
    def mean(self) -> Tensor:
        """The mean of the shadow devices' updates, ``[M]``."""
        return self.updates.mean(dim=0)

    @property
    def variance(self) -> float:
        """Variance of a coordinate of one update around the mean update, averaged over coordinates."""
        return float(self.updates.var(dim=0).mean())


@dataclass(frozen=True, eq=False)
class Attacker:
    """Computes the updates that made-up devices would send under the protocol.

    Args:
        spec: of the run.
        model: the architecture.
        population: it uses its own rows, and the rows that a trial is about.
        spec_of_round: the spec as a round was played, where control chose its step size.
    """

    spec: Spec
    model: nn.Module
    population: Population
    spec_of_round: Callable[[int], Spec]
    _engine: Engine = field(init=False)
    _shadow_devices: dict[bytes, ShadowDevices] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Set up the engine that trains shadow devices, on the CPU."""
        labels = torch.from_numpy(self.population.labels)
        engine = engine_of(self.model, self.population.features, labels, EngineSettings.default("cpu"))
        object.__setattr__(self, "_engine", engine)

    def updates(self, observation: Observation, rows: Sequence[IntArray], *key: int) -> Tensor:
        """Clipped updates ``[P, M]`` of P devices with ``rows`` that train for the steps of ``observation``.

        Args:
            observation: gives the initial model and the number of steps.
            rows: of each device.
            key: address of their batches in the attacks' stream.
        """
        training = self.spec.training
        plan = draw_batches(
            training,
            rows,
            [(number,) for number in range(len(rows))],
            steps=observation.last_step - observation.first_step,
            seed=self.spec.seed,
            stream=Stream.ATTACK,
            address=key,
        )
        together = torch.zeros(len(rows), dtype=torch.int64)
        task = replace(
            local_task(self.spec_of_round(observation.round), observation.round),
            dropout=DropoutDraws(
                lambda row, step: generator(self.spec.seed, Stream.ATTACK, *key, _DROPOUT, row, step)
            ),
        )
        chunks = self._engine.train(task, observation.start[None], together, plan)
        return torch.cat([chunk.updates for chunk in chunks])

    def shadow_devices(self, observation: Observation) -> ShadowDevices:
        """Devices simulated on the attacker's own data, for the model and steps of ``observation``.

        They have the mean number of examples and of labels of the run's devices. Results are cached.
        """
        where = hashlib.sha256(observation.start.numpy().tobytes())
        where.update(repr((observation.round, observation.first_step, observation.last_step)).encode())
        key = where.digest()
        if key not in self._shadow_devices:
            made = self._make_shadow_devices(observation)
            while (
                self._shadow_devices and (len(self._shadow_devices) + 1) * made.updates.numel() > _MOST_FLOATS
            ):
                del self._shadow_devices[next(iter(self._shadow_devices))]
            self._shadow_devices[key] = made
        return self._shadow_devices[key]

    def _make_shadow_devices(self, observation: Observation) -> ShadowDevices:
        """Simulate shadow devices for ``observation``: their updates, and which labels each holds."""
        everybody = self.population
        rng = generator(self.spec.seed, Stream.ATTACK, 1, observation.round, observation.last_step)
        usual = max(1, round(float(everybody.labels_held.sum(axis=1).mean())))
        size = max(1, round(float(everybody.partition.sizes.mean())))
        own = everybody.labels[everybody.own]
        present = np.unique(own)
        holds = np.zeros((SHADOW_DEVICES, everybody.classes), dtype=np.bool_)
        rows = []
        for stranger in range(SHADOW_DEVICES):
            chosen = rng.choice(present, size=min(usual, len(present)), replace=False)
            fitting = everybody.own[np.isin(own, chosen)]
            rows.append(rng.choice(fitting, size=size, replace=len(fitting) < size))
            holds[stranger, everybody.labels[rows[-1]]] = True
        return ShadowDevices(
            self.updates(observation, rows, 2, observation.round, observation.last_step), holds
        )

    def models_with_others(self, observation: Observation, updates: Tensor, *key: int) -> Tensor:
        """Models ``[P, M]`` that the observer could receive if the device sent ``updates`` ``[P, M]``.

        The other devices in the sum are drawn from the shadow devices, separately for each row, and noise is
        added. ``key``: address of the draws in the attacks' stream.
        """
        draws = len(updates)
        if observation.other_devices:
            shadow_devices = self.shadow_devices(observation).updates
            rng = generator(self.spec.seed, Stream.ATTACK, *key)
            counts = rng.multinomial(
                round(observation.other_devices), np.full(len(shadow_devices), 1 / len(shadow_devices)), draws
            )
            updates = updates + torch.from_numpy(counts).float() @ shadow_devices
        models = observation.start + observation.share * updates
        stds = np.full(draws, observation.noise_std)
        add_gaussian_(models, stds, lambda row: key_at(self.spec.seed, Stream.ATTACK, *key, row))
        return models

    def confidences(self, models: Tensor, rows: IntArray) -> FloatArray:
        """Logit of the probability that each model gives to the label of each row, ``[P, R]``.

        It is close to Gaussian where the probability is not (Carlini et al. 2022, equation 5).

        Args:
            models: flat, ``[P, M]``.
            rows: row numbers of the population ``[R]``.
        """
        layout, features = ParameterLayout.of(self.model), self.population.features[torch.from_numpy(rows)]
        at = torch.from_numpy(self.population.labels[rows])[:, None]
        found = []
        with torch.no_grad():
            for flat in models:
                logits = functional_call(self.model, layout.unflatten(flat), (features,))
                logs = log_softmax(logits.double(), dim=1)
                others = logs.scatter(1, at, -torch.inf).logsumexp(dim=1)
                found.append(logs.gather(1, at)[:, 0] - others)
        return torch.stack(found).nan_to_num(nan=0.0, posinf=1e3, neginf=-1e3).numpy()


@dataclass(frozen=True, eq=False)
class LikelihoodRatio:
    """Log-likelihood ratio of an observation under two hypotheses about one device's update.

    Everything else in the observation is modelled as Gaussian: the other devices as shadow devices, the
    spread of the device's own batches, and the noise, whose scale is known.

    Attributes:
        update_if_true: mean update under the hypothesis, ``[M]``.
        update_if_false: mean update under the alternative, ``[M]``.
        spread: variance of its update around either mean, per coordinate.
    """

    update_if_true: Tensor
    update_if_false: Tensor
    spread: float

    def score(self, observation: Observation, shadow_devices: ShadowDevices) -> tuple[float, float]:
        """Two scores that the attacked device holds the target; both are larger for members.

        Returns:
            The log-likelihood ratio of the two hypotheses; and the cosine between the observation, less what
            is expected halfway between them, and their difference (0 where either is 0).
        """
        variance = observation.noise_std**2 + observation.share**2 * (
            observation.other_devices * shadow_devices.variance + self.spread
        )
        expected = observation.share * (
            observation.other_devices * shadow_devices.mean + (self.update_if_true + self.update_if_false) / 2
        )
        seen = (observation.end - observation.start - expected).double()
        sought = (observation.share * (self.update_if_true - self.update_if_false)).double()
        product = float(seen @ sought)
        lengths = float(seen.norm() * sought.norm())
        return product / max(variance, _LEAST_VARIANCE), product / lengths if lengths > 0 else 0.0
