"""Noise that arrives is the exact discrete Gaussian, as loud as the ledger says, and no seed leads to it."""

from __future__ import annotations

import ast
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from deployed_groups import staged_groups
from deployed_parties import staged
from rehearsals import GROUPS, STAR, TREE
from scipy import stats

import sfumato.deployment
import sfumato.random
from sfumato.deployment import terms as terms_file
from sfumato.deployment.collecting import with_own_noise
from sfumato.deployment.device import noised_message
from sfumato.deployment.messages import FrameKind, RoundPosition, decode_answer, encode_answer
from sfumato.deployment.randomness import SecretDraws, SystemRandomness, answer_context, round_context
from sfumato.schedule.message_grid import message_lengths
from sfumato.secure_aggregation.encoding import encode
from sfumato.secure_aggregation.quantisation import QuantisationPlan
from sfumato.wire.frames import Frame, parse_frame, seal_frame
from sfumato.wire.keys import Identity

IntArray = npt.NDArray[np.int64]
ERROR = 1e-7
COUNT = 40_000
MASKED = {"transport": {"devices_to_cloud": "secure-aggregation"}}
DRAWN = {"training": TREE["training"] | {"participation": {"kind": "poisson", "rate": 0.3}}}
SEEDED = {"key_at", "generator", "sequence", "seed_at", "initialisation_seed"}


def arrived(std: float) -> IntArray:
    """Noise on zeros, as it comes out of frames at whoever collects; keys from the operating system."""
    how = QuantisationPlan(clip=1.0, scale=1.0, bits=64, parties=1, dimension=COUNT, noise_std=std)
    steps = encode(np.zeros(COUNT), how, SystemRandomness().noise_key(RoundPosition(0, 0), b"")).view(
        np.int64
    )
    frame = Frame(FrameKind.ANSWER, bytes(32), 0, 1, encode_answer(RoundPosition(0, 0), bytes(32), steps))
    return decode_answer(parse_frame(seal_frame(frame, Identity())).payload, COUNT)[2]


def p_value(values: IntArray, std: float) -> float:
    """χ² of values in bins of about equal chance against the exact probabilities of N_Z(0, std²)."""
    reach = int(12 * std) + 12
    chances = np.exp(-(np.arange(-reach, reach + 1, dtype=np.float64) ** 2) / (2 * std**2))
    cumulative = np.cumsum(chances) / chances.sum()
    edges = np.unique(np.searchsorted(cumulative, np.arange(1, 40) / 40))
    below = np.concatenate([[0.0], cumulative[edges], [1.0]])
    keep = np.diff(below) * len(values) > 20
    found = np.bincount(np.searchsorted(edges - reach, values), minlength=len(edges) + 1)
    expected = np.diff(below) * len(values)
    kept = np.append(found[keep], found[~keep].sum()), np.append(expected[keep], expected[~keep].sum())
    some = kept[1] > 0
    return float(stats.chisquare(kept[0][some], kept[1][some]).pvalue)


@pytest.mark.parametrize("std", [0.8, 3.0, 3e3, 1e6])
def test_what_arrives_has_the_exact_law_and_no_other_scale(std: float) -> None:
    values = arrived(std)
    assert p_value(values, std) > ERROR
    for wrong in (std * 2 / 3, std * 3 / 2):
        assert p_value(values, wrong) < ERROR


def sources(document: dict[str, Any], folder: Path) -> list[tuple[float, float]]:
    """Of every noise source of a plan: the multiplier that is deployed, and the one in the ledger."""
    found = []
    with staged(document, folder) as stage:
        terms, plan = stage.terms, stage.terms.plan
        for index in range(terms.last + 1):
            grid, facts = terms.grid(RoundPosition(0, index)), plan.releases.steps[index]
            everybody = np.arange(terms.cloud)
            lengths = message_lengths(plan, index, everybody, terms.parameters)
            stds = plan.device_stds_of(index, everybody)
            longest = []
            for device, leaf in enumerate(plan.tree.leaves_of(everybody).tolist()):
                how = grid.device_rounding(leaf, float(lengths[device]), float(stds[device]))
                longest.append(how.sensitivity)
                found.append((how.noise_std / how.sensitivity, stds[device] / lengths[device]))
            for tier in range(plan.tree.depth):
                for node, std in enumerate(facts.node_std[tier]):
                    under = plan.tree.leaves_of(everybody)
                    first = everybody if tier == 0 else everybody[under == node]
                    share = grid.weights[tier][node]
                    declared = std * share / (grid.shares[under[first[0]]] * lengths[first[0]])
                    found.append((grid.node_steps(tier, node, std * grid.unit) / longest[first[0]], declared))
    return [(deployed, declared) for deployed, declared in found if declared > 0]


@pytest.mark.parametrize(
    "document", [STAR, STAR | {"trust": {"cloud": True}}, TREE, TREE | DRAWN, STAR | MASKED]
)
def test_every_deployed_multiplier_is_at_least_the_ledgers(document: dict[str, Any], tmp_path: Path) -> None:
    found = sources(document, tmp_path)
    assert found
    for deployed, declared in found:
        assert declared <= deployed <= declared * 1.01


def test_devices_and_nodes_add_noise_of_that_scale(tmp_path: Path) -> None:
    with staged(STAR, tmp_path / "device") as stage:
        terms, position = stage.terms, RoundPosition(0, 0)
        zeros = np.zeros(terms.parameters, np.float32)
        std = float(terms.plan.device_stds_of(0, np.array([0]))[0])
        how = terms.grid(position).device_rounding(0, 1.0, std)
        values = np.concatenate(
            [
                noised_message(terms, 0, position, zeros, SystemRandomness().noise_key(position, b""))
                for _ in range(60)
            ]
        )
        assert stats.kstest(values, stats.norm(scale=how.noise_std).cdf).pvalue > ERROR
        assert stats.kstest(values, stats.norm(scale=how.noise_std * 1.5).cdf).pvalue < ERROR
    with staged(STAR | {"trust": {"cloud": True}}, tmp_path / "cloud") as stage:
        terms, grid = stage.terms, stage.terms.grid(position)
        std = grid.node_steps(0, 0, float(terms.plan.releases.steps[0].node_std[0][0]) * grid.unit)
        nothing = np.zeros(terms.parameters, np.int64)
        keys = [SystemRandomness().noise_key(position, b"") for _ in range(60)]
        values = np.concatenate([with_own_noise(terms, terms.cloud, position, nothing, key) for key in keys])
        assert stats.kstest(values, stats.norm(scale=std).cdf).pvalue > ERROR
        assert stats.kstest(values, stats.norm(scale=std / 1.5).cdf).pvalue < ERROR


def test_no_seeded_generator_is_reached_while_parties_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the terms are made, and the public model with them, nothing draws but the operating system."""
    (tmp_path / "groups").mkdir()
    with staged(TREE, tmp_path) as stage, staged_groups(GROUPS, tmp_path / "groups") as of_groups:
        for number in range(stage.terms.cloud):
            stage.device(number)
        for number in range(of_groups.terms.device_count):
            of_groups.worker(number)

        def reached(*_: object, **__: object) -> None:
            raise AssertionError("a seeded generator was reached")

        for module, names in {
            torch: ("manual_seed", "randn", "rand", "normal", "randperm"),
            np.random: ("default_rng", "seed", "Generator", "Philox", "SeedSequence", "PCG64", "normal"),
            random: ("random", "seed", "Random", "gauss"),
        }.items():
            for name in names:
                monkeypatch.setattr(module, name, reached)
        ours = [module for name, module in sys.modules.items() if name.startswith("sfumato.")]
        for module in ours:
            for name in vars(sfumato.random).keys() & vars(module).keys() & SEEDED:
                monkeypatch.setattr(module, name, reached)
        released, _ = stage.play(np.zeros(stage.terms.parameters, np.float32))
        assert released is not None
        of_groups.play(0, np.zeros((3, of_groups.terms.parameters), np.float32))
        assert all(of_groups.master(group).released is not None for group in range(3))


def test_no_source_of_deployment_names_a_seed() -> None:
    folder = Path(sfumato.deployment.__file__).parent
    banned = {"manual_seed", "default_rng", "key_at", "generator", "seed", "Generator", "normal", "Stream"}
    found = {
        (path.name, name)
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in [getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "name", None)]
        if name in banned
    }
    assert found == set()


def test_secret_draws_are_fair() -> None:
    """Error below 1e-6 a test, both by χ²."""
    draws = SecretDraws(bytes(range(32)))
    shuffled = draws.permuted(np.tile(np.arange(4), (24_000, 1)), axis=1)
    assert np.array_equal(np.sort(shuffled, axis=1), np.tile(np.arange(4), (24_000, 1)))
    orders = np.unique(shuffled @ 4 ** np.arange(4), return_counts=True)[1]
    assert len(orders) == 24
    assert stats.chisquare(orders).pvalue > ERROR
    trials = draws.geometric(0.3, size=20_000)
    counts = np.bincount(np.minimum(trials, 12), minlength=13)[1:]
    chances = 0.3 * 0.7 ** np.arange(12)
    chances[-1] = 0.7**11
    assert stats.chisquare(counts, chances * 20_000).pvalue > ERROR
    assert (draws.geometric(1.0, size=5) == 1).all()


def test_whole_numbers_are_fair_and_within_their_bounds() -> None:
    """Error below 1e-6, by χ²."""
    low = np.repeat([-2, 5], 12_000)
    found = SecretDraws(bytes(range(32))).integers(low, low + 6) - low
    assert (found.min(), found.max()) == (0, 5)
    assert stats.chisquare(np.bincount(found)).pvalue > ERROR


def test_batches_of_another_round_session_or_party_are_others() -> None:
    contexts = {
        round_context(identity, session, party, number)
        for identity in (Identity(), Identity())
        for session in (b"one", b"other")
        for party in (0, 1)
        for number in (0, 1)
    }
    assert len(contexts) == 16


def test_a_device_of_weight_0_sends_zeros_without_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `run` has it: its message has no length, so there is nothing that noise would hide."""
    with staged(STAR, tmp_path) as stage:
        terms, position = stage.terms, RoundPosition(0, 0)
        message = np.ones(terms.parameters, np.float32)
        sent = [noised_message(terms, 0, position, message, bytes(32)).any()]
        monkeypatch.setattr(terms_file, "message_lengths", lambda *_: np.zeros(1))
        sent.append(noised_message(terms, 0, position, message, bytes(32)).any())
        assert sent == [True, False]


def test_a_generator_that_repeats_itself_gives_another_question_or_party_other_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two parties may even have one key: copies of one machine."""
    keys = Identity(), Identity()
    monkeypatch.setattr("os.urandom", bytes)
    contexts = [
        answer_context(identity, session, party, position, question)
        for identity in keys
        for session in (b"one", b"other")
        for party in (0, 1)
        for position in (RoundPosition(0, 0), RoundPosition(0, 1), RoundPosition(1, 0))
        for question in (b"q", b"r")
    ]
    drawn = {SystemRandomness().noise_key(RoundPosition(0, 0), context) for context in contexts}
    assert len(drawn) == len(contexts) == 48


def test_devices_with_generators_alike_send_other_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the difference of two answers has no noise in it."""
    with staged(STAR, tmp_path) as stage:
        asked = stage.cloud().ask(0, np.zeros(stage.terms.parameters, np.float32))
        devices = [stage.device(number) for number in range(3)]
        monkeypatch.setattr("os.urandom", bytes)
        answers = [device.receive(data)[0] for device, data in zip(devices, asked, strict=True)]
        steps = [decode_answer(parse_frame(one).payload, stage.terms.parameters)[2] for one in answers]
        grid = stage.terms.grid(RoundPosition(0, 0))
        std = float(stage.terms.plan.device_stds_of(0, np.array([0]))[0])
        noise = grid.device_rounding(0, 1.0, std).noise_std
        for one, other in ((0, 1), (0, 2), (1, 2)):  # 170 differences; raw ones are below a tenth of this
            assert float(np.std((steps[one] - steps[other]) / noise)) > 1.0
