"""What an attacker can compute: how devices with data of its own choosing would have trained.

It knows the protocol, the models it saw and the noise's scale, and has data of its own from the devices'
distribution: half of the held-out examples. The other half are candidates that are in nobody's data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import log_softmax

from sfumato.attacks.observations import Observation
from sfumato.data.datasets import Dataset
from sfumato.data.partition import Partition
from sfumato.engine.base import Engine, EngineSettings
from sfumato.engine.registry import engine_of
from sfumato.learning.batches import plan_epochs, plan_steps
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.gaussian import add_gaussian_
from sfumato.protocols.tree.local_work import local_task
from sfumato.random import Stream, generator, key_at
from sfumato.spec.document import Spec

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

SHADOW_DEVICES = 64
_MOST_FLOATS = 1 << 28  # of strangers' updates kept
_SPLIT = 0
_LEAST_VARIANCE = 1e-20  # float32 updates of one and the same data differ by more


@dataclass(frozen=True, eq=False)
class Population:
    """Who holds which examples, the attacker included. Private: only the judge of an attack knows all of it.

    Attributes:
        features: float32 ``[N, ...]``: training examples, then held-out ones.
        labels: int64 ``[N]``.
        partition: which of them devices hold.
        own: rows that the attacker holds.
        candidates: held-out rows that nobody holds.
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
        """Devices' data, and the held-out examples cut in two."""
        held_out = np.arange(len(data.test_labels), dtype=np.int64) + len(data.train_labels)
        held_out = generator(seed, Stream.ATTACK, _SPLIT).permutation(held_out)
        half = len(held_out) // 2
        return cls(
            torch.from_numpy(np.concatenate([data.train_features, data.test_features])),
            np.concatenate([data.train_labels, data.test_labels]),
            partition,
            np.sort(held_out[:half]),
            np.sort(held_out[half:]),
            data.facts.classes,
        )

    def matched_candidates(self, rows: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """As many candidates as can be paired with ``rows`` of the same label, and their partners."""
        found, partners = [], []
        for label in np.unique(self.labels[rows]):
            mine = rng.permutation(rows[self.labels[rows] == label])
            theirs = rng.permutation(self.candidates[self.labels[self.candidates] == label])
            count = min(len(mine), len(theirs))
            partners.append(mine[:count])
            found.append(theirs[:count])
        return np.concatenate(found), np.concatenate(partners)

    def label_matched(self, rows: IntArray, among: IntArray, rng: np.random.Generator) -> IntArray:
        """As many of ``among`` as ``rows``, label for label; some twice where there are too few.

        Of a label that ``among`` lacks, any others.
        """
        found = []
        for label, count in zip(*np.unique(self.labels[rows], return_counts=True), strict=True):
            fitting = among[self.labels[among] == label]
            fitting = fitting if len(fitting) else among
            found.append(rng.choice(fitting, size=count, replace=len(fitting) < count))
        return np.concatenate(found)

    @property
    def label_sets(self) -> npt.NDArray[np.bool_]:
        """Which labels every device holds, ``[devices, classes]``."""
        held = np.zeros((self.partition.devices, self.classes), dtype=np.bool_)
        for device in range(self.partition.devices):
            held[device, self.labels[self.partition.indices(device)]] = True
        return held


@dataclass(frozen=True, eq=False)
class ShadowDevices:
    """Devices that the attacker made up from its own data: what an update usually looks like.

    Attributes:
        updates: clipped, ``[B, M]``.
        labels_held: which labels each holds, ``[B, classes]``.
    """

    updates: Tensor
    labels_held: npt.NDArray[np.bool_]

    @property
    def mean(self) -> Tensor:
        """``[M]``."""
        return self.updates.mean(dim=0)

    @property
    def variance(self) -> float:
        """Of one update around the mean, a coordinate."""
        return float(self.updates.var(dim=0).mean())


@dataclass(frozen=True, eq=False)
class Attacker:
    """Trains made-up devices as the protocol would have.

    Args:
        spec: of the run.
        model: the architecture.
        population: of which it uses its own part, and whatever candidates it is asked about.
    """

    spec: Spec
    model: nn.Module
    population: Population
    _engine: Engine = field(init=False)
    _shadow_devices: dict[bytes, ShadowDevices] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        labels = torch.from_numpy(self.population.labels)
        engine = engine_of(self.model, self.population.features, labels, EngineSettings.default("cpu"))
        object.__setattr__(self, "_engine", engine)

    def updates(self, observation: Observation, rows: Sequence[IntArray], *key: int) -> Tensor:
        """Clipped updates ``[P, M]`` of devices that hold ``rows`` and did the work of ``observation``.

        Args:
            observation: says from where, and how many steps.
            rows: what each of them holds.
            key: address of their batches in the attacks' stream.
        """
        training = self.spec.training
        rng = generator(self.spec.seed, Stream.ATTACK, *key)
        if training.local_epochs is not None:
            plan = plan_epochs(rows, epochs=training.local_epochs, batch_size=training.batch_size, rng=rng)
        else:
            plan = plan_steps(
                rows,
                steps=observation.last_step - observation.first_step,
                batch_size=training.batch_size,
                rng=rng,
            )
        together = torch.zeros(len(rows), dtype=torch.int64)
        task = local_task(self.spec, observation.round)
        chunks = self._engine.train(task, observation.start[None], together, plan)
        return torch.cat([chunk.updates for chunk in chunks])

    def shadow_devices(self, observation: Observation) -> ShadowDevices:
        """Made-up devices of the usual size with the usual number of labels, from the attacker's own data."""
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
        everybody = self.population
        rng = generator(self.spec.seed, Stream.ATTACK, 1, observation.round, observation.last_step)
        usual = max(1, round(float(everybody.label_sets.sum(axis=1).mean())))
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
        """Models ``[P, M]`` that the observer could have seen, had the device sent one of ``updates``.

        The other devices in the sum are drawn from the strangers, anew for each row, and the noise is added.
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
        """Logit of the probability that each model ``[P, M]`` gives to the label of each row, ``[P, R]``.

        Carlini et al. (2022), equation 5: it is close to Gaussian where the probability is not.
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
    """Log-likelihood ratio of a sight under two hypotheses about one device's update.

    Everything else in the sight is taken as Gaussian around what strangers do: the other devices, the spread
    of the device's own batches, and the noise, whose scale is known.

    Attributes:
        update_if_true: its update if it is so, ``[M]``.
        update_if_false: its update if it is not, ``[M]``.
        spread: variance a coordinate of its update around either.
    """

    update_if_true: Tensor
    update_if_false: Tensor
    spread: float

    def score(self, observation: Observation, shadow_devices: ShadowDevices) -> tuple[float, float]:
        """The ratio, and the cosine between what was seen and what is looked for."""
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
