"""Clipped gradients under secure aggregation: rounding moves no record further than the noise allows for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tree_worlds import Library, spec_of

from sfumato.errors import SpecError
from sfumato.schedule.integer_grid import FEWEST_STEPS, HEADROOM, integer_grid_of
from sfumato.schedule.message_grid import message_lengths
from sfumato.schedule.resolve import resolve
from sfumato.secure_aggregation.encoding import round_at_random

BOTH = {"devices_to_edge": "secure-aggregation", "edge_to_cloud": "secure-aggregation"}
MESSAGES = {"multiplier": 0.5, "placement": {"device": 1.0}}


def hdp(noise: Any, clip: str = "example", **sections: Any) -> Any:
    training = {
        "rounds": 2,
        "local_steps": 2,
        "batches": "poisson",
        "batch_size": 4,
        "learning_rate": 0.3,
        "momentum": 0.5,
    }
    document = {
        "protocol": "hdp",
        "topology": {"kind": "tree", "edges": 3, "devices_per_edge": [5, 4, 6]},
        "training": training | sections.pop("training", {}),
        "privacy": {"unit": "record", "clip": {"kind": clip, "norm": 0.2}, "noise": noise},
        "transport": BOTH,
    }
    return spec_of(**(document | sections))


@pytest.mark.parametrize("noise", ["none", {"multiplier": 0.5, "at": "step"}])
def test_it_is_the_average_of_the_plain_run(noise: Any) -> None:
    """Noise at local steps is the same in both; a message is never shortened."""
    plain, secure = (Library(hdp(noise, transport=hops)).play(2) for hops in ({}, BOTH))
    assert float((plain[-1].model - plain[0].model).abs().max()) > 0.005
    for a, b in zip(plain, secure, strict=True):
        torch.testing.assert_close(a.model, b.model, rtol=0, atol=2e-6)


class Upwards:
    """A stream of zeros: every coordinate that is no integer is rounded up."""

    def units(self, count: int) -> Any:
        return np.zeros(count)


@pytest.mark.parametrize("dimension", [3, 5000])
@pytest.mark.parametrize("clip", ["example", "step"])
def test_noise_is_enough_for_what_a_record_moves_once_rounded(clip: str, dimension: int) -> None:
    """With the gradient every coordinate is just above an integer, without it just below: all jump by one.

    The last gradient of clipped steps may turn round: it moves the message by twice its length.
    """
    plan = resolve(hdp(MESSAGES, clip=clip))
    gradients = 1 if clip == "example" else 2
    ring = integer_grid_of(plan, 0, 0, np.arange(15), dimension)
    for leaf, device in ((0, 0), (1, 5), (2, 9)):
        who = np.array([device])
        longest, std = message_lengths(plan, 0, who, dimension)[0], plan.device_stds_of(0, who)[0]
        how = ring.device_rounding(leaf, longest, std)
        one = gradients * ring.shares[leaf] * ring.unit * ring.scale  # in steps
        gradient = np.full(dimension, np.floor(one / np.sqrt(dimension)))
        gradient[0] = np.floor(np.sqrt(one**2 - np.sum(gradient[1:] ** 2)))
        assert np.linalg.norm(gradient) <= one
        with_it, without = np.full(dimension, 5 + 1e-6), 5 - gradient - 1e-6
        rounded = [round_at_random(v / how.scale, how, Upwards()) for v in (with_it, without)]  # type: ignore[arg-type]
        moved = float(np.linalg.norm(rounded[0] - rounded[1]))
        assert moved > one + 0.7 * np.sqrt(dimension)
        assert how.noise_std / moved >= std / gradients * (1 + HEADROOM) * (1 - 1e-9)
        assert how.noise_std / moved <= std / gradients * 1.001
        assert how.noise_std > FEWEST_STEPS


def test_a_message_is_neither_shortened_nor_rounded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either would depend on the record, and answer for all other coordinates."""
    monkeypatch.setattr("sfumato.secure_aggregation.encoding._MOST_TRIES", 1)
    dimension, plan = 400, resolve(hdp(MESSAGES))
    ring, who = integer_grid_of(plan, 0, 0, np.arange(15), dimension), np.array([0])
    coarse = replace(ring.grid, exponent=ring.grid.exponent + 17)  # as coarse as is allowed
    ring = replace(ring, grid=coarse)
    how = ring.device_rounding(0, message_lengths(plan, 0, who, dimension)[0], 0.0)
    gain = 1 + 1.5  # two steps with momentum 0.5; 20 records, each in both batches
    longest = 20 * gain * ring.shares[0] * ring.unit * how.scale
    steps = np.full(dimension, np.floor(longest / np.sqrt(dimension)))
    steps[0] = np.floor(np.sqrt(longest**2 - np.sum(steps[1:] ** 2)))
    steps += 1e-6
    rounded = round_at_random(steps / how.scale, how, Upwards())  # type: ignore[arg-type]
    assert (rounded == np.ceil(steps)).all()


def test_a_ring_needs_the_number_of_records() -> None:
    files = {"source": "nowhere:data"}
    with pytest.raises(SpecError, match="not known before they are read") as caught:
        resolve(hdp(MESSAGES, data=files))
    assert caught.value.place == "privacy.clip.kind"
