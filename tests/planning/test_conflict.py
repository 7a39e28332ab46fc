"""Targets that cannot all be met: who conflicts with whom, by how much."""

import re

import pytest

import sfumato as sf
from sfumato.errors import SpecError

pytestmark = pytest.mark.needs("plan")


def refused(spec, targets, **more):
    with pytest.raises(SpecError) as error:
        sf.plan(spec, targets, **more)
    assert error.value.exit_status == 2
    return str(error.value)


def figures(message, *names):
    return [float(re.search(name + r" ([0-9.]+)", message)[1]) for name in names]


H2FDP = sf.load_spec("h2fdp-fmnist")


def test_a_named_party_that_is_trusted():
    message = refused(H2FDP, {"cloud": 2.0, "edge:1": 8.0})
    assert message.startswith(
        "targets: edge:1=8: conflicts with trust: edge:1 is trusted with the raw updates"
    )
    assert "device:5 and 4 more" in message


def test_a_coalition_with_a_trusted_member():
    assert "conflicts with trust" in refused(H2FDP, {"cloud,edge:1": 8.0})


def test_a_kind_that_is_trusted_by_everybody():
    spec = sf.load_spec("dp-fedavg")
    assert "cloud is trusted with the raw updates of device:0 and 999 more" in refused(spec, {"cloud": 2.0})


def test_nobody_noises_before_the_observer():
    sources = "{sources: [{owners: [cloud], multipliers: [1, 1]}]}"
    spec = sf.load_spec("quickstart", [f"privacy.noise={sources}", "trust={}"])
    message = refused(spec, {"cloud": 2.0})
    why = "no other party adds noise to the updates of device:0 and 199 more before cloud receives them"
    assert why in message


def test_a_target_and_the_noise_allowed():
    needed = sf.plan(H2FDP, {"cloud": 2.0}).noise
    message = refused(H2FDP, {"cloud": 2.0, "noise": needed / 3})
    said, epsilon = figures(message, "needs a noise of", "allows ε =")
    assert said == pytest.approx(needed, rel=1e-3)
    assert "conflicts with noise=" in message
    # what the message allows can be had, with all of the noise allowed
    kept = sf.plan(H2FDP, {"cloud": epsilon * 1.001, "noise": needed / 3})
    assert kept.noise == pytest.approx(needed / 3, rel=5e-3)


def test_two_targets_and_the_noise_allowed():
    # two untrusted edges: each target alone is far cheaper than both together
    spec = sf.load_spec("quickstart", ["topology.edges=2", "trust={}"])
    alone = max(sf.plan(spec, {f"edge:{e}": 1.0}).noise for e in (0, 1))
    both = sf.plan(spec, {"edge:0": 1.0, "edge:1": 1.0}).noise
    assert both > 1.2 * alone
    limit = (alone + both) / 2
    message = refused(spec, {"edge:0": 1.0, "edge:1": 1.0, "noise": limit})
    assert "conflicts with edge:1=1 below noise=" in message
    said, epsilon = figures(message, "need a noise of", "can have ε =")
    assert said == pytest.approx(both, rel=1e-3)
    assert sf.plan(spec, {"edge:0": 1.0, "edge:1": epsilon * 1.001, "noise": limit}).noise == pytest.approx(
        limit, rel=5e-3
    )


def test_three_targets_that_fit_two_by_two():
    spec = sf.load_spec("quickstart", ["topology.edges=3", "trust={}"])
    targets = {f"edge:{e}": 1.0 for e in range(3)}
    two = sf.plan(spec, {"edge:0": 1.0, "edge:1": 1.0}).noise
    everything = sf.plan(spec, targets).noise
    message = refused(spec, {**targets, "noise": (two + everything) / 2})
    assert message.startswith("targets: all targets together need")
    assert figures(message, "together need a noise of") == pytest.approx([everything], rel=1e-3)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ({}, "needs ε towards at least one observer"),
        ({"noise": 1.0}, "needs ε towards at least one observer"),
        ({"cloud": 0.0}, "must be a number from 1e-12 to 1e+12"),
        ({"cloud": float("inf")}, "must be a number from 1e-12 to 1e+12"),
        ({"cloud": True}, "must be a number from 1e-12 to 1e+12"),
        ({"mars": 1.0}, "there are cloud"),
        ({"cloud, device:1": 1.0, "cloud,device:1": 2.0}, "is given twice"),
        ({",".join(f"device:{d}" for d in range(50)): 1.0}, "no pair"),
    ],
)
def test_targets_that_are_none(targets, said):
    assert said in refused(H2FDP, targets)


@pytest.mark.parametrize(
    ("source", "overrides", "said"),
    [
        ("h2fdp-fmnist", ["protocol=hfl", "privacy.noise=none"], "adds no noise"),
        ("h2fdp-fmnist", ["privacy={delta: 1e-5}"], "privacy.clip"),
        ("h2fdp-fmnist", ["protocol=hdp", "topology.supernodes=elected"], "cannot be planned"),
        (
            {
                "name": "groups",
                "protocol": "dp-ogl",
                "data": {"source": "digits"},
                "topology": {"kind": "groups", "structure": "ring", "groups": 4, "devices": 20},
                "training": {"rounds": 4, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
                "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
            },
            [],
            "names no pair of a unit and an observer",
        ),
    ],
)
def test_specs_that_are_not_planned(source, overrides, said):
    assert said in refused(sf.load_spec(source, overrides), {"cloud": 1.0})
