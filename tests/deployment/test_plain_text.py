"""Nothing is said in plain text to another machine: there is no way to ask for it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml
from handed_over import checked, free_addresses, written
from rehearsals import STAR

import sfumato.deployment
from sfumato.cli import main

OPENING = {"create_server", "create_connection", "AF_INET", "AF_INET6", "connect_ex"}
"""What opens a connection to, or for, an address of the Internet."""


def test_connections_of_the_internet_are_tls_or_of_the_loopback_address() -> None:
    """One source dials and listens, and wraps that in TLS; another asks for free ports of this machine."""
    folder = Path(sfumato.deployment.__file__).parent
    found = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if getattr(node, "attr", None) in OPENING or getattr(node, "id", None) in OPENING
    }
    assert found == {"tls_hops.py", "flower/relays.py"}
    relays = (folder / "flower" / "relays.py").read_text("utf-8")
    assert relays.count('create_server(("127.0.0.1", 0))') == relays.count("create_server(") == 1
    assert relays.count('connect_ex(("127.0.0.1", port))') == relays.count("connect_ex(") == 1


@pytest.mark.parametrize("address", ["http://cloud.example:80", "tcp://cloud.example:80", "/run/socket"])
def test_an_address_of_something_else_than_tls_is_refused(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(written(tmp_path, STAR, free_addresses("cloud"))) == 0
    device = tmp_path / "out" / "device-0"
    hops = yaml.safe_load((device / "hops.yaml").read_text())
    (device / "hops.yaml").write_text(
        yaml.safe_dump({"parents": [hops["parents"][0] | {"address": address}]})
    )
    allowed = "must be HOST:PORT, such as graz.example.org:8470; every hop is TLS"
    assert f"parents[0].address: got '{address}'; {allowed}" in checked(device, capsys)
