"""The oracles on many random specs: prints every finding with its spec, then a table of how tight rows are.

    PYTHONPATH=src python tests/oracle/long_run.py --specs 5000 --seed 0

Exit code 1 where a row reports less than what an attacker attains, or a coalition less than a part of it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))  # pytest has it on its path

from oracle_compare import BELOW, Table, drawn


def main() -> int:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--specs", type=int, default=5000, help="how many that the library accepts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--pairs", type=int, default=2, help="to ask about, of each spec")
    parser.add_argument("--parts", action="store_true", help="to ask about a part of each coalition as well")
    asked = parser.parse_args()
    table, found = Table(), 0
    for count, one in enumerate(
        itertools.islice(
            drawn(asked.seed, itertools.count(asked.first), asked.pairs, monotone=asked.parts), asked.specs
        ),
        start=1,
    ):
        table.add(one)
        for row in one.rows:
            if row.verdict == BELOW:
                found += 1
                print(f"## below: draw {one.number}: {row}", flush=True)
        for refusal in one.refusals:
            found += 1
            print(f"## a part learns more: draw {one.number}: {refusal}", flush=True)
        if count % 100 == 0:
            done = f"{count} specs, up to draw {one.number}; {found} findings"
            print(f"{table}\n{done}", file=sys.stderr, flush=True)
    print(table)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
