"""Folders with the files of a run that verification reads, without training; and how to forge them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import sfumato as sf
from sfumato.run_folder.manifest import Manifest, write_manifest
from sfumato.run_folder.reader import write_ledger, write_privacy, write_spec
from sfumato.schedule.resolve import resolve
from sfumato.spec.document import Spec
from sfumato.spec.frozen import FrozenSpec
from sfumato.spec.load import dump_spec
from sfumato.verify.checker import check_run

Documents = dict[str, Any]
Forgery = Callable[[Documents, Documents], None]
"""Changes the contents of ``privacy.json`` and ``ledger.json``."""

TREE: Documents = {
    "name": "tree",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 3},
    "trust": {"trusted_edges": [1]},
    "training": {"rounds": 2, "local_steps": 4, "edge_every": 2, "batch_size": 5, "learning_rate": 0.2},
    "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 0.7}},
}
STAR = TREE | {
    "protocol": "dp-fedavg",
    "topology": {"kind": "star", "devices": 12},
    "trust": {"cloud": True},
    "training": {
        "rounds": 2, "local_steps": 2, "batch_size": 5, "learning_rate": 0.2,
        "participation": {"kind": "poisson", "rate": 0.25},
    },
}  # fmt: skip
GROUPS = TREE | {
    "protocol": "dp-ogl",
    "topology": {"kind": "groups", "structure": "ring", "groups": 4, "devices": 16},
    "trust": {},
    "training": {"rounds": 3, "local_steps": 2, "batch_size": 5, "learning_rate": 0.2},
}
"""Specs whose accounts take little time."""


def certified_folder(folder: Path, spec: Spec, *, named: Spec | None = None) -> Path:
    """What `sfumato run` writes before the first round; forged where another spec is ``named``."""
    report = sf.account(spec)
    written = report.plan.spec if named is None else resolve(named).spec
    frozen = FrozenSpec.of(written, {}, {"sfumato": "0"})
    ledger = report.plan.releases.to_dict() | {"certificates": report.certificates()}
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "spec.yaml": write_spec(folder, frozen.text),
        "privacy.json": write_privacy(folder, report.to_dict(), frozen.hashes),
        "ledger.json": write_ledger(folder, ledger, frozen.hashes),
    }
    write_manifest(folder, Manifest(frozen.fingerprint, False, files))
    return folder


def checked_folders(specs: Mapping[str, Documents], at: Path) -> Callable[[str], Path]:
    """Gives the folder of a spec by its name; made in ``at``, and checked, when it is first asked for."""

    @cache
    def folder_of(name: str) -> Path:
        folder = certified_folder(at / name, sf.load_spec(specs[name]))
        assert check_run(folder).problems == []
        return folder

    return folder_of


_CERTIFIED: dict[str, dict[str, bytes]] = {}


def copied_folder(folder: Path, spec: Spec) -> Path:
    """`certified_folder`, whose spec is accounted for once in a process: for tests that change a copy.

    Not for tests that change the library while an account is made.
    """
    key = dump_spec(spec)
    if key not in _CERTIFIED:
        certified_folder(folder, spec)
        names = ("spec.yaml", "privacy.json", "ledger.json", "manifest.json")
        _CERTIFIED[key] = {name: (folder / name).read_bytes() for name in names}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _CERTIFIED[key].items():
        (folder / name).write_bytes(content)
    return folder


def forge(folder: Path, change: Forgery) -> None:
    """Change a folder as somebody would who knows about hashes: the manifest lists the new files."""
    documents = [json.loads((folder / name).read_text("utf-8")) for name in ("privacy.json", "ledger.json")]
    change(*documents)
    for name, document in zip(("privacy.json", "ledger.json"), documents, strict=True):
        (folder / name).write_text(json.dumps(document), "utf-8")
    renew_manifest(folder)


def renew_manifest(folder: Path) -> None:
    """The manifest with the hashes that its files have now."""
    body = json.loads((folder / "manifest.json").read_text("utf-8"))
    del body["sha256"]
    for name in body["files"]:
        content = (folder / name).read_bytes()
        body["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    body["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(body), "utf-8")
