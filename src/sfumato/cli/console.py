"""Tables, numbers and lines that several commands print. rich is imported only when something is printed."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_COLUMNS = 80  # of a terminal


def console() -> Console:
    """A rich console that prints text unchanged: no markup, no highlighting, no emoji."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def empty_table(*headers: str, right: Sequence[str] = ()) -> Table:
    """A rich table without rows and without frames; the columns in ``right`` are aligned to the right.

    Their words are not broken into several lines, those of other columns are.
    """
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for header in headers:
        if header in right:
            made.add_column(header, justify="right", no_wrap=True)
        else:
            made.add_column(header, overflow="fold")
    return made


def key_value_table(rows: Iterable[tuple[str, str]]) -> Table:
    """A rich table of (name, value) rows, without headings."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(no_wrap=True, style="bold")
    made.add_column(overflow="fold")
    for name, text in rows:
        made.add_row(name, text)
    return made


def raw_to_trusted_edge(devices: int, of: int) -> str:
    """A line that says how many of ``of`` devices send raw updates to an edge that they trust."""
    return f"raw to a trusted edge: {devices:,} of {with_noun(of, 'device')}"


def print_json(result: Mapping[str, Any]) -> None:
    """Print ``result`` as JSON, for programs; numbers in it must be finite."""
    print(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False))


def exit_of_interrupted(command: Sequence[str] | None = None) -> typer.Exit:
    """Print to stderr which ``command`` continues what was interrupted; returns the exit to raise.

    ``command``: its words, such as ``["sfumato", "run", "SPEC", "--resume"]``; by default those of this
    process. The exit has status 130.
    """
    command = ["sfumato", *sys.argv[1:]] if command is None else command
    print(f"\nsfumato: interrupted; continue with: {shlex.join(command)}", file=sys.stderr)
    return typer.Exit(130)


def print_next(*commands: Sequence[str]) -> None:
    """Print commands (as words) that a user may run next: on one line of 80 columns, else one a line."""
    lines = [shlex.join(command) for command in commands]
    on_one = f"next: {'; '.join(lines)}"
    print(on_one if len(on_one) <= _COLUMNS else "next: " + "\n      ".join(lines))


def with_noun(number: int, thing: str) -> str:
    """``number`` and ``thing`` as text, with an s unless the number is 1: ``1 edge``, ``5 edges``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
