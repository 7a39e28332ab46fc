"""Participation and the length of rounds, where energy or delay is to be small."""

import math

import pytest
from places import EXAMPLES

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.planning.cost_search import candidates_of
from sfumato.planning.costs import training_cost
from sfumato.schedule.resolve import resolve

pytestmark = pytest.mark.needs("plan")

SMALL = ["topology.edges=2", "topology.devices_per_edge=4", "data.partition=iid"]


def tree(*overrides):
    return sf.load_spec("quickstart", [*SMALL, "privacy.noise={multiplier: 1}", *overrides])


def star(*overrides):
    """An untrusted cloud that sees who is drawn, so that nothing takes long to compose."""
    changes = ["trust.cloud=false", "topology.devices=8", "data={source: digits, partition: iid}"]
    changes += ["model=softmax", "training.participation=all", "training.local_epochs=null"]
    return sf.load_spec("dp-fedavg", [*changes, "training.local_steps=8", "training.rounds=4", *overrides])


def test_the_grid_keeps_the_work_and_the_aggregations():
    spec = tree("training.rounds=6", "training.steps_per_round=8", "training.edge_every=4")
    own = resolve(spec)
    grid = list(candidates_of(spec, own))
    assert {(c.local_steps, c.participation) for c in grid} == {
        (s, p) for s in (4, 8, 16) for p in ("1", "2", "3", "all")
    }
    for choice in grid:
        plan = resolve(choice.spec)
        assert plan.spec.training.rounds * choice.local_steps == 48
        assert len(plan.aggregations) == len(own.aggregations)
    assert any(choice.spec.training == own.spec.training for choice in grid)


def test_lengths_that_are_no_whole_numbers_are_left_out():
    spec = tree("training.rounds=5", "training.steps_per_round=6", "training.edge_every=3")
    assert {choice.local_steps for choice in candidates_of(spec, resolve(spec))} == {6}


@pytest.mark.parametrize(
    ("participation", "shares"),
    [
        (
            "{kind: poisson, rate: 0.6}",
            {"0.15 (rate)", "0.3 (rate)", "0.45 (rate)", "0.6 (rate)", "0.9 (rate)"},
        ),
        ("{kind: fixed, count: 2}", {"1", "2", "3", "4"}),
    ],
)
def test_participations_go_from_a_quarter_to_twice(participation, shares):
    spec = tree(f"training.participation={participation}", "training.rounds=5", "training.steps_per_round=20")
    found = {c.participation for c in candidates_of(spec, resolve(spec))}
    assert found == shares


@pytest.mark.parametrize("minimize", ["energy", "delay"])
def test_the_cheapest_point_below_the_noise_allowed_is_chosen(minimize):
    spec = star()
    planned = sf.plan(spec, {"cloud": 4.0}, minimize=minimize)
    (chosen,) = (option for option in planned.options if option.chosen)
    price = {"energy": lambda o: o.cost.energy_j, "delay": lambda o: o.cost.delay_s}[minimize]
    assert chosen.allowed
    assert price(chosen) == min(price(option) for option in planned.options if option.allowed)
    here = next(o for o in planned.options if (o.local_steps, o.participation) == (8, "all"))
    assert here.allowed
    for option in planned.options:
        assert option.allowed == (option.relative_noise <= 1.01 * here.relative_noise)
    assert planned.noise == pytest.approx(chosen.noise, rel=1e-5)
    assert planned.spec.training.local_steps == chosen.local_steps
    assert sf.account(planned.spec).epsilon(0, "cloud") == pytest.approx(4.0, rel=1e-3)
    assert training_cost(planned.plan) == chosen.cost


def test_a_noise_target_decides_instead():
    spec = star("training.local_steps=null", "training.local_epochs=1")
    free = sf.plan(spec, {"cloud": 4.0, "noise": 1e9}, minimize="energy")
    (chosen,) = (option for option in free.options if option.chosen)
    assert all(option.allowed for option in free.options)
    assert chosen.cost.energy_j == min(option.cost.energy_j for option in free.options)
    noise = min(option.noise for option in free.options)
    with pytest.raises(SpecError, match="conflicts with noise="):
        sf.plan(spec, {"cloud": 4.0, "noise": noise / 2}, minimize="energy")


@pytest.mark.usefixtures("no_report")
def test_costs_are_what_a_run_meters(tmp_path):
    spec = tree("training.rounds=3", "training.participation={kind: fixed, count: 2}")
    run = sf.run(spec, out=tmp_path / "run")
    cost = training_cost(resolve(spec))
    assert cost.energy_j == pytest.approx(run.metrics["energy_j"].sum(), rel=1e-9)
    assert cost.delay_s == pytest.approx(run.metrics["delay_s"].sum(), rel=1e-9)
    assert math.isfinite(cost.energy_j)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.kind='my.nets:make'", "its size is known only in a run"),
    ],
)
def test_costs_that_are_not_known(override, said):
    with pytest.raises(SpecError, match=said):
        sf.plan(tree(override), {"cloud": 2.0}, minimize="energy")


def test_energy_over_the_air_depends_on_the_messages():
    spec = sf.load_spec(EXAMPLES / "pfels" / "pfels.yaml")
    with pytest.raises(SpecError, match="over the air energy depends on the messages"):
        sf.plan(spec, {"public": 8.0}, minimize="energy")


def test_secure_aggregation_is_priced_with_all_its_frames():
    plain, secure = (
        sf.plan(tree(f"transport.devices_to_edge={hop}"), {"public": 40.0}, minimize="energy")
        for hop in ("plain", "secure-aggregation")
    )
    most = [max(option.cost.energy_j for option in planned.options) for planned in (plain, secure)]
    assert most[0] < most[1] < 3 * most[0]
