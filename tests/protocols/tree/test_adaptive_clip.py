"""Clip norms that follow the lengths of updates: what is sent, what is made of it, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tree_worlds import Library, spec_of

from sfumato.accounting import account
from sfumato.auditing.audit import audit
from sfumato.errors import EnvelopeError, SpecError
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.tree.adaptive_clip import CLIP_NORM, AdaptiveClipProtocol
from sfumato.protocols.tree.indicators import UNCLIPPED, Indicators
from sfumato.radio.costs import TreeCosts
from sfumato.schedule.adaptive_clip import with_clip_norm
from sfumato.schedule.resolve import resolve
from sfumato.spec.privacy import AdaptiveNorm, ClipSettings

SHARE = 0.04
NONE = {"kind": "none"}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def privacy(noise: Any = NONE, *, norm: float = 0.2, **adapt: Any) -> dict[str, Any]:
    return {"clip": {"kind": "update", "norm": norm, "adapt": {"share": SHARE} | adapt}, "noise": noise}


def playing(library: Library, listener: Listener | None = None) -> AdaptiveClipProtocol:
    size = library.start.numel()
    return AdaptiveClipProtocol(library.plan, library.engine, library.partition, size, listener)


class Heard:
    """Keeps the devices' messages."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.messages: dict[tuple[int, int], torch.Tensor] = {}

    def sent(self, number: int, index: int, tier: int, senders: Any, vectors: torch.Tensor) -> None:
        if tier == self.depth:
            self.messages[number, index] = vectors.clone()

    def received(self, number: int, index: int, tier: int, values: torch.Tensor) -> None: ...

    def broadcast(self, number: int, index: int, tier: int, values: torch.Tensor) -> None: ...


TREES: dict[str, dict[str, Any]] = {
    "several aggregations": {},
    "schedules of single edges": {
        "training": {
            "rounds": 3, "local_steps": 4, "edge_every": [1, 4], "batch_size": 4, "learning_rate": 0.3
        },
    },
    "a deeper tree": {
        "topology": {"kind": "tree", "levels": [2, 2, 3], "level_names": ["region", "edge"]},
        "training": {
            "rounds": 3, "local_steps": 4, "aggregate_every": [2, 1], "batch_size": 4, "learning_rate": 0.3
        },
    },
    "a star": {
        "protocol": "dp-fedavg",
        "topology": {"kind": "star", "devices": 6},
        "training": {"rounds": 3, "local_steps": 2, "batch_size": 4, "learning_rate": 0.3},
    },
    "secure aggregation": {
        "protocol": "hdp",
        "transport": {"devices_to_edge": "secure-aggregation"},
        "training": {"rounds": 3, "local_steps": 2, "batch_size": 4, "learning_rate": 0.3},
    },
    "moves": {"topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3, "moves": {"rate": 0.3}}},
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_the_share_of_messages_that_were_not_clipped_comes_through(name: str) -> None:
    """Without noise it is that share, whatever the aggregations between, where edges are alike."""
    library = Library(spec_of(**({"privacy": privacy()} | TREES[name])))
    protocol = playing(library)
    state = protocol.initial(library.start)
    for _ in range(3):
        before = state.norm
        state, facts = protocol.run_round(state)
        if name not in ("schedules of single edges", "moves"):  # there messages of some edges count more
            assert facts.extra[UNCLIPPED] == pytest.approx(1 - facts.clip_fraction, abs=1e-4)
        assert facts.extra[CLIP_NORM] == before
        assert state.norm == pytest.approx(before * math.exp(-0.2 * (facts.extra[UNCLIPPED] - 0.5)))


def test_messages_tell_whether_they_were_clipped_and_are_no_longer_than_declared() -> None:
    library = Library(spec_of(privacy=privacy(norm=0.35)))
    heard = Heard(library.plan.tree.depth)
    protocol = playing(library, heard)
    state = protocol.initial(library.start)
    seen = set()
    for number in range(3):
        unit, norm = library.plan.message_scale(number) * state.norm / 0.35, state.norm
        state, _ = protocol.run_round(state)
        for index in range(2):
            messages = heard.messages[number, index]
            lengths, indicators = messages[:, :-1].norm(dim=1), messages[:, -1]
            assert torch.all(messages.norm(dim=1) <= unit * (1 + 1e-6))
            assert torch.allclose(indicators.abs(), torch.tensor(math.sqrt(SHARE) * unit))
            at_norm = torch.isclose(lengths, torch.tensor(norm), rtol=1e-5)
            assert torch.equal(indicators < 0, at_norm)
            seen |= set((indicators < 0).tolist())
    assert seen == {True, False}


def test_a_message_with_a_longer_indicator_stops_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(spec_of(privacy=privacy(norm=0.1)))
    appended = Indicators.appended

    def doubled(self: Indicators, chunk: Any) -> torch.Tensor:
        messages = appended(self, chunk)
        messages[:, -1] *= 2
        return messages

    monkeypatch.setattr(Indicators, "appended", doubled)
    protocol = playing(library)
    with pytest.raises(EnvelopeError):
        protocol.run_round(protocol.initial(library.start))


def test_the_norm_settles_at_the_quantile() -> None:
    """Without noise, of updates whose lengths hardly change: the step size is tiny."""
    training = {"rounds": 200, "local_steps": 2, "batch_size": "all", "learning_rate": 1e-4}
    topology = {"kind": "star", "devices": 40}
    wanted = 0.7
    sections = {"protocol": "dp-fedavg", "topology": topology, "training": training}
    library = Library(spec_of(privacy=privacy(norm=1e-3, quantile=wanted), **sections))
    protocol = playing(library)
    state = protocol.initial(library.start)
    for _ in range(120):
        state, _ = protocol.run_round(state)
    free = Library(spec_of(privacy={"noise": NONE}, **sections))
    heard = Heard(1)
    protocol_without = type(free.protocol)(free.plan, free.engine, free.partition, free.start.numel(), heard)
    protocol_without.run_round(free.protocol.initial(state.inner.model))
    lengths = heard.messages[0, 0].norm(dim=1).numpy()
    assert np.mean(lengths <= state.norm) == pytest.approx(wanted, abs=2 / 40)


def test_noise_is_that_of_the_longest_message() -> None:
    """Nobody has data, so messages are indicators of updates of length 0; noise of every coordinate is z U.

    A chi-square test of 20,000 coordinates that errs with probability below 2e-7.
    """
    z, norm = 1.3, 0.8
    spec = spec_of(
        protocol="dp-fedavg",
        topology={"kind": "star", "devices": 6},
        training={"rounds": 4, "local_steps": 2, "batch_size": 4, "learning_rate": 0.05},
        privacy=privacy({"multiplier": z}, norm=norm),
    )
    library = Library(spec, np.zeros(6, np.int64), shape=(2000,), classes=10, kind="softmax")
    heard = Heard(1)
    protocol = playing(library, heard)
    state = protocol.initial(torch.zeros(20_000))
    for number in range(2):
        unit = state.norm / math.sqrt(1 - SHARE)
        state, facts = protocol.run_round(state)
        std = facts.noise_std
        assert std == pytest.approx(z * unit / 6, rel=1e-6)  # dp-fedavg: z U of the sum of all six
        total = heard.messages[number, 0].double().sum(dim=0)[:-1] / 6
        statistic = float((total / std).square().sum())

        def is_right(factor: float) -> bool:
            return 5e-8 < stats.chi2.cdf(statistic / factor**2, 20_000) < 1 - 5e-8  # noqa: B023

        assert is_right(1)
        assert not is_right(1.1)
        assert not is_right(1 / math.sqrt(1 - SHARE) ** 2)


@given(
    z=st.floats(0.3, 5), sum_noise=st.floats(3, 100), devices=st.integers(2, 1000), norm=st.floats(1e-3, 10)
)
def test_the_split_of_noise_is_that_of_the_paper(
    z: float, sum_noise: float, devices: int, norm: float
) -> None:
    """Andrew et al. 2021, Theorem 1, where indicators are -1/2 and 1/2 and their sum has noise sigma_b."""
    share = (z / (2 * sum_noise)) ** 2
    clip = ClipSettings(kind="update", norm=norm, adapt=AdaptiveNorm(share=share))
    unit = norm * clip.message_bound
    of_updates = z * unit / norm  # multiplier of the sum of updates
    assert of_updates == pytest.approx((z**-2 - (2 * sum_noise) ** -2) ** -0.5)
    of_indicators = z * unit / (2 * math.sqrt(share) * unit)
    assert of_indicators == pytest.approx(sum_noise)


def test_the_account_is_that_of_a_fixed_norm() -> None:
    noise = {"multiplier": 1.5}
    fixed = spec_of(privacy={"clip": {"kind": "update", "norm": 0.2}, "noise": noise})
    adapted = spec_of(privacy=privacy(noise))
    rows = [[g.epsilon for g in account(spec).guarantees] for spec in (fixed, adapted)]
    assert rows[0] == rows[1]
    assert any("clip.adapt" in note for note in account(adapted).notes)
    assert not any("clip.adapt" in note for note in account(fixed).notes)


def test_everything_of_a_round_is_a_multiple_of_its_norm() -> None:
    plan = resolve(spec_of(privacy=privacy({"multiplier": 1.5})))
    other = with_clip_norm(plan, 0.6)
    assert other.message_scale(0) == pytest.approx(3 * plan.message_scale(0))
    assert other.releases is plan.releases


def test_a_message_has_one_coordinate_more() -> None:
    plans = [
        resolve(spec_of(privacy=p))
        for p in (privacy(), {"clip": {"kind": "update", "norm": 0.2}, "noise": NONE})
    ]
    adapted, fixed = (TreeCosts.of(plan.spec, plan.tree, 10).message_bytes for plan in plans)
    assert adapted == fixed + 4


@pytest.mark.parametrize("average", [math.nan, math.inf, -math.inf])
def test_an_average_that_is_no_number_changes_no_norm(average: float) -> None:
    indicators = Indicators(1.0, 1.0, AdaptiveNorm())
    assert indicators.next_norm(0.3, indicators.unclipped(average)) == pytest.approx(0.3)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "steps": ({"privacy": {"clip": {"kind": "step", "norm": 1.0, "adapt": {}}}}, "goes with kind: update"),
    "layers": (
        {"privacy": {"clip": {"kind": "update", "per_layer": [1.0, 2.0], "adapt": {}}}},
        "left out with per_layer",
    ),
    "groups": (
        {
            "protocol": "dp-ogl",
            "topology": {"kind": "groups", "structure": "ring", "groups": 3, "devices": 6},
            "training": {"rounds": 2, "local_steps": 2, "batch_size": 4, "learning_rate": 0.3},
            "privacy": privacy({"multiplier": 1.0}),
        },
        "trees and stars",
    ),
    "resend": (
        {
            "privacy": privacy(),
            "training": {
                "rounds": 2, "local_steps": 4, "edge_every": 2, "batch_size": 4, "learning_rate": 0.3,
                "global_update": "resend",
            },
        },
        "two indicators",
    ),
    "few bits": (
        {"privacy": privacy({"multiplier": 1.0}), "compression": {"kind": "rand-k", "ratio": 0.5}},
        "keep the indicator apart",
    ),
    "control": ({"privacy": privacy({"multiplier": 1.0}), "control": {"smoothness": 1.0}}, "one clip norm"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_fixed_norm_is_refused(name: str) -> None:
    sections, reason = REFUSED[name]
    with pytest.raises((SpecError, ValueError), match=reason):
        resolve(spec_of(**sections))


def test_audits_name_the_same_spec_with_a_fixed_norm() -> None:
    with pytest.raises(SpecError, match="ε is the same without it"):
        audit(spec_of(privacy=privacy({"multiplier": 1.0})), trials=1000)
