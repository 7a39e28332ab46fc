"""How many modules an account enters, from a spec to its guarantees, and in which order (DESIGN, flow).

A module is *entered* when a function of it is called during ``account(load_spec(...))`` of a whole report.
What a module does when it is imported is not counted. The packages ``user_text`` and ``spec`` (reading and
validation) count as one module, and so does ``data`` (how many examples each device holds).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MOST = 46
ROOMS = {"user_text": "spec", "spec": "spec", "data": "data"}

# The stations of DESIGN's flow, each the first module of its kind that is entered.
STATIONS = (
    "spec",
    "accounting",
    "schedule.resolve.__init__",
    "schedule.resolve.tree",
    "network.tree",
    "data",
    "schedule.participation",
    "schedule.noise.placement",
    "privacy.tree.releases",
    "privacy.tree.exposures",
    "privacy.accountant",
    "privacy.guarantee",
    "claims.__init__",
)

PROGRAM = """
import json, sys
import sfumato as sf

sys.path.append(sys.argv[1])
from entered_files import Walk

walk, account, load_spec = Walk(), sf.account, sf.load_spec
walk.start()
account(load_spec(sys.argv[2], sys.argv[3:]))
walk.stop()
print(json.dumps(list(walk.files)))
"""
SUPPORT = str(Path(__file__).parent / "support")


def modules_of(source: str, *overrides: str) -> list[str]:
    """Every module that is entered, in order of the first call."""
    command = [sys.executable, "-c", PROGRAM, SUPPORT, source, *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    names = [".".join(Path(file).with_suffix("").parts) for file in json.loads(done.stdout)]
    return list(dict.fromkeys(ROOMS.get(name.partition(".")[0], name) for name in names))


@pytest.fixture(scope="module")
def entered() -> list[str]:
    """What an account of H2FDP with its paper's noise goes through."""
    return modules_of("h2fdp-fmnist", "training.rounds=3", "topology.edges=4")


def test_an_account_enters_few_modules(entered):
    assert len(STATIONS) <= len(entered) <= MOST, sorted(entered)


def test_they_come_in_the_order_of_the_flow(entered):
    places = [entered.index(station) for station in STATIONS]
    assert places == sorted(places), [name for name in entered if name in STATIONS]


def test_calibration_is_one_more_station_between_resolve_and_accountant():
    found = modules_of("quickstart", "training.rounds=2", "topology.edges=2")
    stations = ("schedule.resolve.tree", "schedule.noise.calibration", "privacy.accountant")
    assert [name for name in found if name in stations] == list(stations)


def test_an_account_of_a_tree_loads_no_module_of_groups():
    """An account of one family loads none of the other's: start-up is most of a small account."""
    source = (
        "import sys, sfumato as sf\n"
        "sf.account(sf.load_spec('h2fdp-fmnist', ['training.rounds=3', 'topology.edges=4']))\n"
        "print(*(name for name in sys.modules if name.startswith('sfumato.privacy.groups')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.split() == []
