"""``sfumato validate``: checks a spec."""

from __future__ import annotations

from sfumato.cli.options import Debug, Set, SpecSource
from sfumato.cli.spec_argument import locating_errors, read_spec


def validate(spec: SpecSource, changes: Set = None, debug: Debug = False) -> None:
    """Check a spec; the exit status is 0 if it is valid, otherwise 2."""
    from sfumato.schedule.resolve import resolve

    loaded = read_spec(spec, changes)
    with locating_errors(spec, changes):
        notes = resolve(loaded).notes
    print(f"{spec}: valid")
    for note in notes:
        print(f"note: {note}")
