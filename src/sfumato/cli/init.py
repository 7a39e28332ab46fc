"""``sfumato init``: writes a spec file to start from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Debug
from sfumato.errors import SpecError


def init(
    name: Annotated[
        str, typer.Argument(help="The built-in spec to copy, or a new name for a copy of quickstart.")
    ] = "quickstart",
    debug: Debug = False,
) -> None:
    """Write a spec to edit, NAME.yaml, into the working directory."""
    from sfumato.spec import builtin_names, builtin_text, load_spec

    name = name.removesuffix(".yaml")
    text = builtin_text(name if name in builtin_names() else "quickstart")
    try:
        load_spec(name if name in builtin_names() else "quickstart", [f"name='{name}'"])
    except SpecError as error:
        raise SpecError("NAME", error.value, error.allowed) from None
    text = re.sub(r"^name: .*$", f"name: {name}", text, count=1, flags=re.MULTILINE)
    path = Path(f"{name}.yaml")
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise SpecError(str(path), None, "exists already; give another name") from None
    except OSError as error:
        raise SpecError(str(path), None, f"cannot be written: {error.strerror}") from None
    print(f"{path}: edit it, then: sfumato run {path}")
