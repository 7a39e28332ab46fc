"""What a statement promises follows from the guarantees and the ledger: nothing more, and no secret told."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from statements import SPEC, made, played, words_of

import sfumato as sf
from sfumato.report.results.held import held_by
from sfumato.report.statement.assumptions import of_ciphers, of_draws, unchecked_as_assumed, without_folder
from sfumato.report.statement.page import _yardstick
from sfumato.report.statement.words import Promise, not_protected, rows_to_test_on
from sfumato.rounding import certainty, upper_bound
from sfumato.run_folder.recorded_privacy import AfterRun

GROUPS = Path(__file__).parents[1] / "spec" / "specs" / "ogl-ring.yaml"
POISSON = "{kind: poisson, rate: 0.5}"
RECORDS = SPEC | {
    "protocol": "dp-fedavg",
    "topology": {"kind": "star", "devices": 3},
    "trust": {"cloud": False},
    "training": {"rounds": 3, "local_steps": 1, "batches": "poisson", "batch_size": 5, "learning_rate": 1.0},
    "privacy": {"unit": "record", "clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 1.0}},
}  # fmt: skip

QUIET = "privacy.noise={multiplier: 4}"


def test_the_seed_is_not_told_and_no_hash_lets_it_be_tried():
    one, other = (played(sf.load_spec(SPEC | {"seed": seed})) for seed in (4871234567, 4881234567))
    for said in (words_of(one), json.dumps(one.to_dict()), json.dumps(one.to_dict(), indent=1)):
        assert "4871234567" not in said
    assert "it follows from the seed, which is in spec.yaml and not on this page" in words_of(one)
    assert one.hashes == other.hashes


@pytest.mark.parametrize(
    ("seed", "said"),
    [
        (0, "its seed is so small that others would guess it."),
        (2**32 - 1, "its seed is so small that others would guess it."),
        (2**32, "its seed, a number of at most 53 bits. Whoever finds it, in spec.yaml or by trying all,"),
    ],
)
def test_a_simulation_says_first_against_whom_its_figures_do_not_hold(seed, said):
    found = played(sf.load_spec(SPEC | {"seed": seed}))
    short = words_of(found).partition("In short")[2].partition("What each observer can learn")[0]
    assert short.strip().startswith("This was a simulation")
    assert said in short
    assert "none of the figures below holds for this run" in short
    assert "a training with these settings whose noise comes from a secret source" in short
    assert found.to_dict()["simulation"] == found.simulation
    assert "Its figures are not about the simulated run" in words_of(found).partition("Signature")[2]


@pytest.mark.parametrize("on", ["one machine", "machines of their own", ""])
def test_neither_a_plan_nor_parties_draw_their_noise_from_a_seed(on):
    plan, parties = made(sf.load_spec(SPEC)), played(sf.load_spec(SPEC), draws=("a chip",), on=on)
    for found in (plan, parties):
        assert found.simulation == ""
        assert "seed is so small" not in words_of(found)
        assert "What it takes on trust holds for the system that it describes." in words_of(found)


def test_no_hash_on_the_page_depends_on_the_data():
    """Whoever knows all other rows would hash what he guesses of the last one, and compare.

    The file of the model holds the hash of the data, and follows from them and from a seed.
    """
    plan = played(sf.load_spec(SPEC), draws=("a chip",), session="e" * 64)
    hashes = {"data.source": "a" * 64, "data.source/visits.csv": "a" * 64, "model.kind": "b" * 64}
    stated = replace(plan, spec={**plan.spec, "hashes": hashes})
    assert set(stated.hashes) == {"spec", "model.kind", "session"}
    assert "a" * 64 not in words_of(stated) + json.dumps(stated.to_dict())
    changed = replace(plan, spec={**plan.spec, "hashes": hashes | {"data.source": "d" * 64}})
    assert changed.hashes == stated.hashes
    assert any("They hold the SHA-256 of the data, model.pt too" in said for said in stated.not_covered)


def test_whoever_simulates_has_the_data():
    found = played(sf.load_spec(SPEC))
    words = words_of(found)
    assert "One machine simulated the training with the data of all 9 devices: whoever runs it has them." in (
        words
    )
    assert "Whoever runs the simulation–has the datahas the data" in words  # a line of the table
    assert found.to_dict()["have_the_data"] == ["the device itself", "whoever runs the simulation"]
    plan = words_of(made(sf.load_spec(SPEC)))
    assert "With real parties the data stay where they are" in plan
    assert "Whoever simulates it has the data of all 9 devices." in plan


@pytest.mark.parametrize(
    ("on", "said", "unsaid"),
    [
        ("one machine", "This was a rehearsal of real parties on one machine", "Real parties played the run"),
        ("machines of their own", "Real parties played the run: the data stay", "whoever started it"),
        ("", "where one machine started all of them, whoever started it has the data", "rehearsal"),
    ],
)
def test_a_rehearsal_protects_nobody_from_whoever_starts_it(on, said, unsaid):
    found = played(sf.load_spec(SPEC), draws=("operating system",), on=on)
    words = words_of(found)
    assert said in words
    assert unsaid not in words
    assert ("Whoever started the rehearsal–has the data" in words) == (on == "one machine")
    assert ("against whoever started it nothing here holds" in words) == (on != "machines of their own")


def test_nobody_may_break_ciphers_and_secure_aggregation_bears_few_colluders():
    found = made(sf.load_spec(SPEC | {"transport": {"devices_to_edge": "secure-aggregation"}}))
    words = words_of(found)
    assert "compute without limit" not in words
    assert "Nobody breaks the cipher that noise comes from." in words
    assert "Together with at least 3 of 3 of them it sees single messages" in words
    assert any("secure aggregation" in said for said in found.to_dict()["threat_model"])
    assert "secure aggregation" not in words_of(made(sf.load_spec(SPEC)))


def test_the_relation_is_that_of_the_rows():
    """Records are zeroed out also where devices are removed."""
    found = made(sf.load_spec(RECORDS, ["privacy.neighbours=remove", "training.participation=" + POISSON]))
    assert {row.neighbours for row in found.privacy.guarantees} == {"zero-out"}
    assert found.to_dict()["neighbours"]["record"]["relation"] == "zero-out"
    assert "Towards whoever sees who takes part there is no guarantee" not in words_of(found)


def test_only_units_with_a_finite_epsilon_are_called_protected():
    found = made(sf.load_spec(RECORDS, ["privacy.unit=both"]))
    assert {row.epsilon for row in found.privacy.guarantees if row.unit_kind == "device"} == {math.inf}
    assert "Protected is one record" in found.protected
    assert "A whole device (all its data together) is not protected (ε = ∞ towards everybody)." in (
        found.protected
    )


def test_trust_is_listed_by_round():
    found = made(sf.load_spec(SPEC | {"trust": {"from": {0: [], 3: [0]}}}))
    words = words_of(found)
    assert "Nobody is declared as trusted with raw" not in words
    assert "from round 1 on nobody; from round 3 on edge:0." in words
    assert found.to_dict()["trust"]["trusted_with_raw_updates"] == ["edge:0"]
    assert found.to_dict()["trust"]["by_round"][1] == {"from_round": 3, "trusted": ("edge:0",)}


def test_whoever_is_trusted_and_adds_no_noise_is_not_said_to():
    noisy, bare = made(sf.load_spec(SPEC)), made(sf.load_spec(SPEC, ["privacy.noise={kind: none}"]))
    assert "edge:1. They add noise to what they send on." in words_of(noisy)
    assert "edge:1. They add no noise to what they send on." in words_of(bare)


def test_groups_have_models_of_their_own_that_no_figure_is_about():
    words = words_of(made(sf.load_spec(GROUPS, ["training.rounds=2"])))
    assert "train one model together" not in words
    assert "No figure is about the models in model.pt and groups.pt: give them to nobody." in words
    spec = sf.load_spec(GROUPS, ["training.rounds=2"])
    of_master = words_of(played(spec, draws=("operating system",), on="machines of their own"))
    assert "This folder has the one of the group whose master wrote it." in of_master
    assert "groups.pt" not in of_master.partition("What is taken on trust")[0]


def test_whoever_drops_out_is_not_said_to_take_part():
    words = words_of(
        made(
            sf.load_spec(
                SPEC | {"transport": {"devices_to_edge": "secure-aggregation"}},
                ["faults.dropout_rate=0.2", "topology.devices_per_edge=6"],
            )
        )
    )
    assert "Every device takes part in every round." not in words
    assert (
        "In every aggregation a device drops out with probability 0.2. A sum needs at least 5 of 6 of its "
        "devices; the noise of only so many is counted." in words
    )


def test_a_large_epsilon_is_not_called_protection():
    words = words_of(made(sf.load_spec(RECORDS, ["privacy.noise={multiplier: 0.05}"])))
    assert "Protected is" not in words
    assert "is hardly protected: where ε is finite it is above 10" in words


def test_whom_nothing_protects_from_is_told_first():
    short = words_of(made(sf.load_spec(SPEC))).partition("In short")[2]
    first = short.index("Not protected at all (ε = ∞) from: the device's own edge, trusted with raw updates.")
    assert first < short.index("Protected is")


def test_what_delta_and_a_change_of_contents_allow_is_told():
    found = made(sf.load_spec(RECORDS, [QUIET]))
    (epsilon,) = {row.worst.epsilon for row in found.largest if row.worst.observer == "cloud"}
    words = words_of(found)
    assert "hold it for as likely as a coin toss" in words
    known = "The figures hold also against an observer that already knows the data of everybody else"
    assert known in words.partition("What each observer can learn")[2].partition("What is not protected")[0]
    assert "ten times" not in words
    assert "but for a probability of at most 2δ = 2e-5 (1 in 50,000)" in words
    twice = certainty(epsilon + math.log(2))
    assert f"odds become at most twice as large ({certainty(epsilon)} is then at most {twice})" in words
    contents = certainty(2 * epsilon)
    asked = "A guess of 50 : 50 on which of two values a certain record has (such as ill or not ill) becomes"
    assert f"{asked} at most {contents}." in words
    named = words_of(replace(found, labels=("benign", "malignant")))
    assert named.count("which of two values a certain record has (benign or malignant)") == 2
    assert "ill or not ill" not in named
    assert f"{certainty(epsilon)}{contents}" in words  # two cells of the table
    larger = upper_bound(2 * (1 + math.exp(epsilon)) * 1e-5, 2)
    assert f"in the last column 2(1 + e^ε)δ, at most {larger}" in words
    replaced = words_of(made(sf.load_spec(RECORDS, ["privacy.neighbours=replace"])))
    assert "wants to know which of two values a certain record has." in replaced
    assert "e^(2ε)" not in replaced
    assert "last column" not in replaced


def test_how_many_records_there_are_is_told_where_they_are_the_unit():
    held = held_by([0.5, 0.25, 5 / 17], 5, "record")
    found = replace(made(sf.load_spec(RECORDS)), held=held)
    words = words_of(found)
    assert "3 sites (devices in the spec) train one model together on the data set synthetic." in words
    assert "They train on 47 records, 10 to 20 at each site." in words
    assert "Hidden is whether the data of a certain record were used; how many there are is public." in words
    assert held_by([0.5, 1.0], 5, "record").counts == ()  # at most 5, and how many is not known
    assert held_by([0.5, 0.25], 5, "device").counts == ()  # a device that is removed does not show its size
    assert "They train on" not in made(sf.load_spec(SPEC)).subject


def test_what_must_stay_secret_and_what_no_figure_covers():
    found = made(sf.load_spec(RECORDS, [QUIET]))
    words = words_of(found)
    assert "Which rows were drawn stays secret." in words  # every site takes part in every round
    assert "ledger.json" not in words
    assert "Other trainings on the same data, also those by which settings were chosen" in words
    assert "such as a twin that this one is compared with, is ∞: give its model to nobody" in words
    most = max(row.epsilon for row in found.privacy.guarantees)
    three = upper_bound((1 + math.exp(most) + math.exp(2 * most)) * 1e-5, 2)
    assert f"that of somebody with 3 is at most {upper_bound(3 * most)} at δ = {three}." in words
    assert "rows were drawn" not in words_of(made(sf.load_spec(SPEC)))
    data = replace(found, spec={**found.spec, "data": found.spec["data"] | {"test_fraction": 0.1}})
    assert "Rows that were set aside for testing, drawn by lot. No ε is about the people in them" in (
        words_of(data)
    )


def test_epsilon_after_the_run_is_told_by_observer():
    found = made(sf.load_spec(SPEC))
    place = next(i for i, row in enumerate(found.privacy.guarantees) if row.observer == "cloud")
    privacy = replace(found.privacy, after_run={place: AfterRun(99.0, 3)})
    after = replace(found, privacy=privacy)
    told = "After this run the largest ε is 99, of a device that took part in 3 rounds, towards the cloud"
    assert told in words_of(after)
    assert "For a unit of which it is known how often it took part, rely on the larger ε." in words_of(after)
    (told,) = after.to_dict()["after_run"]
    assert (told["observer"], told["epsilon"], told["participations"]) == ("cloud", 99.0, 3)


def test_a_statement_of_a_run_that_did_not_pass_has_nothing_to_sign():
    run = played(
        sf.load_spec(RECORDS),
        mismatches=("guarantees[0]: ε: 1",),
        unchecked=("gaps: ε of the set holds, so this is no concern",),
    )
    words = words_of(run)
    assert "1 figure of the run did not pass the check. Do not rely on this statement." in words
    for absent in (
        "I have read this statement",
        "no concern",
        "becomes at most",
        "Protected is",
        "all agree",
    ):
        assert absent not in words


def test_the_verdict_on_dp_ogl_plus_is_in_the_statement():
    found = made(sf.load_spec(GROUPS.with_name("ogl-ring.yaml"), ["training.rounds=2"]))
    spec = {**found.spec, "protocol": "dp-ogl+", "training": {**found.spec["training"], "merge_every": 2}}
    assert "DP-OGL+ as published gives no privacy towards workers" in words_of(replace(found, spec=spec))


def test_devices_that_move_are_told_of():
    spec = SPEC | {"topology": SPEC["topology"] | {"moves": {"rate": 0.3}}}
    words = words_of(made(sf.load_spec(spec)))
    assert "Devices move from edge to edge during the training. Who is where, and when, is public." in words
    short = words.partition("What each observer can learn")[0]
    assert "Every ε here is for exactly the changes of this training" in short
    later = SPEC | {"trust": {"from": {0: [], 3: [0]}}}
    assert "Every ε here is for exactly the changes" in words_of(made(sf.load_spec(later)))
    assert "Every ε here is for exactly the changes" not in words_of(made(sf.load_spec(SPEC)))


def test_the_public_is_told_of_in_short_where_it_learns_less():
    found = made(sf.load_spec(RECORDS, [QUIET]))
    (value,) = {row.worst.epsilon for row in found.largest if row.worst.observer == "public"}
    (cloud,) = {row.worst.epsilon for row in found.largest if row.worst.observer == "cloud"}
    assert value < cloud
    short = words_of(found).partition("In short")[2].partition("What each observer can learn")[0]
    said = f"Towards the public, who sees the global models alone, ε is at most {upper_bound(value)}, and"
    assert f"{said} 50 : 50 becomes at most {certainty(value)}." in short
    alike = made(sf.load_spec(RECORDS, ["privacy.noise={multiplier: 4, at: step}"]))
    assert "who sees the global models alone" not in words_of(alike)
    assert "Towards the cloud, the public" in words_of(alike) or "Towards the public" in words_of(alike)


def test_no_yardstick_is_for_one_record_and_none_is_a_clean_bill():
    of_record, of_device = words_of(made(sf.load_spec(RECORDS, [QUIET]))), words_of(made(sf.load_spec(SPEC)))
    assert "Somebody with 3 records is protected less: see What is not protected." in of_record
    assert "For somebody with one record ε = " in of_record
    warned = " ".join(not_protected([Promise("record", "zero-out", 4.0, 4.0)], "site", "example", 1e-5))
    assert "at most 12 at δ = 0.031" in warned
    assert "Such a δ is hardly a promise." in warned
    assert "hardly a promise" not in of_record  # its δ is small
    assert "that of somebody with 3 is at most" in of_record
    assert f"yet ε = 10 lets 50 : 50 become {certainty(10)}." in of_device
    assert "none for one record" not in of_device


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.9, "strong by that"), (1.0, "strong by that"), (4.0, "between the two"), (11.0, "above both")],
)
def test_the_yardstick_says_where_the_run_lies(value, said):
    promise = Promise("person", "zero-out", value, value)
    assert _yardstick(promise, value).endswith(f"Here ε = {upper_bound(value)} is {said}.")


@pytest.mark.parametrize(
    ("unit", "whose"), [("device", "examples"), ("record", "records"), ("person", "rows, of other persons")]
)
def test_rows_to_test_on_are_told_of_in_short(unit, whose):
    tested = "The model is tested on"
    exactly = "scores on them are measured without noise, and nothing protects them."
    of_many = rows_to_test_on(unit, 1360, None, set_aside=False)
    assert of_many == f"{tested} 1,360 further {whose}: {exactly}"
    assert rows_to_test_on(unit, 0, None, set_aside=True) == f"{tested} further {whose}: {exactly}"
    assert rows_to_test_on(unit, 0, None, set_aside=False) == ""
    of_persons = f"{tested} 16 further persons: {exactly}".replace("them are", "their rows are")
    assert (rows_to_test_on(unit, 55, 16, set_aside=True) == of_persons) == (unit == "person")
    found = replace(made(sf.load_spec(RECORDS)), tested=360)
    assert f"{tested} 360 further records: {exactly}" in found.subject
    table = {**found.spec, "data": {**found.spec["data"], "label_column": "ill"}}  # a tenth by default
    assert f"{tested} further records: {exactly}" in replace(found, spec=table, tested=0).subject
    assert tested not in made(sf.load_spec(RECORDS)).subject


def test_sites_are_called_so_where_noise_is_told():
    words = words_of(made(sf.load_spec(RECORDS)))
    assert "Every site takes part in every round." in words
    assert "Every device" not in words
    assert "The presence of a site on the network" in words
    assert "Every device takes part in every round." in words_of(made(sf.load_spec(SPEC)))


def test_no_page_tells_where_the_data_lie_or_names_keys_of_files():
    line = "how many persons there are (counts, kinds_of_pairs): as in data.source: /home/kim/visits.csv"
    assert without_folder(line, "/home/kim/visits.csv").endswith("as in data.source: visits.csv")
    assert without_folder("data.source: digits", "digits") == "data.source: digits"
    (one,) = unchecked_as_assumed([without_folder(line, "/home/kim/visits.csv")])
    assert one == ("Not recomputed: how many persons there are.", "As in data.source: visits.csv.")


def test_what_is_kept_secret_is_what_there_is():
    """A simulation has a seed and no keys, so nothing is drawn in secret."""
    simulated = of_draws("simulated", parties=False).why
    assert "In this run it is no secret: every draw follows from the seed" in simulated
    assert "Keep secret" not in simulated
    both = of_draws("deployed", parties=True)
    assert both.what == "Who and which rows were drawn stays secret."
    assert both.why.endswith(
        "Keep secret the keys and the memories of the parties and what those receive to whom devices send."
    )
    assert "ledger.json" not in both.why
    assert "Keep" not in of_draws("not yet", parties=False).why


def test_the_noise_of_a_simulation_is_not_said_to_follow_from_a_secret_key():
    assert of_ciphers("", "", "simulated") == ()
    assert "secret key" in of_ciphers("", "", "deployed")[0].why
    assert len(of_ciphers("of sites to the cloud", "2", "simulated")) == 1


def test_a_message_of_an_interval_is_clipped_to_more_than_one_update():
    spec = {
        "name": "ring",
        "protocol": "dp-ogl-local",
        "data": {"source": "synthetic", "examples_per_device": 12},
        "model": {"kind": "softmax"},
        "topology": {"kind": "groups", "structure": "ring", "devices": 6, "groups": 3},
        "training": {"rounds": 4, "local_steps": 2, "batch_size": 4, "learning_rate": 0.1, "merge_every": 4},
        "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
    }
    words = words_of(made(sf.load_spec(spec)))
    said = "Every update that is released is clipped to norm 2 (1 for each round, times √4, as a message is "
    assert f"{said}the update of 4 rounds)." in words
