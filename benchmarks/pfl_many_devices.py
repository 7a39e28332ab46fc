"""The work of many_devices.py by pfl: a million users, whose data are made when they are chosen.

    DIRECTORY/bin/python benchmarks/pfl_many_devices.py [DEVICES [CHOSEN [EXAMPLES]]]

Runs with the python of pfl's own environment (see pfl_environment.sh).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

CLASSES, FEATURES, ROUNDS = 10, 16, 3


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(FEATURES, CLASSES)

    def loss(self, features, labels):
        return torch.nn.functional.cross_entropy(self.linear(features), labels)

    def metrics(self, features, labels):
        with torch.no_grad():
            return {"loss": Weighted(self.loss(features, labels).item() * len(labels), len(labels))}


class Clock(TrainingProcessCallback):
    def __init__(self) -> None:
        self.times = [time.process_time()]

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.times.append(time.process_time())
        return super().after_central_iteration(aggregate_metrics, model, central_iteration=central_iteration)


def peak_megabytes() -> float:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text("utf-8").splitlines())
    return int(status["VmHWM"].split()[0]) * 1024 / 1e6


def main(devices: int = 1_000_000, chosen: int = 10_000, examples: int = 20) -> None:
    torch.set_num_threads(1)
    imports = peak_megabytes()

    def made(user: int) -> Dataset:
        rng = np.random.default_rng(user)
        features = torch.from_numpy(rng.standard_normal((examples, FEATURES), np.float32))
        return Dataset(raw_data=[features, torch.from_numpy(rng.integers(0, CLASSES, examples))])

    rng = np.random.default_rng(0)
    population = FederatedDataset(made, lambda: int(rng.integers(devices)))
    mechanism = CentrallyAppliedPrivacyMechanism(GaussianMechanism(1.0, 1.0))
    network, clock = Classifier(), Clock()
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=ROUNDS,
            evaluation_frequency=10**9,
            train_cohort_size=chosen,
            val_cohort_size=None,
        ),
        SimulatedBackend(population, population, [mechanism]),
        PyTorchModel(network, local_optimizer_create=torch.optim.SGD, central_optimizer=optimizer),
        NNTrainHyperParams(
            local_num_epochs=None, local_num_steps=2, local_learning_rate=0.1, local_batch_size=4
        ),
        NNEvalHyperParams(local_batch_size=None),
        [clock],
    )
    rounds = np.diff(clock.times)
    print(f"{peak_megabytes() - imports:.0f} MB beyond the {imports:.0f} MB of imports")
    print(f"{rounds[1:].min():.2f} s of CPU a round, {rounds[0]:.2f} s for the first")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
