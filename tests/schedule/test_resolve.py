"""Resolve, calibrate, freeze: what comes out says all; what cannot be honoured is refused where it stands."""

import numpy as np
import pytest

from sfumato.errors import SpecError
from sfumato.schedule.resolve import resolve
from sfumato.spec.load import dump_spec, load_spec
from sfumato.spec.privacy import NoiseBySource

SPECS = [
    ("quickstart", []),
    ("quickstart", ["training.participation={kind: fixed, count: 3}", "privacy.noise={multiplier: 0.7}"]),
    ("quickstart", ["training.participation={kind: poisson, rate: 0.2}", "privacy.noise={multiplier: 0.7}"]),
    ("quickstart", ["protocol=hfl-dp"]),
    (
        "quickstart",
        ["trust.cloud=true", "trust.trusted_edges=1.0", "privacy.noise={epsilon: 2.0, for: public}"],
    ),
    ("h2fdp-fmnist", []),
    ("h2fdp-fmnist", ["training.global_update=resend", "training.momentum=0.5"]),
    ("three-tier", []),
    ("three-tier", ["privacy.noise={epsilon: 2.0, for: device}"]),
    ("dp-fedavg", []),
    ("dp-fedavg", ["trust.cloud=false"]),
    ("dp-fedavg", ["protocol=pedpfl"]),
]


@pytest.mark.parametrize(("name", "overrides"), SPECS)
def test_resolving_again_changes_nothing(name, overrides, tmp_path):
    plan = resolve(load_spec(name, overrides))
    path = tmp_path / "spec.yaml"
    path.write_text(dump_spec(plan.spec), encoding="utf-8")
    for again in (resolve(plan.spec), resolve(load_spec(path))):
        assert again.spec == plan.spec
        assert again.aggregations == plan.aggregations
        assert again.releases.to_dict() == plan.releases.to_dict()
        np.testing.assert_array_equal(again.noise.device, plan.noise.device)


def test_the_frozen_noise_remembers_what_it_was_calibrated_from():
    spec = load_spec("quickstart")
    frozen = resolve(spec).spec.privacy.noise
    assert isinstance(frozen, NoiseBySource)
    assert frozen.calibrated_from == spec.privacy.noise
    assert resolve(resolve(spec).spec).spec.privacy.noise.calibrated_from == spec.privacy.noise


def test_the_trust_draw_is_frozen():
    plan = resolve(load_spec("quickstart", ["seed=7"]))
    written = plan.spec.trust.trusted_edges
    assert len(written) == 3  # half of 5, rounded up
    other_seed = plan.spec.model_copy(update={"seed": 8})
    assert resolve(other_seed).spec.trust.trusted_edges == written


@pytest.mark.parametrize(
    ("name", "overrides", "note"),
    [
        ("quickstart", ["protocol=hfl"], "hfl adds no noise: privacy.noise is ignored"),
        ("quickstart", ["privacy.noise=none"], "privacy.noise is none: nobody has a guarantee"),
        ("quickstart", ["protocol=hfl-dp"], "the protocol hfl-dp trusts no edge: the trust section"),
        ("dp-fedavg", ["protocol=pedpfl"], "pedpfl trusts no server: the trust section is ignored"),
        ("quickstart", ["training.local_steps=null", "training.edge_every=null"], "H2FDP's default, 20"),
    ],
)  # fmt: skip
def test_presets_say_what_they_ignore(name, overrides, note):
    notes = resolve(load_spec(name, overrides)).notes
    assert any(note in said for said in notes)


def test_presets_without_noise_or_trust_mean_it():
    hfl = resolve(load_spec("quickstart", ["protocol=hfl"]))
    assert not hfl.noise.device.any()
    assert not any(node.any() for node in hfl.noise.node)
    local = resolve(load_spec("quickstart", ["protocol=hfl-dp", "privacy.noise={multiplier: 1.0}"]))
    assert (local.noise.device == 1.0).all()
    assert not any(tier.trusted.any() for tier in local.tree.tiers)


def test_h2fdps_default_steps():
    plan = resolve(load_spec("quickstart", ["training.local_steps=null", "training.edge_every=null"]))
    assert [a.step for a in plan.aggregations] == [5, 10, 15, 20]


@pytest.mark.parametrize(
    ("name", "overrides", "place"),
    [
        ("quickstart", ["transport={devices_to_cloud: plain}"], "transport.devices_to_cloud"),
        ("quickstart", ["privacy.noise={multiplier: 0.0}"], "privacy.noise"),
        ("quickstart", ["privacy.noise={multiplier: [1.0, 2.0]}"], "privacy.noise.multiplier"),
        (
            "quickstart",
            ["training.participation={kind: poisson, rate: [0.1, 0.2]}"],
            "training.participation.rate",
        ),
        ("quickstart", ["privacy.clip={kind: update, norm: [1.0, 2.0]}"], "privacy.clip.norm"),
        ("dp-fedavg", ["privacy.noise={formula: pfels, epsilon: 1.0}"], "privacy.noise.formula"),
        ("dp-fedavg", ["privacy.clip={kind: step, norm: 1.0}"], "privacy.clip.kind"),
        ("three-tier", ["training.global_update=resend"], "training.global_update"),
        ("dp-fedavg", ["training.local_epochs=null"], "training.local_steps"),
        ("quickstart", ["trust.trusted_edges=[5]"], "trust.trusted_edges"),
        ("three-tier", ["trust.trusted=['region:2']"], "trust.trusted"),
    ],
)
def test_what_cannot_be_honoured_is_refused_where_it_stands(name, overrides, place):
    with pytest.raises(SpecError) as caught:
        resolve(load_spec(name, overrides))
    assert caught.value.place.removeprefix("overrides: ").split(": ")[-1] == place
    assert caught.value.exit_status == 2


def test_a_fixed_cohort_larger_than_the_smallest_edge(tmp_path):
    """Only the file tells how many devices there are."""
    sites = tmp_path / "sites.yaml"
    sites.write_text("sites: [{devices: 5}, {devices: 2}]\n", encoding="utf-8")
    overrides = [
        f"topology={{kind: tree, file: '{sites}'}}",
        "training.participation={kind: fixed, count: 3}",
    ]
    with pytest.raises(SpecError, match="at most the 2 devices of the smallest edge") as caught:
        resolve(load_spec("quickstart", overrides))
    assert caught.value.place == "training.participation.count"
