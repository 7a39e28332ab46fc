"""``sfumato validate``: is this spec right?"""

from __future__ import annotations

from sfumato.cli.options import Debug, Set, SpecSource
from sfumato.cli.source import blaming, read


def validate(spec: SpecSource, changes: Set = None, debug: Debug = False) -> None:
    """Check a spec: exit status 0 if right, 2 with the reason if not."""
    from sfumato.federation.topology import from_spec
    from sfumato.federation.trust import with_trust
    from sfumato.schedule.grouped import GROUPED_PROTOCOLS
    from sfumato.schedule.resolve import resolve
    from sfumato.spec.document import TIERED_PROTOCOLS
    from sfumato.spec.topology import Groups

    loaded = read(spec, changes)
    runs = (*TIERED_PROTOCOLS, *GROUPED_PROTOCOLS)
    with blaming(spec):
        if loaded.protocol in runs:
            notes = resolve(loaded).notes
        else:
            if not isinstance(loaded.topology, Groups):
                with_trust(from_spec(loaded.topology), loaded.trust, seed=loaded.seed)
            notes = (f"protocol {loaded.protocol} is not in this version yet; it runs {', '.join(runs)}",)
    print(f"{spec}: valid")
    for note in notes:
        print(f"note: {note}")
