"""Parts of a machine that some tests need: a test whose part is not here is skipped.

A test says ``@pytest.mark.needs("chromium")``; ``NEEDS`` says how to find each part and how to install it. A
line before pytest's totals counts the tests that were skipped. With ``SFUMATO_REQUIRE=all`` such a test fails
instead, except those that need CUDA.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest

VARIABLE = "SFUMATO_REQUIRE"


@dataclass(frozen=True)
class Need:
    """A part of a machine.

    Attributes:
        is_here: says whether this machine has it.
        install: what the user does to have it.
        required: whether ``SFUMATO_REQUIRE=all`` asks for it.
    """

    is_here: Callable[[], bool]
    install: str
    required: bool = True


def _program(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _extra(name: str, *packages: str, required: bool = True) -> Need:
    return Need(lambda: all(map(find_spec, packages)), f"pip install -e '.[{name}]'", required=required)


@cache
def _may_mount() -> bool:
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if mount is None or unmount is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([mount, "-t", "tmpfs", "tmpfs", folder], capture_output=True)
        if done.returncode == 0:
            subprocess.run([unmount, folder], check=True)
    return done.returncode == 0


def _cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _fashion_mnist() -> bool:
    from sfumato.data.locate import SYSTEM_FOLDER

    return (SYSTEM_FOLDER / "fashion-mnist").is_dir()


def _flower() -> bool:
    from sfumato.deployment.flower.environment import flower_folder, is_flower_here

    return sys.platform == "linux" and is_flower_here(flower_folder())


NEEDS = {
    "chromium": Need(_program("chromium"), "apt-get install chromium"),
    "fashion-mnist": Need(_fashion_mnist, "apt-get install dataset-fashion-mnist"),
    "mount": Need(_may_mount, "run as root, in a container with --cap-add SYS_ADMIN"),
    "setpriv": Need(lambda: os.geteuid() != 0 or _program("setpriv")(), "apt-get install util-linux"),
    "hub": _extra("hub", "datasets", "PIL", "flwr_datasets"),
    "hdf5": _extra("hdf5", "h5py"),
    "plan": _extra("plan", "cvxpy", "clarabel"),
    "explore": _extra("explore", "dash"),
    "playwright": _extra("dev", "playwright"),
    "tensorboard": _extra("tensorboard", "tensorboard"),
    "wandb": _extra("wandb", "wandb", required=False),
    "mlflow": _extra("mlflow", "mlflow", required=False),
    "ray": _extra("ray", "ray", required=False),
    "flower": Need(_flower, "sfumato deploy flower", required=False),
    "opacus": Need(lambda: find_spec("opacus") is not None, "pip install opacus", required=False),
    "opendp": Need(lambda: find_spec("opendp") is not None, "pip install opendp", required=False),
    "pfl": Need(lambda: find_spec("pfl") is not None, "pip install pfl", required=False),
    "cuda": Need(_cuda, "a machine with a CUDA device", required=False),
}


def missing(item: pytest.Item) -> str | None:
    """The first part that the test needs and that is not here."""
    names = (name for marker in item.iter_markers("needs") for name in marker.args)
    return next((name for name in names if not NEEDS[name].is_here()), None)


def reason(name: str) -> str:
    """Why a test is skipped, and what installs the part."""
    return f"needs {name}: {NEEDS[name].install}"


def pytest_configure() -> None:
    """Refuse another value of the variable than the one that has a meaning."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "all"):
        raise pytest.UsageError(f"{VARIABLE}: got {value!r}; must be all, or not set")


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that are skipped."""
    demanded = os.environ.get(VARIABLE) == "all"
    for item in items:
        name = missing(item)
        if name is not None and not (demanded and NEEDS[name].required):
            item.user_properties.append(("needs", name))
            item.add_marker(pytest.mark.skip(reason=reason(name)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail where a part is missing and the test is not skipped for it: it is demanded."""
    name = missing(item)
    if name is not None:
        pytest.fail(f"{VARIABLE}=all, and this test {reason(name)}", pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # after everything else that is said at the end
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """Count the tests that were skipped, by part."""
    yield
    reports = terminalreporter.stats.get("skipped", [])
    counts = Counter(name for report in reports for key, name in report.user_properties if key == "needs")
    if counts:
        parts = [f"{n} for want of {name} ({NEEDS[name].install})" for name, n in counts.most_common()]
        terminalreporter.write_line(f"skipped: {', '.join(parts)}", yellow=True)
