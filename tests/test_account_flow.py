"""How many modules a reader has to follow from a spec to its guarantees, and in which order (DESIGN, flow).

*Followed* is a module of which a page's worth runs: at least `PAGE` different lines of its functions, during
``account(load_spec(...))`` of a whole report. What a module does when it is imported, and the construction of
dataclasses, are not counted. Modules of which fewer lines run are looked up in passing (a name, a check that
refuses nothing, a setting that the spec does not have); they are printed when the test fails. The packages
``user_text`` and ``spec`` (reading and validation) count as one module, and so does ``data`` (how many
examples each device holds).
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PAGE, MOST = 25, 15
ROOMS = {"user_text": "spec", "spec": "spec", "data": "data"}

# The stations of DESIGN's flow, each the first module of its kind that is entered.
STATIONS = (
    "spec",
    "accounting",
    "schedule.resolve",
    "schedule.resolve_tree",
    "network.tree",
    "data",
    "schedule.participation",
    "schedule.noise",
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
root, order, lines = Path(sf.__file__).parent, [], {}

def line_by_line(frame, event, arg):
    if event == "line":
        lines[frame.f_code.co_filename].add(frame.f_lineno)
    return line_by_line

def entered(frame, event, arg):
    name, code = frame.f_code.co_filename, frame.f_code
    in_function = code.co_flags & 2 and code.co_name != "<module>"
    if not name.startswith(str(root)) or not in_function:
        return None
    if name not in lines:
        lines[name] = set()
        order.append(name)
    return line_by_line

account, load_spec = sf.account, sf.load_spec
sys.settrace(entered)
account(load_spec(source, overrides))
sys.settrace(None)
found = [(".".join(Path(name).relative_to(root).with_suffix("").parts), len(lines[name])) for name in order]
print(json.dumps(found))
"""


def modules_of(source: str, *overrides: str) -> dict[str, int]:
    """Every module that is entered, in order of the first call, and how many of its lines run."""
    command = [sys.executable, "-c", PROGRAM, source, *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, int] = {}
    for module, lines in json.loads(done.stdout):
        name = ROOMS.get(module.partition(".")[0], module)
        found[name] = found.get(name, 0) + lines
    return found


@pytest.fixture(scope="module")
def entered() -> dict[str, int]:
    """What an account of H2FDP with its paper's noise goes through."""
    return modules_of("h2fdp-fmnist", "training.rounds=3", "topology.edges=4")


def test_an_account_follows_few_modules(entered):
    followed = [name for name, lines in entered.items() if lines >= PAGE]
    assert len(followed) <= MOST, f"followed: {followed}\nin passing: {sorted(set(entered) - set(followed))}"
    assert len(followed) > 8, "the definition has become too generous to mean anything"


def test_they_come_in_the_order_of_the_flow(entered):
    places = [list(entered).index(station) for station in STATIONS]
    assert places == sorted(places), [name for name in entered if name in STATIONS]


def test_calibration_is_one_more_station_between_noise_and_accountant():
    found = list(modules_of("quickstart", "training.rounds=2", "topology.edges=2"))
    assert found.index("schedule.noise") < found.index("schedule.calibration")
    assert found.index("schedule.calibration") < found.index("privacy.accountant")
