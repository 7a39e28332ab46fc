"""The web application: Dash with its scripts from this machine, behind checks of every request."""

from __future__ import annotations

import hmac
from typing import Any

import flask
from dash import Dash

from sfumato.errors import SfumatoError
from sfumato.explore import page
from sfumato.explore.accounted_setting import account_setting
from sfumato.explore.callbacks import register
from sfumato.explore.edited_spec import EditedSpec
from sfumato.explore.job_callbacks import register_jobs
from sfumato.explore.jobs import Jobs
from sfumato.user_text import MAX_BYTES

HOST = "127.0.0.1"
MAX_BODY_BYTES = 4 * MAX_BYTES
"""Of a request: the page sends three settings at most, each from a spec file of bounded size."""
_ASKING = ("GET", "HEAD")


def application(setting: EditedSpec, jobs: Jobs, token: str) -> flask.Flask:
    """The Flask application that serves the page.

    It refuses requests by another name, from another page, or without the token (403), and too long ones
    (413).

    Args:
        setting: that the page shows at first.
        jobs: where its runs are started.
        token: secret that is in the page's address; requests of browsers without it are refused.

    Raises:
        SpecError: the setting cannot be accounted for.
    """
    server = flask.Flask("sfumato.explore", static_folder=None)
    server.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES  # Flask answers a longer one with 413
    server.register_error_handler(SfumatoError, _refused)
    _refuse_foreign_requests(server, token)
    app = Dash(
        "sfumato.explore", server=server, index_string=page.index(), title="Sfumato: who learns what",
        update_title=None, serve_locally=True, include_assets_files=False,
    )  # fmt: skip
    spec = account_setting(setting).spec
    heading = f"{spec.name} · protocol {spec.protocol} · data {spec.data.source} · model {spec.model.kind}"
    app.layout = page.layout(setting, heading)
    register(app, jobs.runs)
    register_jobs(app, jobs)
    scripts = " ".join(app.csp_hashes())  # of Dash's inline scripts, and of the page's
    policy = (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )

    @server.after_request
    def restrict(response: flask.Response) -> flask.Response:
        """Add the headers by which a browser loads nothing from elsewhere."""
        response.headers.setdefault("Content-Security-Policy", policy)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response

    @server.get("/report/<int:number>")
    def report(number: int) -> Any:
        """The report of the started run ``number``, without access to the page; 404 until it is written."""
        written = jobs[number].report if number in jobs else None
        if written is None:
            flask.abort(404)
        response = flask.send_file(written.resolve(), mimetype="text/html")
        response.headers["Content-Security-Policy"] = "sandbox allow-scripts allow-downloads"
        return response

    return server


def _refused(error: SfumatoError) -> flask.Response:
    """The HTTP response to a request whose setting cannot be used: the error as text."""
    return flask.Response(str(error), 400, mimetype="text/plain")


def _refuse_foreign_requests(server: flask.Flask, token: str) -> None:
    """Refuse requests by another name, from another page, or without the token.

    A page on another site can make a browser send requests here, and with a name of its own that leads to
    this machine it could read the answers. Other users of the machine can send requests as well.
    """

    @server.before_request
    def check() -> Any:
        """Refuse a request by 403; the first one with the token gets a cookie in its place."""
        request = flask.request
        port = request.environ["SERVER_PORT"]
        names = (f"{HOST}:{port}", f"localhost:{port}")
        if request.headers.get("Host") not in names:
            flask.abort(403, "this server answers to its own address only")
        if request.method not in _ASKING:
            origin = request.headers.get("Origin")
            if origin not in [f"http://{name}" for name in names]:
                flask.abort(403, "this request comes from another page")
        cookie = f"sfumato-explore-{port}"
        given = request.args.get("token", "")
        if request.method == "GET" and request.path == "/" and _is_same_token(given, token):
            answer = flask.redirect("/")
            answer.set_cookie(cookie, token, httponly=True, samesite="Strict")
            return answer
        if not _is_same_token(request.cookies.get(cookie, ""), token):
            flask.abort(403, "open the address that sfumato explore printed: it holds a token")
        return None


def _is_same_token(given: str, token: str) -> bool:
    """Whether the token ``given`` equals ``token``, compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8"), token.encode("utf-8"))
