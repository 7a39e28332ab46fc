"""``sfumato`` as one rank of a run: tiny tiles and parts of the test set, a checkpoint after every round,
and a report of one word.

python one_rank.py ARGUMENT...
"""

import sys

from sfumato.cli import main
from sfumato.engine import local
from sfumato.learning import evaluation
from sfumato.run_folder.reader import write_text
from sfumato.simulation import folder_writer
from sfumato.simulation import run as simulate

if __name__ == "__main__":
    local._TILE_BYTES = 1 << 15  # so that a few small models are several tiles
    evaluation.PART = 130  # sixteen parts of the test set, the last of them smaller
    simulate._SECONDS_BETWEEN_CHECKPOINTS = 0.0
    folder_writer._write_report = lambda at: write_text(at / "report.html", "report\n")
    folder_writer.find_spec = lambda name: None  # type: ignore[assignment]
    sys.exit(main())
