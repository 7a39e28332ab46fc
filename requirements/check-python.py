"""Usage: check-python.py ENVIRONMENT. Ends with a message where ENVIRONMENT cannot have this Python."""

import sys

LEAST = "3.11"


def problem(python, version, environment):
    """What is wrong with ``python``, of ``version``, for ``environment``; ``None`` if nothing is."""
    if tuple(map(int, version.split("."))) < tuple(map(int, LEAST.split("."))):
        return (
            f"Sfumato needs Python {LEAST} or later; {python} is {version}. "
            "Name another one: make PYTHON=python3.12 ..."
        )
    try:
        with open(environment + "/pyvenv.cfg") as file:
            entries = dict(line.replace(" ", "").rstrip().partition("=")[::2] for line in file)
    except OSError:
        return None
    other = ".".join(entries["version"].split(".")[:2])
    if other == version:
        return None
    return (
        f"{environment} holds Python {other}, not {version}. "
        f"Remove {environment}, or name another folder: make VENV={environment}-{version} ..."
    )


if __name__ == "__main__":
    sys.exit(problem(sys.executable, f"{sys.version_info[0]}.{sys.version_info[1]}", sys.argv[1]))
