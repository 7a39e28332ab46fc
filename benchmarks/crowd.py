"""10,000 devices in one round, softmax; prints the peak resident memory in bytes."""

from __future__ import annotations

import resource

import numpy as np
import torch
from workload import BATCH, CLIP, EPOCHS, EXAMPLES, LEARNING_RATE, Workload

from sfumato.engine.base import EngineSettings, LocalTask
from sfumato.engine.local import LocalEngine
from sfumato.learning.batches import plan_epochs
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.clipping import FlatClip

DEVICES = 10_000


def main() -> None:
    work = Workload.of("softmax")
    rng = np.random.default_rng(0)
    # More devices than examples to go round: they share them.
    devices = [rng.choice(len(work.labels), EXAMPLES, replace=False) for _ in range(DEVICES)]
    batches = plan_epochs(devices, epochs=EPOCHS, batch_size=BATCH, rng=rng)
    engine = LocalEngine(work.model, work.features, work.labels, EngineSettings.default())
    model = ParameterLayout.of(work.model).read(work.model)
    total = torch.zeros_like(model)
    task = LocalTask(LocalSGD(LEARNING_RATE), FlatClip(CLIP))
    for chunk in engine.train(task, model[None], torch.zeros(DEVICES, dtype=torch.long), batches):
        total += chunk.updates.sum(dim=0)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


if __name__ == "__main__":
    main()
