"""Compression in groups: what is sent, in which order, and what is refused."""

import math

import numpy as np
import pytest
import torch

import sfumato as sf
from sfumato.auditing.groups import GroupHarness
from sfumato.distributed.ranks import ALONE
from sfumato.errors import SpecError
from sfumato.mechanisms.compression import rand_k, top_k
from sfumato.mechanisms.gaussian import add_gaussian_
from sfumato.mechanisms.registry import mechanism_of
from sfumato.privacy.observers import Party
from sfumato.protocols.groups.compressed_messages import coordinates_of
from sfumato.protocols.groups.operations import GroupOperations
from sfumato.radio.group_costs import GroupCosts
from sfumato.random import Stream, key_at
from sfumato.schedule.group_participation import GroupAssignments
from sfumato.schedule.resolve.groups import resolve_groups
from sfumato.simulation import run as simulate
from sfumato.spec.load import load_spec
from sfumato.verify.checker import check_run

LENGTH = 40
GROUPS = [[0, 1, 2, 3], [2, 3, 4, 5], [0, 5, 6, 2]]
RAND_K = {"kind": "rand-k", "ratio": 0.25}
DRAWN = {"kind": "poisson", "rate": 0.7}


def spec_of(compression=RAND_K, *overrides, protocol="dp-ogl", participation=None):
    raw = {
        "name": "test",
        "protocol": protocol,
        "seed": 11,
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "groups", "structure": "list", "groups": GROUPS},
        "training": {
            "rounds": 6,
            "local_steps": 2,
            "batch_size": 4,
            "learning_rate": 0.2,
            "merge_every": 2,
            "participation": participation or {"kind": "all"},
        },
        "privacy": {"clip": {"kind": "update", "norm": 0.3}, "noise": {"multiplier": 4.0}},
    }
    return load_spec(raw | ({"compression": compression} if compression else {}), list(overrides))


def operations_of(plan):
    """The operations of a plan whose workers are not trained."""
    made = GroupOperations.__new__(GroupOperations)
    made.plan, made.parameters, made.device = plan, LENGTH, torch.device("cpu")
    made._listener, made._unclipped_norms = None, None
    made._mechanism, made.ranks = mechanism_of(plan.spec), ALONE
    return made


EVERYBODY = GroupAssignments(np.concatenate(GROUPS).astype(np.int64), np.repeat(np.arange(3), 4))


@pytest.mark.parametrize("kind", ["rand-k", "top-k"])
def test_every_group_has_coordinates_of_its_own(kind):
    plan = resolve_groups(spec_of({"kind": kind, "ratio": 0.25}))
    models = torch.randn(3, LENGTH, generator=torch.Generator().manual_seed(1))
    chosen = coordinates_of(plan, 4, models)
    for group, each in enumerate(chosen):
        expected = (
            rand_k(LENGTH, 10, seed=11, key=(4, group)) if kind == "rand-k" else top_k(models[group], 10)
        )
        assert torch.equal(each, expected)
    assert not torch.equal(chosen[0], chosen[1])
    assert coordinates_of(resolve_groups(spec_of(None)), 4, models) is None


@pytest.mark.parametrize("trusted", [True, False])
def test_updates_are_clipped_then_picked_then_noised(trusted):
    trust = "trust.trusted_aggregators=" + ("[0, 1, 2]" if trusted else "[]")
    plan = resolve_groups(spec_of(RAND_K, trust))
    operations, base = operations_of(plan), torch.zeros(3, LENGTH)
    updates = torch.randn(12, LENGTH, generator=torch.Generator().manual_seed(2))
    expected = torch.zeros(12, LENGTH)
    for row, (group, worker) in enumerate(zip(EVERYBODY.groups, EVERYBODY.workers, strict=True)):
        kept = rand_k(LENGTH, 10, seed=11, key=(5, int(group)))
        sent = (updates[row] * min(1.0, 0.3 / float(updates[row].norm())))[kept][None].clone()
        if not trusted:
            add_gaussian_(
                sent, np.array([1.2]), lambda _, g=group, w=worker: key_at(11, Stream.NOISE, 5, g, w)
            )
        expected[row, kept] = sent[0]
    operations.send_(updates, EVERYBODY, np.arange(len(updates)), 5, operations.sums(5), base=base)
    torch.testing.assert_close(updates, expected)


def test_masters_noise_only_what_was_sent():
    plan = resolve_groups(spec_of())
    operations, base = operations_of(plan), torch.zeros(3, LENGTH)
    averages = operations.noised_averages(operations.sums(5), 5, base=base)
    for group in range(3):
        noise = torch.zeros(1, 10)
        add_gaussian_(noise, np.array([1.2]), lambda _, g=group: key_at(11, Stream.NOISE, 5, g))
        expected = torch.zeros(LENGTH)
        expected[rand_k(LENGTH, 10, seed=11, key=(5, group))] = noise[0] / 4
        torch.testing.assert_close(averages[group], expected)


def test_rounded_messages_are_no_longer_than_declared():
    plan = resolve_groups(spec_of(RAND_K | {"bits": 2, "ratio": 1.0}))
    updates = torch.randn(12, LENGTH, generator=torch.Generator().manual_seed(2))
    operations, base = operations_of(plan), torch.zeros(3, LENGTH)
    operations.send_(updates, EVERYBODY, np.arange(len(updates)), 5, operations.sums(5), base=base)
    assert (updates.norm(dim=1) <= 0.3 * (1 + 1e-6)).all()
    assert all(len(row.unique()) <= 3 for row in updates)


def test_bytes_are_those_that_are_sent():
    links = np.arange(12)
    whole = GroupCosts.of(spec_of(None), resolve_groups(spec_of(None)).groups, LENGTH).round(0, links)
    assert whole.bytes_up == 12 * 4 * LENGTH
    for compression, size in [(RAND_K, 40), (RAND_K | {"bits": 3}, 8)]:
        spec = spec_of(compression)
        cost = GroupCosts.of(spec, resolve_groups(spec).groups, LENGTH).round(0, links)
        assert cost.bytes_up == 12 * size
        assert cost.bytes_down == whole.bytes_down


@pytest.mark.parametrize("protocol", ["dp-ogl", "dp-ogl-local"])
def test_epsilon_is_that_without_compression(protocol):
    one, other = (sf.account(spec_of(each, protocol=protocol)) for each in (RAND_K, None))
    assert [row.epsilon for row in one.guarantees] == [row.epsilon for row in other.guarantees]
    assert any(math.isfinite(row.epsilon) for row in one.guarantees)
    assert any("compression lets 0.25 of every update through" in note for note in one.plan.notes)


@pytest.mark.usefixtures("coarse_losses", "no_report")
@pytest.mark.parametrize(
    ("protocol", "compression"),
    [
        ("dp-ogl", {"kind": "top-k", "ratio": 0.3, "bits": 4}),
        ("dp-ogl-local", {"kind": "rand-k", "ratio": 0.3}),
    ],
)
def test_a_run_verifies_and_resumes_byte_for_byte(protocol, compression, tmp_path):
    spec = spec_of(compression, protocol=protocol, participation=DRAWN)
    simulate.run(spec, out=tmp_path / "whole", device="cpu")
    for rounds in (1, 2):
        playing = simulate.run_rounds(spec, out=tmp_path / "parts", device="cpu", resume=rounds > 1)
        for _ in range(rounds):
            next(playing)
        playing.close()
    simulate.run(spec, out=tmp_path / "parts", device="cpu", resume=True)
    for name in ("model.pt", "groups.pt", "ledger.json", "spec.yaml"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes(), name
    assert check_run(tmp_path / "whole").problems == []


@pytest.mark.parametrize(
    ("compression", "overrides", "protocol", "said"),
    [
        (
            RAND_K | {"error_feedback": True},
            [],
            "dp-ogl",
            "must be false in groups: what a worker has",
        ),
        (RAND_K, [], "dp-ogl+", "dp-ogl+ noises a sum of several rounds"),
        (RAND_K, ["training.merge_every=null"], "ms-fedavg", "sends whole models"),
        (RAND_K | {"bits": 4}, ["trust.trusted_aggregators=[]"], "dp-ogl", "goes with trusted masters"),
        (
            RAND_K | {"bits": 4},
            ["transport={devices_to_master: secure-aggregation}"],
            "dp-ogl",
            "goes with a plain hop",
        ),
    ],
)
def test_what_is_refused(compression, overrides, protocol, said):
    with pytest.raises(SpecError, match=said.replace("+", r"\+")):
        resolve_groups(spec_of(compression, *overrides, protocol=protocol))


def test_audits_refuse_it():
    with pytest.raises(SpecError, match="cannot be audited"):
        GroupHarness(resolve_groups(spec_of()), 0, (Party("device", 0, 1),))
