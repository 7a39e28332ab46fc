"""How many modules a reader has to follow from a spec to its guarantees, and in which order (DESIGN, flow).

Counted are the modules that ``account(load_spec(...))`` of a whole report enters by a call of a function.
Short and full modules count alike, so that nothing is won by cutting one idea into several. The packages
``spec`` (reading and validation) and ``data`` (how many examples each device holds) count as one module each.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MOST = 56
ONE_ROOM = ("spec", "data")

# The stations of DESIGN's flow, each the first module of its kind that is entered.
STATIONS = (
    "spec",
    "accounting",
    "schedule.resolve.__init__",
    "schedule.resolve.tree",
    "network.tree",
    "network.trust",
    "data",
    "schedule.participation",
    "schedule.noise.placement",
    "privacy.tree.releases",
    "privacy.tree.exposures",
    "privacy.accountant",
    "privacy.guarantee",
    "claims.of_plan",
)

PROGRAM = """
import json, sys
from pathlib import Path
import sfumato as sf

source, overrides = sys.argv[1], sys.argv[2:]
root, order = Path(sf.__file__).parent, {}

def entered(frame, event, arg):
    name, code = frame.f_code.co_filename, frame.f_code
    if name.startswith(str(root)) and code.co_flags & 2 and code.co_name != "<module>":
        order.setdefault(name)

account, load_spec = sf.account, sf.load_spec
sys.settrace(entered)
account(load_spec(source, overrides))
sys.settrace(None)
print(json.dumps([".".join(Path(name).relative_to(root).with_suffix("").parts) for name in order]))
"""


def modules_of(source: str, *overrides: str) -> list[str]:
    """Every module that is entered, in order of the first call."""
    command = [sys.executable, "-c", PROGRAM, source, *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    rooms = {module: module.partition(".")[0] for module in json.loads(done.stdout)}
    return list(dict.fromkeys(room if room in ONE_ROOM else module for module, room in rooms.items()))


@pytest.fixture(scope="module")
def entered() -> list[str]:
    """What an account of H2FDP with its paper's noise goes through."""
    return modules_of("h2fdp-fmnist", "training.rounds=3", "topology.edges=4")


def test_an_account_follows_few_modules(entered):
    assert 8 < len(entered) <= MOST, sorted(entered)


def test_they_come_in_the_order_of_the_flow(entered):
    places = [entered.index(station) for station in STATIONS]
    assert places == sorted(places), [name for name in entered if name in STATIONS]


def test_calibration_is_one_more_station_before_the_accountant():
    found = modules_of("quickstart", "training.rounds=2", "topology.edges=2")
    assert found.index("schedule.participation") < found.index("schedule.noise.calibration")
    assert found.index("schedule.noise.calibration") < found.index("privacy.accountant")
