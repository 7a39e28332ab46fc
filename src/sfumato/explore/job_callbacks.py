"""Runs and pilots started from the page: buttons, live curves, the report's address."""

from __future__ import annotations

# Dash has no types of its own
# mypy: disable-error-code="untyped-decorator"
from typing import Any

from dash import Dash, Input, Output, State, ctx, html

from sfumato.errors import SfumatoError
from sfumato.explore.accounted_setting import account_setting
from sfumato.explore.edited_spec import EditedSpec
from sfumato.explore.figures import as_plotly
from sfumato.explore.jobs import Jobs, StartedRun, curves
from sfumato.report import formatting as text


def register_jobs(app: Dash, jobs: Jobs) -> None:
    """Register the callbacks that start and stop runs, and that show the curves of what a run has written."""

    pressed: dict[str, Any] = {name: Input(name, "n_clicks") for name in ("start", "pilot")}
    started = {
        "job": Output("job", "data"),
        "idle": Output("tick", "disabled"),
        "problem": Output("job-problem", "children"),
        "no_problem": Output("job-problem", "hidden"),
    }
    asked = pressed | {name: State(name, "data") for name in ("setting", "job")}

    @app.callback(output=started, inputs=asked, prevent_initial_call=True)
    def start(setting: str, job: int | None, **_clicks: int) -> dict[str, Any]:
        """Start a run or a pilot of ``setting``; ``job``: number of the one before."""
        try:
            accounted = account_setting(EditedSpec.from_json(setting))
            if ctx.triggered_id == "pilot":
                started = jobs.pilot(accounted.spec, accounted.report.plan.spec)
            else:
                started = jobs.start(accounted.spec)
        except (SfumatoError, OSError) as error:
            return {"job": job, "idle": job is None, "problem": str(error), "no_problem": False}
        return {"job": started.number, "idle": False, "problem": "", "no_problem": True}

    followed = {
        "said": Output("job-said", "children"),
        "figures": Output("live-figures", "data"),
        "hidden": Output("curves", "hidden"),
        "accuracy": Output("accuracy-curve-frame", "aria-label"),
        "epsilon": Output("epsilon-curve-frame", "aria-label"),
        "link": Output("report-link", "children"),
        "no_stop": Output("stop", "hidden"),
        "busy": Output("start", "disabled"),
        "busy_pilot": Output("pilot", "disabled"),
        "idle": Output("tick", "disabled", allow_duplicate=True),
    }
    events = {"ticks": Input("tick", "n_intervals"), "job": Input("job", "data")}
    events |= {"stop": Input("stop", "n_clicks")}

    @app.callback(output=followed, inputs=events, prevent_initial_call=True)
    def follow(job: int | None, **_events: int) -> dict[str, Any]:
        """What the page shows of the run ``job``, after it was stopped if that was asked for."""
        if job is None or job not in jobs:
            return _outputs_without_job()
        if "stop" in ctx.triggered_prop_ids.values():  # a tick of the clock may be among them
            jobs[job].stop()
        return _outputs_of_job(jobs[job])


def _outputs_without_job() -> dict[str, Any]:
    """The values of the outputs, by name, where no run was started."""
    return {
        "said": "", "figures": {}, "hidden": True, "accuracy": "", "epsilon": "", "link": "",
        "no_stop": True, "busy": False, "busy_pilot": False, "idle": True,
    }  # fmt: skip


def _outputs_of_job(job: StartedRun) -> dict[str, Any]:
    """The values of the outputs about a run, by name: how far it is, and its curves."""
    running = job.state == "running"
    said = job.state_sentence()
    accuracy, epsilon, rounds = curves(job)
    if rounds:
        said += f" {text.whole(rounds)} of {text.whole(job.rounds)} rounds are written."
    elif running:
        said += " Nothing is written yet: a run writes its rounds every few seconds."
    link: Any = ""
    if job.report is not None and not running:
        link = html.A("The report of the run", href=f"/report/{job.number}", target="_blank")
    return {
        "said": said,
        "figures": {"accuracy-curve": as_plotly(accuracy), "epsilon-curve": as_plotly(epsilon)},
        "hidden": accuracy is None and epsilon is None,
        "accuracy": "" if accuracy is None else accuracy.description,
        "epsilon": "" if epsilon is None else epsilon.description,
        "link": link,
        "no_stop": not running,
        "busy": running,
        "busy_pilot": running,
        "idle": not running,
    }
