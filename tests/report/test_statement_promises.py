"""What a statement promises follows from the guarantees and the ledger: nothing more, and no secret told."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from statements import SPEC, made, played, words_of

import sfumato as sf


def test_the_seed_is_not_told_and_no_hash_lets_it_be_tried():
    one, other = (played(sf.load_spec(SPEC | {"seed": seed})) for seed in (4871234567, 4881234567))
    for said in (words_of(one), json.dumps(one.to_dict()), json.dumps(one.to_dict(), indent=1)):
        assert "4871234567" not in said
    assert "their noise follows from one number, the seed, which is in spec.yaml and not on this page" in (
        words_of(one)
    )
    assert "such as the default 0, protects nobody" in words_of(one)
    assert one.hashes == other.hashes


def test_no_hash_on_the_page_depends_on_the_data():
    """Whoever knows all other rows would hash what he guesses of the last one, and compare."""
    plan = played(
        sf.load_spec(SPEC), files=dict.fromkeys(["spec.yaml", "privacy.json", "model.pt"], "c" * 64)
    )
    hashes = {"data.source": "a" * 64, "data.source/visits.csv": "a" * 64, "model.kind": "b" * 64}
    stated = replace(plan, spec={**plan.spec, "hashes": hashes})
    assert set(stated.hashes) == {"spec", "model.kind", "model.pt"}
    assert "a" * 64 not in words_of(stated) + json.dumps(stated.to_dict())
    changed = replace(plan, spec={**plan.spec, "hashes": hashes | {"data.source": "d" * 64}})
    assert changed.hashes == stated.hashes
    assert any("model.pt and others hold the SHA-256 of the data" in said for said in stated.not_covered)


def test_whoever_simulates_has_the_data():
    found = played(sf.load_spec(SPEC))
    words = words_of(found)
    assert (
        "This was simulated: one machine held the data of all 9 devices, and whoever runs it sees all of "
        "them."
        in words
    )
    assert "Whoever runs the simulation–has the datahas the data" in words  # a line of the table
    assert "From whoever runs the simulation nothing is hidden" in words
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
