"""The noise that is really added, measured where devices have no data and so contribute nothing.

`is_std` errs with probability below 2e-7 for the right scale; 2/3 and 3/2 of it are rejected with far more
certainty (20,000 coordinates tell standard deviations 3 % apart that surely). `are_independent` errs with
probability below 2e-9 a pair. No test errs with probability above 1e-6, were it run with fresh noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from tree_worlds import Library, spec_of

from sfumato.privacy.losses import gaussian as gdp
from sfumato.schedule.resolve import resolve

SHAPE, CLASSES = (2000,), 10
M = 20_000
C, Z = 0.8, 1.3
CLIP = {"kind": "update", "norm": C}
TRAINING = {"rounds": 4, "steps_per_round": 6, "edge_every": 2, "batch_size": 4, "learning_rate": 0.05}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def is_std(noise: Tensor, std: float) -> bool:
    statistic = float((noise.double() / std).square().sum())
    centred = abs(float(noise.double().mean())) < 5.5 * std / math.sqrt(len(noise))
    return centred and 5e-8 < stats.chi2.cdf(statistic, len(noise)) < 1 - 5e-8


def assert_std(noise: Tensor, std: float) -> None:
    assert is_std(noise, std), f"measured {float(noise.std()):.6g}, expected {std:.6g}"
    assert not is_std(noise, std * 2 / 3)
    assert not is_std(noise, std * 3 / 2)


def are_independent(vectors: list[Tensor]) -> bool:
    units = [v.double() / v.double().norm() for v in vectors]
    pairs = itertools.combinations(units, 2)
    return all(abs(float(a @ b)) < 6 / math.sqrt(M) for a, b in pairs)


class Silent(Library):
    """Nobody has data. Records the edge models that each piece of local work starts from."""

    def __init__(self, **sections: Any) -> None:
        spec = spec_of(
            **({"training": TRAINING, "privacy": {"clip": CLIP, "noise": {"multiplier": Z}}} | sections)
        )
        devices = resolve(spec).tree.device_count
        super().__init__(spec, np.zeros(devices, np.int64), shape=SHAPE, classes=CLASSES, kind="softmax")
        self.starts: list[Tensor] = []
        train = self.engine.train

        def recording(task: Any, start: Tensor, group_of: Tensor, batches: Any) -> Any:
            self.starts.append(start.clone())
            return train(task, start, group_of, batches)

        self.engine.train = recording  # type: ignore[method-assign]
        self.start = torch.zeros(M)  # the smallest noise counts in full

    def round(self) -> tuple[Tensor, float]:
        """The noise in the first global model, and its standard deviation as the metrics report it."""
        state, facts = self.protocol.run_round(self.protocol.initial(self.start))
        return state.model - self.start, facts.noise_std


def tree(edges: int, devices: int | list[int]) -> dict[str, Any]:
    return {"kind": "tree", "edges": edges, "devices_per_edge": devices}


def test_trusted_edges() -> None:
    world = Silent(topology=tree(2, [3, 5]), trust={"trusted_edges": 1.0})
    noise, reported = world.round()
    first = world.starts[1]
    assert_std(first[0], Z * C / 3)
    assert_std(first[1], Z * C / 5)
    assert_std(world.starts[2][1] - first[1], Z * C / 5)
    three_releases = math.sqrt(3 * ((Z * C / 3) ** 2 + (Z * C / 5) ** 2)) / 2
    assert_std(noise, three_releases)
    assert reported == pytest.approx(three_releases)


def test_untrusted_edges() -> None:
    world = Silent(topology=tree(2, [3, 5]))
    noise, reported = world.round()
    assert_std(world.starts[1][0], Z * C / math.sqrt(3))
    assert_std(world.starts[1][1], Z * C / math.sqrt(5))
    expected = math.sqrt(3 * (Z * C) ** 2 * (1 / 3 + 1 / 5)) / 2
    assert_std(noise, expected)
    assert reported == pytest.approx(expected)


@pytest.mark.parametrize("trusted", [False, True])
def test_star(trusted: bool) -> None:
    world = Silent(
        protocol="pedpfl" if not trusted else "dp-fedavg",
        topology={"kind": "star", "devices": 7},
        trust={"cloud": trusted},
        training={"rounds": 1, "local_steps": 2, "batch_size": 4, "learning_rate": 0.05},
    )
    noise, reported = world.round()
    expected = Z * C / 7 if trusted else Z * C / math.sqrt(7)
    assert_std(noise, expected)
    assert reported == pytest.approx(expected)


def test_dp_fedavg_sum_has_the_multiplier() -> None:
    world = Silent(
        protocol="dp-fedavg",
        topology={"kind": "star", "devices": 9},
        training={
            "rounds": 1,
            "local_epochs": 1,
            "batch_size": 4,
            "learning_rate": 0.05,
            "participation": {"count": 4},
        },
    )
    noise, reported = world.round()
    assert_std(noise * 4, Z * C)
    assert reported == pytest.approx(Z * C / 4)


def test_trusted_cloud_over_mixed_edges() -> None:
    """Edge 1's devices noise themselves; edges 0 and 2 send raw: the cloud noises for their largest share."""
    world = Silent(topology=tree(3, [4, 3, 5]), trust={"cloud": True, "trusted_edges": [0, 2]})
    noise, reported = world.round()
    at_edges = [(Z * C / 4) ** 2, (Z * C) ** 2 / 3, (Z * C / 5) ** 2]
    local = (
        2 * sum(at_edges) / 9
    )  # two edge aggregations, every edge adding noise or having its devices do so
    at_global = (Z * C) ** 2 / 3 / 9 + (Z * C / 4 / 3) ** 2
    assert_std(noise, math.sqrt(local + at_global))
    assert reported == pytest.approx(math.sqrt(local + at_global))


def test_three_tiers() -> None:
    """Region 0 trusted with its edge 0 only; region 1 untrusted with its edge 2 trusted."""
    world = Silent(
        topology={"kind": "tree", "levels": [2, 2, 4], "names": ["region", "edge"]},
        trust={"trusted": ["region:0", "edge:0", "edge:2"]},
        training={
            "rounds": 1,
            "steps_per_round": 4,
            "aggregate_every": [2, 1],
            "batch_size": 4,
            "learning_rate": 0.05,
        },
    )
    noise, reported = world.round()
    alone, own = (Z * C / 4) ** 2, (Z * C) ** 2 / 4  # a trusted edge's, four devices'
    assert_std(world.starts[1][0], math.sqrt(alone))
    assert_std(world.starts[1][1], math.sqrt(own))
    at_edges = (alone + own + alone + own) / 16
    # after step 2: region 0 noises what edge 0 sent raw, 1/2 of a quarter of a message
    up = (own / 4 + (Z * C / 8) ** 2, (alone + own) / 4)
    assert_std(world.starts[2][0] - (world.starts[1][0] + world.starts[1][1]) / 2, math.sqrt(up[0]))
    assert_std(world.starts[2][2] - (world.starts[1][2] + world.starts[1][3]) / 2, math.sqrt(up[1]))
    expected = math.sqrt(2 * at_edges + 2 * sum(up) / 4)  # the global step is noised as the regional one
    assert_std(noise, expected)
    assert reported == pytest.approx(expected)


@pytest.mark.parametrize("trusted", [0.0, 1.0])
def test_h2fdp_formula(trusted: float) -> None:
    """(15) with Lemma 3.2: sigma = c2 q 2 eta tau G sqrt(L ln(1/delta)) / epsilon, over s_c at an edge."""
    epsilon, c2, delta, rate, rounds, tau, g = 2.0, 1.4, 1e-5, 0.05, 4, 6, 0.7
    world = Silent(
        topology=tree(3, 4),
        trust={"trusted_edges": trusted},
        privacy={
            "delta": delta,
            "clip": {"kind": "step", "norm": g},
            "noise": {"formula": "h2fdp", "epsilon": epsilon, "c2": c2},
        },
    )
    noise, reported = world.round()
    q = 4 / 20

    def sigma(releases: int) -> float:
        return c2 * q * 2 * rate * tau * g * math.sqrt(releases * math.log(1 / delta)) / epsilon

    over = 4 if trusted else math.sqrt(4)
    assert_std(world.starts[1][2], sigma(2 * rounds) / over)
    expected = math.sqrt((2 * sigma(2 * rounds) ** 2 + sigma(rounds) ** 2) / 3) / over
    assert_std(noise, expected)
    assert reported == pytest.approx(expected)


def test_calibrated_target() -> None:
    """The cloud sees every message of a device: K releases at multiplier z are GDP with mu = sqrt(K) / z."""
    world = Silent(
        protocol="pedpfl",
        topology={"kind": "star", "devices": 5},
        training={"rounds": 9, "local_steps": 1, "batch_size": 4, "learning_rate": 0.05},
        privacy={"clip": CLIP, "noise": {"epsilon": 3.0, "for": "cloud"}},
    )
    noise, _ = world.round()
    mu = gdp.mu(epsilon=3.0, delta=1e-5)
    assert_std(noise, C * math.sqrt(9) / mu / math.sqrt(5))


def test_clipped_steps_with_momentum_and_falling_rate() -> None:
    world = Silent(
        topology=tree(2, 3),
        trust={"trusted_edges": 1.0},
        privacy={"clip": {"kind": "step", "norm": C}, "noise": {"multiplier": Z}},
        training=TRAINING | {"momentum": 0.5, "learning_rate": {"kind": "inverse-sqrt", "initial": 0.05}},
    )
    states = world.play(3)
    farthest = 1 + (1 + 0.5)  # two steps of momentum 0.5
    for number in range(3):
        rate = 0.05 / math.sqrt(number + 1)
        start = world.starts[3 * number]
        assert_std(world.starts[3 * number + 1][0] - start[0], Z * C * rate * farthest / 3)
        three_releases = math.sqrt(3 / 2) * Z * C * rate * farthest / 3
        assert_std(states[number + 1].model - states[number].model, three_releases)


def test_resend_leaves_only_its_own_noise() -> None:
    world = Silent(
        topology=tree(2, 3), trust={"trusted_edges": [0]}, training=TRAINING | {"global_step": "resend"}
    )
    noise, reported = world.round()
    expected = math.sqrt((Z * C / 3) ** 2 + 3 * (Z * C) ** 2 / 3) / 2  # edge 1 untrusted, so it increments
    assert_std(noise, expected)
    assert reported == pytest.approx(expected)


def test_poisson_noise_is_that_of_who_came() -> None:
    world = Silent(topology=tree(2, 6), training=TRAINING | {"participation": {"rate": 0.5}})
    state = world.protocol.initial(world.start)
    for _ in range(3):
        before = state.model
        state, facts = world.protocol.run_round(state)
        came = len(facts.participants)
        expected = math.sqrt(3 * came) * Z * C / (0.5 * 6) / 2
        assert_std(state.model - before, expected)
        assert facts.noise_std == pytest.approx(expected)


def test_ledger_says_what_is_drawn() -> None:
    world = Silent(topology=tree(2, [3, 5]), trust={"trusted_edges": [1]})
    world.round()
    for number, facts in enumerate(world.plan.releases.steps[:-1]):
        unit = world.plan.message_scale(0)
        moved = world.starts[number + 1] - world.starts[number]
        for leaf, devices in enumerate((3, 5)):
            of_devices = facts.device_std[leaf] ** 2 / devices
            assert_std(moved[leaf], unit * math.sqrt(of_devices + facts.node_std[1][leaf] ** 2))


def test_noise_is_independent_everywhere() -> None:
    """Of rounds, of aggregations, of edges, of tiers; the same seed repeats it, another does not."""
    sections: dict[str, Any] = {"topology": tree(2, 3), "trust": {"trusted_edges": [0]}}
    world = Silent(**sections)
    world.play(2)
    starts = [*world.starts, world.play(2)[2].model.expand(2, -1)]
    moved = [b[leaf] - a[leaf] for a, b in itertools.pairwise(starts[:3]) for leaf in range(2)]
    moved += [starts[4][leaf] - starts[3][leaf] for leaf in range(2)]
    moved.append(starts[3][0] - (starts[2][0] + starts[2][1]) / 2)
    other = Silent(**sections, seed=6)
    other.round()
    moved.append(other.starts[1][0])
    assert are_independent(moved)
    assert not are_independent([moved[0], moved[0] + moved[1]])
    again = Silent(**sections)
    again.round()
    assert torch.equal(again.starts[2], world.starts[2])


def test_no_noise_is_none() -> None:
    noise, reported = Silent(privacy={"clip": CLIP, "noise": "none"}).round()
    assert reported == 0.0
    assert not noise.any()


def test_tiny_learning_rate_adds_nothing_but_noise() -> None:
    """Devices with data, whose steps vanish beside the noise of a clip of 1."""
    training = TRAINING | {"learning_rate": 1e-9}
    spec = spec_of(trust={"trusted_edges": [0]}, training=training)
    library = Library(spec, shape=SHAPE, classes=CLASSES, kind="softmax")
    state, facts = library.protocol.run_round(library.protocol.initial(library.start))
    assert_std(state.model - library.start, facts.noise_std)
