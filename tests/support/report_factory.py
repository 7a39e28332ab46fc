"""Run folders made up for the report: shapes and extremes, no training."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from sfumato.durable_files import hash_file
from sfumato.run_folder.manifest import FileRecord, Manifest, write_manifest
from sfumato.run_folder.metrics_table import write_metrics
from sfumato.run_folder.reader import add_hashes, write_ledger, write_privacy, write_spec
from sfumato.spec.document import fingerprint

RAW = "the edge is trusted and receives the raw update, by design"


def guarantee(
    unit: str, observer: str, epsilon: float, stands_for: int = 1, why: str = "", **more: Any
) -> dict[str, Any]:
    kind = "coalition" if "," in observer else observer.partition(":")[0]
    relation = {"cloud": "cloud", "public": "public", "device": "device elsewhere"}.get(kind, "")
    row = {
        "unit": unit, "observer": observer, "relation": relation, "stands_for": stands_for,
        "neighbours": "zero-out",
        "epsilon": epsilon, "releases": 30, "bound": "flow", "method": "pld",
        "why": why or "noise of the edge is on everything it sends",
    }  # fmt: skip
    row["bounds"] = {"flow": {"epsilon": epsilon, "releases": 30}}
    return row | more


def claim(
    claimed: float, rigorous: float, *, why: str, observer: str = "cloud", unit: str = "device:0"
) -> dict[str, Any]:
    return {
        "source": "H2FDP Prop. 3.1", "unit": unit, "observer": observer, "claimed_epsilon": claimed,
        "rigorous_epsilon": rigorous, "holds": rigorous <= claimed, "why": why,
    }  # fmt: skip


def metrics(
    rounds: int,
    *,
    seed: int = 0,
    epsilons: dict[str, float] | None = None,
    top: float = 0.9,
    radio: bool = True,
    every: int = 1,
) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    k = np.arange(1, rounds + 1)
    evaluated = (k % every == 0) if every else np.zeros(rounds, dtype=bool)
    accuracy = np.where(evaluated, top * (1 - np.exp(-k / 5)) + rng.normal(0, 0.012, rounds), np.nan)
    frame = pd.DataFrame(
        {
            "round": k, "accuracy": accuracy, "loss": np.where(evaluated, 2.3 * np.exp(-k / 6), np.nan),
            "energy_j": rng.uniform(2.1, 2.5, rounds) * np.linspace(1, 2, rounds) if radio else np.nan,
            "delay_s": rng.uniform(0.4, 0.6, rounds) * np.linspace(1, 2, rounds) if radio else np.nan,
            "bytes_up": 520_000, "bytes_down": 260_000, "clip_fraction": rng.uniform(0.6, 0.9, rounds),
            "noise_std": 0.031, "wall_time_s": rng.uniform(0.2, 0.3, rounds),
        }
    )  # fmt: skip
    for observer, epsilon in (epsilons or {}).items():
        spent = np.full(rounds, np.inf) if epsilon == np.inf else epsilon * np.sqrt(k / rounds)
        frame[f"epsilon:{observer}"] = spent
    return frame


def quickstart_spec(**changes: Any) -> dict[str, Any]:
    spec = {
        "name": "quickstart", "protocol": "h2fdp", "seed": 0,
        "data": {"source": "digits", "partition": {"kind": "labels", "labels_per_device": 3}},
        "model": {"kind": "softmax"},
        "topology": {"kind": "tree", "edges": 5, "devices_per_edge": 40},
        "trust": {"trusted_edges": [0, 2, 3]},
        "training": {
            "rounds": 15, "steps_per_round": 20, "edge_every": 10, "batch_size": 8, "learning_rate": 0.5,
        },
        "privacy": {
            "delta": 1e-5, "clip": {"kind": "update", "norm": 1.0},
            "noise": {
                "kind": "sources",
                "sources": [
                    {"owners": ["edge:0", "edge:2", "edge:3"], "multipliers": [3.21, 3.21]},
                    {"owners": ["edge:1/devices", "edge:4/devices"], "multipliers": [0.507, 0.507]},
                ],
                "stated": {"kind": "target", "epsilon": 8.0, "for": "cloud"},
            },
        },
        "radio": {"preset": "h2fdp"},
        "versions": {"sfumato": "0.1.0", "torch": "2.13.0", "numpy": "2.4.6"},
    }  # fmt: skip
    return spec | changes


def quickstart_privacy() -> dict[str, Any]:
    inf = float("inf")
    by_trust = [
        ("device:0", 120, "edge:0", inf, RAW, 4.7, "edge:1"),
        (
            "device:40",
            80,
            "edge:1",
            71.3,
            "each device's own noise is all that protects it there",
            8.0,
            "edge:0",
        ),
    ]
    rows = []
    for unit, count, own, towards_own, why, others, other in by_trust:
        first = int(unit.split(":")[1])
        rows += [
            guarantee(unit, "cloud", 8.0, count, relation="cloud"),
            guarantee(unit, own, towards_own, count, why, relation="own edge", trusted=towards_own == inf),
            guarantee(unit, other, 6.4, count * 2, relation="edge elsewhere"),
            guarantee(unit, "edge:2", 6.3, count * 2, relation="edge elsewhere"),
            guarantee(unit, f"device:{first + 1}", others, count * 39, bound="cut"),
            guarantee(unit, "device:199", 3.9, count * 160),
            guarantee(unit, "public", 3.6, count),
        ]
    claims = [
        claim(1.0, 8.0, why="record-level amplification is applied to a device-level sensitivity (H1)"),
        claim(
            1.0,
            71.3,
            unit="device:40",
            observer="edge:1",
            why="local and global releases each spend all of ε (H3)",
        ),
        claim(1.0, inf, observer="edge:0", why=RAW),
        claim(9.0, 3.6, observer="public", why="the sum of all noisers is all the public sees"),
    ]
    return {
        "spec": "quickstart",
        "delta": 1e-5,
        "guarantees": rows,
        "claims": claims,
        "raw_to_trusted_edge": {"devices": 120, "of": 200},
    }


def make_folder(
    folder: Path,
    spec: dict[str, Any] | None = None,
    *,
    frame: pd.DataFrame | None = None,
    privacy: dict[str, Any] | None = None,
    finished: bool = True,
) -> Path:
    spec = spec or quickstart_spec()
    if frame is None:
        frame = metrics(15, epsilons={"cloud": 8.0, "edge:0": np.inf, "edge:1": 71.3})
    hashes = {"spec": fingerprint(spec)}
    text = yaml.safe_dump(spec | {"hashes": hashes}, sort_keys=False, allow_unicode=True)
    files = {
        "spec.yaml": write_spec(folder, text),
        "metrics.parquet": write_metrics(folder, [frame], hashes),
        "privacy.json": write_privacy(folder, privacy or quickstart_privacy(), hashes),
        "ledger.json": write_ledger(folder, {"atoms": []}, hashes),
    }
    if finished:
        model = io.BytesIO()
        add_hashes(model, hashes)
        (folder / "model.pt").write_bytes(model.getvalue())
        files["model.pt"] = FileRecord(*hash_file(folder / "model.pt"))
    write_manifest(folder, Manifest(hashes["spec"], finished, files))
    return folder
