"""What cannot be deployed yet is refused with one line, before anything is sent or written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deployed_parties import staged
from rehearsals import STAR, TREE, rehearsed, spec_of

from sfumato.deployment.local_data import LocalData
from sfumato.deployment.party_folder import PartyFolder
from sfumato.deployment.refusals import require_deployable
from sfumato.deployment.rehearsal import rows_of
from sfumato.errors import DataError, RunError, SfumatoError, SpecError
from sfumato.schedule.resolve import resolve
from sfumato.wire.errors import SessionMemoryError, UnsafeTermsError
from sfumato.wire.keys import Identity

PARAMETERS = 170
TRAINING, PRIVACY = STAR["training"], STAR["privacy"]
DRAWN = TRAINING | {"participation": {"kind": "poisson", "rate": 0.5}}
ADAPTED = {"kind": "update", "norm": 1.0, "adapt": {}}
DEEPER = {"kind": "tree", "levels": [2, 2, 2], "names": ["region", "edge"]}


@pytest.mark.parametrize(
    ("document", "place"),
    [
        (TREE | {"transport": {"devices_to_edge": "secure-aggregation"}}, "transport.devices_to_edge"),
        (STAR | {"privacy": {"noise": "none"}}, "privacy.clip"),
        (STAR | {"training": DRAWN}, "training.participation"),
        (STAR | {"faults": {"dropout_rate": 0.1}}, "faults"),
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
        (TREE | {"topology": DEEPER, "trust": {}}, "topology.levels"),
        (TREE | {"training": TREE["training"] | {"edge_every": [1, 2]}}, "training.edge_every"),
        (
            TREE
            | {
                "training": TREE["training"] | {"edge_every": 3},
                "privacy": {"clip": {"kind": "step", "norm": 1.0}, "noise": {"multiplier": 1.0}},
            },
            "training.edge_every",
        ),
    ],
)  # fmt: skip
def test_a_spec_that_cannot_be_deployed_is_refused(document: dict[str, Any], place: str) -> None:
    with pytest.raises(SpecError) as refused:
        require_deployable(resolve(spec_of(document)), PARAMETERS)
    assert refused.value.place == place
    assert "\n" not in str(refused.value)


def test_nothing_is_written_of_a_spec_that_is_refused(tmp_path: Path) -> None:
    spec = spec_of(STAR, training=DRAWN)
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
    (folder / "memory").unlink()
    with pytest.raises(SessionMemoryError, match="no memory of a party"):
        PartyFolder.open_or_create(folder)
    (folder / "key").write_bytes(b"short")
    with pytest.raises(SfumatoError):
        PartyFolder.open_or_create(folder)
