"""Plans for records: the targets hold for any one record, with the least noise that was found."""

import math

import numpy as np
import pytest
import yaml

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.planning.result import global_noise_rms
from sfumato.planning.sources import NoiseSource, with_intensities
from sfumato.planning.targets import EpsilonTarget, noise_scale, pairs_of
from sfumato.schedule.resolve import resolve

pytestmark = [pytest.mark.needs("plan"), pytest.mark.usefixtures("coarse_losses")]

STAR = [
    "training={rounds: 20, local_steps: 1, batches: poisson, batch_size: 10, learning_rate: 0.1}",
    "privacy.unit=record", "trust.cloud=false", "topology.devices=4", "model=softmax",
    "data={source: synthetic, examples_per_device: 100}",
]  # fmt: skip
TREE = [
    "privacy.unit=record", "training.batches=poisson", "training.rounds=10", "privacy.noise={multiplier: 1}",
    "data={source: synthetic, examples_per_device: 100, partition: {kind: iid}}",
]  # fmt: skip
MULTIPLIER = "privacy.noise={multiplier: 1}"
WITHIN = 1e-3


def of_file(planned):
    """What account says of the planned spec, brought back from a file."""
    return sf.account(sf.load_spec(yaml.safe_load(sf.dump_spec(planned.spec))))


def worst(report, relation):
    rows = [g for g in report.guarantees if g.relation.words == relation]
    assert all(row.unit.startswith("record:") for row in rows)
    return max(g.epsilon for g in rows)


@pytest.mark.parametrize("clip", ["update", "example"])
def test_a_star_gets_what_calibration_gives(clip):
    changes = [*STAR, f"privacy.clip={{kind: {clip}, norm: 1}}"]
    planned = sf.plan(sf.load_spec("dp-fedavg", [*changes, MULTIPLIER]), {"cloud": 2.0})
    found = worst(of_file(planned), "cloud")
    assert 2.0 * (1 - WITHIN) <= found <= 2.0
    (row,) = planned.targets
    assert (row.unit, row.epsilon, row.is_binding) == ("record:0", pytest.approx(found, rel=1e-9), True)
    calibrated = resolve(sf.load_spec("dp-fedavg", [*changes, "privacy.noise={epsilon: 2, for: cloud}"]))
    (source,) = calibrated.spec.privacy.noise.sources
    assert planned.sources[0].multiplier == pytest.approx(source.multipliers[0], rel=WITHIN)


@pytest.mark.parametrize("clip", ["update", "example"])
def test_the_price_is_what_a_larger_target_saves(clip):
    spec = sf.load_spec("dp-fedavg", [*STAR, f"privacy.clip={{kind: {clip}, norm: 1}}", MULTIPLIER])
    (row,) = sf.plan(spec, {"cloud": 2.0}).targets
    step = 0.1
    up, down = (sf.plan(spec, {"cloud": 2.0 * math.exp(s)}).noise for s in (step, -step))
    assert row.price == pytest.approx(2 * math.log(down / up) / (2 * step), abs=0.06)


def test_messages_of_unequal_lengths_share_the_noise_at_least_variance():
    """Messages of 8, 8 and 4 steps: their releases are drawn with different probabilities."""
    changes = [*TREE, "training.edge_every=8", "trust.trusted_edges=1.0"]
    planned = sf.plan(sf.load_spec("h2fdp-fmnist", changes), {"cloud": 1.0})
    assert 1.0 * (1 - WITHIN) <= worst(of_file(planned), "cloud") <= 1.0
    base = planned.plan
    levels = {"global": 0, "edge": 1}
    sources = [NoiseSource(s.owners, levels[s.aggregation]) for s in planned.sources]
    intensities = np.array([s.multiplier**2 for s in planned.sources])
    assert len(sources) == 2
    needed = {}
    for tilt in (-0.1, 0.1):
        other = with_intensities(base, sources, intensities * np.exp([tilt, -tilt]))
        (pair,) = pairs_of(other, EpsilonTarget("cloud", 1.0))
        needed[tilt] = global_noise_rms(other) * noise_scale(other, pair, 1.0)
    assert all(noise >= planned.noise * (1 - 2e-4) for noise in needed.values())
    # near the least the noise is flat: neither side saves, and neither costs much
    assert max(needed.values()) <= planned.noise * 1.02


def test_observers_of_several_kinds():
    changes = [*TREE, "trust.trusted_edges=0.0"]
    targets = {"cloud": 1.0, "own-edge": 1.5}
    planned = sf.plan(sf.load_spec("h2fdp-fmnist", changes), targets)
    report = of_file(planned)
    assert worst(report, "cloud") <= 1.0
    assert worst(report, "own edge") <= 1.5
    assert any(row.is_binding for row in planned.targets)


def test_shuffled_batches_need_twice_the_noise_of_a_device():
    for_devices, for_records = (
        sf.plan(sf.load_spec("h2fdp-fmnist", [f"privacy.unit={unit}"]), {"cloud": 2.0})
        for unit in ("device", "record")
    )
    assert for_records.noise == pytest.approx(2 * for_devices.noise, rel=1e-6)
    assert worst(of_file(for_records), "cloud") <= 2.0


def test_a_class_of_devices_is_planned_for_its_most_drawn_records():
    """Devices of a class hold different numbers of records: the largest rate of any of them counts."""
    data = "data={source: digits, partition: {kind: dirichlet, alpha: 0.5}}"
    spec = sf.load_spec("dp-fedavg", [data if c.startswith("data=") else c for c in [*STAR, MULTIPLIER]])
    rates = resolve(spec).releases.batches.rates
    assert rates[0] < rates.max()
    planned = sf.plan(spec, {"cloud": 2.0})
    report = of_file(planned)
    assert 2.0 * (1 - WITHIN) <= worst(report, "cloud") <= 2.0
    assert report.epsilon(f"record:{int(rates.argmax())}", "cloud") <= 2.0


def test_with_both_units_targets_are_about_devices():
    changes = ["privacy.unit=both", "training.batches=poisson"]
    planned = sf.plan(sf.load_spec("h2fdp-fmnist", changes), {"cloud": 2.0})
    assert planned.targets[0].unit.startswith("device:")
    alone = sf.plan(sf.load_spec("h2fdp-fmnist"), {"cloud": 2.0})
    assert planned.noise == pytest.approx(alone.noise, rel=1e-9)
    assert any(
        note.startswith("privacy.unit is both: the targets are about devices") for note in planned.notes
    )


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        (
            ["privacy.clip={kind: example, norm: 1}", "privacy.unit=both"],
            "privacy.clip.kind",
            "whole devices",
        ),
        (
            ["privacy.clip={kind: example, norm: 1}", "privacy.unit=device"],
            "privacy.clip.kind",
            "with record",
        ),
        (
            ["privacy.clip={kind: example, norm: 1}", "privacy.noise={multiplier: 1, at: step}"],
            "privacy.noise.at",
            "plans size the noise of messages",
        ),
    ],
)
def test_what_has_no_plan_is_refused(changes, place, said):
    with pytest.raises(SpecError) as caught:
        sf.plan(sf.load_spec("dp-fedavg", [*STAR, MULTIPLIER, *changes]), {"cloud": 2.0})
    assert caught.value.place == place
    assert said in str(caught.value)
