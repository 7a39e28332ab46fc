from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import SpecError
from sfumato.spec import Spec, load_spec


def test_a_value_is_yaml_and_replaces_what_stood_there():
    spec = load_spec(
        "quickstart",
        [
            "training.batch_size=60",
            "privacy.noise={multiplier: 2}",
            "trust.trusted_edges=[0,1]",
            "trust.cloud=yes",
        ],
    )
    assert spec.training.batch_size == 60
    assert spec.privacy.noise.multiplier == 2
    assert spec.trust.trusted_edges == (0, 1)
    assert spec.trust.cloud is True


@pytest.mark.parametrize(
    ("base", "changes", "section", "expected"),
    [
        ("quickstart", ["privacy.noise.epsilon=4"], "privacy.noise", {"epsilon": 4, "towards": "cloud"}),
        ("quickstart", ["privacy.noise.multiplier=2"], "privacy.noise", {"multiplier": 2}),
        ("quickstart", ["privacy.noise.formula=h2fdp"], "privacy.noise", {"formula": "h2fdp", "epsilon": 8}),
        ("h2fdp-fmnist", ["privacy.noise.for=edge"], "privacy.noise", {"epsilon": 1, "towards": "edge"}),
        ("h2fdp-fmnist", ["privacy.noise.kind=none"], "privacy.noise", {"kind": "none"}),
        (
            "three-tier",
            ["privacy.noise.epsilon=4", "privacy.noise.for=cloud"],
            "privacy.noise",
            {"epsilon": 4},
        ),
        (
            "dp-fedavg",
            ["training.participation.count=9"],
            "training.participation",
            {"kind": "fixed", "count": 9},
        ),
        ("quickstart", ["training.participation.rate=0.5"], "training.participation", {"rate": 0.5}),
        ("quickstart", ["data.partition.alpha=0.1"], "data.partition", {"kind": "dirichlet", "alpha": 0.1}),
        ("h2fdp-fmnist", ["training.learning_rate.kind=cosine"], "training.learning_rate", {"initial": 0.05}),
        ("h2fdp-fmnist", ["model.kind=mlp", "model.hidden=[9]"], "model", {"kind": "mlp", "hidden": (9,)}),
    ],
)
def test_a_key_of_another_kind_turns_the_section_into_that_kind(base, changes, section, expected):
    found = load_spec(base, changes)
    for part in section.split("."):
        found = getattr(found, part)
    assert {key: getattr(found, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("change", "place", "said"),
    [
        ("training.batch_size", "overrides: training.batch_size", "must be key=value"),
        ("=3", "overrides: =3", "must be key=value"),
        ("training..rounds=3", "overrides: training..rounds=3", "must be key=value"),
        ("trainin.rounds=3", "overrides: trainin.rounds", "did you mean 'training'?"),
        ("training.bach_size=3", "overrides: training.bach_size", "did you mean 'batch_size'?"),
        (
            "training.rounds.now=3",
            "overrides: training.rounds.now",
            "training.rounds is a value, not a section",
        ),
        ("training.rounds=0", "overrides: training.rounds", "whole number from 1 to 1,000,000: a run keeps"),
        ("training.rounds=[", "overrides: training.rounds, line 2, column 1", "is not valid YAML"),
        ("privacy.clip={a: 1, a: 2}", "overrides: privacy.clip, line 1", "given twice"),
        ("training.participation.kind=fixed", "overrides: training.participation.count", "is required"),
        ("training.learning_rate.kind=cosine", "overrides: training.learning_rate.initial", "is required"),
        (
            "training.local_steps=5",
            "quickstart: training.edge_every",
            "at most local_steps, which is 5",
        ),
    ],
)
def test_a_bad_override_is_blamed_by_name(change, place, said):
    with pytest.raises(SpecError) as caught:
        load_spec("quickstart", [change])
    assert caught.value.place == place
    assert said in str(caught.value)


PATHS = st.lists(
    st.sampled_from(
        [
            "training",
            "privacy",
            "noise",
            "topology",
            "data",
            "partition",
            "kind",
            "for",
            "epsilon",
            "rounds",
            "x",
            "0",
            "participation",
            "count",
            "learning_rate",
            "transport",
        ]
    ),
    max_size=4,
).map(".".join)


@given(
    st.lists(
        st.text(max_size=12) | st.builds("{}={}".format, PATHS, st.text("{}[]:, ab1e-.'\"&*!#", max_size=8))
    )
)
@settings(max_examples=300, deadline=None)
def test_no_override_breaks_the_reader(overrides):
    with suppress(SpecError):
        assert isinstance(load_spec("quickstart", overrides), Spec)
