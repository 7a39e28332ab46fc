"""The environment of Flower: apart from the user's own, so that no versions conflict.

It has the one version that this was made for, and what that needs in the versions of ``constraints.txt``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from sfumato.deployment.flower.relay_user import relay_user
from sfumato.errors import RunError, SpecError

VERSION = "1.41.0"
_SYSTEM_PYTHON = "/usr/bin/python3"
VARIABLE = "SFUMATO_FLOWER"
"""The environment variable that names the folder, where it is another one than the usual."""


def flower_folder() -> Path:
    """The path of the environment: that in the environment variable, else in the user's or machine's cache.

    Raises:
        SpecError: the variable holds no absolute path.
    """
    named = os.environ.get(VARIABLE, "")
    if named:
        if not os.path.isabs(named):
            raise SpecError(VARIABLE, named, "must be an absolute path, of a folder for Flower")
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        # root's own folder is closed to the user that relays run under
        cache = "/var/cache" if os.geteuid() == 0 else str(Path.home() / ".cache")
    return Path(cache) / "sfumato" / f"flower-{VERSION}"


def is_flower_here(folder: Path) -> bool:
    """Whether a folder has an environment with the right version of Flower."""
    found = folder.glob(f"lib/python3*/site-packages/flwr-{VERSION}.dist-info")
    return any(found) and (folder / "bin" / "flower-superlink").exists()


def require_flower() -> Path:
    """The path of the environment, after a check that Flower is there.

    Raises:
        SpecError: the environment variable holds no absolute path.
        RunError: this version of Flower is not there, or the system is not Linux.
    """
    if sys.platform != "linux":
        raise RunError(f"Flower's processes are ended by what only Linux has: not on {sys.platform}")
    folder = flower_folder()
    if not is_flower_here(folder):
        raise RunError(f"{folder}: holds no flwr {VERSION}; make it by: sfumato deploy flower")
    return folder


def make_flower(say: Callable[[str], object]) -> Path:
    """Make the environment; one that exists stays as it is. Returns its path.

    It is made with the Python that runs this; with the system's Python if the relays' user can run only that.

    Args:
        say: called with a line on each step.

    Raises:
        SpecError: the environment variable holds no absolute path.
        RunError: it cannot be made.
    """
    folder = flower_folder()
    if is_flower_here(folder):
        return folder
    if folder.exists() and not (folder / "pyvenv.cfg").exists():
        raise RunError(f"{folder}: is there already, and is no environment of Python; name a new folder")
    say(f"installing flwr {VERSION} in {folder}")
    python = str(folder / "bin" / "python")
    maker = next(filter(relay_user, (sys.executable, _SYSTEM_PYTHON)), sys.executable)
    constraints = resources.files("sfumato.deployment.flower") / "constraints.txt"
    with resources.as_file(constraints) as file:
        install = ["install", "--quiet", "--disable-pip-version-check", "--constraint", str(file)]
        for command in (
            [maker, "-m", "venv", str(folder)],
            [python, "-m", "pip", *install, f"flwr=={VERSION}"],
        ):
            _run(command, folder)
    return folder


def _run(command: list[str], folder: Path) -> None:
    """Run a command that makes ``folder``, which all users may then read.

    Raises:
        RunError: it fails; the message is the last line that it said.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", umask=0o022
        )
    except OSError as error:
        raise RunError(f"{folder}: cannot be made: {error.strerror}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.returncode}"]
        raise RunError(f"{folder}: cannot be made: {said[-1]}")
