"""What cannot be deployed yet is refused with one line, before anything is sent or written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deployed_parties import staged
from rehearsals import GROUPS, STAR, TREE, rehearsed, spec_of

from sfumato.deployment import common_terms as terms_file
from sfumato.deployment.group_refusals import require_deployable_groups
from sfumato.deployment.local_data import LocalData
from sfumato.deployment.local_parties import rows_of
from sfumato.deployment.party_folder import PartyFolder
from sfumato.deployment.refusals import require_deployable
from sfumato.errors import DataError, RunError, SfumatoError, SpecError
from sfumato.schedule.resolve import resolve
from sfumato.spec.base import Section
from sfumato.spec.document import Spec
from sfumato.spec.faults import Faults
from sfumato.spec.model import Model
from sfumato.spec.privacy import ClipSettings, Privacy
from sfumato.spec.topology import GroupTopology, StarTopology, TreeTopology, Trust
from sfumato.spec.training import Training
from sfumato.wire.errors import SessionMemoryError, UnsafeTermsError
from sfumato.wire.keys import Identity

PARAMETERS = 170
TRAINING, PRIVACY = STAR["training"], STAR["privacy"]
FIXED = TRAINING | {"participation": {"kind": "fixed", "count": 2}}
COINS = TRAINING | {"participation": {"kind": "poisson", "rate": 0.5}}
CLIPPED = {"weights": {"kind": "capped", "examples": 20}, "denominator": {"kind": "clipped", "min_weight": 1}}
ADAPTED = {"kind": "update", "norm": 1.0, "adapt": {}}
EVERY = TRAINING | {"aggregate_every": [2, 1]}
SMALLER = {"kind": "exponential", "initial": 0.11, "decay": 0.97}
LOUD = {"noise": {"multiplier": 2e4}}
EXAMPLES = STAR | {
    "training": TRAINING | {"local_steps": 1, "batches": "poisson"},
    "privacy": {"unit": "record", "clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 1.0}},
}
OPEN_SIZES = {"data": {"source": "digits", "partition": {"kind": "flwr", "partitioner": "IidPartitioner"}}}
QUIET = {"privacy": EXAMPLES["privacy"] | {"noise": "none"}}
ADAM = {"optimizer": {"kind": "adam"}, "learning_rate": 0.001}
MASKED = {"devices_to_cloud": "secure-aggregation"}
MASKED_STAR = {"transport": MASKED}
DEEPER = {"kind": "tree", "levels": [2, 2, 2], "names": ["region", "edge"]}


@pytest.mark.parametrize(
    ("document", "place"),
    [
        (EXAMPLES | {"training": EXAMPLES["training"] | {"weight_decay": 0.1}}, "training.weight_decay"),
        (EXAMPLES | QUIET | {"training": EXAMPLES["training"] | ADAM}, "training.optimizer"),
        (STAR | {"privacy": {"noise": "none"}}, "privacy.clip"),
        (STAR | {"transport": {"devices_to_cloud": "air"}}, "transport.devices_to_cloud"),
        (STAR | {"privacy": PRIVACY | {"mechanism": "floats:gaussian"}}, "privacy.mechanism"),
        (STAR | OPEN_SIZES, "data.partition"),
        (EXAMPLES | OPEN_SIZES, "data.partition"),
        (STAR | {"training": FIXED}, "training.participation"),
        (TREE | {"training": TREE["training"] | FIXED}, "training.participation"),
        (STAR | MASKED_STAR | {"training": FIXED}, "training.participation"),
        (STAR | {"training": COINS, "privacy": PRIVACY | {"neighbours": "remove"}}, "privacy.neighbours"),
        (STAR | {"training": COINS | CLIPPED}, "training.denominator"),
        (STAR | {"compression": {"kind": "rand-k", "ratio": 0.5}}, "compression"),
        (STAR | {"privacy": PRIVACY | {"clip": ADAPTED}}, "privacy.clip.adapt"),
        (
            STAR
            | {
                "training": TRAINING | {"batches": "poisson"},
                "privacy": {
                    "unit": "record",
                    "clip": {"kind": "example", "norm": 1.0},
                    "noise": {"multiplier": 1.0, "at": "step"},
                },
            },
            "privacy.noise.at",
        ),
        (STAR | {"training": TRAINING | {"loss": "losses:mine"}}, "training.loss"),
        (TREE | {"topology": DEEPER, "trust": {}, "training": EVERY}, "topology.levels"),
        (TREE | {"training": TREE["training"] | {"edge_every": [1, 2]}}, "training.edge_every"),
        (
            TREE
            | {
                "training": TREE["training"] | {"edge_every": 3},
                "privacy": {"clip": {"kind": "step", "norm": 1.0}, "noise": {"multiplier": 1.0}},
            },
            "training.edge_every",
        ),
        (  # one grid in round 1, two from round 5 on
            TREE
            | {
                "training": TREE["training"]
                | {"rounds": 40, "local_steps": 13, "edge_every": 8, "learning_rate": SMALLER},
                "privacy": {"clip": {"kind": "step", "norm": 1.0}, "noise": {"multiplier": 1.0}},
            },
            "training.edge_every",
        ),
        (STAR | {"privacy": PRIVACY | {"noise": {"multiplier": 200.0}}}, "privacy.noise"),
        (TREE | {"privacy": PRIVACY | LOUD}, "privacy.noise"),
        (STAR | {"trust": {"cloud": True}, "privacy": PRIVACY | LOUD}, "privacy.noise"),
    ],
)  # fmt: skip
def test_a_spec_that_cannot_be_deployed_is_refused(document: dict[str, Any], place: str) -> None:
    with pytest.raises(SpecError) as refused:
        require_deployable(resolve(spec_of(document)), PARAMETERS)
    assert refused.value.place == place
    assert "\n" not in str(refused.value)


RING = GROUPS["topology"]
LISTED = {"kind": "groups", "structure": "list", "groups": [[0, 1, 2], [2, 3, 4]], "devices": 5}
NOBODY = {"trusted_aggregators": []}
SKEWED = {"source": "digits", "partition": {"kind": "dirichlet", "alpha": 0.5}}
ERA = {"from_round": 2, "groups": [[0, 1, 3], [2, 3, 4]]}
EXAMPLES_OF_GROUPS = {
    "training": GROUPS["training"] | {"local_steps": 1, "batches": "poisson"},
    "privacy": EXAMPLES["privacy"] | {"unit": "device"},
}


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"protocol": "dp-ogl+", "trust": {}}, "protocol"),
        (
            {"protocol": "ms-fedavg", "privacy": {"noise": "none"}, "trust": {}, "training": TRAINING},
            "protocol",
        ),
        ({"protocol": "dp-ogl-local", "training": GROUPS["training"] | {"rounds": 1}}, "training.rounds"),
        ({"topology": RING | {"structure": "labels"}, "data": SKEWED}, "topology.structure"),
        ({"topology": LISTED | {"eras": [ERA]}}, "topology.eras"),
        ({"transport": {"devices_to_master": "secure-aggregation"}}, "transport.devices_to_master"),
        ({"faults": {"dropout_rate": 0.1}}, "faults"),
        (EXAMPLES_OF_GROUPS, "privacy.clip.kind"),
        ({"privacy": PRIVACY | {"unit": "record"}}, "privacy.unit"),
        (
            {"training": GROUPS["training"] | {"participation": COINS["participation"]}},
            "training.participation",
        ),
        ({"compression": {"kind": "rand-k", "ratio": 0.5}}, "compression"),
        ({"privacy": {"noise": "none"}}, "privacy.clip"),
        ({"privacy": PRIVACY | {"mechanism": "floats:gaussian"}}, "privacy.mechanism"),
        (OPEN_SIZES, "data.partition"),
        ({"training": GROUPS["training"] | {"loss": "losses:mine"}}, "training.loss"),
        ({"privacy": PRIVACY | LOUD}, "privacy.noise"),
        ({"trust": NOBODY, "privacy": PRIVACY | {"noise": {"multiplier": 200.0}}}, "privacy.noise"),
        ({"privacy": PRIVACY | {"noise": {"multiplier": 1e-10}}}, "transport"),
    ],
)
def test_groups_that_cannot_be_deployed_are_refused(changed: dict[str, Any], place: str) -> None:
    with pytest.raises(SpecError) as refused:
        require_deployable_groups(resolve(spec_of(GROUPS, **changed)), PARAMETERS)
    assert refused.value.place == place
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("transport", "multiplier", "hop", "bits", "steps", "instead"),
    [
        ({}, 1e-10, "plain", 64, "42.3", "use more noise, or none"),
        (MASKED, 1e-9, "secure-aggregation", 32, "0.207", "make zones smaller or noise alike"),
    ],
)
def test_a_grid_that_is_too_coarse_is_refused_with_its_figure(
    transport: dict[str, str], multiplier: float, hop: str, bits: int, steps: str, instead: str
) -> None:
    privacy = PRIVACY | {"noise": {"multiplier": multiplier}}
    with pytest.raises(SpecError) as refused:
        require_deployable(resolve(spec_of(STAR, transport=transport, privacy=privacy)), PARAMETERS)
    said = f"got '{hop}'; whole numbers of {bits} bits are too coarse: the quietest noise is {steps} steps"
    assert f"{said} (at least 3000 are needed)" in str(refused.value)
    assert str(refused.value).endswith(instead)
    assert "\n" not in str(refused.value)


LOOKED_AT = {
    Spec: "name protocol seed data model topology trust training privacy transport radio air compression"
    " faults control evaluate_every metrics versions hashes watch",
    Training: "rounds local_steps local_epochs edge_every edge_at_global aggregate_every merge_every"
    " batch_size batches learning_rate momentum optimizer weight_decay loss participation global_update"
    " weights denominator server drift_correction",
    Privacy: "delta unit clip noise mechanism neighbours",
    ClipSettings: "kind norm norms per_layer adapt",
    StarTopology: "kind devices device_names",
    GroupTopology: "kind structure groups devices file eras group_names worker_names stated",
    TreeTopology: "kind edges devices_per_edge levels level_names sites file supernodes zones moves",
    Faults: "dropout_rate supernode_failure_rate survival_threshold when_supernode_fails",
    Trust: "cloud trusted_edges trusted_aggregators trusted from",
    Model: "kind trained rank bias hidden norm",
}
"""The keys of which somebody decided whether they can be deployed."""


@pytest.mark.parametrize("section", LOOKED_AT)
def test_every_key_of_a_spec_was_looked_at(section: type[Section]) -> None:
    """Does it change what is sent, who is asked, or what is drawn? Then derive it, or refuse it."""
    assert set(section.keys()) == set(LOOKED_AT[section].split())


def test_nothing_is_written_of_a_spec_that_is_refused(tmp_path: Path) -> None:
    spec = spec_of(STAR, training=FIXED)
    with pytest.raises(SpecError, match="participation"):
        rehearsed(spec, tmp_path, simulated=False)
    assert not (tmp_path / "parties").exists()


def test_a_device_refuses_data_of_another_size(tmp_path: Path) -> None:
    with staged(STAR, tmp_path) as stage:
        own = rows_of(stage.inputs.data, stage.inputs.partition, 0)
        features, labels = own.train_features[1:], own.train_labels[1:]
        fewer = replace(own, train_features=features, train_labels=labels)
        with pytest.raises(DataError, match="holds 11 examples; the spec was accounted for with 12"):
            LocalData(0, stage.terms, fewer)


def test_a_key_that_the_terms_do_not_name_is_refused(tmp_path: Path) -> None:
    with staged(STAR, tmp_path) as stage:
        stage.identities[0] = Identity()
        with pytest.raises(UnsafeTermsError, match="device:0"):
            stage.device(0)


def test_a_key_that_others_can_read_or_a_lost_memory_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "party"
    PartyFolder.open_or_create(folder).close()
    opened = PartyFolder.open_or_create(folder)
    opened.close()
    (folder / "key").chmod(0o640)
    with pytest.raises(RunError, match="may be read by others"):
        PartyFolder.open_or_create(folder)
    (folder / "key").chmod(0o600)
    (folder / "memory").chmod(0o644)
    with pytest.raises(RunError, match="memory: may be read by others"):
        PartyFolder.open_or_create(folder)
    (folder / "memory").unlink()
    with pytest.raises(SessionMemoryError, match="no memory of a party"):
        PartyFolder.open_or_create(folder)
    (folder / "key").write_bytes(b"short")
    with pytest.raises(SfumatoError):
        PartyFolder.open_or_create(folder)


def test_the_session_commits_to_what_the_spec_was_resolved_to(tmp_path: Path) -> None:
    """The same spec and keys, other noise or weights: another session, so every frame is refused."""
    with staged(TREE, tmp_path) as stage:
        terms, plan = stage.terms, stage.terms.plan
        quieter = [(std * 0.5) for std in plan.releases.steps[0].node_std]
        steps = (replace(plan.releases.steps[0], node_std=tuple(quieter)), *plan.releases.steps[1:])
        other = replace(plan, releases=replace(plan.releases, steps=steps))
        assert replace(terms, plan=plan).session == terms.session
        assert replace(terms, plan=other).session != terms.session


def test_every_term_is_in_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another spec, version, purpose, run, key or size of data: each is another session."""
    with staged(STAR, tmp_path) as stage:
        terms = stage.terms
    others = [
        replace(terms, fingerprint="of another spec"),
        replace(terms, parameters=terms.parameters + 1),
        replace(terms, purpose="another study"),
        replace(terms, label="another run"),
        replace(terms, examples=terms.examples + 1),
        replace(terms, keys=terms.keys[::-1]),
        replace(terms, made_keys=()),
    ]
    sessions = {other.session for other in (terms, *others)}
    monkeypatch.setattr(terms_file, "versions", lambda: {"sfumato": "another version"})
    sessions.add(replace(terms).session)
    assert len(sessions) == len(others) + 2
