"""What was answered is remembered: over restarts, kills, copies of a party, and a damaged file."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from typing import Any

import pytest
from repeatable_entropy import repeatable
from secagg_stage import COUNT, LENGTH, Stage
from transport_parties import Parties

from sfumato.election.messages import ElectionMessageKind as Post
from sfumato.election.party import Candidate
from sfumato.election.terms import ElectionTerms
from sfumato.secure_aggregation import messages
from sfumato.secure_aggregation.client import Client
from sfumato.secure_aggregation.messages import MessageKind
from sfumato.secure_aggregation.server import AggregationServer
from sfumato.wire import errors
from sfumato.wire.keys import Identity, digest
from sfumato.wire.session_memory import FileMemory, ProcessMemory


def numbered(n: int) -> bytes:
    return digest(b"test", b"%d" % n)


@pytest.fixture(name="path")
def fixture_path(tmp_path):
    FileMemory.create(tmp_path / "memory").close()
    return tmp_path / "memory"


@pytest.mark.parametrize("kind", ["process", "file"])
def test_a_claim_is_given_once(path, kind) -> None:
    memory = FileMemory(path) if kind == "file" else ProcessMemory()
    assert memory.claim(b"q" * 32, b"a" * 32) is None
    assert memory.claim(b"q" * 32, b"b" * 32) == b"a" * 32
    assert memory.claim(b"q" * 32, b"a" * 32) == b"a" * 32
    assert memory.claim(b"r" * 32, b"b" * 32) is None
    if kind == "file":
        memory.close()


def test_claims_outlive_the_memory_and_are_shared_within_a_process(path) -> None:
    first, second = FileMemory(path), FileMemory(path)
    assert first.claim(b"q" * 32, b"a" * 32) is None
    assert second.claim(b"q" * 32, b"b" * 32) == b"a" * 32
    first.close()
    second.close()
    third = FileMemory(path)
    assert third.claim(b"q" * 32, b"b" * 32) == b"a" * 32
    third.close()


def test_of_many_claimants_one_wins(path) -> None:
    won: list[int] = []

    def compete(who: int) -> None:
        memory = FileMemory(path)
        for n in range(20):
            if memory.claim(numbered(n), numbered(who)) is None:
                won.append(n)
        memory.close()

    threads = [threading.Thread(target=compete, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(20))


def test_threads_that_open_it_at_once_are_one_process(path) -> None:
    refused: list[Exception] = []
    together = threading.Barrier(8)

    def open_often() -> None:
        together.wait()
        try:
            for _ in range(25):
                FileMemory(path).close()
        except Exception as error:
            refused.append(error)

    threads = [threading.Thread(target=open_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []


OPENS = """
import sys
from sfumato.wire.session_memory import FileMemory
memory = FileMemory(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
"""


def opening(path) -> subprocess.Popen[str]:
    """Another process that opens the memory, and keeps it until a line is written to it."""
    return subprocess.Popen(
        [sys.executable, "-c", OPENS, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_of_two_processes_the_second_is_refused(path, tmp_path) -> None:
    (tmp_path / "link").symlink_to(path)
    with opening(path) as first:
        assert first.stdout.readline() == "open\n"
        for name in (path, tmp_path / "link"):  # whatever the file is called
            with pytest.raises(errors.SessionMemoryError, match="is open in another process: one at a time"):
                FileMemory(name)
        first.kill()
    memory = FileMemory(path)  # the lock ended with its process
    assert memory.claim(b"q" * 32, b"a" * 32) is None
    again = FileMemory(path)
    memory.close()
    memory.close()  # of one process, the last memory gives up the lock, however often another is closed
    with opening(path) as second:
        assert "is open in another process" in second.communicate()[1]
    again.close()
    with opening(path) as third:
        assert third.communicate("\n")[0] == "open\n"


CLAIMS = """
import sys
from sfumato.wire.keys import digest
from sfumato.wire.session_memory import FileMemory
memory = FileMemory(sys.argv[1])
for n in range(100_000):
    assert memory.claim(digest(b"test", b"%d" % n), b"d" * 32) is None
    print(n, flush=True)
"""


def test_a_killed_process_has_claimed_all_that_it_said(path) -> None:
    child = subprocess.Popen([sys.executable, "-c", CLAIMS, str(path)], stdout=subprocess.PIPE, text=True)
    said = [int(child.stdout.readline()) for _ in range(25)]
    child.send_signal(signal.SIGKILL)
    said += [int(line) for line in child.stdout.read().split("\n")[:-1]]
    child.wait()
    child.stdout.close()
    memory = FileMemory(path)
    assert said == list(range(len(said)))
    assert all(memory.claim(numbered(n), b"e" * 32) == b"d" * 32 for n in said)
    memory.close()


def test_a_file_is_its_owners_and_never_made_silently(path, tmp_path) -> None:
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with pytest.raises(errors.SessionMemoryError, match="no memory of sessions"):
        FileMemory(tmp_path / "other")
    with pytest.raises(errors.SessionMemoryError, match="cannot make"):
        FileMemory.create(path)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.SessionMemoryError, match="cannot make"):
        FileMemory.create(tmp_path / "link")
    with pytest.raises(errors.SessionMemoryError, match="cannot make"):
        FileMemory.create(tmp_path / "missing" / "memory")


def test_sqlite_flushes_every_change_to_the_disk(path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all other tests it does not (`no_fsync`)."""
    executed: list[str] = []

    def traced(*of: Any, **options: Any) -> sqlite3.Connection:
        connection = sqlite3.dbapi2.connect(*of, **options)
        connection.set_trace_callback(executed.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    made = FileMemory.create(path.with_name("made"))
    assert executed[0] == "PRAGMA synchronous = EXTRA"  # before the tables are made
    assert made._file.first("PRAGMA synchronous") == (3,)  # EXTRA, of the connection that records
    made.close()


def test_a_claim_that_cannot_be_recorded_is_not_given(path) -> None:
    memory = FileMemory(path)
    locked = sqlite3.connect(path, isolation_level=None)
    locked.execute("BEGIN EXCLUSIVE")
    memory._file.execute("PRAGMA busy_timeout = 10")
    with pytest.raises(errors.SessionMemoryError, match="cannot record"):
        memory.claim(b"q" * 32, b"a" * 32)
    locked.execute("ROLLBACK")
    locked.close()
    memory.close()


def test_a_damaged_file_is_refused_or_remembers_everything(path) -> None:
    """300 seeded corruptions: bits flipped, cut off, emptied, overwritten."""
    memory = FileMemory(path)
    for n in range(120):
        memory.claim(numbered(n), b"d" * 32)
    memory.close()
    good, draw, refused = path.read_bytes(), random.Random(0), 0
    for number in range(300):
        at = draw.randrange(len(good))
        path.write_bytes(
            [
                good[:at] + bytes([good[at] ^ 1 << draw.randrange(8)]) + good[at + 1 :],
                good[:at],
                good[:at] + draw.randbytes(min(64, len(good) - at)) + good[at + 64 :],
            ][number % 3]
        )
        try:
            memory = FileMemory(path)
        except errors.SessionMemoryError:
            refused += 1
            continue
        try:
            forgotten = [n for n in range(120) if memory.claim(numbered(n), b"e" * 32) is None]
            assert not forgotten
        except errors.SessionMemoryError:
            refused += 1
        memory.close()
    assert refused > 150


class Machine:
    """Party 0 with its memory in a file; it can be started again."""

    def __init__(self, path) -> None:
        self.path = path
        self.parties = Parties(COUNT)
        self.memories: list[FileMemory] = []
        self.start()

    def start(self) -> Identity:
        """The identity of a process that has just been started."""
        self.memories.append(FileMemory(self.path))
        self.parties.identities[0] = Identity(repeatable(b"id 0 0"), self.memories[-1])
        return self.parties.identities[0]

    def close(self) -> None:
        for memory in self.memories:
            memory.close()


@pytest.fixture(name="machine")
def fixture_machine(path):
    machine = Machine(path)
    yield machine
    machine.close()


@pytest.mark.parametrize(
    "stop",
    [
        MessageKind.ADVERTISE,
        MessageKind.ROSTER,
        MessageKind.DELIVERY,
        MessageKind.SURVIVORS,
        MessageKind.CONSENTS,
    ],
)
def test_a_restarted_party_joins_neither_the_session_nor_its_label_again(machine, stop) -> None:
    at = Stage(machine.parties).until(stop)
    again = machine.start()
    with pytest.raises(errors.RepeatedSessionError, match="already"):
        Client(0, at.terms, again)
    with pytest.raises(errors.ChangedTermsError, match="other terms"):
        Client(0, machine.parties.complete(LENGTH, 5), again)
    Client(0, machine.parties.complete(LENGTH, 4, label="next round"), again)


def restored(machine, stop: MessageKind) -> tuple[Stage, Client]:
    """A session in which party 0 answers up to ``stop``, and a copy of it from before its last answer.

    A copy has all secrets; what it lacks is the knowledge of that answer.
    """
    order = [MessageKind.ROSTER, MessageKind.DELIVERY, MessageKind.SURVIVORS, MessageKind.CONSENTS]
    at = Stage(machine.parties).until(stop)
    before = at.snapshot(0)
    assert stop in order
    at.deliver(stop, at.sent[stop][0])
    before._identity = machine.start()
    return at, before


def test_a_restored_party_shares_its_keys_once(machine) -> None:
    at, before = restored(machine, MessageKind.ROSTER)
    fewer = messages.encode_blobs(messages.decode_blobs(at.payload(MessageKind.ROSTER))[:3])
    with pytest.raises(errors.DuplicateMessageError, match="kind 2 in this session before"):
        before.share_keys(at.from_server(MessageKind.ROSTER, fewer))


def test_a_restored_party_masks_once(machine) -> None:
    """A second vector under the same masks, or the same one with fewer of them."""
    at, before = restored(machine, MessageKind.DELIVERY)
    at.clients[0] = before
    with pytest.raises(errors.DuplicateMessageError, match="kind 4 in this session before"):
        at.deliver(MessageKind.DELIVERY, at.sent[MessageKind.DELIVERY][0])


def test_a_restored_party_signs_one_list(machine) -> None:
    at, before = restored(machine, MessageKind.SURVIVORS)
    with pytest.raises(errors.RevealRefusedError, match="both secrets"):
        before.consent(at.survivors([0, 1, 2, 3]))
    with pytest.raises(errors.DuplicateMessageError, match="kind 6 in this session before"):
        before.consent(at.survivors(range(5)))


def test_a_restored_party_gives_up_shares_once(machine) -> None:
    at, before = restored(machine, MessageKind.CONSENTS)
    with pytest.raises(errors.DuplicateMessageError, match="kind 8 in this session before"):
        before.unmask(at.sent[MessageKind.CONSENTS][0])


def test_a_restored_party_advertises_once(machine) -> None:
    at = Stage(machine.parties)
    before = at.snapshot(0)
    at.clients[0].advertise()
    before._identity = machine.start()
    with pytest.raises(errors.DuplicateMessageError, match="kind 1 in this session before"):
        before.advertise()


def test_no_answer_without_a_record(machine) -> None:
    """The memory fails: nothing is sent, and the party can go on once it works again."""
    at = Stage(machine.parties).until(MessageKind.SURVIVORS)
    machine.memories[-1].close()
    with pytest.raises(errors.SessionMemoryError, match="cannot record"):
        at.deliver(MessageKind.SURVIVORS, at.sent[MessageKind.SURVIVORS][0])
    at.clients[0]._identity = machine.start()
    at.deliver(MessageKind.SURVIVORS, at.sent[MessageKind.SURVIVORS][0])


def test_roles_do_not_get_in_each_others_way(machine) -> None:
    """A supernode is a party, the server of its zone, and a candidate."""
    identity, parties = machine.parties.identities[0], machine.parties
    terms = parties.complete(LENGTH, 4)
    Client(0, terms, identity)
    AggregationServer(terms, identity)
    candidate = ElectionTerms("test", parties.public, 1)
    Candidate(0, candidate, identity)
    again = machine.start()
    with pytest.raises(errors.RepeatedSessionError):
        AggregationServer(terms, again)
    with pytest.raises(errors.RepeatedSessionError):
        Candidate(0, candidate, again)
    with pytest.raises(errors.ChangedTermsError):
        Candidate(0, ElectionTerms("test", parties.public, 0), again)


def test_a_restored_candidate_posts_once(machine) -> None:
    """A second commitment after it saw those of others, or a second board vouched for."""
    parties = machine.parties
    terms = ElectionTerms("round 1", parties.public, 1)
    candidates = [Candidate(i, terms, identity) for i, identity in enumerate(parties.identities)]
    board: list[bytes] = []
    for kind in (Post.KEY, Post.COMMIT, Post.COMPLAINT, Post.ANSWER, Post.VOUCH):
        candidates[0]._identity = machine.start()
        posts = [candidate.post(kind, board) for candidate in candidates]
        candidates[0]._posted.pop(kind)  # what a copy from before this phase knows
        candidates[0]._identity = machine.start()
        with pytest.raises(errors.DuplicateMessageError, match="before it was restarted"):
            candidates[0].post(kind, board)
        candidates[0]._posted[kind] = posts[0]
        board += [data for data in posts if data is not None]
