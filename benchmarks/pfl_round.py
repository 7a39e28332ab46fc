"""Rounds of the same DP-FedAvg by pfl, one for each line on stdin; prints each one's seconds.

Runs with the python of pfl's own environment (see pfl_environment.sh), on the files that run.py hands over.
"""

from __future__ import annotations

import sys
import time

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

# pfl prints metrics of its own.
ANSWERS, sys.stdout = sys.stdout, sys.stderr


class Classifier(torch.nn.Module):
    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, features, labels):
        return torch.nn.functional.cross_entropy(self.network(features), labels)

    def metrics(self, features, labels):
        with torch.no_grad():
            return {"loss": Weighted(self.loss(features, labels).item() * len(labels), len(labels))}


class Clock(TrainingProcessCallback):
    """Prints how long a round took, and holds the next one until it is asked for."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        print(time.perf_counter() - self._start, file=ANSWERS, flush=True)
        stop = not sys.stdin.readline()
        self._start = time.perf_counter()
        return stop, super().after_central_iteration(
            aggregate_metrics, model, central_iteration=central_iteration
        )[1]


def main(path: str) -> None:
    work = torch.load(path, weights_only=False)
    torch.set_num_threads(work["threads"])
    data = {user: (work["features"][rows], work["labels"][rows]) for user, rows in enumerate(work["devices"])}
    chosen = work["chosen"].tolist()

    def next_user() -> int:
        user = chosen.pop(0)
        chosen.append(user)
        return user

    datasets = {user: Dataset(raw_data=list(tensors)) for user, tensors in data.items()}
    population = FederatedDataset(datasets.__getitem__, next_user)
    mechanism = GaussianMechanism(work["clip"], work["noise_multiplier"])
    backend = SimulatedBackend(population, population, [CentrallyAppliedPrivacyMechanism(mechanism)])
    network = Classifier(work["model"])
    model = PyTorchModel(
        network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10**6,
            evaluation_frequency=10**9,  # never, but for the first round, which only warms up
            train_cohort_size=len(chosen),
            val_cohort_size=None,
        ),
        backend,
        model,
        NNTrainHyperParams(
            local_num_epochs=work["epochs"],
            local_learning_rate=work["learning_rate"],
            local_batch_size=work["batch"],
        ),
        NNEvalHyperParams(local_batch_size=None),
        [Clock()],
    )


if __name__ == "__main__":
    main(sys.argv[1])
