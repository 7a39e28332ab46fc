"""HDP's Table IV (hdp.txt, Sec. VII-B): what a client reconstructs of the others, by who adds the noise.

Two zones of two clients, batch 1, one step, no secure aggregation. Client 0 subtracts what it sent itself
from the public update and inverts the rest. Noise multipliers are per location, alike in all three cases, as
in the paper; its own, about 1, hides everything at once, so smaller ones show the order.

python examples/attacks/table_iv.py DIR [--seeds N] [--multipliers Z ...] [--source cifar10]

DIR keeps the runs and what was found: going on with more seeds adds to the table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf
from sfumato.attacks.image_metrics import compare_with_baseline
from sfumato.rounding import upper_bound
from sfumato.run_folder.reader import MODEL_FILE

CLIENT = "device:0"
PLACEMENTS = {"LDP": {"device": 1.0}, "HDP": {"edge": 1.0}, "CDP": {"cloud": True}}
# Table IV, LPIPS. Its caption takes higher for a better reconstruction; the metric's authors, for a worse.
PAPER = {
    "EMNIST": {"LDP": 0.571, "HDP": 0.599, "CDP": 0.62, "none": 0.68},
    "CIFAR-10": {"LDP": 0.423, "HDP": 0.452, "CDP": 0.494, "none": 0.596},
    "CIFAR-100": {"LDP": 0.447, "HDP": 0.46, "CDP": 0.474, "none": 0.564},
}


def spec(case: str, multiplier: float, seed: int, source: str) -> sf.Spec:
    """One round of the paper's setting."""
    noise: Any = "none" if case == "none" else {"multiplier": multiplier, "placement": PLACEMENTS[case]}
    return sf.load_spec(
        {
            "name": f"table-iv-{case.lower()}",
            "protocol": "hdp",
            "seed": seed,
            "data": {"source": source, "partition": {"kind": "iid"}},
            "model": {"kind": "cnn-small"},
            "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 2},
            "training": {"rounds": 1, "local_steps": 1, "batch_size": 1, "learning_rate": 1.0},
            "privacy": {"delta": 1.0e-5, "clip": {"kind": "update", "norm": 1.0}, "noise": noise},
        }
    )


def inverted(folder: Path, case: str, multiplier: float, seed: int, source: str) -> dict[str, Any]:
    """What client 0 finds in one run; what ``folder`` holds already is not computed again."""
    result = folder / "attacks" / f"inversion-{CLIENT.replace(':', '-')}.json"
    if not result.is_file():
        if not (folder / MODEL_FILE).is_file():
            sf.run(spec(case, multiplier, seed, source), out=folder, resume=True, record_views=[CLIENT])
        sf.attack(folder, observer=CLIENT, kind="inversion")
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def scores(found: Sequence[dict[str, Any]], who: str, name: str) -> np.ndarray:
    """A score of every image: ``scores`` of the attack, ``guess`` of the class mean."""
    return np.array([float(image[who].get(name, "nan")) for run in found for image in run["images"]])


def row(case: str, multiplier: float, found: Sequence[dict[str, Any]], epsilon: float) -> list[str]:
    """A line of the table."""
    attack, guess = scores(found, "scores", "ssim"), scores(found, "guess", "ssim")
    lpips = scores(found, "scores", "lpips").mean()
    return [
        "–" if case == "none" else f"{multiplier:g}",
        case,
        upper_bound(epsilon, 3),
        f"{attack.mean():.3f}",
        f"{guess.mean():.3f}",
        f"{compare_with_baseline(attack, guess).p_better:.2g}",
        f"{scores(found, 'scores', 'psnr').mean():.1f}",
        "–" if np.isnan(lpips) else f"{lpips:.3f}",
        *(f"{column[case]:.3f}" for column in PAPER.values()),
    ]


def main() -> None:
    """Play, attack, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--multipliers", type=float, nargs="+", default=[1.0, 0.01, 0.001])
    parser.add_argument("--source", default="fashion-mnist")
    asked = parser.parse_args()
    headers = ["z", "noise", f"ε to {CLIENT}", "SSIM", "guess", "p better", "PSNR dB", "LPIPS"]
    lines = [headers + [f"LPIPS in the paper: {name}" for name in PAPER]]
    lines.append(["---"] * len(lines[0]))
    for case, z in [("none", 0.0), *((case, z) for z in asked.multipliers for case in PLACEMENTS)]:
        runs = [
            inverted(asked.folder / f"{case.lower()}-{z:g}" / f"seed-{seed}", case, z, seed, asked.source)
            for seed in range(asked.seeds)
        ]
        epsilon = sf.account(spec(case, z, 0, asked.source)).epsilon(unit=1, observer=CLIENT)
        lines.append(row(case, z, runs, epsilon))
    for line in lines:
        print(f"| {' | '.join(line)} |")
    images = len(scores(runs, "scores", "ssim"))
    print(f"\n{asked.seeds} seeds, {images} images a row; the guess is the class mean.")


if __name__ == "__main__":
    main()
