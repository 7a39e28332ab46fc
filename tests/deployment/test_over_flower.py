"""Flower carries the frames of a local run: the relay alone, what starts and ends it, and whole runs."""

from __future__ import annotations

import ast
import json
import os
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import simulated_party
import stand_in_flower
import yaml
from rehearsals import STAR, TREE, model_bytes, on_the_grid, spec_of

from sfumato.accounting import account
from sfumato.cli import main
from sfumato.deployment import local_processes
from sfumato.deployment.calls import at_once
from sfumato.deployment.carrier import told
from sfumato.deployment.flower import environment, keeper
from sfumato.deployment.flower import relays as relays_file
from sfumato.deployment.flower.environment import VERSION, require_flower
from sfumato.deployment.flower.relays import FlowerRelays
from sfumato.deployment.local_processes import deploy_locally
from sfumato.deployment.sockets import AwaitedParty, serve
from sfumato.errors import RunError, SpecError
from sfumato.run_folder.reader import load_run
from sfumato.run_folder.rounds_log import ROUNDS_FILE
from sfumato.schedule.resolve import resolve
from sfumato.simulation.run import run
from sfumato.verify.checker import check_run
from sfumato.wire.errors import TamperedMessageError

APP = Path(str(resources.files("sfumato.deployment.flower") / "app"))
MOST = 4 << 20
PATIENCE_S = 1800.0  # a busy machine may need it


class Echo:
    """Sends back what it gets; refuses what is not signed, as it were."""

    def receive(self, data: bytes) -> list[bytes]:
        if data == b"forged":
            raise TamperedMessageError("the signature does not fit")
        return [data]


@pytest.fixture(name="place")
def fixture_place() -> Iterator[Path]:
    """A folder with a short path, as sockets need; others may look for what is in it."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(name="relay")
def fixture_relay(place: Path, monkeypatch: pytest.MonkeyPatch) -> AwaitedParty:
    """A party as its aggregator reaches it through both halves of the relay."""
    for name, module in stand_in_flower.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    client, server = (stand_in_flower.loaded(APP / f"relay_{part}.py") for part in ("client", "server"))
    grid = stand_in_flower.Grid(client.app.registered, lambda: {0: str(place / "own")})
    before = os.umask(0o177)  # as that of the relay's process
    given = (grid, 0, str(place / "reached"))
    threading.Thread(target=server._serve, args=given, daemon=True).start()
    while not (place / "reached").exists():
        time.sleep(0.01)
    os.umask(before)
    return AwaitedParty(place / "reached", "device:0", MOST, patience_s=60.0)


def listening(path: Path) -> None:
    """Let a party listen at ``path``."""
    ready = threading.Semaphore(0)
    options = {"relay_user": os.getuid()}
    threading.Thread(target=serve, args=(Echo(), path, ready.release), kwargs=options, daemon=True).start()
    assert ready.acquire(timeout=60)


def test_a_relay_carries_frames_and_what_is_wrong_with_them(relay: AwaitedParty, place: Path) -> None:
    listening(place / "own")
    large = os.urandom(3 << 20)
    assert relay.receive(b"one") == [b"one"]
    assert relay.receive(large) == [large]
    with pytest.raises(RunError, match=r"^device:0: the signature does not fit$"):
        relay.receive(b"forged")
    assert relay.receive(b"two") == [b"two"]
    relay.close()


def test_a_party_that_is_gone_is_lost_and_met_again(relay: AwaitedParty, place: Path) -> None:
    with pytest.raises(RunError, match="device:0: has ended"):
        relay.receive(b"one")  # nobody listens, and the question was sent three times
    listening(place / "own")
    assert relay.receive(b"two") == [b"two"]
    relay.close()


class SlowGrid:
    """A grid whose every answer takes a while; ``most``: questions that were under way at the same time."""

    def __init__(self) -> None:
        self.under_way, self.most = dict[str, tuple[int, stand_in_flower.Message]](), 0

    def get_node_ids(self) -> list[int]:
        return list(range(5))

    def push_messages(self, messages: list[stand_in_flower.Message]) -> list[str]:
        name = str(messages[0].node)
        self.under_way[name] = 3, messages[0]
        self.most = max(self.most, len(self.under_way))
        return [name]

    def pull_messages(self, names: list[str]) -> list[stand_in_flower.Message]:
        left, message = self.under_way.pop(names[0])
        if left:
            self.under_way[names[0]] = left - 1, message
            return []
        frames = b"\0" + (1).to_bytes(4, "big") + (2).to_bytes(8, "big") + b"ok"
        return [stand_in_flower.Message({"frame": {"bytes": frames}})]


def children_of_relay(
    grid: SlowGrid, nodes: int, cores: int, place: Path, monkeypatch: pytest.MonkeyPatch, turn_s: float = 60.0
) -> list[AwaitedParty]:
    """The parties at the other end of a relay's sockets, on a machine of so many ``cores``."""
    for name, module in stand_in_flower.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    server = stand_in_flower.loaded(APP / "relay_server.py")
    monkeypatch.setattr(server, "_TURN_S", turn_s)
    before = os.umask(0o177)
    for node in range(nodes):
        given = (grid, node, str(place / f"reached-{node}"))
        threading.Thread(target=server._serve, args=given, daemon=True).start()
    assert waited_for(lambda: len(list(place.glob("reached-*"))) == nodes)
    os.umask(before)
    return [
        AwaitedParty(place / f"reached-{node}", f"device:{node}", MOST, patience_s=60.0)
        for node in range(nodes)
    ]


def test_a_machine_is_asked_for_no_more_processes_of_flower_than_it_has_cores(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower gives up a process that starts too slowly, and starts another one: more and more of them."""
    grid = SlowGrid()
    children = children_of_relay(grid, 5, 2, place, monkeypatch)
    answers = at_once([partial(told, child, [b"question"]) for child in children])
    assert answers == [([b"ok"], None)] * 5
    assert grid.most == 2
    for child in children:
        child.close()


class HangingGrid(SlowGrid):
    """A grid whose first node never answers."""

    def pull_messages(self, names: list[str]) -> list[stand_in_flower.Message]:
        return [] if names == ["0"] else super().pull_messages(names)


def test_a_process_of_flower_that_hangs_keeps_no_other_from_being_asked(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = HangingGrid()
    hanging, other = children_of_relay(grid, 2, 1, place, monkeypatch, turn_s=0.3)
    threading.Thread(target=told, args=(hanging, [b"question"]), daemon=True).start()
    assert waited_for(lambda: "0" in grid.under_way)
    assert told(other, [b"question"]) == ([b"ok"], None)
    other.close()


def test_the_relay_imports_nothing_of_ours() -> None:
    for path in (*APP.glob("*.py"), Path(keeper.__file__)):
        names = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(str(node.module))
        assert names
        assert {name.partition(".")[0] for name in names} <= {*sys.stdlib_module_names, "flwr"}


def processes_with(word: str) -> list[int]:
    """The processes that have a word in their command."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_a_keeper_ends_the_children_of_children_too() -> None:
    """Some in sessions of their own, whose parents have ended, as Flower's executors."""
    word = f"98765.{os.getpid()}"
    command = f'["sh", "-c", "setsid sleep {word} & sleep {word} & exit"]\n'
    started = subprocess.Popen([sys.executable, "-I", keeper.__file__], stdin=subprocess.PIPE, text=True)
    assert started.stdin is not None
    started.stdin.write(command)
    started.stdin.flush()
    assert waited_for(lambda: len(processes_with(word)) == 2)
    started.stdin.close()
    assert started.wait(60) == 0
    assert processes_with(word) == []


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_a_keeper_ends_what_outlives_its_starter_at_once() -> None:
    """As the relay of a SuperLink that was killed, which keeps its sockets; others go on."""
    word, other = f"98766.{os.getpid()}", f"98767.{os.getpid()}"
    started = subprocess.Popen([sys.executable, "-I", keeper.__file__], stdin=subprocess.PIPE, text=True)
    assert started.stdin is not None
    for command in (["sh", "-c", f"sleep {word} & wait"], ["sh", "-c", f"sleep {other} & wait"]):
        started.stdin.write(f"{json.dumps(command)}\n")
    started.stdin.flush()
    assert waited_for(lambda: processes_with(word) != [] != processes_with(other))
    time.sleep(2.5)
    (sleeping,) = processes_with(word)
    os.kill(parent_of(sleeping), signal.SIGKILL)
    assert waited_for(lambda: processes_with(word) == [])
    assert len(processes_with(other)) == 1
    started.stdin.close()
    assert started.wait(60) == 0
    assert processes_with(other) == []


def parent_of(number: int) -> int:
    """The number of the process that started another one."""
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_keeper_that_takes_long_is_not_killed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's processes outlived `deploy` on a busy machine: nobody else ends those that it has not met."""
    relays, done = FlowerRelays(place, ["device-0", "cloud"], {0: 1}, place / "log"), place / "done"
    slow = f"import pathlib, sys, time; sys.stdin.read(); time.sleep(1); pathlib.Path({str(done)!r}).touch()"
    relays._keeper = subprocess.Popen([sys.executable, "-c", slow], stdin=subprocess.PIPE, text=True)
    monkeypatch.setattr(relays_file, "_END_S", 0.01)
    relays.close()
    assert relays._keeper.wait(60) == 0
    assert done.exists()


@pytest.mark.parametrize(
    ("folder", "status", "said"),
    [
        ("/nowhere", 1, f"/nowhere: holds no flwr {VERSION}; make it by: sfumato deploy flower"),
        ("nowhere", 2, "SFUMATO_FLOWER: got 'nowhere'; must be an absolute path"),
    ],
)
def test_without_flower_nothing_starts(
    folder: str,
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SFUMATO_FLOWER", folder)
    out = str(tmp_path / "run")
    assert main(["deploy", "quickstart", "--local", "--over", "flower", "--out", out]) == status
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_flower_is_for_local_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "quickstart", "--parties", "parties.yaml", "--over", "flower"]) == 2
    assert "--over: got 'flower'; is for --local only" in capsys.readouterr().err
    assert main(["deploy", "flower", "/somewhere"]) == 2
    assert "SFUMATO_FLOWER names the folder" in capsys.readouterr().err


def test_an_environment_is_made_where_there_is_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "one.txt").write_text("kept")
    monkeypatch.setenv("SFUMATO_FLOWER", str(tmp_path / "letters"))
    assert main(["deploy", "flower"]) == 1
    assert "letters: is there already, and is no environment of Python" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "letters").iterdir()] == ["one.txt"]
    monkeypatch.setenv("SFUMATO_FLOWER", str(tmp_path / "new"))
    monkeypatch.setattr(environment.sys, "executable", "/bin/false")
    monkeypatch.setattr(environment, "_SYSTEM_PYTHON", "/bin/false")
    assert main(["deploy", "flower"]) == 1
    assert f"{tmp_path / 'new'}: cannot be made: status 1" in capsys.readouterr().err


def test_a_machine_is_not_filled_with_processes_of_flower(place: Path) -> None:
    with pytest.raises(SpecError, match=r"must be at most 16 devices: .* and Flower's beside it"):
        local_processes._require_few(17, place)
    local_processes._require_few(17, None)


def test_keys_of_supernodes_are_never_without_tls(place: Path) -> None:
    relays = FlowerRelays(place, ["device-0", "cloud"], {0: 1}, place / "log")
    link, node = relays._link_options(8000), relays._node_options(0, 8000, 9094)
    relays.close()
    assert {"--enable-supernode-auth", "--ssl-certfile", "--ssl-keyfile", "--ssl-ca-certfile"} <= set(link)
    assert {"--auth-supernode-private-key", "--root-certificates"} <= set(node)
    assert "--insecure" not in {*link, *node}
    for options in (link, node):
        assert options[options.index("--host") + 1] == "127.0.0.1"
    assert node[node.index("--superlink") + 1] == "127.0.0.1:8000"


def deployed_over(
    flower: Path, document: dict[str, Any], folder: Path, checks: Callable[[Path], None]
) -> Path:
    """A run over Flower, with what `run` draws; ``checks`` is called with the parties' folder meanwhile."""
    spec, parties = spec_of(document), folder / "parties"
    plan = resolve(spec)
    with pytest.MonkeyPatch.context() as patch:
        draws = simulated_party.drawn(plan, plan.tree.device_count)  # of the cloud
        patch.setattr(local_processes, "SystemRandomness", lambda: draws)
        deploy_locally(
            spec,
            out=folder / "run",
            parties=parties,
            purpose="a test",
            command=lambda own: [sys.executable, simulated_party.__file__, str(own)],
            flower=flower,
            on_round=lambda result: checks(parties) if result.round == 1 else None,
        )
    return folder / "run"


def flower_processes(place: Path) -> dict[int, list[str]]:
    """The commands of all processes of Flower that run in a folder, by number."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(path / "cwd").startswith(f"{place}/sfumato-"):
                found[int(path.name)] = (path / "cmdline").read_text().split("\0")
        except OSError:  # it has ended
            continue
    return found


def check_tls_and_user(parties: Path) -> None:
    """Every SuperLink speaks TLS; what Flower runs as cannot read what parties have."""
    running = flower_processes(parties.parent)
    links = [words for words in running.values() if any(word.endswith("flower-superlink") for word in words)]
    assert links
    plain = ssl.create_default_context()
    for words in links:
        port = int(words[words.index("--port") + 1])
        with (
            socket.create_connection(("127.0.0.1", port), 60) as dialed,
            pytest.raises(ssl.SSLCertVerificationError),  # it is TLS, of an authority of its own
        ):
            plain.wrap_socket(dialed, server_hostname="127.0.0.1")
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody").pw_uid
        assert {os.stat(f"/proc/{number}").st_uid for number in running} == {nobody}
        for name in ("key", "memory", "data.npz", "consent.yaml", "terms.yaml"):
            path = parties / "device-0" / name
            assert path.exists()
            done = subprocess.run(["cat", path], user=nobody, extra_groups=[], stderr=subprocess.PIPE)
            assert b"ermission denied" in done.stderr


def require_accounted(run_folder: Path, document: dict[str, Any], place: Path) -> None:
    """The same bytes as `run` on its grid, ε of account; and Flower's processes have ended."""
    assert flower_processes(place) == {}
    with on_the_grid():
        expected = run(spec_of(document), out=place / "expected", device="cpu", progress=False)
    assert model_bytes(load_run(run_folder)) == model_bytes(expected.folder)
    assert check_run(run_folder).problems == []
    accounted = {(row.unit, row.observer): row.epsilon for row in account(spec_of(document)).guarantees}
    privacy = load_run(run_folder).privacy
    assert {(row.unit, row.observer): row.epsilon for row in privacy.guarantees} == accounted


PLAYED = [
    pytest.param(STAR | {"training": STAR["training"] | {"rounds": 2}}, id="star"),
    pytest.param(TREE | {"training": TREE["training"] | {"rounds": 2}}, id="two levels, one edge trusted"),
    pytest.param(
        TREE
        | {
            "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 4},
            "transport": {"devices_to_edge": "secure-aggregation"},
            "training": TREE["training"] | {"rounds": 2},
        },
        id="two edges of four devices, masked",
    ),
]


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("document", PLAYED)
def test_a_run_over_a_stand_in_is_the_run_that_was_accounted(
    document: dict[str, Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but Flower itself: processes of all parties, both halves of the relay, a hub an aggregator."""
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    flower = stand_in_flower.make_environment(place / "flower")
    deployed = deployed_over(flower, document, place, lambda parties: None)
    require_accounted(deployed, document, place)


@pytest.mark.slow
@pytest.mark.needs("flower")
@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("document", PLAYED)
def test_a_run_over_flower_is_the_run_that_was_accounted(
    document: dict[str, Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    deployed = deployed_over(require_flower(), document, place, check_tls_and_user)
    require_accounted(deployed, document, place)


def started_over_flower(
    place: Path, rounds: int, *options: str, document: dict[str, Any] = STAR
) -> subprocess.Popen[str]:
    """A spec, a star for one, that is deployed over the stand-in, in a process of its own."""
    training = document["training"] | {"rounds": rounds}
    (place / "spec.yaml").write_text(yaml.safe_dump(document | {"training": training}))
    words = [sys.executable, "-m", "sfumato", "deploy", str(place / "spec.yaml"), "--local"]
    words += ["--over", "flower", "--out", str(place / "run"), "--quiet", *options]
    flower = place / "flower"
    if not flower.exists():
        stand_in_flower.make_environment(flower)
    environment = os.environ | {"TMPDIR": str(place), "SFUMATO_FLOWER": str(flower), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)


def await_round(place: Path, starter: subprocess.Popen[str]) -> None:
    """Wait until a round is done, and fail where the starter has ended before."""
    log = place / "run" / ROUNDS_FILE

    def is_done() -> bool:
        return log.exists() and log.read_bytes().count(b"\n") >= 1

    assert waited_for(lambda: is_done() or starter.poll() is not None)
    assert starter.poll() is None


@pytest.mark.slow
def test_flower_ends_with_its_starter(place: Path) -> None:
    """By SIGKILL, in the midst of the run."""
    with started_over_flower(place, 400) as starter:
        try:
            await_round(place, starter)
            assert len(flower_processes(place)) == 5  # the keeper, a SuperLink, three SuperNodes
        finally:
            starter.send_signal(signal.SIGKILL)
    assert waited_for(lambda: flower_processes(place) == {})


MASKED = TREE | {"transport": {"devices_to_edge": "secure-aggregation"}}


def superlinks(place: Path) -> dict[str, int]:
    """Process numbers of the SuperLinks below a folder, by aggregator."""
    lines = next(place.rglob("config.toml")).read_text().splitlines()
    found = {}
    for number, words in flower_processes(place).items():
        if "flower-superlink" in words:
            address = f'address = "127.0.0.1:{words[words.index("--port") + 1]}"'
            name = lines[lines.index(address) - 1]
            found[name.removeprefix("[superlink.").removesuffix("]")] = number
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "rounds", "link", "said"),
    [
        (STAR, 40, "cloud", "sfumato: device:"),
        (MASKED, 3, "cloud", "sfumato: edge:"),
        (MASKED, 3, "edge-0", "sfumato: edge:0"),
    ],
    ids=["star", "masked, of the cloud", "masked, of an edge"],
)
def test_a_superlink_that_is_killed_stops_the_run_and_it_is_resumed(
    document: dict[str, Any], rounds: int, link: str, said: str, place: Path
) -> None:
    """With one line, and nothing of Flower is left; then the run goes on from the parties' memories.

    Under masks in the midst of a round: its session ends without a sum, and `--resume` begins another one.
    """
    with started_over_flower(place, rounds, document=document) as starter:
        try:
            await_round(place, starter)
            os.kill(superlinks(place)[link], signal.SIGKILL)
            assert starter.wait(PATIENCE_S) == 1
        finally:
            starter.kill()
        assert starter.stderr is not None
        (line,) = starter.stderr.read().splitlines()
    assert line.startswith(said)
    assert flower_processes(place) == {}
    with started_over_flower(place, rounds, "--resume", document=document) as again:
        assert again.wait(PATIENCE_S) == 0
    assert check_run(place / "run").problems == []
    played = load_run(place / "run")
    assert len(played.metrics) == rounds
    spec = spec_of(document, training=document["training"] | {"rounds": rounds})
    accounted = {(row.unit, row.observer): row.epsilon for row in account(spec).guarantees}
    assert {(row.unit, row.observer): row.epsilon for row in played.privacy.guarantees} == accounted
    assert flower_processes(place) == {}


def waited_for(condition: Callable[[], bool]) -> bool:
    """Whether something comes true within half an hour, which a busy machine may take."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
