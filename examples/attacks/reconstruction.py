"""What hides an image from an edge server: nothing, a sum of ten, noise; and a model that needs neither.

Fashion-MNIST, one round; the edge of ten devices looks. Scores are those of the attack that explains best
what was seen, beside the mean image of the true label.

python examples/attacks/reconstruction.py DIR [--seeds N]

DIR keeps the runs and what was found: going on with more seeds adds to the table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf
from sfumato.attacks.image_metrics import compare_with_baseline
from sfumato.run_folder.reader import MODEL_FILE

EDGE = "edge:0"
SECURE = {"devices_to_edge": "secure-aggregation"}
ONE_STEP = {"local_steps": 1, "batch_size": 1, "learning_rate": 1.0}
FIVE_STEPS = {"local_steps": 5, "batch_size": 5, "learning_rate": 0.1}
NOISE = {"multiplier": 0.6, "placement": {"device": 1.0}}
SETTINGS: dict[str, dict[str, Any]] = {
    "each message, one image": {"training": ONE_STEP},
    "each message, 5 steps of 5 images": {"training": FIVE_STEPS},
    "each message, one image, multiplier 0.6": {"training": ONE_STEP, "noise": NOISE},
    "sum of 10, one image each": {"training": ONE_STEP, "transport": SECURE},
    "sum of 10, 5 steps of 5 images": {"training": FIVE_STEPS, "transport": SECURE},
    "sum of 10, one image each, softmax model": {
        "training": ONE_STEP,
        "transport": SECURE,
        "model": "softmax",
    },
    "sum of 10, 5 steps of 5 images, softmax model": {
        "training": FIVE_STEPS,
        "transport": SECURE,
        "model": "softmax",
    },
}


def spec(name: str, seed: int) -> sf.Spec:
    """One round of a setting."""
    setting = SETTINGS[name]
    return sf.load_spec(
        {
            "name": name.replace(",", "").replace(" ", "-"),
            "protocol": "hdp",
            "seed": seed,
            "data": {"source": "fashion-mnist", "partition": {"kind": "iid"}},
            "model": {"kind": setting.get("model", "cnn-small")},
            "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 10},
            "training": {"rounds": 1, **setting["training"]},
            "transport": setting.get("transport", {}),
            "privacy": {
                "delta": 1.0e-5,
                "clip": {"kind": "update", "norm": 1.0},
                "noise": setting.get("noise", "none"),
            },
        }
    )


def inverted(folder: Path, name: str, seed: int) -> dict[str, Any]:
    """What the edge finds in one run; what ``folder`` holds already is not computed again."""
    result = folder / "attacks" / f"inversion-{EDGE.replace(':', '-')}.json"
    if result.is_file():
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return found
    if not (folder / MODEL_FILE).is_file():
        sf.run(spec(name, seed), out=folder, resume=True, record_views=[EDGE])
    return sf.attack(folder, observer=EDGE, kind="inversion")


def main() -> None:
    """Play, attack, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    headers = ["the edge receives", "images", "SSIM", "class mean", "p better", "labels"]
    lines = [headers, ["---"] * len(headers)]
    for name in SETTINGS:
        place = asked.folder / spec(name, 0).name
        runs = [inverted(place / f"seed-{seed}", name, seed) for seed in range(asked.seeds)]
        attack, guess = (
            np.array([image[who]["ssim"] for run in runs for image in run["images"]])
            for who in ("scores", "guess")
        )
        labels = np.mean([run["results"][0]["label_accuracy"] for run in runs])
        lines.append(
            [
                name,
                str(len(attack)),
                f"{attack.mean():.3f}",
                f"{guess.mean():.3f}",
                f"{compare_with_baseline(attack, guess).p_better:.2g}",
                f"{labels:.0%}",
            ]
        )
    for line in lines:
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main()
