"""What changes, clicks and plans make of a setting, without a browser."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explore_specs import GROUPS, STAR, TREE, edited

import sfumato as sf
from sfumato.explore.accounted_setting import account_setting
from sfumato.explore.callbacks import cause_of
from sfumato.explore.controls import STEPS, controls_of
from sfumato.explore.edits import (
    COALITION,
    TRUST,
    UNIT,
    choices_of,
    with_choices,
    with_click,
    with_planned_noise,
)
from sfumato.explore.trust import trusted_names


@pytest.mark.parametrize(
    ("document", "overrides", "names"),
    [
        (TREE, (), {"noise", "edges", "devices", "rounds", "batch"}),
        (TREE, ("privacy.noise=none",), {"edges", "devices", "rounds", "batch"}),
        (TREE, ("protocol=hfl",), {"edges", "devices", "rounds", "batch"}),
        (TREE, ("training.batch_size=all",), {"noise", "edges", "devices", "rounds"}),
        (
            TREE,
            ("training.participation={rate: 0.5}",),
            {"noise", "edges", "devices", "rounds", "batch", "rate"},
        ),
        (STAR, (), {"noise", "devices", "rounds", "batch", "count"}),
        (GROUPS, ("privacy.noise.multiplier=[1, 2]",), {"rounds", "batch"}),
        (GROUPS, ("training.participation={rate: [0.5, 0.6]}",), {"noise", "rounds", "batch"}),
    ],
)
def test_a_control_for_every_number_that_the_protocol_uses(document, overrides, names):
    assert set(controls_of(edited(document, *overrides).spec())) == names


def test_a_slider_goes_from_end_to_end():
    for control in controls_of(edited(STAR).spec()).values():
        assert control.at(0) == control.low
        assert control.at(STEPS) == pytest.approx(control.high)
        value = control.at(control.position)
        assert value == pytest.approx(control.value, rel=0.01), control.name


def test_without_a_change_the_setting_stays():
    setting = edited(TREE)
    assert with_choices(setting, choices_of(setting)).setting == setting


def test_all_changes_arrive_at_once():
    setting = edited(TREE)
    choices = choices_of(setting)
    numbers = {**choices.numbers, "rounds": 5, "noise": 2.5}
    found = with_choices(setting, replace(choices, numbers=numbers, trusted=("cloud", "edge:2")))
    assert found.problem == ""
    accounted = account_setting(found.setting)
    assert accounted.spec.training.rounds == 5
    assert accounted.spec.privacy.noise.epsilon == 2.5
    assert trusted_names(accounted) == {"cloud", "edge:2"}


def test_a_slider_wins_over_the_number_beside_it():
    setting = edited(TREE)
    found = with_choices(setting, choices_of(setting), ("rounds", STEPS))
    assert found.setting.spec().training.rounds == 100


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("rounds", 0, "Rounds: got 0; must be a whole number"),
        ("rounds", 2.5, "Rounds: got 2.5; must be a whole number"),
        ("noise", -1, "ε target towards the cloud: got -1"),
        ("batch", None, "Examples in a batch: is empty or no number"),
    ],
)
def test_what_is_wrong_is_said_as_in_python_with_the_key_alone(name, value, said, capsys):
    setting = edited(TREE)
    choices = choices_of(setting)
    found = with_choices(setting, replace(choices, numbers={**choices.numbers, name: value}))
    assert said in found.problem
    assert found.done == ""
    assert found.setting == setting
    if value is not None:
        with pytest.raises(sf.SpecError) as refused:
            sf.load_spec(TREE, [f"{controls_of(setting.spec())[name].key}={value}"])
        assert str(refused.value).partition(": got")[2] == found.problem.partition(": got")[2]


def test_what_only_the_network_refuses_is_said_too():
    setting = edited(STAR)
    choices = choices_of(setting)
    found = with_choices(setting, replace(choices, numbers={**choices.numbers, "count": 21}))
    assert "must be at most 20" in found.problem


def test_data_and_placement_are_chosen_from_lists():
    document = TREE | {
        "protocol": "hdp",
        "privacy": {
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"multiplier": 1.1, "placement": {"device": 1.0}},
        },
        "trust": {},
        "training": {"rounds": 3, "local_epochs": 1, "batch_size": 8, "learning_rate": 0.1},
        "transport": {"devices_to_edge": "secure-aggregation"},
    }
    setting = edited(document)
    choices = choices_of(setting)
    assert choices.picked == {"placement": "every device", "data": "digits"}
    picked = {"placement": "the cloud", "data": "mnist"}
    found = with_choices(setting, replace(choices, picked=picked))
    assert found.problem == ""
    assert found.setting.changes["privacy.noise.placement"] == {"cloud": True}
    assert choices_of(found.setting).picked == picked
    wrong = with_choices(setting, replace(choices, picked={"data": "none such"}))
    assert "Data: got 'none such'; must be one of digits," in wrong.problem
    assert wrong.setting == setting
    assert choices_of(edited(TREE)).picked == {"data": "digits"}


def test_the_size_of_the_network_is_changed():
    setting = edited(TREE)
    choices = choices_of(setting)
    found = with_choices(setting, replace(choices, numbers={**choices.numbers, "edges": 5, "devices": 2}))
    assert found.problem == ""
    assert account_setting(found.setting).report.plan.parties.device_count == 10


def test_another_kind_of_participation():
    setting = edited(STAR)
    found = with_choices(setting, replace(choices_of(setting), participation="all"))
    assert found.setting.spec().training.participation.kind == "all"
    back = with_choices(found.setting, replace(choices_of(found.setting), participation="fixed"))
    devices = account_setting(setting).report.plan.parties.device_count
    assert back.setting.spec().training.participation.count == devices // 2


def test_a_fixed_number_is_half_of_the_smallest_edge_or_group():
    uneven = edited(TREE, "topology={kind: tree, sites: [{name: a, devices: 9}, {name: b, devices: 4}]}")
    assert account_setting(uneven).smallest_place == 4
    found = with_choices(uneven, replace(choices_of(uneven), participation="fixed"))
    assert found.problem == ""
    assert found.setting.spec().training.participation.count == 2


def test_clicks_trust_join_and_choose():
    setting = edited(TREE)
    choices = choices_of(setting)
    assert (choices.unit, choices.coalition) == ("device:0", "cloud")
    assert trusted_names(account_setting(with_click(setting, choices, "edge:1", TRUST).setting)) == {
        "edge:0",
        "edge:1",
    }
    joined = with_click(setting, choices, "device:3", COALITION)
    assert joined.choices.members == ("cloud", "device:3")
    assert with_click(setting, joined.choices, "cloud", COALITION).choices.coalition == "device:3"
    assert with_click(setting, choices, "device:9", UNIT).choices.unit == "device:9"
    record = replace(choices, unit="record:0")
    assert with_click(setting, record, "device:9", UNIT).choices.unit == "record:9"
    assert "is an aggregator" in with_click(setting, choices, "edge:0", UNIT).problem
    assert "is a device" in with_click(setting, choices, "device:0", TRUST).problem


def test_groups_begin_with_an_observer_that_is_there():
    assert choices_of(edited(GROUPS)).coalition.startswith("master:")


@pytest.mark.needs("plan")
def test_a_plan_meets_its_targets():
    setting = edited(TREE)
    found = with_planned_noise(setting, "cloud=2; own-edge=6")
    assert found.problem == ""
    assert "To get its figures in a terminal, download it." in found.done
    assert "is trusted with the raw updates of 4 devices: own-edge=6 does not apply to them." in found.done
    assert found.done.startswith(
        "Planned: the least noise that keeps ε = 2 towards the cloud and ε = 6 towards "
    )
    accounted = account_setting(found.setting)
    assert accounted.report.epsilon(0, "cloud") <= 2
    assert accounted.report.epsilon(5, "edge:1") <= 6
    assert accounted.spec.name == "small-plan"
    assert found.setting.command() == ""
    assert accounted.spec == sf.plan(setting.spec(), {"cloud": 2, "own-edge": 6}).spec.model_copy(
        update={"name": "small-plan", "versions": {}, "hashes": accounted.spec.hashes}
    )


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ("cloud", "targets: got 'cloud'; must be OBSERVER=EPSILON"),
        ("cloud=2 cloud=3", "each observer once"),
        ("nobody=2", "nobody"),
        ("", "needs ε towards at least one observer"),
    ],
)
@pytest.mark.needs("plan")
def test_targets_that_are_wrong_change_nothing(targets, said):
    setting = edited(TREE)
    found = with_planned_noise(setting, targets)
    assert said in found.problem
    assert found.setting == setting


@pytest.mark.parametrize(
    ("triggered", "cause"),
    [
        ([], ""),
        (["rounds-number"], "rounds-number"),
        (["rounds-number", "network"], "network"),
        (["rounds-number", "noise-slider"], "noise-slider"),
        (["trusted", "network", "reset"], "reset"),
    ],
)
def test_of_events_that_come_together_none_is_lost(triggered, cause):
    assert cause_of(triggered) == cause
