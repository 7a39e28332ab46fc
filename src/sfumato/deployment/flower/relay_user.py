"""The user that Flower runs under: ``nobody``, where this process is root's and that user can run it."""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import TypedDict

NOBODY = "nobody"


class RelayUser(TypedDict, total=False):
    """Arguments of `subprocess` that start a program as another user; empty: as the user of this process."""

    user: int
    group: int
    extra_groups: list[int]


def relay_user(python: str) -> RelayUser:
    """The arguments of `subprocess` that start ``python`` as an unprivileged user, if this process is root's.

    Empty, so that it runs as the user of this process, where that is not root, there is no such user, or that
    user cannot run ``python`` as a version of 3.11 or later that can make environments.
    """
    if os.geteuid() != 0:
        return {}
    try:
        found = pwd.getpwnam(NOBODY)
    except KeyError:
        return {}
    other: RelayUser = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    code = "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))"
    try:
        done = subprocess.run([python, "-I", "-c", code], capture_output=True, cwd="/", env={}, **other)
    except OSError:
        return {}
    return other if done.returncode == 0 else {}
