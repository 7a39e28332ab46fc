"""Findings: each says what it should on one side of its threshold, and nothing on the other."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from sfumato import account, load_spec
from sfumato.findings.found import findings_after, findings_of_plan
from sfumato.findings.guessing import classes_of, warn_of_chance_accuracy, warn_of_one_label_accuracy
from sfumato.findings.large_epsilons import warn_of_large_epsilon
from sfumato.findings.training import warn_of_idle_clip, warn_of_odd_learning_rate, warn_of_odd_radio_power
from sfumato.findings.units import warn_of_large_delta
from sfumato.privacy.guarantee import EpsilonBound, Guarantee
from sfumato.privacy.observers import Relation
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import builtin_names


def row(epsilon: float, pairs: int = 1) -> Guarantee:
    bounds = {"flow": EpsilonBound(epsilon, 1, "gdp", "zero-out", "")}
    return Guarantee("device:0", "cloud", pairs, 1e-5, "flow", bounds, Relation("cloud", "cloud"), "")


def plan(*changes: str, source: str = "quickstart") -> Any:
    return resolve(load_spec(source, list(changes)))


def test_delta_of_one_over_the_devices_is_large() -> None:
    assert warn_of_large_delta(math.nextafter(1e-3, 0), 1000, "devices") is None
    assert "at least 1/n for n = 1,000 devices" in str(warn_of_large_delta(1e-3, 1000, "devices"))


TABLE = """name: visits
protocol: dp-fedavg
data: {{source: {folder}/visits.csv, label_column: ill, person_column: person, site_column: clinic}}
topology: {{kind: star, devices: 2, device_names: [north, south]}}
training: {{rounds: 2, local_steps: 1, batches: poisson, batch_size: 4, learning_rate: 0.1}}
privacy: {{unit: person, delta: 1e-5, clip: {{kind: example, norm: 1}}, noise: {{multiplier: 2}}}}
"""


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """A spec of 40 persons with three rows each, at two clinics."""
    rows = [f"p{row % 40},{('north', 'south')[row % 2]},{row % 7},{row // 3 % 2}" for row in range(120)]
    (tmp_path / "visits.csv").write_text("person,clinic,age,ill\n" + "\n".join(rows) + "\n")
    (tmp_path / "visits.yaml").write_text(TABLE.format(folder=tmp_path))
    return tmp_path / "visits.yaml"


def kinds(visits: Path, *changes: str, delta: float = 1e-5) -> dict[str, str]:
    found = findings_of_plan(resolve(load_spec(str(visits), list(changes))), delta)
    return {one.kind: one.text for one in found}


def test_delta_is_compared_with_the_units_that_are_protected(visits: Path) -> None:
    records = ["privacy.unit=record", "data.person_column=null"]
    assert "persons: a mechanism" in kinds(visits, delta=0.1)["delta"]
    assert "records: a mechanism" in kinds(visits, *records, delta=0.1)["delta"]
    persons = 1 / int(kinds(visits, delta=0.1)["delta"].split("n = ")[1].split()[0])
    assert 1 / 40 <= persons < 1 / 20  # those that are trained on
    assert "delta" in kinds(visits, delta=persons)
    assert "delta" not in kinds(visits, delta=math.nextafter(persons, 0))
    assert "delta" in kinds(visits, *records, delta=math.nextafter(persons, 0))  # there are more rows


def test_named_sites_need_a_column_that_says_whose_a_row_is(visits: Path) -> None:
    assert "sites" not in kinds(visits)
    assert "north, south" in kinds(visits, "data.site_column=null")["sites"]
    assert "sites" not in kinds(visits, "data.site_column=null", "topology.device_names=[]")


def test_a_record_as_the_unit_where_persons_have_several_rows(visits: Path) -> None:
    assert "persons" not in kinds(visits)
    record = ["privacy.unit=record", "data.person_column=null"]
    assert "several rows have the same person" in kinds(visits, *record)["persons"]
    table = visits.with_suffix(".csv")
    rows = table.read_text().splitlines()
    table.write_text("\n".join([rows[0], *(f"q{n}{row}" for n, row in enumerate(rows[1:]))]) + "\n")
    assert "persons" not in kinds(visits, *record)


def test_batches_of_everybody_lose_the_draw(visits: Path) -> None:
    assert "batches" not in kinds(visits)
    assert (
        "2 of 2 devices have no more persons than training.batch_size, 5,000"
        in (kinds(visits, "training.batch_size=5000")["batches"])
    )
    shuffled = ["privacy.unit=record", "data.person_column=null", "training.batches=shuffled"]
    shuffled += ["privacy.clip.kind=update", "training.batch_size=5000"]
    assert "batches" not in kinds(visits, *shuffled)
    assert "take a small share" in kinds(visits, "training.batch_size=5000")["batches"]


def test_no_share_is_taken_of_a_single_person(visits: Path) -> None:
    table = visits.with_suffix(".csv")
    heading, *rows = table.read_text().splitlines()
    table.write_text("\n".join([heading, "only,north,1,0", *(row for row in rows if "south" in row)]) + "\n")
    said = kinds(visits, "training.batch_size=1", "data.test_fraction=0.05")["batches"]
    assert said.startswith("1 of 2 devices has no more persons than training.batch_size, 1:")
    assert said.endswith("leave devices of so few persons out, or put them together with others")


def test_epsilon_above_ten_is_large() -> None:
    assert warn_of_large_epsilon([row(10.0), row(math.inf)]) is None
    text = str(warn_of_large_epsilon([row(3.0, 50), row(45.44663, 25), row(11.0, 5), row(math.inf, 7)]))
    assert text.startswith(
        "ε is above 10 for 37 of 87 devices towards the cloud: at most 45.45 for 30 and ∞ for 7 "
        "(δ = 1e-5; for example device:0 towards cloud): at ε = 10 an observer"
    )
    assert str(warn_of_large_epsilon([row(45.0, 50)])).startswith(
        "ε is above 10 for all devices towards every observer"
    )
    for less in (replace(row(12.0, 6), kinds=2), replace(row(12.0, 6), least_epsilon=4.0)):
        assert "above 10 for up to 6 of 6 devices towards the cloud" in str(warn_of_large_epsilon([less]))
    own = replace(row(99.0, 80), observer="edge:1", relation=Relation.edge("edge"))
    some = str(warn_of_large_epsilon([own, row(3.0)]))
    assert "ε is above 10 for some devices towards their own edge, up to 99" in some
    assert "10 for 80 of 200 devices towards their own edge" in str(
        warn_of_large_epsilon([own, row(3.0)], "80 of 200")
    )
    assert "10 for 80 of 200 devices towards an edge that they are ever under" in str(
        warn_of_large_epsilon([own, row(3.0)], "80 of 200", moving=True)
    )
    mild = replace(own, bounds=row(3.0).bounds)  # of these 80 some have less
    assert "for up to 80 of 200 devices" in str(warn_of_large_epsilon([own, mild], "80 of 200"))
    none = replace(own, bounds=row(math.inf).bounds)  # ∞ without trust is above 10
    assert "10 for 80 of 200 devices towards their own edge, up to 99 where it is finite" in str(
        warn_of_large_epsilon([own, none, row(3.0)], "80 of 200")
    )
    raw = replace(none, trusted=True)
    assert "10 for 80 of 200 devices" in str(warn_of_large_epsilon([own, raw, row(3.0)], "80 of 200"))
    assert "for all devices towards every observer that they do not trust with raw updates, up to 99 " in str(
        warn_of_large_epsilon([own, raw], "80 of 200")
    )


def test_epsilon_above_ten_in_groups_is_of_workers_and_masters() -> None:
    """In groups an infinite ε counts as above 10, and edges are masters."""
    near = replace(row(math.inf, 2400), observer="device:2", relation=Relation("peer", "device in a group"))
    far = replace(row(1151.0, 96), observer="master:2", relation=Relation.edge("master", ", 2 groups away"))
    own = replace(row(math.inf, 96), observer="master:0", relation=Relation.edge("master"), trusted=True)
    every = str(warn_of_large_epsilon([near, far, own], device="worker"))
    assert every.startswith(
        "ε is above 10 for all workers towards every observer that they do not trust with raw updates, "
        "up to 1,151 where it is finite (δ"
    )
    some = str(warn_of_large_epsilon([near, far, own, row(3.0, 100)], device="worker"))
    assert some.startswith("ε is above 10 for some workers towards other masters, up to 1,151 (δ")


@pytest.mark.parametrize(
    ("changes", "many"),
    [
        ([], 80),
        (["trust.trusted_edges=0"], 200),
        (["topology.moves={trace: [[2, 0, 1], [3, 0, 2], [2, 121, 0]]}"], 81),
    ],
)
def test_devices_that_are_ever_under_an_untrusted_edge_are_counted(changes: list[str], many: int) -> None:
    """Edges 1 and 2 of the quickstart are not trusted; device 0 moves to these, and device 121 among the
    others.
    """
    found = plan(*changes)
    assert found.devices_at_untrusted_edges == many


def test_the_odds_that_the_sentence_states() -> None:
    assert 99.995 < 100 / (1 + math.exp(-10)) <= 99.996


@pytest.mark.parametrize(
    ("rate", "says"),
    [
        ("0.5", None),
        ("10", None),
        ("10.1", "up to 10.1: above 10"),
        ("{kind: cosine, initial: 1e-3, final: 11}", "above 10"),
        ("1e-6", "at most 1e-6 over 300 local steps: together less than 0.001"),
        ("4e-6", None),
    ],
)
def test_learning_rates_outside_all_sense(rate: str, says: str | None) -> None:
    found = warn_of_odd_learning_rate(plan(f"training.learning_rate={rate}"))
    assert (found is None) if says is None else says in str(found)


def test_only_known_data_sets_are_said_to_be_standardised(tmp_path) -> None:
    rows = "age,label\n" + "".join(f"{20 + k},{k % 2}\n" for k in range(40))
    (tmp_path / "ages.csv").write_text(rows)
    steep = "training.learning_rate=11"
    assert "inputs are standardised" in str(warn_of_odd_learning_rate(plan(steep, "data.source=digits")))
    of_file = f"data={{source: {tmp_path}/ages.csv, label_column: label}}"
    found = str(
        warn_of_odd_learning_rate(
            plan(steep, of_file, "model={kind: softmax}", "topology.devices_per_edge=1")
        )
    )
    assert "standardised" not in found
    assert "those of a file are used as they are" in found


@pytest.mark.parametrize(
    ("radio", "says"),
    [
        ("{preset: h2fdp}", None),
        ("{preset: h2fdp, power_dbm: 60}", None),
        ("{preset: h2fdp, power_dbm: 61}", "radio.power_dbm is 61 dBm"),
        ("{preset: h2fdp, broadcast_power_dbm: -31}", "radio.broadcast_power_dbm is -31 dBm"),
        ("{preset: pfels}", None),
        ("{preset: pfels, snr_db: [2, 91]}", "radio.snr_db is 2 to 91 dB"),
    ],
)
def test_radio_powers_outside_all_sense(radio: str, says: str | None) -> None:
    found = warn_of_odd_radio_power(plan(f"radio={radio}"))
    assert (found is None) if says is None else says in str(found)


def test_a_clip_that_never_or_always_acts() -> None:
    assert warn_of_idle_clip([math.nan, math.nan]) is None
    assert warn_of_idle_clip([0.0, 0.4, 1.0]) is None
    assert "never acted" in str(warn_of_idle_clip([0.0, math.nan, 0.0]))
    assert "at least 99 % of the messages: " in str(warn_of_idle_clip([1.0, 0.995]))
    assert str(warn_of_idle_clip([math.nan, 1.0])).startswith("in every round that uses the clip it acted on")
    assert "at least 99 % of the gradients of local steps: " in str(warn_of_idle_clip([1.0, 0.995], "step"))
    assert warn_of_idle_clip([1.0, 0.995], "example") is None  # usual: it asks for nothing
    assert "no gradient of an example was as long" in str(warn_of_idle_clip([0.0], "example"))
    assert warn_of_idle_clip([1.0, 0.98]) is None


def test_steps_overshoot_near_the_optimum_only_where_something_was_learned() -> None:
    def kinds(accuracy: float, clip_kind: str = "step") -> list[str]:
        found = findings_after("digits", [1.0, 1.0], accuracy, adds_noise=True, clip_kind=clip_kind)
        return [finding.kind for finding in found]

    assert kinds(0.9) == ["clip"]
    assert kinds(0.067) == ["accuracy"]  # below guessing: noise hides everything
    assert kinds(0.067, "update") == ["clip", "accuracy"]
    assert "never acted" in str(warn_of_idle_clip([0.0], "step", learned=False))
    assert findings_after("digits", [0.0], 0.9, adds_noise=False) == ()
    assert [one.kind for one in findings_after("digits", [0.0], 0.9, adds_noise=True)] == ["clip"]


def test_accuracy_at_chance() -> None:
    assert warn_of_chance_accuracy(0.121, 10) is None
    for accuracy, above in ((0.12, "hardly"), (0.101, "hardly"), (0.1, "not"), (0.09, "not")):
        said = f"is {above} above that of guessing among 10 classes (10.0 %)"
        assert said in str(warn_of_chance_accuracy(accuracy, 10))
    assert warn_of_chance_accuracy(math.nan, 10) is None
    assert warn_of_chance_accuracy(0.01, None) is None
    assert [classes_of(source) for source in ("digits", "cifar100", "synthetic", "mine:data")] == [
        10,
        100,
        10,
        None,
    ]


def test_an_accuracy_that_is_not_above_that_of_one_label() -> None:
    labels = {"benign": 26, "malignant": 20}
    assert warn_of_one_label_accuracy(27 / 46, labels) is None
    assert warn_of_one_label_accuracy(math.nan, labels) is None
    alike = str(warn_of_one_label_accuracy(26 / 46, labels))
    assert "the accuracy, 56.5 %, is not above that of guessing the most frequent class, 56.5 %" in alike
    assert "just that of a model that always says benign" in alike
    assert "always says malignant" in str(warn_of_one_label_accuracy(20 / 46, labels))
    assert "always says" not in str(warn_of_one_label_accuracy(22 / 46, labels))
    (found,) = findings_after("mine.csv", [], 20 / 46, adds_noise=True, test_labels=labels)
    assert found.kind == "accuracy"
    assert findings_after("mine.csv", [], 27 / 46, adds_noise=True, test_labels=labels) == ()
    assert findings_after("mine.csv", [], 20 / 46, adds_noise=True) == ()  # of an earlier version


def test_an_accuracy_of_guessing_does_not_say_that_other_measures_show_nothing() -> None:
    labels = {"benign": 26, "malignant": 20}
    (found,) = findings_after("mine.csv", [], 0.5, adds_noise=False, test_labels=labels, auc=0.598)
    assert found.text.endswith(": by this measure nothing was learned; AUC is 0.598, where guessing has 0.5")
    (found,) = findings_after("digits", [], 0.1, adds_noise=True)
    assert found.text.endswith("(10.0 %): by this measure nothing was learned")


def test_an_account_lists_its_findings() -> None:
    report = account(load_spec("quickstart", ["privacy.delta=0.01", "training.learning_rate=20"]))
    listed = report.to_dict()["findings"]
    assert [finding["kind"] for finding in listed] == ["delta", "learning-rate", "epsilon"]
    assert [finding["text"] for finding in listed] == [finding.text for finding in report.findings]


def test_built_in_specs_raise_no_finding_before_their_epsilon_is_known() -> None:
    for name in builtin_names():
        spec = load_spec(name)
        assert findings_of_plan(resolve(spec), spec.privacy.delta) == ()


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_features_of_every_table_need_a_range(ending: str, tmp_path: Path) -> None:
    rows = pa.table({"age": [30.0 + n for n in range(40)], "label": [n % 2 for n in range(40)]})
    path = tmp_path / f"rows.{ending}"
    match ending:
        case "csv":
            csv.write_csv(rows, path)
        case "parquet":
            parquet.write_table(rows, path)
        case _:
            with pa.ipc.new_file(path, rows.schema) as file:
                file.write_table(rows)
    spec = load_spec(
        {
            "name": "rows",
            "protocol": "dp-fedavg",
            "data": {"source": str(path)},
            "topology": {"kind": "star", "devices": 2},
            "training": {"rounds": 5, "local_steps": 1, "batch_size": 5, "learning_rate": 0.1},
            "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
        }
    )
    assert "unscaled" in [finding.kind for finding in findings_of_plan(resolve(spec), 1e-5)]


@pytest.mark.parametrize(
    ("moves", "says"),
    [
        ("[[2, 0, 1], [5, 60, 3]]", None),
        ("[[2, 0, 1], [3, 0, 0]]", None),
        (
            "[[2, 100, 2]]",
            "the move of device 100 to edge 2 in round 2 (topology.moves) changes nothing, as it is there "
            "already",
        ),
        (
            "[[2, 0, 1], [3, 0, 1], [4, 60, 1]]",
            "the move of device 0 to edge 1 in round 3 (topology.moves) changes nothing, as it is there "
            "already; 1 more are alike",
        ),
    ],
)
def test_a_move_to_the_edge_that_a_device_is_under(moves: str, says: str | None) -> None:
    found = findings_of_plan(plan(f"topology.moves={{trace: {moves}}}"), 1e-5)
    assert [one.text for one in found if one.kind == "moves"] == ([] if says is None else [says])


def test_drawn_moves_have_no_finding() -> None:
    drawn = plan("topology.moves={rate: 0.02}", "training.rounds=3")
    assert [one for one in findings_of_plan(drawn, 1e-5) if one.kind == "moves"] == []
