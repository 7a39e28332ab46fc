"""Kills at any moment, by any signal, over all protocols: resumed, a run ends as one never killed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import fast_python
import pytest
from places import TESTS
from resumed_specs import CONTROLLED, GROUPED, PFELS, VARIANTS

from sfumato.spec import dump_spec
from sfumato.spec.document import Spec

SEED = 20260714
SCRIPT = TESTS / "support" / "killing.py"


def longer(spec: Spec, rounds: int) -> Spec:
    training = spec.training.model_copy(update={"rounds": rounds})
    return spec.model_copy(update={"training": training, "watch": ()})


SPECS = {
    "h2fdp": (longer(VARIANTS["server momentum"], 20), ["edge:0"]),
    "moves": (longer(VARIANTS["devices that move, edges with schedules of their own"], 20), ["edge:1"]),
    "hdp": (longer(VARIANTS["secure aggregation, elections and faults"], 12), ["cloud"]),
    "dp-ogl": (longer(GROUPED["dp-ogl, untrusted masters"], 20), ["master:0"]),
    "dp-ogl+": (longer(GROUPED["dp-ogl+, stopped inside intervals"], 20), ["device:0"]),
    "pfels": (longer(PFELS, 16), ["cloud"]),
    "control": (longer(CONTROLLED, 12), ["cloud"]),
}


def kill(name: str, kills: int, folder: Path) -> dict[str, Any]:
    spec, observers = SPECS[name]
    (folder / "wanted.yaml").write_text(dump_spec(spec))
    command = [sys.executable, SCRIPT, folder / "wanted.yaml", folder / "runs", kills, SEED, *observers]
    done = fast_python.run(command)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["faults"] == []
    assert not [line for line in found["said"] if "Traceback" in line or "internal error" in line]
    return found


def test_two_kills(tmp_path: Path) -> None:
    found = kill("h2fdp", 2, tmp_path)
    assert found["found"]["resumed"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_fifty_kills_of_every_protocol(name: str, tmp_path: Path) -> None:
    found = kill(name, 50, tmp_path)
    print(f"{name}: {found['found']}")
