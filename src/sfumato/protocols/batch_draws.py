"""The mini-batches that a spec asks for, from addressed streams."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.learning.batches import BatchPlan, Rows, plan_epochs, plan_poisson, plan_steps
from sfumato.random import Stream, generator
from sfumato.spec.training import Training


def draw_batches(
    training: Training,
    rows: Sequence[Rows],
    parties: Sequence[tuple[int, ...]],
    *,
    steps: int,
    passes: int = 1,
    seed: int,
    stream: Stream,
    address: tuple[int, ...],
) -> BatchPlan:
    """So many steps for every device, or the epochs that the spec asks for instead.

    Shuffled batches of all devices come from one stream, at ``address``. With Poisson mini-batches every
    device has a stream of its own there, so that its draws do not depend on who else takes part.

    Args:
        training: says which batches, and how large.
        rows: for each device, the rows of the data set that it holds.
        parties: what each device's stream is addressed by, after ``address``; different for each.
        steps: of each device, where steps are counted.
        passes: how many times the epochs of a round are done, where epochs are counted.
        seed: of the run.
        stream: of random numbers.
        address: in that stream.
    """
    if training.batches == "poisson":
        assert training.batch_size != "all"  # the spec's own checks see to it
        rngs = [generator(seed, stream, *address, *party) for party in parties]
        return plan_poisson(rows, steps=steps, batch_size=training.batch_size, rngs=rngs)
    rng = generator(seed, stream, *address)
    if training.local_epochs is not None:
        epochs = training.local_epochs * passes
        return plan_epochs(rows, epochs=epochs, batch_size=training.batch_size, rng=rng)
    return plan_steps(rows, steps=steps, batch_size=training.batch_size, rng=rng)
