"""What `make` installs: the lock files, the choice of Python, and where torch comes from."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from places import ROOT

ROOT = ROOT
LOCKS = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
OF_TORCH = re.compile(r"(torch|triton|cuda-.*|nvidia-.*)")


def locked(name: str) -> dict[str, tuple[Version, list[str]]]:
    """Version and hashes of every package in a lock file."""
    found: dict[str, tuple[Version, list[str]]] = {}
    for entry in re.split(r"\n(?=\S)", (LOCKS / name).read_text("utf-8").rstrip()):
        if not entry.startswith("#"):
            first, *rest = entry.split("\\\n")
            package, _, version = first.partition(";")[0].strip().partition("==")
            assert package not in found
            found[package] = (Version(version), [line.strip() for line in rest])
    return found


def asked(*extras: str) -> list[Requirement]:
    """What pyproject.toml asks for, torch and this project itself aside."""
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in EXTRAS[extra])]
    found = [Requirement(text) for text in texts]
    return [requirement for requirement in found if requirement.name not in ("torch", "sfumato")]


# --- locks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", sorted(path.name for path in LOCKS.glob("*.lock")))
def test_every_package_of_a_lock_has_hashes_and_no_address(lock):
    packages = locked(lock)
    assert packages
    for _, hashes in packages.values():
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in hashes)
    text = (LOCKS / lock).read_text("utf-8")
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("run.lock", ()),
        ("dev.lock", ("hub", "hdf5", "tensorboard", "plan", "test", "dev")),
        ("docs.lock", ("docs",)),
        ("lowest.lock", ("hub", "hdf5", "tensorboard", "plan", "test")),
    ],
)
def test_a_lock_has_what_the_project_asks_for_and_leaves_torch_out(lock, extras):
    packages = locked(lock)
    for requirement in asked(*extras):
        assert requirement.specifier.contains(packages[canonicalize_name(requirement.name)][0]), requirement
    assert not [name for name in packages if OF_TORCH.fullmatch(name)]


def test_locks_agree_on_versions():
    run, dev = locked("run.lock"), locked("dev.lock")
    assert {name: dev[name] for name in run} == run


def test_the_lowest_versions_are_those_that_the_project_allows():
    lowest = locked("lowest.lock")
    for requirement in asked("hub", "hdf5", "tensorboard", "plan", "test"):
        (bound,) = requirement.specifier
        assert bound.operator == ">=", requirement
        assert lowest[canonicalize_name(requirement.name)][0] == Version(bound.version), requirement


def test_torch_is_locked_apart_at_a_version_that_the_project_allows():
    packages = locked("torch.lock")
    assert all(OF_TORCH.fullmatch(name) for name in packages)
    (torch,) = (Requirement(text) for text in PROJECT["dependencies"] if Requirement(text).name == "torch")
    assert torch.specifier.contains(packages["torch"][0])
    assert len(packages["torch"][1]) > 3  # of several systems and Pythons


# --- which Python -----------------------------------------------------------------------------------

check = runpy.run_path(str(LOCKS / "check-python.py"))
problem = check["problem"]


def environment(folder: Path, version: str) -> str:
    (folder / "pyvenv.cfg").write_text(f"home = /somewhere\nversion = {version}\n", "utf-8")
    return str(folder)


@pytest.mark.parametrize("version", ["2.7", "3.9", "3.10"])
def test_an_older_python_is_refused(version, tmp_path):
    text = problem("/usr/bin/python3", version, environment(tmp_path, "3.12.1"))
    assert text.startswith(f"Sfumato needs Python 3.11 or later; /usr/bin/python3 is {version}. Name")


def test_the_least_python_is_that_of_the_project():
    assert PROJECT["requires-python"] == f">={check['LEAST']}"


def test_an_environment_of_another_python_is_refused(tmp_path):
    folder = environment(tmp_path, "3.11.7")
    assert problem("python3.12", "3.12", folder) == (
        f"{folder} holds Python 3.11, not 3.12. "
        f"Remove {folder}, or name another folder: make VENV={folder}-3.12 ..."
    )


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "4.0"])
def test_a_python_is_taken_for_a_new_environment_and_for_its_own(version, tmp_path):
    assert problem("python3", version, str(tmp_path / "none")) is None
    assert problem("python3", version, environment(tmp_path, f"{version}.1")) is None


# --- what the scripts call ----------------------------------------------------------------------------


@pytest.fixture
def calls(tmp_path):
    """What a script of ``requirements`` calls where programs only write down their arguments."""
    programs = tmp_path / "env" / "bin"
    programs.mkdir(parents=True)
    log = tmp_path / "calls"
    stub = '#!/bin/sh\necho "{name} $*" >>"{log}"\ncase "{name} $*" in {fails}) exit 1 ;; esac\n'

    def run(
        script: str, *arguments: Path, fails: tuple[str, ...] = (), system: str = "Linux"
    ) -> tuple[list[str], str]:
        patterns = "|".join(f"*{fail.replace(' ', '?')}*" for fail in fails) or "none"
        for name in ("python", "uv"):
            text = stub.format(name=name, log=log, fails=patterns)
            (programs / name).write_text(text, "utf-8")
            (programs / name).chmod(0o755)
        (tmp_path / "uname").write_text(f"#!/bin/sh\necho {system}\n", "utf-8")
        (tmp_path / "uname").chmod(0o755)
        done = subprocess.run(
            [LOCKS / script, tmp_path / "env", *arguments],
            env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        made = [line.replace("python -m ", "") for line in log.read_text("utf-8").splitlines()]
        return [line for line in made if "install" in line], done.stderr

    return run


# --- packages of a lock ---------------------------------------------------------------------------------

WITH_HASHES = "pip install --quiet --require-hashes --requirement"


def test_uv_installs_a_lock_with_its_hashes(calls, tmp_path):
    made, said = calls("install-locked.sh", LOCKS / "run.lock")
    of_uv = f"uv pip install --quiet --python {tmp_path}/env/bin/python --require-hashes --requirement"
    assert made == [f"{WITH_HASHES} {LOCKS}/uv.lock", f"{of_uv} {LOCKS}/run.lock"]
    assert said == ""


def test_where_uv_finds_no_index_pip_installs_the_same_with_hashes(calls):
    made, said = calls("install-locked.sh", LOCKS / "run.lock", fails=("uv pip",))
    assert made[-1] == f"{WITH_HASHES} {LOCKS}/run.lock"
    assert len(made) == 3
    assert said == f"uv could not install {LOCKS}/run.lock: pip does.\n"


# --- where torch comes from ---------------------------------------------------------------------------

VERSION = str(locked("torch.lock")["torch"][0])
PIP, CPU = "pip install --quiet", f"torch=={VERSION}+cpu"
BY_UV = f"uv pip install --quiet --python {{}}/bin/python --torch-backend=cpu torch=={VERSION}"


@pytest.fixture
def torch_calls(calls):
    """The same of `install-torch.sh`; calls that contain one of ``fails`` fail."""

    def run(*fails: str, system: str = "Linux", there: bool = False) -> tuple[list[str], str]:
        return calls("install-torch.sh", fails=fails if there else (*fails, "importlib"), system=system)

    return run


def test_a_cpu_build_that_pip_finds_is_all_it_takes(torch_calls):
    assert torch_calls() == ([f"{PIP} {CPU}"], "")


def test_else_uv_fetches_the_cpu_build(torch_calls, tmp_path):
    made, said = torch_calls("+cpu")
    assert made == [
        f"{PIP} {CPU}",
        f"{PIP} --require-hashes --requirement {LOCKS}/uv.lock",
        BY_UV.format(tmp_path / "env"),
    ]
    assert said == ""


def test_else_the_build_of_the_package_index_is_installed_and_its_size_said(torch_calls):
    made, said = torch_calls("+cpu", "torch-backend")
    assert made[-1] == f"{PIP} --require-hashes --no-deps --requirement {LOCKS}/torch.lock"
    assert len(made) == 4
    assert "3 GB to download" in said


def test_other_systems_need_no_cpu_build(torch_calls):
    made, said = torch_calls(system="Darwin")
    assert made == [f"{PIP} --require-hashes --no-deps --requirement {LOCKS}/torch.lock"]
    assert said == ""


def test_a_torch_that_is_there_is_kept(torch_calls):
    assert torch_calls(there=True) == ([], "")
