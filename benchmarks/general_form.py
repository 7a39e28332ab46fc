"""CPU time of the exposures of one pair: as an account computes them, and in the general form of the tests.

    python benchmarks/general_form.py

Flow and cut, towards the cloud, another edge and a device of another edge, in trees whose edges all differ in
size. A tree of three edges is also what would be left of any number of equal ones, if each kind of edge were
taken once.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cpu_time import least

import sfumato as sf
from sfumato.privacy.observers import Party
from sfumato.schedule.resolve import resolve

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from message_graph.trees import TreeAsMessages

TREES = {3: 5, 30: 2, 100: 1}
"""Numbers of edges, and how often each is measured."""


def main() -> None:
    """Print one line for each tree."""
    for edges, times in TREES.items():
        changes = [
            "data={source: synthetic, examples_per_device: 10}",
            f"topology.edges={edges}",
            f"topology.devices_per_edge={list(range(2, edges + 2))}",
            "privacy.noise={multiplier: 1.0}",
        ]
        facts = resolve(sf.load_spec("quickstart", changes)).releases
        other = Party("device", 0, facts.device_count - 1)
        coalitions = ((Party("node", 0, 0),), (Party("node", 1, 1),), (other,))

        def fast(facts=facts, coalitions=coalitions) -> None:
            for coalition in coalitions:
                facts.exposures(0, coalition)

        def general(facts=facts, coalitions=coalitions) -> None:
            for coalition in coalitions:
                graph = TreeAsMessages(facts)
                graph.flow(0, coalition)
                graph.cut(0, coalition)

        fast()
        one, other_form = (1000 * least(work, times) / len(coalitions) for work in (fast, general))
        print(f"{edges} edges: {one:.2f} ms a pair; in the general form {other_form:.1f} ms")


if __name__ == "__main__":
    main()
