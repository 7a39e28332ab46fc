"""docs/two-machines.md: its commands lead from nothing to a statement, as they stand there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from handed_over import free_addresses
from places import ROOT

from sfumato.accounting import account
from sfumato.run_folder.reader import load_run
from sfumato.spec.load import load_spec

_BLOCK = re.compile(r"^On (A|B|both):\n\n```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COPY = """\
#!/bin/sh
there() { case $1 in [ab].example.org:*) echo "MACHINES/${1%%.*}/${1#*:}" ;; *) echo "$1" ;; esac; }
cp "$(there "$1")" "$(there "$2")"
"""
_REFUSED = 1


@dataclass(frozen=True)
class Machines:
    """Two homes of users, ``a`` and ``b``, and the commands that they have."""

    folder: Path

    def environment(self, machine: str) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name != "XDG_STATE_HOME"}
        own |= {"HOME": str(self.folder / machine.lower()), "OMP_NUM_THREADS": "1"}
        return own | {"PATH": f"{self.folder}:{os.environ['PATH']}"}

    def parties(self, machine: str) -> Path:
        return self.folder / machine.lower() / "sfumato-parties"

    @contextmanager
    def started(self, machine: str, commands: str) -> Iterator[subprocess.Popen[str]]:
        """Commands that run on a machine; ended with their shell when this is left."""
        home = self.parties(machine)
        with subprocess.Popen(
            ["bash", "-e", "-c", commands],
            cwd=home if home.exists() else home.parent,
            env=self.environment(machine),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)

    def ran(self, machine: str, commands: str, status: int = 0) -> str:
        """What commands print; they end with ``status``."""
        with self.started(machine, commands) as process:
            said, _ = process.communicate()
        assert process.returncode == status, said
        return said


@pytest.fixture(name="machines")
def fixture_machines(tmp_path: Path) -> Machines:
    for name, text in {
        "sfumato": f'#!/bin/sh\nexec {sys.executable} -m sfumato "$@"\n',
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        "scp": _COPY.replace("MACHINES", str(tmp_path)),
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for machine in "ab":
        (tmp_path / machine).mkdir()
    return Machines(tmp_path)


@pytest.mark.slow
def test_the_commands_of_the_page_lead_to_a_statement(machines: Machines) -> None:
    """Both machines are this one, with a home each; the cloud's address is one of its own."""
    page = (ROOT / "docs" / "two-machines.md").read_text("utf-8")
    spec, parties = _FILE.findall(page)
    address = free_addresses("cloud")["cloud"]["address"]
    parties = parties.replace("a.example.org:8470", address).replace("0.0.0.0:8470", address)
    first, *prepared, copied, of_b, of_a, on_a, on_b, device, cloud = _BLOCK.findall(page)
    assert (first[0], len(prepared)) == ("both", 5)
    for machine in "AB":
        machines.ran(machine, first[1])
    for name, text in (("spec.yaml", spec), ("parties.yaml", parties)):
        (machines.parties("A") / name).write_text(text)
    for machine, commands in (*prepared, copied):
        assert "secret keys" not in machines.ran(machine, commands)
    for machine, commands in (of_b, of_a):
        assert "consent.yaml was proposed" in machines.ran(machine, commands, _REFUSED)
    with machines.started(*on_a) as checking:
        assert "the same terms" in machines.ran(*on_b)
        assert checking.wait() == 0
    with machines.started(*device):
        said = machines.ran(*cloud)
    assert "run folder: ./cloud/run" in said or "run folder: cloud/run" in said
    played = load_run(machines.parties("A") / "cloud" / "run")
    expected = account(load_spec(machines.parties("A") / "spec.yaml")).guarantees
    assert [row.epsilon for row in played.privacy.guarantees] == [row.epsilon for row in expected]
