"""Record what every spec that comes with the project computes, and compare two records.

    PYTHONPATH=src python tests/frozen/behaviour.py record RECORD.json [--root TREE] [--draws N]
    python tests/frozen/behaviour.py compare BEFORE.json AFTER.json

A record holds, for every built-in spec, example and spec of the tests: what ``account --json`` prints, and,
after a few rounds of training, the SHA-256 of every tensor of the model and the metrics without wall time.
Random specs (those of the oracle's tests of this tree) are accounted for as well. ``make frozen BASE=commit``
records another commit and this tree and compares the two. Exit code 1 where anything differs. Of Sfumato only
the Python interface is used, so that any commit that has it can be recorded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import yaml

FOLDERS = ("src/sfumato/spec/builtin", "examples", "tests/spec/specs")
ACCOUNTED = re.compile("/ (account|pair|run / metrics / epsilon)")
ROUNDING = 1e-8
"""Figures of the account may differ by so much, relatively: sums are taken in another order."""
SMALL = ("training.rounds=3", "evaluate_every=1")
LABELS = ("topology.devices=8",)  # what every kind of pair of 100 devices learns takes minutes
VARIANTS = {
    "quickstart": (
        ("protocol=hfl",),
        ("transport.devices_to_edge=secure-aggregation",),
        ("training.participation={kind: poisson, rate: 0.5}",),
        ("training.participation={kind: fixed, count: 2}", "faults={dropout_rate: 0.1}"),
        ("privacy.neighbours=replace",),
        ("privacy.noise={epsilon: 4, for: cloud}",),
        ("training.global_step=resend",),
    ),
    "c3": (
        ("topology.supernodes=elected",),
        ("faults={dropout_rate: 0.1}", "topology.supernodes=elected"),
    ),
    "dp-fedavg": (("training.participation={kind: fixed, count: 5}",),),
    "ogl-plus": (("transport.devices_to_master=secure-aggregation",), ("privacy.neighbours=replace",)),
}


def specs(root: Path) -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """Every spec under these folders, by name, with its variants."""
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.yaml")):
        document = yaml.safe_load(path.read_text("utf-8"))
        if "protocol" not in document:
            continue
        name = str(path.relative_to(root))
        base = LABELS if document["topology"].get("structure") == "labels" else ()
        for changes in ((), *VARIANTS.get(path.stem, ())):
            yield " ".join((name, *changes)), path, (*base, *changes)


def random_specs(draws: int) -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
    """The first random specs of the oracle's tests, one in three on groups, each with a pair to ask about."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))
    import oracle_random_groups as groups
    import oracle_random_trees as trees

    for number in range(draws):
        rng = Random(f"frozen/{number}")
        grouped = number % 3 == 2
        document = groups.random_groups(rng) if grouped else trees.random_tree(rng)
        unit, observer = (groups if grouped else trees).random_pair(document, rng)
        yield f"random {number}", document, {"unit": f"device:{unit}", "observer": observer}


def accounted(source: Any, changes: tuple[str, ...] = (), **pair: str) -> Any:
    """What ``account --json`` prints; a refusal is its message."""
    import sfumato as sf

    try:
        return sf.account(sf.load_spec(source, changes), **pair).to_dict()
    except sf.SfumatoError as error:
        return {"refused": _without_folders(error, source)}


def _without_folders(error: Exception, source: Any) -> str:
    return str(error).replace(f"{source.parent}/", "") if isinstance(source, Path) else str(error)


def trained(path: Path, changes: tuple[str, ...]) -> Any:
    """Hashes of the model's tensors and the metrics after a few rounds."""
    import sfumato as sf

    with tempfile.TemporaryDirectory() as folder:
        try:
            result = sf.run(sf.load_spec(path, (*changes, *SMALL)), out=Path(folder) / "run")
        except sf.SfumatoError as error:
            return {"refused": _without_folders(error, path)}
        tensors = result.model.state_dict()
        metrics = result.metrics.drop(columns="wall_time_s")
    return {
        "model": {
            name: hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()
            for name, tensor in tensors.items()
        },
        "metrics": json.loads(metrics.to_json(orient="columns", double_precision=15)),
    }


def record(out: Path, root: Path, draws: int) -> None:
    """Write the record of the tree whose ``sfumato`` is imported."""
    kept: dict[str, Any] = {}
    for name, path, changes in specs(root):
        print(name, file=sys.stderr, flush=True)
        kept[name] = {"account": accounted(path, changes), "run": trained(path, changes)}
    for name, document, pair in random_specs(draws):
        kept[name] = {"account": accounted(document), "pair": accounted(document, **pair)}
    out.write_text(json.dumps(kept, indent=1, ensure_ascii=False))


def differences(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Every place where two records differ, with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), f"{place} / {key}" if place else key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{place}[{number}]")
    elif isinstance(before, float) and isinstance(after, float) and ACCOUNTED.search(place):
        if not math.isclose(before, after, rel_tol=ROUNDING):
            yield f"{place}: {before!r} → {after!r}"
    elif before != after:
        yield f"{place}: {before!r} → {after!r}"


def main() -> int:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--root", type=Path, default=Path.cwd())
    recording.add_argument("--draws", type=int, default=300)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    asked = parser.parse_args()
    if asked.command == "record":
        record(asked.out, asked.root, asked.draws)
        return 0
    found = list(differences(json.loads(asked.before.read_text()), json.loads(asked.after.read_text())))
    print("\n".join(found) or "no difference")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
