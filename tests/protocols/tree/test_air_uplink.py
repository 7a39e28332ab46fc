"""Over the air and compressed: what is received, against the formulas written out.

`_is_std` errs with probability below 2e-7 for the right scale (20,000 coordinates and more) and rejects 2/3
and 3/2 of it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from tree_worlds import Library

from sfumato.errors import EnvelopeError, SpecError
from sfumato.privacy.observers import Party
from sfumato.protocols.device_vectors import DeviceVectors
from sfumato.protocols.tree.state import TreeState
from sfumato.protocols.tree.uplinks.base import IntArray, Received
from sfumato.protocols.tree.uplinks.registry import uplink_of
from sfumato.schedule.model_size import parameter_count
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec

CPU = torch.device("cpu")
FADING = {
    "gain": {"kind": "exponential", "mean": 0.2, "min": 0.01, "max": 1.0},
    "noise_std": 1.7,
    "snr_db": [2, 15],
}
STAR = {"kind": "star", "devices": 12}
TREE = {"kind": "tree", "edges": 3, "devices_per_edge": 4}


def _spec(**sections: Any) -> Spec:
    document: dict[str, Any] = {
        "name": "air",
        "protocol": "pfels",
        "seed": 3,
        "data": {"source": "fashion-mnist"},
        "model": {"kind": "mlp", "hidden": 130},
        "topology": STAR,
        "training": {"rounds": 3, "local_steps": 2, "batch_size": 4, "learning_rate": 0.3},
        "radio": FADING,
        "privacy": {
            "delta": 1e-3,
            "clip": {"kind": "update", "norm": 0.8},
            "noise": {"formula": "pfels", "epsilon": 1.5},
        },
    }
    return Spec.model_validate(document | sections)


def _plan(**sections: Any) -> TreePlan:
    return resolve_tree(_spec(**sections))


def _messages(plan: TreePlan, devices: IntArray, norm: float = 0.8) -> Tensor:
    length = parameter_count(plan.spec)
    assert length is not None
    rows = torch.randn(len(devices), length, generator=torch.Generator().manual_seed(1)).double()
    return (rows * (norm / torch.linalg.vector_norm(rows, dim=1, keepdim=True))).float()


class _Ear:
    def __init__(self) -> None:
        self.heard: dict[int, Tensor] = {}

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        self.heard |= {int(s): v.clone() for s, v in zip(senders, vectors, strict=True)}

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None: ...

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None: ...


def _send(
    plan: TreePlan,
    messages: Tensor,
    number: int = 0,
    ear: _Ear | None = None,
    memory: DeviceVectors | None = None,
    model: Tensor | None = None,
) -> Received:
    devices = np.arange(len(messages), dtype=np.int64)
    leaves = np.searchsorted(plan.tree.first_device, devices, side="right") - 1
    length = messages.shape[1]
    start = torch.zeros(length) if model is None else model
    uplink = uplink_of(plan, CPU, length, memory)
    collector = uplink.open(number, 0, devices, start.repeat(plan.tree.leaf_count, 1), ear)
    for part in np.array_split(devices, 3):  # chunk by chunk, as an engine would
        collector.add(part, leaves[part], messages[part].clone())
    return collector.received()


def _is_std(values: Tensor, std: float) -> bool:
    sample = values.double().numpy().ravel() / std
    assert len(sample) >= 20_000
    statistic = float((sample**2).sum())
    return bool(2 * min(stats.chi2(len(sample)).cdf(statistic), stats.chi2(len(sample)).sf(statistic)) > 2e-7)


def _beta(plan: TreePlan, received: Received) -> float:
    return received.means["beta"]


@pytest.mark.parametrize("topology", [STAR, TREE])
@pytest.mark.parametrize("compression", [None, {"kind": "rand-k", "ratio": 0.3}])
def test_superposed_reception_is_the_formula(topology: dict[str, Any], compression: Any) -> None:
    # the clip leaves the power limits room, so that nobody is scaled down
    plan = _plan(topology=topology, compression=compression)
    devices = np.arange(12, dtype=np.int64)
    messages = _messages(plan, devices, norm=0.2)
    with_signal, silence = _send(plan, messages), _send(plan, torch.zeros_like(messages))
    assert plan.air is not None
    length = messages.shape[1]
    sending = plan.air.sending(0, 0, devices, np.zeros(12), length)
    gains = plan.air.channels.gains(0)
    kept = np.arange(length) if with_signal.coordinates is None else with_signal.coordinates.numpy()
    for leaf in range(plan.tree.leaf_count):
        here = np.flatnonzero(plan.air.channels.cells == leaf)
        beta = sending.alignment[leaf] * 1.7 / 0.8
        transmitted = [beta / gains[i] * messages[i].double().numpy()[kept] for i in here]
        y = sum(gains[i] * x for i, x in zip(here, transmitted, strict=True))
        expected = np.zeros(length)
        expected[kept] = y / (len(here) * beta)
        found = (with_signal.averages[leaf] - silence.averages[leaf]).double().numpy()
        rounding = 3e-7 * float(silence.averages[leaf].abs().max())  # the noise is subtracted again
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=rounding)
    assert with_signal.totals["power_violations"] == 0


@pytest.mark.parametrize("topology", [STAR, TREE])
def test_received_noise_is_sigma0_over_r_beta(topology: dict[str, Any]) -> None:
    plan = _plan(topology=topology)
    assert plan.air is not None
    messages = torch.zeros_like(_messages(plan, np.arange(12)))
    received = _send(plan, messages)
    for leaf in range(plan.tree.leaf_count):
        sending = plan.air.sending(0, 0, np.arange(12), np.zeros(12), messages.shape[1])
        beta = sending.alignment[leaf] * 1.7 / 0.8
        std = 1.7 / (plan.tree.devices[leaf] * beta)
        assert _is_std(received.averages[leaf], std)
        assert not _is_std(received.averages[leaf], std * 2 / 3)
        assert not _is_std(received.averages[leaf], std * 3 / 2)
        assert received.channel_variance is not None
        assert math.sqrt(received.channel_variance[leaf]) * plan.message_scale(0) == pytest.approx(std)
        # never less than the ledger counts on
        assert std / plan.message_scale(0) >= plan.releases.steps[0].channel_std[-1][leaf] * (1 - 1e-9)
    assert not torch.equal(received.averages, _send(plan, messages, number=1).averages)


def test_energy_is_the_sum_of_squares_sent_and_a_round_takes_slots_of_subcarriers() -> None:
    plan = _plan(compression={"kind": "rand-k", "ratio": 0.3})
    assert plan.air is not None
    messages = _messages(plan, np.arange(12), norm=0.2)
    received = _send(plan, messages)
    length = messages.shape[1]
    kept = round(0.3 * length)
    sending = plan.air.sending(0, 0, np.arange(12), np.zeros(12), length)
    beta = sending.alignment[0] * 1.7 / 0.8
    x = messages[:, received.coordinates] * torch.from_numpy(beta / plan.air.channels.gains(0))[:, None]
    assert received.air is not None
    assert received.air.energy_j[0] == pytest.approx(float((x**2).sum()), rel=1e-5)
    assert received.air.delay_s[0] == pytest.approx(math.ceil(kept / 3300) * 0.01)
    assert received.air.bytes_up == 12 * kept * 4
    assert received.totals["channel_uses"] == kept
    assert received.means["beta"] == pytest.approx(beta)


def test_power_limit_holds_in_the_round_and_not_only_on_average() -> None:
    plan = _plan(
        compression={"kind": "rand-k", "ratio": 0.3},
        privacy={"clip": {"kind": "update", "norm": 0.8}, "noise": "none"},
    )
    assert plan.air is not None
    messages = torch.zeros_like(_messages(plan, np.arange(12)))
    length = messages.shape[1]
    coordinates = _send(plan, messages).coordinates
    assert coordinates is not None
    messages[:, coordinates[0]] = (
        0.8  # everything is in one coordinate, and it is sent: far above the average
    )
    ear = _Ear()
    received = _send(plan, messages, ear=ear)
    sending = plan.air.sending(0, 0, np.arange(12), np.zeros(12), length)
    squares = np.array([float((ear.heard[i].double() ** 2).sum()) for i in range(12)])
    powers = squares * (sending.amplitude / 0.8) ** 2
    assert np.all(powers <= sending.limit * (1 + 1e-5))
    would = 0.8**2 * (sending.amplitude / 0.8) ** 2
    assert received.totals["power_violations"] == (would > sending.limit * (1 + 1e-6)).sum() >= 1
    untouched = would <= sending.limit
    np.testing.assert_allclose(squares[untouched], 0.8**2, rtol=1e-5)


def test_the_papers_rule_without_sparsification_never_breaks_the_limit() -> None:
    plan = _plan(protocol="wfl-p")
    assert all(
        _send(plan, _messages(plan, np.arange(12)), number=n).totals["power_violations"] == 0
        for n in range(5)
    )


def test_devices_with_weak_channels_stay_silent() -> None:
    plan = _plan(air={"min_gain": 0.1})
    assert plan.air is not None
    strong = plan.air.channels.gains(0) >= 0.1
    assert 0 < strong.sum() < 12
    messages = _messages(plan, np.arange(12), norm=0.2)
    with_signal, silence = _send(plan, messages), _send(plan, torch.zeros_like(messages))
    found = with_signal.averages[0] - silence.averages[0]
    expected = messages[torch.from_numpy(strong)].sum(dim=0) / 12  # the denominator is public and stays
    torch.testing.assert_close(found.float(), expected, atol=1e-5, rtol=0)
    assert with_signal.devices.tolist() == np.flatnonzero(strong).tolist()


def test_errors_of_channel_knowledge_scale_what_arrives() -> None:
    plan = _plan(air={"csi": {"gain_error": 0.2, "phase_error_rad": 0.3, "max_error_std": 2.0}})
    assert plan.air is not None
    messages = _messages(plan, np.arange(12), norm=0.2)
    with_signal, silence = _send(plan, messages), _send(plan, torch.zeros_like(messages))
    arrives = plan.air.sending(0, 0, np.arange(12), np.zeros(12), messages.shape[1]).arrives
    expected = (messages * torch.from_numpy(arrives).float()[:, None]).sum(dim=0) / 12
    found = with_signal.averages[0] - silence.averages[0]
    torch.testing.assert_close(found.float(), expected, atol=1e-5, rtol=0)
    # the ledger has the noise as it is against the loudest contribution there may be
    perfect = _plan().releases.steps[0].channel_std[-1][0]
    assert plan.releases.steps[0].channel_std[-1][0] == pytest.approx(perfect / 1.4)


def test_artificial_noise_fills_up_the_sum() -> None:
    privacy = {"delta": 1e-3, "clip": {"kind": "update", "norm": 0.8}, "noise": {"multiplier": 2.0}}
    plan = _plan(privacy=privacy)
    messages = torch.zeros_like(_messages(plan, np.arange(12)))
    ear = _Ear()
    received = _send(plan, messages, ear=ear)
    each = 0.8 * 2.0 / math.sqrt(12)  # the channel at its loudest adds next to nothing
    assert _is_std(torch.cat([ear.heard[0], ear.heard[7]]), each)
    assert not _is_std(torch.cat([ear.heard[0], ear.heard[7]]), each * 3 / 2)
    channel = received.channel_variance
    assert channel is not None
    total = math.sqrt(12 * each**2 / 12**2 + channel[0] * 0.8**2)
    assert _is_std(received.averages[0], total)
    assert total >= 2.0 * 0.8 / 12 * (1 - 1e-9)


def test_noise_of_the_silent_is_not_counted_on() -> None:
    privacy = {"delta": 1e-3, "clip": {"kind": "update", "norm": 0.8}, "noise": {"multiplier": 2.0}}
    plan = _plan(privacy=privacy, air={"min_gain": 0.3})
    release = plan.releases.exposures(0, (Party("node", 0, 0),))[0].releases[0]
    declared = math.sqrt(release.variance) / release.own_sensitivity
    silence, least = torch.zeros_like(_messages(plan, np.arange(12))), math.inf
    for number in range(6):
        received = _send(plan, silence, number=number)
        multiplier = float(received.averages.double().std()) * 12 / 0.8
        assert len(received.devices) < 12
        if len(received.devices):
            least = min(least, multiplier)
    assert declared * 0.98 <= least < 2 * 2 / 3


def test_power_limits_hold_with_artificial_noise_at_a_fixed_beta() -> None:
    privacy = {"delta": 1e-3, "clip": {"kind": "update", "norm": 0.8}, "noise": {"multiplier": 10.5}}
    radio = FADING | {"gain": {"kind": "exponential", "mean": 0.2, "min": 0.1, "max": 1.0}}

    def with_beta(beta: float) -> TreePlan:
        return _plan(privacy=privacy, radio=radio, air={"power_control": "fixed", "beta": beta})

    with pytest.raises(SpecError, match="power limits"):
        with_beta(0.3)
    plan = with_beta(0.2125)
    assert plan.air is not None
    messages, ear = _messages(plan, np.arange(12)), _Ear()
    received = _send(plan, messages, ear=ear)
    stds = plan.device_stds_of(0, np.arange(12))
    sending = plan.air.sending(0, 0, np.arange(12), stds, messages.shape[1])
    squares = np.array([float((ear.heard[i].double() ** 2).sum()) for i in range(12)])
    # the noise counts with its expected energy: 5 standard deviations of its square are 2.5 %
    assert np.all(squares * (sending.amplitude / 0.8) ** 2 <= sending.limit * 1.025)
    assert received.totals["power_violations"] == 0


def test_louder_than_declared_is_refused() -> None:
    plan = _plan()
    assert plan.air is not None
    tight = replace(plan.air)
    tight.__dict__["envelope"] = plan.air.envelope / 100
    plan.__dict__["air"] = tight
    with pytest.raises(EnvelopeError, match="alignment"):
        _send(plan, _messages(plan, np.arange(12)))


def test_compressed_messages_change_the_chosen_coordinates_only() -> None:
    plan = _plan(compression={"kind": "rand-k", "ratio": 0.1})
    received = _send(plan, _messages(plan, np.arange(12)))
    assert received.coordinates is not None
    others = torch.ones(received.averages.shape[1], dtype=torch.bool)
    others[received.coordinates] = False
    assert not received.averages[0][others].any()
    assert received.averages[0][received.coordinates].all()


def test_top_k_follows_the_released_model_and_nothing_else() -> None:
    plan = _plan(compression={"kind": "top-k", "ratio": 0.1})
    messages = _messages(plan, np.arange(12))
    model = torch.randn(messages.shape[1], generator=torch.Generator().manual_seed(9))
    first, second = _send(plan, messages, model=model), _send(plan, -3 * messages, model=model)
    assert first.coordinates is not None
    assert second.coordinates is not None
    assert torch.equal(first.coordinates, second.coordinates)
    chosen = model.abs()[first.coordinates]
    assert float(chosen.min()) >= float(model.abs().sort(descending=True).values[len(chosen)])


def _dp_fedavg(**compression: Any) -> TreePlan:
    return _plan(
        protocol="dp-fedavg", privacy={"clip": {"kind": "update", "norm": 0.8}}, compression=compression
    )


def test_error_feedback_keeps_what_was_not_sent_and_stays_within_the_clip() -> None:
    plan = _dp_fedavg(kind="rand-k", ratio=0.2, error_feedback=True)
    messages = _messages(plan, np.arange(12))
    before = 2.0 * torch.randn(messages.shape, generator=torch.Generator().manual_seed(2)) / 10
    memory, ear = DeviceVectors(torch.zeros(messages.shape[1])), _Ear()
    memory.write_(np.arange(12), before)
    _send(plan, messages, ear=ear, memory=memory)
    sent = torch.stack([ear.heard[i] for i in range(12)])
    norms = torch.linalg.vector_norm(sent.double(), dim=1)
    assert bool((norms <= 0.8).all())
    assert bool((norms > 0.79).any())  # the clip was needed
    torch.testing.assert_close(sent + memory.of(np.arange(12)), messages + before)


def test_rounded_messages_keep_their_bound_where_nobody_noised_them() -> None:
    plan = _dp_fedavg(kind="rand-k", ratio=1, bits=2)
    ear = _Ear()
    received = _send(plan, _messages(plan, np.arange(12)), ear=ear)
    norms = torch.stack([torch.linalg.vector_norm(v.double()) for v in ear.heard.values()])
    assert bool((norms <= 0.8).all())
    assert all(len(v.unique()) <= 3 for v in ear.heard.values())
    assert received.averages.any()


def test_a_sum_of_rounded_messages_can_be_taken_apart() -> None:
    """Why noise of others is not counted for them: every message has a scale of its own."""
    plan = _plan(
        protocol="hfl-dp",
        topology={"kind": "tree", "edges": 1, "devices_per_edge": 2},
        radio=None,
        privacy={"clip": {"kind": "update", "norm": 0.8}, "noise": {"multiplier": 5.0}},
        compression={"kind": "rand-k", "ratio": 1, "bits": 2},
    )
    messages, ear = _messages(plan, np.arange(2)), _Ear()
    total = 2 * _send(plan, messages, ear=ear).averages[0].double()
    values = total.abs().unique()
    values = values[values > 1e-9]
    largest = float(values.max())
    # the two scales add up to the largest value, and each occurs by itself
    pairs = [(a, largest - a) for a in values.tolist() if bool(((values - (largest - a)).abs() < 1e-4).any())]
    one, other = pairs[0]
    levels = torch.tensor([[i, j] for i in (-1, 0, 1) for j in (-1, 0, 1)], dtype=torch.float64)
    nearest = (total[:, None] - levels @ torch.tensor([one, other], dtype=torch.float64)).abs().argmin(dim=1)
    found = levels[nearest] * torch.tensor([one, other], dtype=torch.float64)
    heard = torch.stack([ear.heard[0], ear.heard[1]], dim=1).double()
    assert any(torch.allclose(found[:, order], heard, atol=1e-3) for order in ([0, 1], [1, 0]))
    cloud = plan.releases.exposures(0, (Party("node", 0, 0),))[0].releases[0]
    assert math.sqrt(cloud.variance) / cloud.own_sensitivity == pytest.approx(
        5.0
    )  # its own; √2 times with floats


def _library(**sections: Any) -> Library:
    spec = _spec(
        data={"source": "synthetic", "examples_per_device": 12},
        model={"kind": "softmax", "bias": False},
        **sections,
    )
    return Library(spec, shape=_SYNTHETIC, classes=10, kind="softmax")


_SYNTHETIC = (16,)


@pytest.mark.parametrize(
    "sections",
    [
        {"compression": {"kind": "rand-k", "ratio": 0.3}},
        {"compression": {"kind": "top-k", "ratio": 0.3, "error_feedback": True}},
        {"compression": {"kind": "rand-k", "ratio": 0.3, "error_feedback": True}, "protocol": "dp-fedavg"},
        {"topology": TREE, "air": {"min_gain": 0.05}},
    ],
)
def test_a_resumed_run_goes_on_to_the_bit(sections: dict[str, Any]) -> None:
    privacy = {"clip": {"kind": "update", "norm": 0.8}, "noise": "none"}
    library = _library(privacy=privacy, **sections)
    states = library.play(3)
    resumed = TreeState.unpack(states[1].pack(), "cpu")
    for expected in states[2:]:
        resumed, _ = library.protocol.run_round(resumed)
        assert torch.equal(resumed.model, expected.model)
        assert (resumed.memory is None) == (expected.memory is None)
        if resumed.memory is not None and expected.memory is not None:
            assert all(map(torch.equal, resumed.memory.pack(), expected.memory.pack()))


def test_node_noise_covers_the_chosen_coordinates_only() -> None:
    library = _library(
        protocol="dp-fedavg",
        trust={"cloud": True},
        privacy={"clip": {"kind": "update", "norm": 0.8}, "noise": {"multiplier": 1.0}},
        compression={"kind": "rand-k", "ratio": 0.25},
    )
    before, after = library.play(1)
    changed = (after.model != before.model).sum()
    assert changed == round(0.25 * len(before.model))


def test_facts_of_a_round_over_the_air() -> None:
    library = _library(compression={"kind": "rand-k", "ratio": 0.5})
    _, facts = library.protocol.run_round(library.protocol.initial(library.start))
    assert set(facts.extra) == {"beta", "channel_uses", "power_violations"}
    assert facts.extra["channel_uses"] == round(0.5 * len(library.start))
    assert facts.energy_j > 0
    assert facts.noise_std == pytest.approx(1.7 / (12 * facts.extra["beta"]))
