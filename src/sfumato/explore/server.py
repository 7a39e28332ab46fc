"""The page's server: on this machine only, for the browser that was given its address."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sfumato.arguments import Argument
from sfumato.errors import MissingExtraError, SpecError
from sfumato.explore.accounted_setting import account_setting
from sfumato.explore.edited_spec import EditedSpec
from sfumato.explore.jobs import Jobs
from sfumato.spec.load import load_spec


@contextmanager
def serving(source: str, *, port: int, runs: Path) -> Iterator[tuple[str, Any]]:
    """Context with the page for a spec: it yields its address, and a server with a method ``serve_forever``.

    Runs that were started from it are stopped at the end.

    Args:
        source: a spec file or the name of a built-in spec.
        port: on which to listen; 0 for any that is free.
        runs: the folder of runs that accuracies are looked up in, and that new ones are written to.

    Raises:
        MissingExtraError: Dash is not installed.
        SpecError: the spec is wrong, or the port is taken.
    """
    try:
        from werkzeug.serving import WSGIRequestHandler, make_server

        from sfumato.explore.application import HOST, application
    except ImportError as error:
        raise MissingExtraError("explore", "explore") from error
    setting = EditedSpec.of(load_spec(source), source)
    account_setting(setting)  # a spec that is wrong is refused here; and the first page is there at once
    jobs, token = Jobs(runs), secrets.token_urlsafe(24)
    try:
        flask = application(setting, jobs, token)
        try:
            server = make_server(
                HOST, port, flask, threaded=True, request_handler=_without_request_log(WSGIRequestHandler)
            )
        except (OSError, SystemExit):
            raise SpecError(
                Argument("port"), port, "cannot be used: another program may listen there"
            ) from None
        try:
            yield f"http://{HOST}:{server.server_port}/?token={token}", server
        finally:
            server.server_close()
    finally:
        jobs.close()


def _without_request_log(handler: type[Any]) -> type[Any]:
    """A handler of requests that does not print a line for each."""
    return type("Quiet", (handler,), {"log_request": lambda self, *said: None})
