"""Usage: check-python.py ENVIRONMENT. Ends with a message where this Python cannot be the one of ENVIRONMENT."""

import sys

LEAST = (3, 11)


def problem(python, version, environment):
    """What is wrong with ``python``, of ``version``, for ``environment``; ``None`` if nothing is."""
    if version < LEAST:
        return (
            "Sfumato needs Python {}.{} or later; {} is {}.{}. Name another one: make PYTHON=python3.12 ..."
        ).format(*(LEAST + (python,) + version))
    try:
        with open(environment + "/pyvenv.cfg") as file:
            entries = dict(line.replace(" ", "").rstrip().partition("=")[::2] for line in file)
    except OSError:
        return None
    found = tuple(int(part) for part in entries["version"].split(".")[:2])
    if found == version:
        return None
    return (
        "{0} holds Python {1}.{2}, not {3}.{4}. Remove {0}, or name another folder: make VENV={0}-{3}.{4} ..."
    ).format(*((environment,) + found + version))


if __name__ == "__main__":
    sys.exit(problem(sys.executable, tuple(sys.version_info[:2]), sys.argv[1]))
