"""Noise for a target, and by H2FDP's formula."""

import math
from collections import Counter

import numpy as np
import pytest
from places import ROOT

from sfumato import account
from sfumato.errors import SpecError
from sfumato.schedule.local_steps import momentum_gain
from sfumato.schedule.noise.placement import dp_fedavg_device_factor
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec

pytestmark = pytest.mark.usefixtures("coarse_losses")

EXAMPLES = ROOT / "examples"
KINDS = {
    "cloud": lambda g: g.observer == "cloud",
    "public": lambda g: g.observer == "public",
    "edge": lambda g: g.observer.startswith("edge:"),
    "peer": lambda g: g.relation.words == "peer",
    "device": lambda g: g.observer.startswith("device:"),
}
UNEQUAL = ["topology.devices_per_edge=[2, 3, 9, 4, 4]", "trust.trusted_edges=[0, 3]"]


def worst_by_unit(report, concerns):
    """The largest finite epsilon of each unit's rows."""
    worst = {}
    for g in report.guarantees:
        if concerns(g) and math.isfinite(g.epsilon):
            worst[g.unit] = max(worst.get(g.unit, 0.0), g.epsilon)
    return worst


def spec_for(observer, *overrides, epsilon=3.0, base="quickstart"):
    return load_spec(base, [f"privacy.noise={{epsilon: {epsilon}, for: '{observer}'}}", *overrides])


@pytest.mark.parametrize("shape", [[], UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("kind", KINDS)
def test_in_two_tiers_every_units_worst_epsilon_is_the_target(kind, shape):
    report = account(spec_for(kind, *shape))
    worst = worst_by_unit(report, KINDS[kind])
    assert worst
    assert max(worst.values()) <= 3.0 * (1 + 1e-9)
    if kind in ("cloud", "public", "peer") or not shape:
        assert min(worst.values()) == pytest.approx(3.0, rel=1e-3)
    if kind in ("cloud", "peer"):  # every source is met by its own units alone
        assert list(worst.values()) == pytest.approx([3.0] * len(worst), rel=1e-4)


@pytest.mark.parametrize("kind", ["cloud", "public"])
def test_replace_neighbours_take_twice_the_noise(kind):
    zero_out = resolve(spec_for(kind)).noise
    replaced = resolve(spec_for(kind, "privacy.neighbours=replace")).noise
    np.testing.assert_allclose(replaced.device, 2 * zero_out.device, rtol=1e-5)


def test_a_named_observer():
    report = account(spec_for("edge:1"))
    rows = [g for g in account(spec_for("edge:1"), observer="edge:1").guarantees if math.isfinite(g.epsilon)]
    assert report.notes == ()
    assert len(rows) == 5
    assert max(g.epsilon for g in rows) <= 3.0 * (1 + 1e-9)
    assert max(g.epsilon for g in rows) == pytest.approx(3.0, rel=1e-4)


def test_a_device_as_the_observer_is_not_its_own_unit():
    rows = account(spec_for("device:0"), observer="device:0").guarantees
    assert max(g.epsilon for g in rows) <= 3.0 * (1 + 1e-9)
    assert sum(g.stands_for for g in rows) == 199


DEEP = [
    ["trust.trusted=['region:0', 'cabinet:1']"],
    ["trust.trusted=['region:0', 'cabinet:1', 'cabinet:4']"],
    ["trust.trusted=['region:1', 'cabinet:3', 'cabinet:4', 'cabinet:5']", "trust.cloud=true"],
    ["topology.levels=[3, 2, 5]", "trust.trusted=['cabinet:0']"],
]


@pytest.mark.parametrize("trust", DEEP)
@pytest.mark.parametrize("observer", ["cloud", "public", "peer", "device", "region:1"])
def test_deep_trees_never_exceed_the_target(trust, observer):
    spec = spec_for(observer, *trust, base="three-tier")
    if observer == "cloud" and "trust.cloud=true" in trust:
        observer = "public"
        spec = spec_for(observer, *trust, base="three-tier")
    plan = resolve(spec)
    if observer in KINDS:
        rows = [g for g in account(plan.spec).guarantees if KINDS[observer](g)]
    else:
        rows = account(plan.spec, observer=observer).guarantees
    finite = [g.epsilon for g in rows if math.isfinite(g.epsilon)]
    assert max(finite) <= 3.0 * (1 + 1e-9)
    assert max(finite) >= 3.0 * 0.97


@pytest.mark.parametrize(
    ("participation", "observer"),
    [("{kind: poisson, rate: 0.3}", "cloud"), ("{kind: fixed, count: 10}", "edge")],
)
def test_under_sampling_the_target_is_never_exceeded(participation, observer):
    """The cloud is blind to the draw of a trusted edge; an untrusted edge sees its own."""
    trusted = "[0]" if observer == "cloud" else "[]"
    shape = ["training.rounds=2", "topology.edges=1", f"trust.trusted_edges={trusted}"]
    spec = spec_for(observer, f"training.participation={participation}", *shape)
    (worst,) = worst_by_unit(account(spec), KINDS[observer]).values()
    assert 3.0 * (1 - 5e-4) <= worst <= 3.0 * (1 + 1e-9)


def test_who_is_trusted_with_raw_updates_has_no_target():
    report = account(spec_for("edge:0", "trust.trusted_edges=[0]"))
    assert report.notes == ("edge:0 is trusted with the raw updates of 40 devices: no target holds for them",)
    with pytest.raises(SpecError, match="no noise gives it an epsilon") as caught:
        resolve(load_spec("dp-fedavg", ["privacy.noise={epsilon: 1.0, for: cloud}"]))
    assert caught.value.place == "privacy.noise.for"


@pytest.mark.parametrize(
    ("observer", "message"),
    [
        ("edge:9", "edge:0 to edge:4"),
        ("master:0", "there are cloud"),
        ("device:200", "device:0 to device:199"),
    ],
)
def test_observers_that_do_not_exist(observer, message):
    with pytest.raises(SpecError, match=message) as caught:
        resolve(spec_for(observer))
    assert caught.value.place == "privacy.noise.for"


def test_kinds_that_stand_for_nobody():
    with pytest.raises(SpecError, match="stands for nobody"):
        resolve(load_spec("dp-fedavg", ["privacy.noise={epsilon: 1.0, for: edge}"]))


# --- H2FDP's formula --------------------------------------------------------------------------------


def test_h2fdps_formula_by_hand():
    """(15): sigma = c2 q Delta sqrt(L ln(1/delta)) / epsilon, Delta = 2 eta tau G; over 5 steps' worth."""
    plan = resolve(load_spec("h2fdp-fmnist", ["privacy.noise.c2=2"]))
    q, tau = 10 / 1200, 20
    ln = math.log(1e5)
    globally = 2 * q * 2 * tau * math.sqrt(200 * ln) / 5
    at_edges = 2 * q * 2 * tau * math.sqrt(600 * ln) / 5
    untrusted = ~plan.tree.tiers[1].trusted
    np.testing.assert_allclose(plan.noise.device[untrusted], [[globally, at_edges]] * 5)
    np.testing.assert_allclose(plan.noise.node[1][~untrusted], [[globally, at_edges]] * 5)
    facts = plan.releases.steps[0]
    np.testing.assert_allclose(facts.device_std[untrusted], at_edges * 5)  # in step sizes times clip
    np.testing.assert_allclose(facts.node_std[1][~untrusted], at_edges * 5 / 5)  # over s_c = 5


def test_the_formula_gives_the_same_sigma_whatever_is_sent():
    """A resent round is longer, so its multiplier is smaller; the paper's sigma stays."""
    increment, resend = (
        resolve(load_spec("h2fdp-fmnist", [f"training.global_update={reading}"]))
        for reading in ("increment", "resend")
    )
    for mine, wanted in zip(resend.releases.steps, increment.releases.steps, strict=True):
        np.testing.assert_allclose(mine.node_std[1], wanted.node_std[1])
    trusted = increment.tree.tiers[1].trusted
    assert resend.releases.steps[-1].message_norm[trusted].tolist() == [20.0] * 5
    assert resend.releases.steps[-1].message_norm[~trusted].tolist() == [5.0] * 5


def test_the_formula_in_deeper_trees():
    """Every tier has a sigma by its own number of aggregations; nothing is claimed."""
    changes = ["data={source: synthetic, examples_per_device: 40}", "privacy.clip={kind: step, norm: 1.0}"]
    spec = load_spec("three-tier", [*changes, "privacy.noise={formula: h2fdp, epsilon: 2.0, c2: 3.0}"])
    plan, training = resolve(spec), spec.training
    per_round = Counter(aggregation.tier for aggregation in plan.aggregations)
    assert set(per_round) == {0, 1, 2}
    q, tau = plan.spec.training.batch_size / plan.spec.data.examples_per_device, plan.aggregations[-1].step
    for aggregation in plan.aggregations:
        releases = training.rounds * per_round[aggregation.tier]
        sigma = 3 * q * 2 * tau * math.sqrt(releases * math.log(1 / spec.privacy.delta)) / 2
        column = [*plan.noise.device[:, aggregation.tier]]
        column += [value for node in plan.noise.node for value in node[:, aggregation.tier]]
        used = {round(value * aggregation.local_steps, 9) for value in column if value}
        assert used == {round(sigma, 9)}
    assert account(spec).claims == ()


@pytest.mark.parametrize(("steps", "momentum"), [(1, 0.9), (5, 0.0), (7, 0.5), (20, 0.9)])
def test_momentum_gain_is_reached_and_never_exceeded(steps, momentum):
    """SGD with a buffer that starts at zero, every clipped gradient of norm 1."""
    rng = np.random.default_rng(0)

    def distance(gradients):
        buffer, moved = 0.0, 0.0
        for gradient in gradients:
            buffer = momentum * buffer + gradient
            moved += buffer
        return abs(moved)

    assert momentum_gain(steps, momentum) == pytest.approx(distance(np.ones(steps)))
    assert all(
        distance(rng.choice([-1, 1], steps)) <= momentum_gain(steps, momentum) + 1e-9 for _ in range(50)
    )


def test_momentum_is_in_the_bounds():
    plan = resolve(load_spec("h2fdp-fmnist", ["training.momentum=0.9"]))
    assert plan.releases.steps[0].message_norm == pytest.approx([momentum_gain(5, 0.9)] * 10)


def test_dp_fedavg_devices_add_a_share_of_the_noise():
    """Alg. 1 of pfels.txt: the server meets one device at sigma / sqrt(r), only the sum of r has sigma."""
    assert dp_fedavg_device_factor(16.0) == 0.25
    star = ["topology.devices=16", "trust.cloud=false", "data.source=digits", "training.participation=all"]
    plan = resolve(load_spec("dp-fedavg", star))
    assert plan.noise.device.tolist() == [[0.25]]
    flow, *_ = plan.releases.exposures(0, [])
    assert flow.releases[0].own_sensitivity / math.sqrt(flow.releases[0].variance) == pytest.approx(
        1.0
    )  # the sum: 1/sigma
    again = resolve(plan.spec)
    assert again.noise.device.tolist() == [[0.25]]  # not twice


def test_devices_that_count_more_meet_the_target_too():
    """0.1 looked at the first device of each leaf only: others had 6.79, 18.5 and 72.4 instead of 4."""
    spec = load_spec(
        {
            "name": "weighted",
            "protocol": "hdp",
            "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 4},
            "data": {"source": "digits", "partition": {"kind": "dirichlet", "alpha": 0.3}},
            "model": {"kind": "softmax"},
            "training": {
                "rounds": 5,
                "local_steps": 1,
                "batch_size": 10,
                "learning_rate": 0.1,
                "weights": {"kind": "capped", "examples": 200},
            },
            "transport": {"devices_to_edge": "secure-aggregation"},
            "privacy": {
                "clip": {"kind": "update", "norm": 1.0},
                "noise": {"epsilon": 4, "for": "edge:0"},
            },
        }
    )
    for observer in ("edge:0", "device:0", "device:5"):
        noise = {"noise": spec.privacy.noise.model_copy(update={"towards": observer})}
        report = account(spec.model_copy(update={"privacy": spec.privacy.model_copy(update=noise)}))
        units = [unit for unit in range(12) if f"device:{unit}" != observer]
        found = [report.epsilon(unit, observer) for unit in units]
        assert max(found) <= 4 * (1 + 1e-9)
        assert max(found) == pytest.approx(4, rel=1e-3)
    assert len(set(np.round(report.plan.participants.weights, 3))) > 3


@pytest.mark.parametrize("kind", ["device", "peer"])
def test_an_elected_supernode_that_receives_raw_updates_has_no_target(kind):
    """Elected under a trusted edge, a peer receives what nothing noised: 0.1 ended in an OverflowError."""
    with pytest.raises(SpecError, match=r"no noise gives device:\d+ .* as an elected supernode"):
        account(
            load_spec(
                EXAMPLES / "hdp" / "c2.yaml",
                [
                    f"privacy.noise={{epsilon: 4, for: {kind}}}",
                    "topology.supernodes=elected",
                    "trust.trusted_edges=0.5",
                ],
            )
        )
