"""The oracles where the answer is known on paper: the papers' multipliers, figures of known breaches."""

from __future__ import annotations

import math
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from oracle_gaussian import gaussian_epsilon, mixture_epsilon
from oracle_group_world import read_groups
from oracle_groups import GroupOracle
from oracle_specs import (
    LATE_NOISE_OF_DROPPED_DEVICES,
    MASKED_GROUPS,
    MASKED_ZONES,
    MASTER_WITH_A_THRESHOLD,
    NOISE_MISSING_AT_THE_LAST_STEP,
    PEERS_KNOW_THE_COHORT,
    UNEQUAL_DENOMINATORS,
    devices,
    groups,
    hdp,
    star,
    tree,
)
from oracle_tree import TreeOracle
from oracle_tree_reader import read_eras


def attained(spec: dict[str, Any], unit: int, observer: str) -> float:
    if spec["topology"]["kind"] == "groups":
        return GroupOracle(read_groups(spec)).answer(unit, observer).epsilon
    return TreeOracle(read_eras(spec)).answer(unit, observer).epsilon


def gaussian(multiplier: float, delta: float = 1e-5) -> float:
    return math.inf if multiplier == 0 else gaussian_epsilon(1 / multiplier, delta)


def placed(placement: dict[str, Any], *, masked: bool = False) -> dict[str, Any]:
    return hdp(
        topology={"kind": "tree", "edges": 3, "devices_per_edge": [4, 4, 4]},
        privacy={"noise": {"multiplier": 1.5, "placement": placement}},
        transport=MASKED_ZONES if masked else {},
    )


@pytest.mark.parametrize(
    ("placement", "unit", "plain", "masked", "cloud", "public"),
    [
        ({"device": 1}, 0, 1, 2, 2, math.sqrt(12)),  # C1
        ({"edge": 1}, 0, 0, 0, 1, math.sqrt(3)),  # C2
        ({"device": [0], "edge": [1, 2]}, 0, 1, 2, 2, math.sqrt(4 + 2)),  # C3
        ({"device": [0], "edge": [1, 2]}, 5, 0, 0, 1, math.sqrt(4 + 2)),
        ({"cloud": True}, 0, 0, 0, 0, 1),  # C4
        ({"clients": [0, 2], "cloud": True}, 0, 1, math.sqrt(2), math.sqrt(2), math.sqrt(7)),  # C5
        ({"clients": [0, 2], "cloud": True}, 1, 0, math.sqrt(2), math.sqrt(2), math.sqrt(7)),
        ({"edge": [0], "cloud": True}, 0, 0, 0, 1, math.sqrt(2)),  # C6
        ({"edge": [0], "cloud": True}, 5, 0, 0, 0, math.sqrt(2)),
        ({"device": [0], "edge": [1], "cloud": True}, 0, 1, 2, 2, math.sqrt(4 + 1 + 1)),  # C7
    ],
)
def test_the_seven_cases_of_hdp(
    placement: dict[str, Any], unit: int, plain: float, masked: float, cloud: float, public: float
) -> None:
    expected = {"cloud": cloud, "public": public, f"edge:{unit // 4}": plain}
    for observer, multiplier in expected.items():
        found = attained(placed(placement), unit, observer)
        assert found == pytest.approx(gaussian(1.5 * multiplier)), observer
    found = attained(placed(placement, masked=True), unit, f"edge:{unit // 4}")
    assert found == pytest.approx(gaussian(1.5 * masked))


def test_colluders_take_their_noise_off_and_a_threshold_of_them_opens_messages() -> None:
    spec = hdp(
        topology={"kind": "tree", "edges": 1, "devices_per_edge": [10]},
        privacy={"noise": {"multiplier": 1.5, "placement": {"device": 1}}},
        transport=MASKED_ZONES,
    )
    six, seven = (f"edge:0,{devices(*range(1, 1 + count))}" for count in (6, 7))
    assert attained(spec, 0, six) == pytest.approx(gaussian(1.5 * math.sqrt(4)))
    assert attained(spec, 0, seven) == pytest.approx(gaussian(1.5))


def test_rounds_and_replacement() -> None:
    assert attained(star(4, training={"rounds": 9}), 0, "cloud") == pytest.approx(gaussian(1 / 3))
    assert attained(star(4, privacy={"neighbours": "replace"}), 0, "public") == pytest.approx(gaussian(1.0))


def test_hidden_steps_without_noise_are_passed_on_by_all_others() -> None:
    """What the others saw un-noised moves each of them by twice its clip: the cut bound is attained.

    A share of 1/5 of the average: the unit's two messages, and four others replaced; noise 60/5 at the last
    step.
    """
    spec = tree(
        trust={"trusted_edges": [0, 1]},
        training={"edge_every": 1},
        privacy={"noise": {"sources": [{"owners": ["edge:0", "edge:1"], "multipliers": [60.0, 0.0]}]}},
    )
    assert attained(spec, 0, "cloud") == pytest.approx(gaussian(60 / (2 + 4 * 2)))
    assert attained(spec, 0, "public") == pytest.approx(gaussian(60 * math.sqrt(2) / (2 + 4 * 2)))


def test_releases_that_pass_a_link() -> None:
    """Two groups that share nine workers: little noise is added on the way, so all four releases arrive."""
    spec = groups(
        [list(range(10)), list(range(1, 11))],
        training={"rounds": 5},
        privacy={"noise": {"multiplier": 0.05}},
    )
    flow = gaussian(0.05 / math.sqrt(4))
    assert 0.75 * flow < attained(spec, 0, "device:10") < flow


def test_raw_rounds_let_the_whole_group_answer() -> None:
    """dp-ogl+: the sensitivity is sqrt(S) c (1 + 2 (W - 1)); the linking worker's master sees all of it."""
    spec = groups(
        [[0, 1, 2], [2, 3]],
        protocol="dp-ogl+",
        training={"merge_every": 2},
        privacy={"noise": {"multiplier": 9.0}},
    )
    assert attained(spec, 0, "master:1") == pytest.approx(gaussian(9.0 / 5))
    assert math.isinf(attained(spec, 0, "device:1"))


def test_known_breaches_are_attained() -> None:
    """The figures of issue 12, found without the accountant."""
    assert attained(UNEQUAL_DENOMINATORS, 0, "public") == pytest.approx(2.9104, abs=1e-4)
    assert math.isinf(attained(NOISE_MISSING_AT_THE_LAST_STEP, 0, "cloud"))
    assert attained(LATE_NOISE_OF_DROPPED_DEVICES, 0, "cloud") > 3.7
    assert attained(PEERS_KNOW_THE_COHORT, 0, devices(*range(1, 20))) == pytest.approx(15.167, abs=2e-3)
    assert attained(MASTER_WITH_A_THRESHOLD, 0, "master:0," + devices(*range(1, 8))) == pytest.approx(
        7.5113, abs=1e-4
    )


POISSON = {"batch_size": 4, "batches": "poisson"}  # of 20 records: q = 0.2
MOVED = tree(
    topology={
        "kind": "tree", "edges": 3, "devices_per_edge": [3, 3, 3],
        "moves": {"trace": [[2, 0, 1], [3, 0, 2]]},
    },
    trust={"from": {0: [0, 1]}},
    training={"rounds": 3, "steps_per_round": 1},
    privacy={"noise": {"multiplier": 2.0}},
)  # fmt: skip


def of_a_record(spec: dict[str, Any], observer: str) -> float:
    return TreeOracle(read_eras(spec)).answer(0, observer, record=True).epsilon


def sampled(rate: float, multiplier: float, times: int) -> float:
    """Independent sampled Gaussians, by another library (a bound from above)."""
    one = pld.from_gaussian_mechanism(multiplier, sampling_prob=rate, value_discretization_interval=5e-4)
    return float(one.self_compose(times).get_epsilon_for_delta(1e-5))


def just_below(bound: float) -> Any:
    """What the oracle finds where ``bound`` is attained: cells and grids only take away."""
    return pytest.approx(bound * 0.9985, rel=1.5e-3)


def test_a_device_that_visits_three_edges() -> None:
    """The table of docs/accounting.md: μ² of 17/40, 9/16; edges that it trusted have its raw updates."""
    assert attained(MOVED, 0, "edge:2") == pytest.approx(gaussian(math.sqrt(40 / 17)))
    assert attained(MOVED, 0, "cloud") == pytest.approx(gaussian(math.sqrt(16 / 9)))
    assert math.isinf(attained(MOVED, 0, "edge:0"))
    assert math.isinf(attained(MOVED, 0, "edge:1"))


def test_a_record_that_visits_three_edges() -> None:
    spec = {**MOVED, "training": {**MOVED["training"], **POISSON}}
    assert of_a_record(spec, "edge:2") == just_below(2.565)
    assert of_a_record(spec, "cloud") == just_below(2.953)


def test_an_edge_sends_the_steps_since_its_own_last_aggregation() -> None:
    """Clipped steps: edge 0 sends three at once, edge 1 two and one; noise is relative to each message."""
    spec = tree(
        training={"rounds": 1, "steps_per_round": 3, "edge_every": [3, 2]},
        privacy={"clip": {"kind": "step", "norm": 1.0}},
    )
    assert attained(spec, 0, "edge:0") == pytest.approx(gaussian(1.0))
    assert attained(spec, 5, "edge:1") == pytest.approx(gaussian(1 / math.sqrt(2)))


def test_an_edge_that_broadcasts_at_the_global_step_is_heard_by_its_devices() -> None:
    """A peer hears the average of its edge, with the noise of four others, and not of nine."""
    spec = tree(training={"rounds": 1, "steps_per_round": 1, "edge_every": [1, 1]})
    assert attained(spec, 0, "device:1") == pytest.approx(gaussian(math.sqrt(9)))
    both = {**spec, "training": {**spec["training"], "edge_at_global": True}}
    assert attained(both, 0, "device:1") == pytest.approx(gaussian(math.sqrt(4)))


def test_records_in_whole_updates() -> None:
    """R1: drawn into one of three steps, p = 1 - 0.8³, and the others turn the message round."""
    spec = star(
        2, training={**POISSON, "rounds": 4, "steps_per_round": 3}, privacy={"noise": {"multiplier": 4.0}}
    )
    assert of_a_record(spec, "cloud") == just_below(sampled(1 - 0.8**3, 2.0, 4))


def test_records_in_clipped_examples() -> None:
    """R2 is DP-SGD with one step a message; with two, a batch of others answers."""
    privacy = {"clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 2.0}}
    one = star(2, training={**POISSON, "rounds": 4, "steps_per_round": 1}, privacy=privacy)
    assert of_a_record(one, "cloud") == just_below(sampled(0.2, 2.0, 4))
    two = {**one, "training": {**one["training"], "steps_per_round": 2}}
    assert of_a_record(two, "cloud") > 2 * sampled(0.2, 2.0, 4)


def test_records_in_noised_steps() -> None:
    """R3: the own edge learns of two steps what a sum with the noise of both tells."""
    spec = star(
        2, training={**POISSON, "rounds": 4, "steps_per_round": 1},
        privacy={"clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 2.0, "at": "step"}},
    )  # fmt: skip
    assert of_a_record(spec, "cloud") == just_below(sampled(0.2, 2.0, 4))


def test_a_record_of_a_linking_worker() -> None:
    """Both of its groups are watched: six releases, each a sampled Gaussian of twice the clip."""
    spec = groups(
        [[0, 1, 2], [0, 3]], training={**POISSON, "rounds": 3}, privacy={"noise": {"multiplier": 4.0}}
    )
    found = GroupOracle(read_groups(spec)).answer(0, "device:1,device:3", record=True)
    assert found.epsilon == just_below(sampled(0.2, 2.0, 6))


def test_survivors_of_a_group() -> None:
    """An untrusted master meets the noise of who is left, at least 4 of 6: a mixture over the survivors."""
    spec = groups(
        [list(range(6))],
        training={"rounds": 1},
        transport=MASKED_GROUPS,
        trust={"trusted_aggregators": []},
        faults={"dropout_rate": 0.2, "survival_threshold": 0.6},
    )
    kept = {n: math.comb(5, n) * 0.8**n * 0.2 ** (5 - n) for n in range(3, 6)}
    law = {1 / (n + 1): 0.8 * p for n, p in kept.items()}
    assert attained(spec, 0, "master:0") == pytest.approx(mixture_epsilon(law, 1e-5))
