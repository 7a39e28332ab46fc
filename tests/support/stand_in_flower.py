"""A stand-in for Flower, for tests without it: its programs, and the modules that the relay app imports.

The programs tell each other by files in the folder that they run in. A SuperLink has the app's part beside
the aggregator, which calls that beside a child without a process in between.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from importlib import util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

PROGRAMS = ("flower-superlink", "flower-supernode", "flwr")


class Message:
    """A message of Flower."""

    def __init__(self, content: Any, node: int = 0, *_: str, **__: Any) -> None:
        self.content, self.node = content, node

    def has_error(self) -> bool:
        return self.content is None


class App:
    """A server's or a client's app; what is registered is its ``registered``."""

    registered: Any = None

    def main(self) -> Callable[[Any], None]:
        return lambda function: setattr(self, "registered", function)

    train = main


class Grid:
    """A grid that calls the part beside a child at once; ``places``: the sockets of parties, by node."""

    def __init__(self, client: Callable[..., Message], places: Callable[[], dict[int, str]]) -> None:
        self._client, self._places = client, places
        self._answers: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        return list(self._places())

    def push_messages(self, messages: list[Message]) -> list[str]:
        (message,) = messages
        context = SimpleNamespace(node_config={"socket": self._places()[message.node]})
        try:
            answer = self._client(message, context)
        except (OSError, EOFError):
            answer = Message(None)
        self._answers[str(len(self._answers))] = answer
        return [str(len(self._answers) - 1)]

    def pull_messages(self, names: list[str]) -> list[Message]:
        return [self._answers[name] for name in names]


def modules() -> dict[str, ModuleType]:
    """What the relay app imports, by name."""
    found = {name: ModuleType(name) for name in ("flwr", "flwr.app", "flwr.clientapp", "flwr.serverapp")}
    for module in found.values():
        given = {"ConfigRecord": dict, "RecordDict": dict, "Context": object, "Message": Message}
        vars(module).update(given, ClientApp=App, ServerApp=App, Grid=object)
    return found


def loaded(path: Path) -> Any:
    """A module of the app."""
    spec = util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_environment(folder: Path) -> Path:
    """A folder that passes for Flower's environment."""
    from sfumato.deployment.flower.environment import VERSION  # its programs know nothing of ours

    (folder / "bin").mkdir(parents=True)
    (folder / "lib" / "python3" / "site-packages" / f"flwr-{VERSION}.dist-info").mkdir(parents=True)
    for name in (*PROGRAMS, "python"):
        program, run = folder / "bin" / name, "" if name == "python" else f" {__file__} {name}"
        program.write_text(f'#!/bin/sh\nexec {sys.executable}{run} "$@"\n')
        program.chmod(0o755)
    return folder


def _option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def _be_superlink() -> None:
    sys.modules.update(modules())
    listening = socket.create_server(("127.0.0.1", int(_option("--port"))))
    lines = Path("config.toml").read_text().splitlines()
    own = lines[lines.index(f'address = "127.0.0.1:{_option("--port")}"') - 1]
    run = Path(f"run-{own.removeprefix('[superlink.').removesuffix(']')}")
    while not run.exists():
        time.sleep(0.1)

    def places() -> dict[int, str]:
        found = [json.loads(path.read_text()) for path in Path().glob("node-*")]
        return {int(Path(f"number-{name}").read_text()): place for name, place in found}

    client, server = (loaded(Path("app") / f"relay_{part}.py") for part in ("client", "server"))
    told = dict(word.split("=", 1) for word in json.loads(run.read_text()))
    context = SimpleNamespace(run_config={key: json.loads(value) for key, value in told.items()})
    with listening:
        server.app.registered(Grid(client.app.registered, places), context)


def _be_supernode() -> None:
    name, place = _option("--auth-supernode-private-key"), _option("--node-config")
    written = Path(f"writing-{name}")
    written.write_text(json.dumps([name, json.loads(place.removeprefix("socket="))]))
    written.rename(f"node-{name}")
    signal.pause()


def _be_flwr() -> None:
    if sys.argv[2] == "run":
        folder, children = _option("--run-config").split(" ", 1)
        written = Path("writing")
        written.write_text(json.dumps([folder, children]))
        written.rename(f"run-{sys.argv[4]}")
        return
    number = len(list(Path().glob("number-*")))
    Path(f"number-{sys.argv[4].removesuffix('.pub')}").write_text(str(number))
    print(json.dumps({"success": True, "node-id": str(number)}))


if __name__ == "__main__":
    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
    {"flower-superlink": _be_superlink, "flower-supernode": _be_supernode, "flwr": _be_flwr}[sys.argv[1]]()
