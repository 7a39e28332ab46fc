"""What the page shows of a setting is what `account` says."""

from __future__ import annotations

import json
import math
import shlex

import pytest
from explore_specs import GROUPS, SITES, STAR, TREE, edited
from places import EXAMPLES

import sfumato as sf
from sfumato.cli import main
from sfumato.errors import SpecError
from sfumato.explore import compared, trust, words
from sfumato.explore.accounted_setting import account_setting
from sfumato.explore.edited_spec import EditedSpec
from sfumato.explore.figures import heatmaps, network_figure
from sfumato.report import formatting as text
from sfumato.report.figures.figure import EPSILON_ENDS
from sfumato.report.page.tiles import epsilon_tiles
from sfumato.rounding import upper_bound

DEEP = sf.load_spec("three-tier").model_dump(mode="json", by_alias=True, exclude_none=True)


@pytest.mark.parametrize("document", [TREE, GROUPS, SITES, STAR, DEEP], ids=lambda one: one["name"])
def test_every_cell_is_the_largest_that_account_says(document):
    setting = edited(document)
    rows = sf.account(sf.load_spec(document)).guarantees
    cells = account_setting(setting).matrix.cells.values()
    shown = sorted((g.unit, g.observer, g.epsilon) for c in cells for g in c.guarantees)
    assert shown == sorted((row.unit, row.observer, row.epsilon) for row in rows)
    assert all(cell.epsilon == max(g.epsilon for g in cell.guarantees) for cell in cells)


def test_the_heatmap_and_its_table_print_these_figures():
    accounted = account_setting(edited(TREE))
    heatmap, kept = heatmaps(accounted, None)
    assert heatmap is not None
    assert kept is None
    said = {t for trace in heatmap.data for row in trace["text"] for t in row} - {""}
    assert said == {text.epsilon(cell.epsilon) for cell in accounted.matrix.cells.values()}
    _, rows, caption = words.heatmap_as_table(accounted)
    assert {cell for row in rows for cell in row[1:]} - {"–"} == said
    assert "δ = 1e-5" in caption


def test_all_heatmaps_have_one_colour_scale():
    one, other = account_setting(edited(TREE)), account_setting(edited(TREE, "privacy.noise.epsilon=0.2"))
    both = [*heatmaps(one, other), *heatmaps(other, None)]
    drawn = [figure.data[0] for figure in both if figure is not None]
    assert len(drawn) == 3
    assert {(figure["zmin"], figure["zmax"]) for figure in drawn} == {EPSILON_ENDS}
    for figure in drawn:
        shades = [z for row in figure["z"] for z in row if z is not None]
        written = [float(said) for row in figure["text"] for said in row if said]
        assert shades == pytest.approx([min(2, max(-1, math.log10(one))) for one in written], abs=1e-3)


@pytest.mark.parametrize(
    ("document", "party"),
    [(TREE, "edge:1"), (TREE, "cloud"), (DEEP, "cabinet:3"), (GROUPS, "master:0"), (STAR, "cloud")],
)
def test_trust_turns_and_turns_back(document, party):
    setting = edited(document)
    before = account_setting(setting)
    there = trust.with_trust_toggled(setting, before, party)
    assert trust.trusted_names(account_setting(there)) == trust.trusted_names(before) ^ {party}
    back = trust.with_trust_toggled(there, account_setting(there), party)
    assert trust.trusted_names(account_setting(back)) == trust.trusted_names(before)
    assert account_setting(back).report.guarantees == before.report.guarantees


def test_a_drawn_share_of_trust_becomes_a_list_with_one_less():
    setting = edited(TREE, "trust.trusted_edges=0.67")
    drawn = trust.trusted_names(account_setting(setting))
    assert len(drawn) == 2
    party = min(drawn)
    after = trust.with_trust_toggled(setting, account_setting(setting), party)
    assert trust.trusted_names(account_setting(after)) == drawn - {party}


def test_a_site_that_the_topology_trusts_can_be_distrusted():
    setting = edited(SITES)
    accounted = account_setting(setting)
    assert trust.trusted_names(accounted) == {"edge:0"}
    assert trust.aggregators(accounted)[1].label == "north"
    after = account_setting(trust.with_trust_toggled(setting, accounted, "edge:0"))
    assert trust.trusted_names(after) == set()
    assert [site.name for site in after.spec.topology.sites] == ["north", "south"]
    assert after.report.epsilon(0, "edge:0") < float("inf")
    assert accounted.report.epsilon(0, "edge:0") == float("inf")


def test_groups_and_workers_are_called_by_their_names():
    names = {"group_names": ["north", "south"], "worker_names": ["bonn", "kiel", "ulm"]}
    accounted = account_setting(edited(GROUPS | {"topology": GROUPS["topology"] | names}))
    assert [one.label for one in trust.aggregators(accounted)] == ["north", "south"]
    said = words.answer_about_coalition(accounted, "bonn", "ulm,south")
    assert said.startswith("bonn towards ulm and south: ε = ")
    assert said.endswith(" noised messages depend on its data and are counted.")
    assert said == words.answer_about_coalition(accounted, "device:0", "device:2,master:1")
    assert all("master" not in row.parties for row in accounted.noise)
    figure = network_figure(accounted, unit="record:bonn", coalition=["ulm", "master:1"])
    assert figure is not None
    marks = {trace["name"]: len(trace["x"]) for trace in figure.data if trace["mode"] == "markers"}
    assert marks == {"coalition": 2, "protected unit": 1}


def test_a_draw_that_epsilon_rests_on_must_be_unseen():
    """A fixed number drawn without replacement makes ε smaller towards whoever does not see the draw."""
    unseen = "as long as nobody sees who or what is drawn"
    assert unseen not in words.what_tiles_show(account_setting(edited(TREE)))
    drawn = account_setting(edited(TREE, "training.participation={kind: fixed, count: 2}"))
    assert unseen in words.what_tiles_show(drawn)


def test_the_tiles_come_with_what_they_mean():
    accounted = account_setting(edited(TREE))
    said = words.what_epsilon_means(accounted)
    assert said.startswith("At ε = 8 an observer that starts at 50 : 50")
    assert said.endswith(". This is the ε towards the cloud.")
    bare = account_setting(edited(TREE, "privacy.noise=none"))
    assert words.what_epsilon_means(bare) == ""


def test_costs_are_of_all_rounds():
    accounted = account_setting(edited(TREE, "training.rounds=3"))
    assert [name for name, _ in words.cost_rows(accounted)] == [
        "Devices that send raw updates to a trusted edge",
        "Traffic up, all 3 rounds",
        "Traffic down, all 3 rounds",
    ]


def test_a_star_has_no_edges_to_trust():
    star = account_setting(EditedSpec.of(sf.load_spec("dp-fedavg", ["training.rounds=2"])))
    assert not any("edge" in name for name, _ in words.cost_rows(star))


def test_epsilon_of_the_worse_far_observer_is_explained():
    """Of a trusted cloud and the public: what is said is of the largest finite ε that the tiles show."""
    open_cloud = account_setting(edited(TREE, "trust={trusted_edges: [0], cloud: true}"))
    rows = [row for row in open_cloud.report.guarantees if row.epsilon < math.inf]
    cloud, most = (
        max(row.epsilon for row in rows if row.relation.kind in kinds)
        for kinds in (("cloud",), ("cloud", "public"))
    )
    assert cloud < most
    said = words.what_epsilon_means(open_cloud)
    assert said.startswith(f"At ε = {upper_bound(most)} an observer")
    assert said.endswith(". This is the ε towards the public.")


def test_a_party_that_is_not_there_is_refused():
    setting = edited(TREE)
    with pytest.raises(SpecError, match="is no aggregator of this network"):
        trust.with_trust_toggled(setting, account_setting(setting), "edge:7")


def test_where_trust_makes_no_difference_it_cannot_be_changed():
    setting = edited(TREE, "protocol=hfl-dp", "trust={}")
    assert "makes no difference" in trust.why_trust_is_fixed(account_setting(setting))
    with pytest.raises(SpecError, match="trusts nobody"):
        trust.with_trust_toggled(setting, account_setting(setting), "edge:0")
    moving = edited(TREE, "trust={from: {0: [0], 2: [1]}}")
    assert "over the rounds" in trust.why_trust_is_fixed(account_setting(moving))
    with pytest.raises(SpecError, match="over the rounds"):
        trust.with_trust_toggled(moving, account_setting(moving), "edge:0")


@pytest.mark.parametrize("document", [TREE, DEEP, GROUPS], ids=lambda one: one["name"])
def test_every_party_is_drawn_under_its_name(document):
    accounted = account_setting(edited(document))
    figure = network_figure(accounted, unit=accounted.default_unit, coalition=["device:1", "nobody"])
    assert figure is not None
    drawn = {name for trace in figure.data for name in trace.get("customdata", ())}
    devices = {f"device:{number}" for number in range(accounted.report.plan.parties.device_count)}
    assert drawn == {one.name for one in trust.aggregators(accounted)} | devices
    marks = {trace["name"]: len(trace["x"]) for trace in figure.data if trace["mode"] == "markers"}
    assert marks["coalition"] >= 1
    assert marks["protected unit"] >= 1


def test_the_command_prints_the_same_figures(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(sf.spec.dump_spec(sf.load_spec(TREE)))
    setting = trust.with_trust_toggled(edited(TREE), account_setting(edited(TREE)), "edge:2").with_change(
        "training.rounds", 5
    )
    words_of = shlex.split(setting.command())
    assert words_of[:3] == ["sfumato", "account", "small.yaml"]
    assert main([*words_of[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["guarantees"] == [
        row.to_dict() for row in account_setting(setting).report.guarantees
    ]


def test_the_yaml_is_the_setting():
    setting = edited(TREE).with_change("training.rounds", 7)
    assert sf.load_spec(sf.user_text.parse_yaml(setting.yaml(), "yaml")) == setting.spec()


def test_a_later_change_wins_over_earlier_ones_inside_of_it():
    setting = edited(STAR).with_change("training.participation.count", 3)
    setting = setting.with_change("training.participation", {"kind": "poisson", "rate": 0.25})
    assert list(setting.changes) == ["training.participation"]
    setting = setting.with_change("training.participation.rate", 0.5)
    assert setting.spec().training.participation.rate == 0.5
    assert EditedSpec.from_json(setting.to_json()) == setting
    assert setting.without_changes() == edited(STAR)


def test_coalitions_are_what_account_says_of_the_pair():
    accounted = account_setting(edited(TREE))
    row = sf.account(sf.load_spec(TREE), unit="device:5", observer="cloud,device:4,edge:1").guarantees[0]
    said = words.answer_about_coalition(accounted, " device:5", "cloud, device:4,edge:1 ")
    assert said.startswith(f"device 5 towards cloud, device 4 and edge 1: ε = {text.epsilon(row.epsilon)}.")
    assert row.epsilon > accounted.report.epsilon(5, "cloud")
    assert "it knows its own data" in words.answer_about_coalition(accounted, "device:5", "cloud,device:5")
    assert words.answer_about_coalition(accounted, "", "cloud") == "Name a unit and at least one observer."


def test_a_record_that_is_charged_like_a_replaced_device_says_so():
    accounted = account_setting(edited(TREE))
    whole, part = (accounted.pair(unit, "public") for unit in ("device:5", "record:5"))
    assert part.epsilon > whole.epsilon
    said = "as if all data of the device were replaced; so ε may be above that of the device."
    assert words.coalition_sentence(accounted, part).endswith(f"depend on its data and are counted, {said}")
    assert "replaced" not in words.coalition_sentence(accounted, whole)


def test_a_wrong_name_is_answered_by_the_field_and_all_that_may_stand_there():
    accounted = account_setting(edited(TREE))
    last = accounted.report.plan.parties.device_count - 1
    assert words.answer_about_coalition(accounted, "device:5", "cloud,edge:9") == (
        "Observers, joined by commas: got edge:9; must be edge:0 to edge:2 or cloud; also public and "
        f"device:0..{last}."
    )
    assert words.answer_about_coalition(accounted, "device:5", "device:999") == (
        f"Observers, joined by commas: got device:999; must be device:0 to device:{last}; also public and "
        "aggregators."
    )
    unit = words.answer_about_coalition(accounted, "device:999", "cloud")
    assert unit == f"Protected unit: got device:999; must be device:0 to device:{last}."


def test_costs_are_those_of_a_run(tmp_path, no_report):
    done = sf.run(sf.load_spec(TREE), out=tmp_path / "run")
    cost = account_setting(edited(TREE)).cost
    for name in ("energy_j", "delay_s", "bytes_up", "bytes_down"):
        assert getattr(cost, name) == pytest.approx(done.metrics[name].sum(), rel=1e-6), name


def test_costs_that_are_not_known_say_why():
    control = account_setting(EditedSpec.of(sf.load_spec(EXAMPLES / "h2fdp" / "control.yaml")))
    assert "in a run" in dict(words.cost_rows(control))["Costs"]


def test_energy_over_the_air_is_a_bound_in_a_unit_of_its_own():
    facts = dict(
        words.cost_rows(account_setting(EditedSpec.of(sf.load_spec(EXAMPLES / "pfels" / "pfels.yaml"))))
    )
    assert next(value for name, value in facts.items() if name.endswith("rounds, at most")).endswith(
        "× noise"
    )


def test_noise_is_listed_by_party():
    rows = {row.parties: row for row in account_setting(edited(TREE)).noise}
    assert set(rows) == {"edge 0", "every device under edges 1, 2"}
    assert all(row.where == "every aggregation" and row.multiplier > 0 for row in rows.values())
    (workers,) = account_setting(edited(GROUPS, "trust={trusted_aggregators: []}")).noise
    assert workers.parties == "every device under masters 0, 1"
    at_steps = [
        "training.batches=poisson",
        "privacy.clip={kind: example, norm: 1.0}",
        "privacy.noise={multiplier: 2.0, at: step}",
    ]
    (step,) = account_setting(edited(TREE, *at_steps)).noise
    assert (step.parties, step.where, step.multiplier) == ("every device", "every local step", 2.0)


def test_differences_are_said_in_words():
    kept = account_setting(edited(TREE))
    setting = edited(TREE).with_change("privacy.noise.epsilon", 4.0)
    now = account_setting(trust.with_trust_toggled(setting, account_setting(setting), "edge:0"))
    said = words.setting_differences(kept, now)
    assert "Trusted with raw updates: edge 0 before, nobody now." in said
    assert "Target ε: 8 before, 4 now." in said
    assert "The largest ε towards cloud falls from 8 to 4." in said
    assert "Devices that send raw updates to a trusted edge: 4 of 12 before, 0 of 12 now." in said
    assert words.setting_differences(kept, kept) == ["The settings are the same."]
    assert any("rises from 4 to 8" in one for one in words.setting_differences(now, kept))


def test_an_edge_that_is_no_longer_trusted_is_a_difference():
    """The largest ε towards an own edge may stay as it was, though it is that of more devices now."""
    kept = account_setting(setting := edited(TREE))
    now = account_setting(trust.with_trust_toggled(setting, kept, "edge:0"))
    own = text.epsilon(max(now.report.epsilon(device, "edge:0") for device in range(4)))
    pair = ("4 devices under edge 0", "own edge", "∞", own)
    assert pair in compared.differing_pairs(kept, now)
    assert f"4 devices under edge 0 towards own edge: ε = ∞ before, {own} now." in (
        words.setting_differences(kept, now)
    )
    for one in compared.differing_pairs(kept, now):  # both settings know every class
        assert compared.ABSENT not in (one.before, one.now)
    assert compared.differing_pairs(kept, kept) == []


def test_noise_that_is_stated_in_another_way_is_one_difference():
    kept = account_setting(edited(TREE))
    now = account_setting(edited(TREE, "privacy.noise={multiplier: 2.0}"))
    (said,) = words.changed_keys(kept.spec, now.spec)
    assert said == "How noise is stated: target before, multiplier now."


def test_a_cloud_that_becomes_trusted_still_has_pairs():
    """Devices under untrusted edges keep their noise: two tiles, and no word that there are no pairs."""
    kept = account_setting(edited(TREE))
    names = trust.trusted_names(kept) | {"cloud"}
    now = account_setting(trust.with_trusted(edited(TREE), kept, names))
    said = " ".join(words.setting_differences(kept, now))
    assert "has pairs towards" not in said
    assert "∞ now" in said
    tiles = {tile.name: tile.value for tile in epsilon_tiles(now.report.guarantees, now.network)}
    assert tiles["the cloud, of raw updates"] == "∞"
    assert "the cloud, of noised updates" in tiles


def test_the_summary_leaves_out_who_is_trusted():
    accounted = account_setting(edited(TREE))
    own = max(accounted.report.epsilon(device, "edge:1") for device in (4, 5))
    assert words.largest_epsilon_by_kind(accounted.matrix)["own edge"] == own < float("inf")
    tiles = epsilon_tiles(accounted.report.guarantees, accounted.network)
    assert ("its own edge, if not trusted", text.epsilon(own), "warn") in tiles
    assert ("its own edge, if trusted", "∞", "trusted") in tiles


def test_the_page_says_beside_the_boxes_whose_target_does_not_hold():
    trusting = account_setting(edited(TREE, "trust={trusted_edges: [0], cloud: true}"))
    said = words.whose_target_does_not_hold(trusting)
    assert said == "Cloud is trusted with the raw updates of 4 devices: no target holds for them."
    assert words.whose_target_does_not_hold(account_setting(edited(TREE))) == ""


def test_the_first_unit_shown_is_the_worst_protected_from_the_cloud():
    noise = "privacy.noise={multiplier: 2.0}"
    accounted = account_setting(edited(TREE, noise, "trust={trusted_edges: [2]}"))
    rows = [row for row in accounted.report.guarantees if row.observer == "cloud"]
    assert accounted.default_unit == max(rows, key=lambda row: row.epsilon).unit != rows[0].unit
