"""A data owner's ledger: the ε and δ of all runs that the owner agreed to, of one device's data.

`consent.yaml` says where the file is: outside all run folders. The parties' folders of a run can be thrown
away and made anew; the sum over runs is not. A missing file is refused: only a proposed consent, or its
owner, makes a new one.

It also notes which answers were sent (`owners_notes`), by a commitment of the device's memory. So it notices
copies of a device's folder, each of which would answer the same question with noise of its own, and an older
copy of a memory that was put back. What a device draws of its taking part, and the lists of survivors that it
signs (`masked_hops`), are noted in the same way: one for a round, one for an aggregation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sfumato.deployment.messages import RoundPosition
from sfumato.deployment.private_files import require_own, require_private
from sfumato.wire.errors import SessionMemoryError
from sfumato.wire.owned_file import OwnedFile, create_owned_file

_WHAT = "ledger of a data owner"
_TABLES = (
    "CREATE TABLE told (session BLOB NOT NULL, device INTEGER NOT NULL, unit TEXT NOT NULL,"
    " observer TEXT NOT NULL, neighbours TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL,"
    " UNIQUE (session, device, unit, observer))",
    "CREATE TABLE sent (session BLOB NOT NULL, device INTEGER NOT NULL, round INTEGER NOT NULL,"
    " aggregation INTEGER NOT NULL, answer BLOB NOT NULL, UNIQUE (session, device, round, aggregation))",
)
_QUERIES = (
    "SELECT session, device, unit, observer, neighbours, epsilon, delta FROM told LIMIT 1",
    "SELECT session, device, round, aggregation, answer FROM sent LIMIT 1",
)
_PATIENCE_S = 5.0
_SPENT = (
    "SELECT TOTAL(epsilon), TOTAL(delta) FROM (SELECT MAX(epsilon) AS epsilon, MAX(delta) AS delta FROM told"
    " WHERE unit = ? AND observer NOT IN ({}) GROUP BY session, device)"
)


@dataclass(frozen=True)
class RunCost:
    """The privacy loss of one run, for one device's data.

    Attributes:
        session: of the run.
        device: its number there.
        neighbours: the neighbouring relation of the figures.
        delta: δ of every ε.
        epsilon: the largest ε, by kind of unit and kind of observer.
    """

    session: bytes
    device: int
    neighbours: str
    delta: float
    epsilon: Mapping[tuple[str, str], float]


class OwnersLedger:
    """An owner's ledger, open; see the module.

    Args:
        path: of a file that `create` made.

    Raises:
        SessionMemoryError: it is missing, damaged, no ledger, or open in another process for long.
        RunError: other users can read or write it, or its folder.
    """

    def __init__(self, path: str | Path) -> None:
        if Path(path).exists():
            require_private(Path(path))
            require_own(Path(path).resolve().parent)
        self._file = OwnedFile(path, _WHAT, _QUERIES, patience_s=_PATIENCE_S)
        self.path = self._file.path

    @staticmethod
    def create(path: str | Path) -> None:
        """Make a new, empty ledger.

        Raises:
            SessionMemoryError: there is something at ``path``, or nothing can be written there.
        """
        create_owned_file(path, _WHAT, _TABLES)

    @contextmanager
    def booking(self) -> Iterator[None]:
        """Context of one transaction: nobody else can change the ledger between a comparison and `book`.

        Raises:
            SessionMemoryError: another process holds the file, or it cannot be written.
        """
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._file.execute("COMMIT")
        except BaseException:
            self._file.roll_back()
            raise

    def holds(self, cost: RunCost) -> bool:
        """Whether the run of ``cost`` is entered in the ledger already.

        Raises:
            SessionMemoryError: the ledger cannot be read.
        """
        found = self._file.first(
            "SELECT 1 FROM told WHERE session = ? AND device = ?", (cost.session, cost.device)
        )
        return found is not None

    def neighbours(self) -> set[str]:
        """The neighbouring relations of the runs in the ledger.

        Raises:
            SessionMemoryError: the ledger cannot be read.
        """
        return {row[0] for row in self._file.execute("SELECT DISTINCT neighbours FROM told")}

    def lacks(self, unit: str) -> bool:
        """Whether the ledger has a run for which no ε of this kind of ``unit`` is recorded.

        Raises:
            SessionMemoryError: the ledger cannot be read.
        """
        query = "SELECT 1 FROM told GROUP BY session, device HAVING TOTAL(unit = ?) = 0 LIMIT 1"
        return self._file.first(query, (unit,)) is not None

    def spent(self, unit: str, without: Collection[str] = ()) -> tuple[float, float]:
        """The (ε, δ) of one kind of unit that all runs together have used up.

        Summed over runs; of each run the largest ε towards any kind of observer counts. Kinds of observers
        are not summed apart: one party may be the cloud of one run and an edge of another. (0, 0) without
        runs.

        Args:
            unit: kind of unit: ``device``, ``record`` or ``person``.
            without: kinds of observers that are left out.

        Raises:
            SessionMemoryError: the ledger cannot be read.
        """
        query = _SPENT.format(", ".join("?" * len(without)))
        row = self._file.first(query, (unit, *without))
        if row is None:
            raise SessionMemoryError(f"{self.path}: cannot be read")
        return float(row[0]), float(row[1])

    def book(self, cost: RunCost) -> None:
        """Record a run in the ledger: ``cost`` has its ε towards each observer, by kind of unit.

        Raises:
            SessionMemoryError: it cannot be recorded, or is there already.
        """
        for (unit, observer), epsilon in cost.epsilon.items():
            self._file.execute(
                "INSERT INTO told VALUES (?, ?, ?, ?, ?, ?, ?)",
                (cost.session, cost.device, unit, observer, cost.neighbours, epsilon, cost.delta),
            )

    def note(self, session: bytes, device: int, position: RoundPosition, answer: bytes) -> None:
        """Note an answer before it is sent; the same one may be noted again.

        Args:
            session: of the run; or, for another kind of answer than vectors, a hash of it and of the kind.
            device: its number there.
            position: the aggregation that is answered.
            answer: a commitment to the answer, or its hash.

        Raises:
            SessionMemoryError: another answer, or a later one, was noted: another copy of the device gave it.
        """
        here = (session, device, *position)
        with self.booking():
            noted = self._file.first(
                "SELECT answer FROM sent WHERE session = ? AND device = ? AND round = ? AND aggregation = ?",
                here,
            )
            later = self._file.first(
                "SELECT 1 FROM sent WHERE session = ? AND device = ? AND (round, aggregation) > (?, ?)", here
            )
            if (noted is None and later is not None) or (noted is not None and noted[0] != answer):
                copies = "another copy of this device has answered it; nothing is sent"
                raise SessionMemoryError(f"{self.path}: {position}: {copies}")
            if noted is None:
                self._file.execute("INSERT INTO sent VALUES (?, ?, ?, ?, ?)", (*here, answer))
                self._file.execute(
                    "DELETE FROM sent WHERE session = ? AND device = ? AND round < ?", here[:3]
                )

    def close(self) -> None:
        """Close the file; what was entered is kept."""
        self._file.close()
