"""Records as the unit, from a spec: golden values, what must not amplify, what must not be exceeded."""

import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import TESTS
from scipy import stats

import sfumato as sf
from sfumato.accounting import pair_guarantee
from sfumato.errors import SpecError
from sfumato.mechanisms.compression import round_stochastically
from sfumato.privacy.accountant import compose
from sfumato.privacy.declared_releases import PairCharge
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.privacy.records import BatchFacts, releases_by_batches
from sfumato.privacy.release import DrawnReleases, Release
from sfumato.privacy.sampling import GaussianTerm, Sampling
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.schedule.rows.watch import rounds_to_account

POISSON = "training.batches=poisson"
DELTA = 1e-5
SMALL = ("training.rounds=20", "data={source: synthetic, examples_per_device: 100, partition: {kind: iid}}")
RING = str(TESTS / "spec" / "specs" / "ogl-ring.yaml")


def plan_of(name, *changes):
    return resolve(sf.load_spec(name, list(changes)))


def epsilon(plan, unit, observer, delta=DELTA):
    return pair_guarantee(plan, unit, observer, delta=delta).epsilon


def bounds(plan, unit, observer):
    return pair_guarantee(plan, unit, observer, delta=DELTA).bounds


@pytest.fixture(scope="module")
def h2fdp():
    return plan_of("h2fdp-fmnist", POISSON)


@pytest.mark.parametrize(
    ("observer", "device", "plain", "mixture"),
    [("edge:0", 45.45, 2.32, 1.2583), ("cloud", 15.23, 0.869, 0.4948)],
)
def test_h2fdp_s_default_at_both_units(h2fdp, observer, device, plain, mixture):
    """The record towards its own untrusted edge and the cloud; the mixture over first draws is tighter."""
    assert epsilon(h2fdp, "device:0", observer) == pytest.approx(device, abs=0.006)
    found = epsilon(h2fdp, "record:0", observer)
    assert found == pytest.approx(mixture, abs=1e-4)
    assert found < plain
    whole = h2fdp.releases.batches.moves
    assert whole == ((1.0, 0.8, 0.6, 0.4, 0.2),) * 4
    rate, root = 1 - (1 - 1 / 120) ** 5, 1 if observer == "edge:0" else math.sqrt(5)
    terms = [
        GaussianTerm(z / 2 * root, count, Sampling.poisson(rate)) for z, count in ((5.541, 600), (3.199, 200))
    ]
    assert compose(terms, neighbours="zero-out").epsilon(DELTA) == pytest.approx(plain, rel=2e-3)


def test_whole_updates_are_charged_plainly():
    plan = plan_of("h2fdp-fmnist", POISSON, "privacy.clip={kind: update, norm: 1.0}", "training.rounds=20")
    multipliers = {
        s.name: plan.releases.class_variance[i][0] ** 0.5 for i, s in enumerate(plan.releases.steps)
    }
    rate = 1 - (1 - 1 / 120) ** 5
    terms = [GaussianTerm(z / 2, 20, Sampling.poisson(rate)) for z in multipliers.values()]
    wanted = compose(terms, neighbours="zero-out").epsilon(DELTA)
    assert epsilon(plan, "record:0", "edge:0") == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(
    ("base", "observer"), [("h2fdp-fmnist", "edge:0"), ("h2fdp-fmnist", "cloud"), ("quickstart", "cloud")]
)
def test_shuffled_batches_are_charged_as_a_device_replaced(base, observer):
    """A build that amplifies them, or forgets that a message moves by twice its bound, fails here."""
    plan = plan_of(base, "training.rounds=5")
    row = pair_guarantee(plan, "record:0", observer, delta=DELTA)
    squares = [
        sum(r.sensitivity("replace") ** 2 / r.variance * n for r, n in e.counted_releases)
        for e in plan.releases.exposures(0, parse_coalition(observer, plan.parties))
    ]
    assert row.epsilon == pytest.approx(gaussian.epsilon(delta=DELTA, mu=math.sqrt(min(squares))))
    assert "shuffled" in row.why


def test_only_the_flow_bound_is_amplified(h2fdp):
    """Towards a device elsewhere edge averages are hidden: the cut is a device replaced."""
    shuffled = plan_of("h2fdp-fmnist")
    drawn, sure = (bounds(plan, "record:0", "device:10") for plan in (h2fdp, shuffled))
    assert drawn["cut"] == sure["cut"]
    assert drawn["flow"].epsilon < sure["flow"].epsilon
    replaced = plan_of("h2fdp-fmnist", "privacy.neighbours=replace")
    assert sure["cut"].epsilon == bounds(replaced, "device:0", "device:10")["cut"].epsilon


def test_trusted_edges_have_no_guarantee_and_the_own_device_is_refused(h2fdp):
    assert epsilon(h2fdp, "record:5", "edge:1") == math.inf
    with pytest.raises(SpecError, match="unit's device"):
        pair_guarantee(h2fdp, "record:0", "device:0", delta=DELTA)
    with pytest.raises(SpecError, match="record:49"):
        pair_guarantee(h2fdp, "record:50", "cloud", delta=DELTA)


def test_error_feedback_leaves_no_fresh_start():
    changes = (
        "privacy.noise={multiplier: 1.0}",
        "compression={kind: rand-k, ratio: 0.1, error_feedback: true}",
        "training.edge_every=20",
    )
    drawn, sure = (plan_of("quickstart", *SMALL, *changes, *more) for more in ((POISSON,), ()))
    assert epsilon(drawn, "record:0", "cloud") == epsilon(sure, "record:0", "cloud")
    assert "error feedback" in pair_guarantee(drawn, "record:0", "cloud", delta=DELTA).why


def test_a_round_that_is_sent_again_is_one_draw():
    """Its steps are in the edge's releases and in the global one: one sampled Gaussian over all of them."""
    plan = plan_of("h2fdp-fmnist", POISSON, "training.global_update=resend", "training.rounds=10")
    flow, *_ = plan.releases.exposures(5, parse_coalition("cloud", plan.parties))
    square = sum(r.mu_squared("replace") for r in flow.releases)
    term = GaussianTerm(square**-0.5, 10, Sampling.poisson(1 - (1 - 1 / 120) ** 20))
    wanted = compose([term], neighbours="zero-out").epsilon(DELTA)
    assert bounds(plan, "record:5", "cloud")["flow"].epsilon == pytest.approx(wanted, rel=1e-4)


def test_a_blind_participation_draw_amplifies_a_lone_release_and_parts_both_worlds():
    """A central noiser, and participation that nobody sees: both draws count, as for two worlds apart."""
    star = (*SMALL, POISSON, "topology={kind: star, devices: 40}", "training.batch_size=5")
    star += ("training.local_steps=3", "training.local_epochs=null", "privacy.noise={multiplier: 2.0}")
    drawn = plan_of("dp-fedavg", *star, "training.participation={kind: poisson, rate: 0.2}")
    everyone = plan_of("dp-fedavg", *star, "training.participation=all")
    rate = 1 - (1 - 0.05) ** 3
    both = Sampling.of_batches([(0.2 * rate, 1.0, 1.0)], shares_a_part=True)
    found = epsilon(drawn, "record:0", "public")
    square = drawn.releases.exposures(0, parse_coalition("public", drawn.parties))[0].releases[0]
    term = GaussianTerm(square.mu_squared("replace") ** -0.5, 20, both)
    assert found == pytest.approx(compose([term], neighbours="zero-out").epsilon(DELTA), rel=1e-6)
    assert found < epsilon(everyone, "record:0", "public")


def test_draws_of_devices_that_are_seen_do_not_count():
    """With several releases of one draw, or a cohort that the observer picks, the device counts as drawn."""
    edges = (*SMALL, POISSON, "training.batch_size=5", "privacy.noise={multiplier: 2.0}")
    half = "training.participation={kind: poisson, rate: 0.5}"
    drawn, everyone = plan_of("quickstart", *edges, half), plan_of("quickstart", *edges)
    for part in drawn.releases.record_releases(0, parse_coalition("cloud", drawn.parties)):
        assert part.participation == 1
    assert drawn.releases.batches.moves == everyone.releases.batches.moves == ((1.0,) * 10,) * 2


def test_groups_start_from_hidden_models_of_their_own_unit_at_merging_steps():
    """A worker of two groups, observed in one of them: of its merging steps only the first is determined."""
    changes = ("training.rounds=20", POISSON, "training.local_steps=2", "training.batch_size=5")
    plan = plan_of(RING, *changes, "training.merge_every=4", *SMALL[1:])
    sure = plan_of(RING, *changes[:1], *changes[2:], "training.merge_every=4", *SMALL[1:])
    declared = plan.releases
    kinds = set()
    for pair in declared.pair_classes():
        mine = plan.groups.groups_of(pair.unit)
        name = declared.party_name(pair.observer)
        releases = declared.record_releases(pair.unit, (pair.observer,))
        flow = declared.exposures(pair.unit, (pair.observer,))[0]
        assert sum(part.count for part in releases) == flow.release_count
        hidden = sum(part.count for part in releases if not part.moves)
        if len(mine) == 1:
            assert hidden == 0
        kinds.add((len(mine), pair.relation.words, hidden > 0))
        assert epsilon(plan, f"record:{pair.unit}", name) <= epsilon(sure, f"record:{pair.unit}", name)
    assert (2, "device in a common group", True) in kinds


@given(
    z=st.floats(1.0, 8.0),
    batch=st.integers(1, 100),
    steps=st.integers(1, 6),
    kind=st.sampled_from(["update", "step"]),
    neighbours=st.sampled_from(["zero-out", "replace"]),
    trusted=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_never_above_the_device_replaced_and_less_with_more_noise(z, batch, steps, kind, neighbours, trusted):
    def plan(multiplier, relation):
        return plan_of(
            "quickstart", *SMALL, POISSON, f"training.batch_size={batch}", "training.rounds=6",
            f"training.local_steps={2 * steps}", f"training.edge_every={steps}",
            f"privacy.clip={{kind: {kind}, norm: 1.0}}",
            f"privacy.noise={{multiplier: {multiplier}}}", f"privacy.neighbours={relation}",
            f"trust.trusted_edges={trusted}", "topology={kind: tree, edges: 3, devices_per_edge: 2}",
        )  # fmt: skip

    quiet, loud, replaced = plan(z, neighbours), plan(1.5 * z, neighbours), plan(z, "replace")
    for observer in ("edge:0", "device:3"):
        record = epsilon(quiet, "record:0", observer)
        assert record <= epsilon(replaced, "device:0", observer)
        assert epsilon(loud, "record:0", observer) <= record * (1 + 1e-3) + 1e-3


@pytest.mark.parametrize("towards", ["cloud", "edge"])
def test_targets_are_met_for_records(towards):
    small = (*SMALL, POISSON, "topology={kind: tree, edges: 2, devices_per_edge: 3}", "training.batch_size=2")
    small += (
        "training.rounds=5",
        f"privacy.noise={{epsilon: 2.0, for: {towards}}}",
        "trust.trusted_edges=0.5",
    )
    record, device = (plan_of("quickstart", *small, f"privacy.unit={unit}") for unit in ("record", "device"))
    rows = [row for row in sf.account(record.spec).guarantees if math.isfinite(row.epsilon)]
    assert all(row.unit.startswith("record:") for row in rows)
    names = ("cloud",) if towards == "cloud" else ("edge:0", "edge:1")
    reached = max(row.epsilon for row in rows if row.observer in names)
    assert 2.0 * (1 - 1e-3) <= reached <= 2.0
    assert record.noise.device.max() < 0.6 * device.noise.device.max()


def test_claims_of_h2fdp_stand_at_both_units(h2fdp):
    spec = h2fdp.spec.model_copy(update={"privacy": h2fdp.spec.privacy.model_copy(update={"unit": "both"})})
    claims = {(claim.unit, claim.observer): claim for claim in sf.account(spec).claims}
    assert claims["record:0", "cloud"].rigorous_epsilon == pytest.approx(0.4948, abs=1e-4)
    assert claims["record:0", "cloud"].holds
    assert not claims["record:0", "edge:0"].holds
    assert "rate q of one local step" in claims["record:0", "edge:0"].why
    assert claims["device:0", "cloud"].rigorous_epsilon == pytest.approx(15.23, abs=0.006)
    shuffled = sf.account(sf.load_spec("h2fdp-fmnist", ["privacy.unit=record", "training.rounds=5"]))
    assert {claim.unit.partition(":")[0] for claim in shuffled.claims} == {"record"}
    assert all("shuffled" in claim.why for claim in shuffled.claims if not claim.holds)


def test_rows_of_a_report_carry_their_unit(h2fdp):
    spec = h2fdp.spec.model_copy(update={"privacy": h2fdp.spec.privacy.model_copy(update={"unit": "both"})})
    rows = sf.account(spec, observer="cloud").to_dict()["guarantees"]
    units = [row["unit"] for row in rows]
    assert units == sorted(units, key=lambda unit: unit.startswith("record:"))
    half = len(units) // 2
    assert [unit.removeprefix("device:") for unit in units[:half]] == [
        unit.removeprefix("record:") for unit in units[half:]
    ]
    kinds = {row["unit"].partition(":")[0]: row["neighbours"] for row in rows}
    assert kinds == {"device": "zero-out", "record": "zero-out"}


@pytest.mark.parametrize(("kind", "messages"), [("dp-ogl", 20), ("dp-ogl-local", 7)])
def test_noise_at_steps_is_charged_in_every_group_of_a_worker(kind, messages):
    """Two local steps a round in each group; an interval of three rounds that has begun counts whole."""
    changes = (f"protocol={kind}", "training.rounds=20", "training.merge_every=3", *SMALL[1:])
    declared = plan_of(RING, *changes).releases
    steps = 2 if kind == "dp-ogl" else 6
    batches = BatchFacts(np.full(100, 0.05), ((1.0,) * steps,), step_multiplier=0.9)
    declared = replace(declared, batches=batches)
    for unit, groups in ((1, 1), (0, 2)):
        (part,) = declared.record_releases(unit, (Party("device", 0, 50),))
        assert part.count == groups * messages * steps
        term = part.term(0.05, "zero-out")
        wanted = GaussianTerm(0.9, part.count, Sampling.poisson(0.05))
        found, same = (compose([one], neighbours="zero-out").epsilon(DELTA) for one in (term, wanted))
        assert found == pytest.approx(same, rel=1e-5)


HOSPITAL = (
    *SMALL, POISSON, "topology={kind: star, devices: 1}", "training.batch_size=5",
    "training.local_epochs=null", "training.participation=all", "trust.cloud=false",
    "privacy.clip={kind: example, norm: 1.0}",
)  # fmt: skip


def dp_sgd(rate, multiplier, steps):
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    return accountant.compose(event, steps).get_epsilon(DELTA)


@pytest.mark.parametrize("at", ["message", "step"])
def test_one_hospital_has_the_figure_of_dp_sgd(at):
    """Examples clipped: one step a message with noise on messages, or noise at every one of four steps."""
    steps = 1 if at == "message" else 4
    changes = (f"training.local_steps={steps}", f"privacy.noise={{multiplier: 0.9, at: {at}}}")
    plan = plan_of("dp-fedavg", "protocol=pedpfl", *HOSPITAL, *changes)
    row = pair_guarantee(plan, "record:0", "cloud", delta=DELTA)
    assert row.epsilon == pytest.approx(dp_sgd(0.05, 0.9, 20 * steps), rel=1e-3)
    assert row.releases == 20 * steps
    assert epsilon(plan, "device:0", "cloud") == math.inf


def test_a_record_towards_who_is_trusted_is_said_to_be_so():
    """It is not for want of a bound, as it is for the device."""
    star = (*HOSPITAL, "topology={kind: star, devices: 5}", "training.local_steps=1", "trust.cloud=true")
    plan = plan_of("dp-fedavg", *star, "privacy.noise={multiplier: 0.9}")
    whys = {unit: pair_guarantee(plan, unit, "cloud", delta=DELTA).why for unit in ("record:0", "device:0")}
    assert "cloud is trusted with raw updates" in whys["record:0"]
    assert "without a bound" in whys["device:0"]


def test_several_hospitals_share_their_noise_towards_who_sees_only_the_sum():
    star = (*HOSPITAL, "topology={kind: star, devices: 5}", "training.local_steps=1")
    plan = plan_of("dp-fedavg", "protocol=pedpfl", *star, "privacy.noise={multiplier: 0.9}")
    assert epsilon(plan, "record:0", "public") == pytest.approx(
        dp_sgd(0.05, 0.9 * math.sqrt(5), 20), rel=1e-3
    )
    assert epsilon(plan, "record:0", "cloud") == pytest.approx(dp_sgd(0.05, 0.9, 20), rel=1e-3)


def test_a_target_is_met_for_clipped_examples():
    star = (*HOSPITAL, "topology={kind: star, devices: 5}", "training.local_steps=1", "privacy.unit=record")
    plan = plan_of("dp-fedavg", "protocol=pedpfl", *star, "privacy.noise={epsilon: 3, for: cloud}")
    assert 2.999 < epsilon(plan, "record:0", "cloud") <= 3
    with pytest.raises(SpecError, match="is trusted with raw updates"):
        plan_of(
            "dp-fedavg",
            "protocol=dp-fedavg",
            *star,
            "privacy.noise={epsilon: 3, for: cloud}",
            "trust.cloud=true",
        )


def test_a_hidden_participation_draw_does_not_help_where_examples_are_clipped():
    """A device that is absent takes its whole message away, which nothing bounds."""
    star = (*HOSPITAL, "topology={kind: star, devices: 5}", "training.local_steps=1", "trust.cloud=true")
    star += ("privacy.noise={multiplier: 0.9}", "training.participation={kind: poisson, rate: 0.5}")
    plan = plan_of("dp-fedavg", "protocol=pedpfl", *star)
    (part,) = plan.releases.record_releases(0, parse_coalition("public", plan.parties))
    assert part.participation == 1


def test_a_round_that_is_sent_again_is_one_draw_in_which_the_other_examples_answer():
    """42 of 100 records of a device are in a step at the most, but for 1e-15: it moves by twice as many."""
    changes = (*SMALL, POISSON, "training.global_update=resend", "privacy.clip={kind: example, norm: 1.0}")
    plan = plan_of("quickstart", *changes, "privacy.noise={multiplier: 50.0}", "trust.trusted_edges=1.0")
    device = plan.releases.batches
    assert (device.answering, device.beyond) == (42, 1e-15)
    (part,) = plan.releases.record_releases(0, parse_coalition("cloud", plan.parties))
    assert part.moves == (42.0,) * sum(map(len, device.moves))
    assert 0 < epsilon(plan, "record:0", "cloud") < math.inf


def test_several_steps_with_clipped_examples_let_the_other_examples_answer():
    """Of 100 records 5 are expected in a step; 34 and more are in it with probability below 1e-15."""
    changes = (*HOSPITAL, "training.local_steps=2", "privacy.noise={multiplier: 0.9}")
    plan = plan_of("dp-fedavg", "protocol=pedpfl", *changes)
    assert (plan.releases.batches.answering, plan.releases.batches.beyond) == (34, 1e-15)
    assert stats.binom.sf(33, 99, 0.05) < 1e-15 < stats.binom.sf(28, 99, 0.05)
    assert plan.releases.batches.moves == (((1 + 68) / 4, 1 / 4),)
    assert plan.releases.batches.replaced_moves == (((2 + 68) / 4, 2 / 4),)
    assert epsilon(plan, "record:0", "cloud") > 10 * dp_sgd(0.05, 0.9, 40)
    (part,) = plan.releases.record_releases(0, parse_coalition("cloud", plan.parties))
    assert part.beyond == 2e-15
    charge = PairCharge.of(
        plan.releases,
        "record",
        0,
        parse_coalition("cloud", plan.parties),
        neighbours="zero-out",
    )
    assert charge.record.ways(charge.exposures[0])[0].failure_probability == pytest.approx(20 * 2e-15)


@pytest.mark.parametrize("answering", [8, 2])
def test_the_others_may_answer_with_whole_batches(answering):
    """Seven other records, rate 0.3, two steps: all turn round where the canary was in the first step.

    What that attains is integrated without the library. With all eight records charged it never exceeds what
    is reported; with the two that are expected in a step it does.
    """
    rate, others, std = 0.3, 7, 3.0
    weights = {k: float(stats.binom.pmf(k, others, rate)) for k in range(others + 1)}
    places = np.linspace(-150, 150, 60_001)
    here = there = 0.0
    for k, weight in weights.items():
        for again, chance in ((0, 1 - rate), (1, rate)):
            there += weight * (1 - rate) * chance * stats.norm.pdf(places, again - k, std)
            there += weight * rate * chance * stats.norm.pdf(places, 1 + again + k, std)
        here += weight * stats.norm.pdf(places, -k, std)
    batches = BatchFacts(
        np.array([rate]), ((((1 + 2 * answering) / 4), 1 / 4),), clips_examples=True, answering=answering
    )
    # the gain of two steps is 2: what one example alone moves by is 2, and its message's bound with it
    release = Release("step", "message", 2.0, 0.0, std**2, True)
    (part,) = releases_by_batches(DrawnReleases(Sampling(), (release,), 1), batches)
    exceeded = False
    for delta in (1e-2, 1e-3, 1e-4):
        reported = compose([part.term(rate, "zero-out")], neighbours="zero-out").epsilon(delta)
        attained = np.trapezoid(np.maximum(there - math.exp(reported) * here, 0), places)
        exceeded |= bool(attained > delta * (1 + 1e-6))
    assert exceeded == (answering == 2)


PAIR = (
    "topology={kind: groups, structure: list, devices: 7, groups: [[0, 1, 2, 3], [3, 4, 5, 6]]}",
    *SMALL[1:], POISSON, "training.rounds=6", "training.merge_every=3", "training.batch_size=5", "trust={}",
    "training.local_steps=1", "training.participation=all", "privacy.clip={kind: example, norm: 1.0}",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["dp-ogl", "dp-ogl-local"])
def test_noise_on_messages_of_groups_is_dp_sgd_where_nobody_answers(kind):
    """A worker of one group: every message is a step from a model that exposed releases determine."""
    plan = plan_of(RING, f"protocol={kind}", *PAIR, "privacy.noise={multiplier: 3.0}")
    found = epsilon(plan, "record:0", "device:1")
    if kind == "dp-ogl":
        assert found == pytest.approx(dp_sgd(0.05, 3.0, 6), rel=1e-3)
        assert epsilon(plan, "device:0", "device:1") == math.inf
    else:  # three steps a message
        assert found > 10 * dp_sgd(0.05, 3.0, 6)


def test_in_merging_steps_of_groups_the_other_examples_answer_to_a_hidden_model():
    """Device 3 alone links the groups: towards device 0, it starts from a model that nobody else told of.

    Of its six releases the second merging one is such; before the first merging all models are the same.
    """
    plan = plan_of(RING, "protocol=dp-ogl", *PAIR, "privacy.noise={multiplier: 200.0}")
    parts = plan.releases.record_releases(3, (Party("device", 0, 0),))
    sure = [part for part in parts if not part.moves]
    assert (sum(part.count for part in parts), sum(part.count for part in sure)) == (6, 1)
    assert [(part.largest_move, part.beyond) for part in sure] == [(34.0, 1e-15)]
    terms = [part.term(0.05, "zero-out") for part in sure]
    assert terms[0].multiplier == pytest.approx(200.0 / (2 * 34))


def test_noise_of_another_law_protects_no_record_in_groups():
    mechanism = "privacy.mechanism={kind: examples.extending.laplace_noise:laplace}"
    changes = (*PAIR, "privacy.clip.kind=update", mechanism, "privacy.noise={multiplier: 3.0}")
    plan = plan_of(RING, "protocol=dp-ogl", *changes)
    assert epsilon(plan, "record:0", "device:1") == math.inf


BITS = (
    "compression={kind: rand-k, ratio: 1.0, bits: 4}",
    "trust.trusted_edges=1.0",
    "privacy.noise={multiplier: 5.0}",
)


@pytest.mark.parametrize("clip", ["update", "step", "example"])
def test_what_a_device_rounds_before_anybody_noises_it_moves_as_a_whole(clip):
    """The grid has the length of the largest coordinate, so one gradient may turn all others up or down."""
    changes = (*SMALL, POISSON, f"privacy.clip={{kind: {clip}, norm: 1.0}}", *BITS)
    plan = plan_of("quickstart", *changes)
    parts = plan.releases.record_releases(0, parse_coalition("cloud", plan.parties))
    if clip == "example":
        row = pair_guarantee(plan, "record:0", "cloud", delta=DELTA)
        assert row.epsilon == math.inf
        assert "rounded before they are noised" in row.why
    else:
        assert all(set(part.moves) == {1.0} for part in parts)
    noised_first = plan_of("quickstart", *changes, "trust.trusted_edges=0.0")
    assert (
        noised_first.releases.record_releases(0, parse_coalition("cloud", plan.parties))[0].moves
        == (noised_first.releases.batches.moves[0])
    )


def test_rounding_to_few_bits_spreads_one_gradient_over_all_coordinates():
    """Why it moves as a whole: two messages that lie 1 apart are 20 apart once they are rounded."""
    vector = torch.full((1600,), 7.0)
    vector[0] = 70.0
    other = vector.clone()
    other[0] = 69.0
    one, two = (round_stochastically(v, 4, b"k" * 32) for v in (vector, other))
    assert float((vector - other).norm()) == 1.0
    assert float((one - two).norm()) > 5


def test_replaced_records_cost_more_than_zeroed_ones_and_less_than_two_of_them():
    """Noise at steps: the two worlds share the part in which the record is not drawn."""
    changes = (*HOSPITAL, "training.local_steps=4", "privacy.noise={multiplier: 0.9, at: step}")
    zero, other = (
        plan_of("dp-fedavg", "protocol=pedpfl", *changes, f"privacy.neighbours={relation}")
        for relation in ("zero-out", "replace")
    )
    found, replaced = (epsilon(plan, "record:0", "cloud") for plan in (zero, other))
    assert found < replaced < 4 * found


def test_a_run_follows_records_at_a_few_rounds(h2fdp):
    """A privacy loss distribution for every round would take longer than the training."""
    privacy = h2fdp.spec.privacy.model_copy(update={"unit": "record"})
    followed = replace(h2fdp, spec=h2fdp.spec.model_copy(update={"privacy": privacy}))
    assert len(rounds_to_account(h2fdp)) == 200
    assert len(rounds_to_account(followed)) == 20


UNEVEN = (
    "data={source: synthetic, examples_per_device: 40, partition: {kind: iid, size_sigma: 0.7}}", POISSON,
    "topology={kind: tree, edges: 3, devices_per_edge: 3}", "trust={trusted_edges: [0]}", "training.rounds=1",
    "training.batch_size=2", "training.local_steps=1", "training.edge_every=1", "privacy.unit=record",
    "privacy.noise={multiplier: 9.0}",
)  # fmt: skip


def test_a_row_is_that_of_the_worst_of_the_devices_it_stands_for():
    """Not at the rate of a device elsewhere, under an edge that is trusted."""
    report = sf.account(sf.load_spec("quickstart", list(UNEVEN)))
    plan, rates = report.plan, report.plan.releases.batches.rates
    assert rates[:3].max() != rates[3:].max()
    rows = [row for row in report.guarantees if row.observer == "cloud"]
    for row, first, last in zip(rows, (0, 3), (3, 9), strict=True):
        members = rates[first:last]
        assert (row.unit, row.stands_for) == (f"record:{first + members.argmax()}", last - first)
        worst, least = (
            epsilon(plan, f"record:{first + i}", "cloud") for i in (members.argmax(), members.argmin())
        )
        assert row.epsilon == worst > least
        assert row.to_dict()["epsilon_range"] == [least, worst]


def test_rows_of_one_record_have_the_rate_of_its_own_device():
    """Several observers are alike, but the record is the one that was asked for."""
    spec = sf.load_spec("quickstart", list(UNEVEN))
    rarest = int(np.argmin(resolve(spec).releases.batches.rates[3:])) + 3
    report = sf.account(spec, unit=f"record:{rarest}")
    (row,) = (row for row in report.guarantees if row.relation.words == "peer")
    assert row.stands_for > 1
    assert row.epsilon == epsilon(report.plan, row.unit, row.observer)
