"""Which requests the server answers, and how the command ends."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from explore_specs import TREE, edited

from sfumato.cli import main
from sfumato.errors import SpecError

pytestmark = pytest.mark.needs("explore")
TOKEN, BASE = "abc", "http://127.0.0.1:8050"
UPDATE = "/_dash-update-component"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    """A client that has opened the address."""
    from sfumato.explore.application import application
    from sfumato.explore.jobs import Jobs

    jobs = Jobs(tmp_path / "runs")
    with application(edited(TREE), jobs, TOKEN).test_client() as found:
        assert found.get(f"/?token={TOKEN}", base_url=BASE).status_code == 302
        yield found
    jobs.close()


def test_the_page_is_served_with_its_own_scripts_only(client):
    answer = client.get("/", base_url=BASE)
    assert answer.status_code == 200
    page = answer.get_data(as_text=True)
    assert "http://" not in page
    assert "https://" not in page
    assert "//" not in "".join(part.split('"')[0] for part in page.split('src="')[1:])
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.partition("style-src")[0]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:80", "127.0.0.1.evil.example:8050", ""])
def test_a_foreign_name_is_refused(client, host):
    assert client.get("/", base_url=BASE, headers={"Host": host}).status_code == 403
    assert client.get("/", base_url=BASE, headers={"Host": "localhost:8050"}).status_code in (200, 403)


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://127.0.0.1:9999", "https://127.0.0.1:8050"]
)
def test_a_request_from_another_page_is_refused(client, origin):
    headers = {} if origin is None else {"Origin": origin}
    answer = client.post(UPDATE, base_url=BASE, headers=headers, json={})
    assert answer.status_code == 403
    assert "another page" in answer.get_data(as_text=True)
    own = client.post(UPDATE, base_url=BASE, headers={"Origin": BASE}, json={})
    assert "another page" not in own.get_data(as_text=True)


def test_without_the_token_nothing_is_answered(tmp_path):
    from sfumato.explore.application import application
    from sfumato.explore.jobs import Jobs

    jobs = Jobs(tmp_path / "runs")
    with application(edited(TREE), jobs, TOKEN).test_client() as stranger:
        for path in ("/", "/?token=abd", "/_dash-layout", "/report/1"):
            assert stranger.get(path, base_url=BASE).status_code == 403, path
        assert stranger.post(UPDATE, base_url=BASE, headers={"Origin": BASE}, json={}).status_code == 403
    jobs.close()


def test_a_report_that_is_not_there(client):
    assert client.get("/report/1", base_url=BASE).status_code == 404


def test_the_server_listens_on_the_loopback_interface_only(tmp_path):
    from sfumato.explore.server import serving

    with serving("quickstart", port=0, runs=tmp_path) as (address, server):
        assert address.startswith("http://127.0.0.1:")
        assert server.socket.getsockname()[0] == "127.0.0.1"
        token = address.rpartition("=")[2]
        assert len(token) >= 32
        with serving("quickstart", port=0, runs=tmp_path) as (other, _):
            assert not other.endswith(token)


def test_a_port_that_is_taken_is_named(tmp_path):
    from sfumato.explore.server import serving

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(SpecError, match=f"port: got {port}; cannot be used"),
            serving("quickstart", port=port, runs=tmp_path),
        ):
            pass


@pytest.mark.parametrize("module", ["dash", "flask", "werkzeug.serving"])
def test_a_missing_extra_is_one_line(module, capsys, monkeypatch):
    for name in ("application", "page", "callbacks", "job_callbacks"):
        monkeypatch.delitem(sys.modules, f"sfumato.explore.{name}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["explore"]) == 2
    said = capsys.readouterr().err
    assert said == "sfumato: explore: needs the extra 'explore': pip install 'sfumato[explore]'\n"


def test_a_wrong_spec_ends_the_command(capsys):
    assert main(["explore", "quickstar"]) == 2
    assert "did you mean" in capsys.readouterr().err
