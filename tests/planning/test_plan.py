"""Plans: closed forms, every target met with the least noise, prices."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.planning.noise_response import global_variance
from sfumato.planning.result import global_noise_rms
from sfumato.planning.sources import NoiseSource, with_intensities
from sfumato.planning.targets import EpsilonTarget, pairs_of
from sfumato.privacy.losses import gaussian
from sfumato.privacy.noise_scale import noise_scale_for
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import load_spec

pytestmark = pytest.mark.needs("plan")

WITHIN = 1e-3
UNEQUAL = ["topology.devices_per_edge=[2, 3, 9, 4, 4]", "trust.trusted_edges=[0, 3]"]


def reloaded(planned):
    """The planned spec as a file would bring it back."""
    import yaml

    return sf.load_spec(yaml.safe_load(sf.dump_spec(planned.spec)))


def worst(spec, kind):
    """The largest finite epsilon of a kind of observer, by account."""
    rows = sf.account(spec).guarantees
    concerns = {
        "edge": lambda g: g.observer.split(":")[0] in ("edge", "region", "cabinet"),
        "device": lambda g: g.observer.startswith("device:"),
    }.get(kind, lambda g: g.relation.words == kind)
    return max(g.epsilon for g in rows if concerns(g) and math.isfinite(g.epsilon))


def multipliers(planned):
    return {(owner, s.aggregation): s.multiplier for s in planned.sources for owner in s.owners}


# --- closed forms -------------------------------------------------------------------------------


@pytest.mark.parametrize(("neighbours", "factor"), [("zero-out", 1), ("replace", 2)])
def test_a_star_is_the_gaussian_mechanism(neighbours, factor):
    spec = sf.load_spec(
        "dp-fedavg",
        [
            "trust.cloud=false", "training.participation=all", "topology.devices=20", "training.rounds=9",
            f"privacy.neighbours={neighbours}", "data.source=synthetic", "data.examples_per_device=10",
        ],
    )  # fmt: skip
    planned = sf.plan(spec, {"cloud": 3.0})
    expected = factor * math.sqrt(9) / gaussian.mu(epsilon=3.0, delta=1e-5)
    assert multipliers(planned) == pytest.approx({("cloud/devices", "global"): expected}, rel=1e-6)
    assert planned.noise == pytest.approx(expected * math.sqrt(9 / 20), rel=1e-6)  # averaged, nine rounds


@pytest.mark.parametrize("trusted", [0.0, 1.0])
def test_the_default_tree_of_h2fdp_needs_20_percent_less(trusted):
    spec = sf.load_spec("h2fdp-fmnist", [f"trust.trusted_edges={trusted}"])
    paper = resolve(spec)
    epsilon = sf.account(spec).epsilon(0, "cloud")
    planned = sf.plan(spec, {"cloud": epsilon})
    assert 1 - global_variance(planned.plan) / global_variance(paper) == pytest.approx(0.2, abs=1e-4)
    assert planned.saved == pytest.approx(0.2, abs=1e-4)
    # closed form: 600 edge and 200 global aggregations, alike in sensitivity and weight
    square = gaussian.mu(epsilon=epsilon, delta=1e-5) ** 2
    expected = math.sqrt((600 + 200) / square) / (1 if trusted else math.sqrt(5))
    found = list(multipliers(planned).values())
    assert found == pytest.approx([expected] * len(found), rel=1e-3)
    judged = sf.account(reloaded(planned)).epsilon(0, "cloud")
    assert epsilon * (1 - WITHIN) <= judged <= epsilon


def test_unequal_periods_are_the_closed_form_too():
    spec = sf.load_spec("h2fdp-fmnist", ["training.edge_every=8", "trust.trusted_edges=1.0"])
    planned = sf.plan(spec, {"cloud": 2.0})
    # steps 8, 16 at the edges and 20 at the cloud: messages of 8, 8 and 4 steps. Both edge aggregations
    # share a multiplier z, so their variances are 64 z^2; weights in the global model are equal.
    n, delta = np.array([400.0, 200.0]), np.array([8.0, 4.0])
    v = delta * (n * delta).sum() / gaussian.mu(epsilon=2.0, delta=1e-5) ** 2
    expected = np.sqrt(v) / delta
    found = multipliers(planned)
    assert found["edge:0", "edge"] == pytest.approx(expected[0], rel=1e-3)
    assert found["edge:0", "global"] == pytest.approx(expected[1], rel=1e-3)


# --- every target met, with the least noise -----------------------------------------------------


@st.composite
def problems(draw):
    levels = draw(st.sampled_from([[2, 3], [3, 2], [2, 2, 2], [2, 3, 2], [4]]))
    overrides = ["privacy.noise={multiplier: 1}", "data.partition=iid"]
    if len(levels) == 1:
        base = "dp-fedavg"
        overrides += [
            "topology.devices=4",
            "training.participation=all",
            f"trust.cloud={draw(st.booleans())}",
        ]
        overrides = [o.replace("True", "true").replace("False", "false") for o in overrides]
        overrides += ["data.source=synthetic", "data.examples_per_device=10", "training.rounds=4"]
        names = []
    else:
        base = "three-tier"
        tiers = ["region", "cabinet"][: len(levels) - 1]
        sizes = np.cumprod(levels)[:-1]
        names = [f"{t}:{i}" for t, n in zip(tiers, sizes, strict=True) for i in range(n)]
        trusted = draw(st.lists(st.sampled_from([*names, "cloud"]), unique=True, max_size=len(names)))
        inner = [name for name in trusted if name != "cloud"]
        periods = [10, 5][: len(levels) - 1]
        overrides += [
            f"topology={{kind: tree, levels: {levels}, names: [{', '.join(tiers)}]}}",
            f"trust={{cloud: {str('cloud' in trusted).lower()}, trusted: [{', '.join(map(repr, inner))}]}}",
            f"training.aggregate_every={periods}",
        ]
    kinds = draw(
        st.lists(st.sampled_from(["cloud", "public", "device", "edge"]), min_size=1, max_size=3, unique=True)
    )
    return base, overrides, {kind: draw(st.floats(0.3, 12.0)) for kind in kinds}


# a cabinet's top-up gives the trusted cloud an epsilon where it was to see raw updates
TOPPED_UP_BELOW_A_TRUSTED_CLOUD = (
    "three-tier",
    [
        "privacy.noise={multiplier: 1}",
        "data.partition=iid",
        "topology={kind: tree, levels: [2, 2, 2], names: [region, cabinet]}",
        "trust={cloud: true, trusted: ['region:1', 'cabinet:3', 'cabinet:2', 'cabinet:0', 'region:0']}",
        "training.aggregate_every=[10, 5]",
    ],
    {"public": 10.26, "device": 8.7, "cloud": 10.4},
)


def scale_to_meet(plan, targets):
    """Factor on all noise of ``plan`` that makes every target hold, by the accountant."""
    factor = 0.0
    for kind, epsilon in targets.items():
        for pair in pairs_of(plan, EpsilonTarget(kind, epsilon)):
            needed = noise_scale_for(
                plan.releases.exposures(pair.device, pair.coalition),
                epsilon=epsilon,
                delta=plan.spec.privacy.delta,
                neighbours="zero-out",
            )
            if math.isfinite(needed):
                factor = max(factor, needed)
    return factor


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@example(TOPPED_UP_BELOW_A_TRUSTED_CLOUD, 309)
@given(problems(), st.integers(0, 2**32))
def test_targets_hold_and_no_other_split_is_quieter(problem, seed):
    base, overrides, targets = problem
    spec = sf.load_spec(base, overrides)
    try:
        planned = sf.plan(spec, targets)
    except SpecError as error:  # everybody a target is about trusts the observer, or there is nobody
        refused = str(error)
    else:
        refused = ""
    no_pair = "names no pair of a unit and an observer in this network"
    assume(not refused.endswith(("no noise gives an ε", no_pair)))
    assert refused == ""
    again = reloaded(planned)
    for row in planned.targets:
        found = worst(again, row.target.observer)
        assert found == pytest.approx(row.epsilon, rel=1e-9)
        assert found <= row.target.epsilon
    assert any(row.is_binding for row in planned.targets)
    rng = np.random.default_rng(seed)
    sources = [NoiseSource(s.owners, planned.plan.tree.depth) for s in planned.sources]
    levels = {"global": 0} | {t.name: n for n, t in enumerate(planned.plan.tree.tiers) if n}
    sources = [replace(s, level=levels[p.aggregation]) for s, p in zip(sources, planned.sources, strict=True)]
    intensities = np.array([s.multiplier**2 for s in planned.sources])
    for spread in (0.05, 0.5):
        other = with_intensities(
            planned.plan, sources, intensities * np.exp(rng.normal(0, spread, len(sources)))
        )
        assert global_noise_rms(other) * scale_to_meet(other, targets) >= planned.noise * (1 - 1e-4)


def test_the_cut_bound_is_used_where_it_needs_less_noise():
    # One device an untrusted edge, a trusted cloud, a target for the public alone. Flow would hide every
    # edge aggregation behind the device's own noise; cut leaves those bare and hides the sum of a round,
    # 20 clipped steps over 10 edges, in the global average.
    overrides = ["topology.edges=10", "topology.devices_per_edge=1", "trust={cloud: true}"]
    spec = sf.load_spec("h2fdp-fmnist", overrides)
    planned = sf.plan(spec, {"public": 1.0})
    row = next(g for g in sf.account(reloaded(planned)).guarantees if g.relation.words == "public")
    assert (row.bound, row.bounds["flow"].epsilon) == ("cut", math.inf)
    assert row.epsilon == pytest.approx(1.0, rel=WITHIN)
    units = sum(planned.plan.message_scale(k) ** 2 for k in range(200))
    closed_form = math.sqrt(units * 200) * 20 / 10 / gaussian.mu(epsilon=1.0, delta=1e-5)
    assert planned.noise == pytest.approx(closed_form, rel=1e-5)
    assert {aggregation for _, aggregation in multipliers(planned)} == {"global"}


def test_named_parties_and_coalitions():
    planned = sf.plan(
        sf.load_spec("quickstart", UNEQUAL), {"edge:1": 2.0, "edge:4": 6.0, "cloud,device:7": 3.0}
    )
    spec = reloaded(planned)
    for row in planned.targets:
        units = sf.account(spec, observer=row.target.observer).guarantees
        assert max(g.epsilon for g in units) == pytest.approx(row.epsilon, rel=1e-9)
        assert row.epsilon <= row.target.epsilon
        assert row.is_binding == (row.price > 1e-3)
    assert sf.account(spec).epsilon(2, "edge:1") == pytest.approx(2.0, rel=WITHIN)


def test_a_named_edge_is_told_apart_from_its_likes():
    spec = sf.load_spec("h2fdp-fmnist", ["trust.trusted_edges=0.0"])
    found = multipliers(sf.plan(spec, {"edge:3": 1.0, "edge:4": 4.0}))
    levels = ("edge", "global")
    own, other, rest = ([found[f"edge:{e}/devices", level] for level in levels] for e in (3, 4, 5))
    assert np.all(np.array(own) > 1.5 * np.array(other))
    assert other[1] > 1.1 * rest[1]
    assert rest == pytest.approx([found["edge:9/devices", level] for level in levels], rel=1e-9)


def test_placement_that_the_spec_spells_out_is_kept():
    spec = sf.load_spec("quickstart", ["trust={cloud: true, trusted_edges: 1.0}"])
    silent = sf.plan(spec, {"public": 1.0})
    assert ("cloud", "global") in multipliers(silent)
    sources = "{sources: [{owners: ['edge:0', 'edge:1', 'edge:2', 'edge:3', 'edge:4'], multipliers: [1, 1]}]}"
    spelled = sf.plan(
        sf.load_spec("quickstart", ["trust={cloud: true, trusted_edges: 1.0}", f"privacy.noise={sources}"]),
        {"public": 1.0},
    )
    assert {owner.split(":")[0] for owner, _ in multipliers(spelled)} == {"edge"}


@pytest.mark.usefixtures("coarse_losses")
def test_a_trusted_cloud_tops_up_where_devices_noise_does_not_count():
    overrides = ["training.participation={kind: poisson, rate: 0.5}", "training.rounds=2", "trust.cloud=true"]
    quiet = sf.plan(sf.load_spec("quickstart", overrides), {"edge": 4.0, "public": 1.0})
    assert ("cloud", "global") in multipliers(quiet)
    assert all(row.epsilon <= row.target.epsilon for row in quiet.targets)


# --- sampling -----------------------------------------------------------------------------------


def test_a_draw_that_the_observer_sees_is_charged_as_a_mixture():
    changes = [
        "trust.cloud=false",
        "topology.devices=10",
        "data={source: digits, partition: iid}",
        "model=softmax",
    ]
    spec = sf.load_spec("dp-fedavg", [*changes, "training.participation.rate=0.3", "training.rounds=12"])
    (row,) = sf.plan(spec, {"cloud": 1.5}).targets
    assert 1.5 * (1 - WITHIN) <= row.epsilon <= 1.5


@pytest.mark.slow
@pytest.mark.parametrize("participation", ["{kind: poisson, rate: 0.2}", "{kind: fixed, count: 8}"])
def test_sampled_targets_bind_within_a_thousandth(participation):
    spec = sf.load_spec("quickstart", [f"training.participation={participation}", "training.rounds=3"])
    planned = sf.plan(spec, {"cloud": 2.0, "public": 0.5})
    for row in planned.targets:
        assert worst(reloaded(planned), row.target.observer) == pytest.approx(row.epsilon, rel=1e-9)
        assert row.epsilon <= row.target.epsilon
    assert any(row.is_binding for row in planned.targets)


# --- prices -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "targets", [{"cloud": 2.0}, {"cloud": 1.0, "edge": 3.0, "public": 0.7}, {"cloud": 2.0, "edge": 90.0}]
)
def test_prices_are_what_a_larger_target_saves(targets):
    spec = sf.load_spec("h2fdp-fmnist", ["trust.trusted_edges=[0, 1, 2]"])
    planned = sf.plan(spec, targets)
    prices = {row.target.observer: row.price for row in planned.targets}
    step = 0.02
    for observer, epsilon in targets.items():
        up = sf.plan(spec, {**targets, observer: epsilon * math.exp(step)}).noise
        down = sf.plan(spec, {**targets, observer: epsilon * math.exp(-step)}).noise
        slope = 2 * math.log(down / up) / (2 * step)
        assert prices[observer] == pytest.approx(slope, abs=0.03)
        assert prices[observer] >= 0
    slack = [row for row in planned.targets if not row.is_binding]
    assert all(row.price < 1e-3 for row in slack)
    assert sum(prices.values()) > 1


def test_one_target_alone_has_the_price_of_mu():
    (row,) = sf.plan(sf.load_spec("h2fdp-fmnist"), {"cloud": 2.0}).targets
    mu = gaussian.mu(epsilon=np.array([2.0 * math.exp(-0.01), 2.0 * math.exp(0.01)]), delta=1e-5)
    assert row.price == pytest.approx(2 * math.log(mu[1] / mu[0]) / 0.02, rel=1e-3)


# --- what the user hears ------------------------------------------------------------------------


def test_parties_trusted_with_raw_updates_are_named():
    planned = sf.plan(sf.load_spec("h2fdp-fmnist"), {"cloud": 2.0, "edge": 8.0})
    note = "edge is trusted with the raw updates of 25 devices: edge=8 does not apply to them"
    assert note in planned.notes
    assert {other.observer_kind for other in planned.untargeted} == {"peer", "device", "public"}


def test_what_no_target_asks_to_protect_is_said_aloud():
    planned = sf.plan(sf.load_spec("h2fdp-fmnist"), {"edge": 8.0})
    others = {other.observer_kind: other.epsilon for other in planned.untargeted}
    assert others["cloud"] == math.inf
    assert others["public"] < math.inf
    assert "there is no guarantee towards cloud: no target names this" in planned.notes


def test_a_programme_that_the_solver_gives_up_on_leaves_the_one_before_it():
    changes = [
        "privacy.noise={multiplier: 1}",
        "data.partition=iid",
        "topology={kind: tree, levels: [2, 3, 2], names: [region, cabinet]}",
        "trust={cloud: true, trusted: ['cabinet:0', 'cabinet:1', 'cabinet:3', 'cabinet:4', 'cabinet:5',"
        " 'region:0', 'region:1']}",
        "training.aggregate_every=[10, 5]",
    ]
    targets = {"device": 4.391964283005008, "cloud": 0.40217097276226044}
    for met in sf.plan(load_spec("three-tier", changes), targets).targets:
        assert met.epsilon <= targets[met.target.observer] * (1 + 1e-9)
