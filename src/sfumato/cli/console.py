"""Tables, numbers and lines that several commands print. rich is imported only when something is printed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_COLUMNS = 80  # of a terminal


def console() -> Console:
    """A console that prints text unchanged, without markup and highlighting."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def empty_table(*headers: str, right: Sequence[str] = ()) -> Table:
    """A table without frames and rows; the columns named in ``right`` are aligned to the right."""
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
    """A table of names and values without headings."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(no_wrap=True, style="bold")
    made.add_column(overflow="fold")
    for name, text in rows:
        made.add_row(name, text)
    return made


def raw_to_trusted_edge(devices: int, of: int) -> str:
    """A line on how many of ``of`` devices trust an edge with raw updates, which ε towards edges leave
    out.
    """
    return f"raw to a trusted edge: {devices:,} of {with_noun(of, 'device')}"


def exit_of_interrupted(command: Sequence[str]) -> typer.Exit:
    """Print the ``command``, as words, that continues what was interrupted; the exit to raise then."""
    print(f"\nsfumato: interrupted; continue with: {shlex.join(command)}", file=sys.stderr)
    return typer.Exit(130)


def print_next(*commands: Sequence[str]) -> None:
    """Print which commands one would give next: on one line of at most 80 columns, or else one a line."""
    lines = [shlex.join(command) for command in commands]
    on_one = f"next: {'; '.join(lines)}"
    print(on_one if len(on_one) <= _COLUMNS else "next: " + "\n      ".join(lines))


def with_noun(number: int, thing: str) -> str:
    """A count with its noun: ``1 edge``, ``5 edges``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
