"""A run after the checker has looked at it: `verify_run`, and the statement for an auditor."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.arguments import Argument
from sfumato.errors import SpecError

if TYPE_CHECKING:
    from sfumato.report.statement.content import Statement
    from sfumato.spec.document import Spec
    from sfumato.verify.checker import CheckOutcome


def verify_run(run: str | Path) -> CheckOutcome:
    """Recompute every ε of a run folder from its certificates, without the accountant.

    Returns:
        The outcome; mismatches are in its ``problems``, they raise no error.

    Raises:
        SpecError: it is no run folder.
    """
    from sfumato.run_folder.reader import no_run_error
    from sfumato.verify.checker import check_run
    from sfumato.verify.folder import NoRunError

    try:
        return check_run(Path(run))
    except NoRunError:
        raise no_run_error(Path(run)) from None


def statement(subject: Spec | str | Path, out: str | Path | None = None) -> Path:
    """Write a privacy statement for an auditor: the page ``out``, and the same as JSON beside it.

    Args:
        subject: a spec, or a run folder, of which every ε is recomputed first, as by `verify_run`.
        out: ends with ``.html``; default: ``statement.html``, which is left as it is if it states another
            plan or run.

    Raises:
        SpecError: ``out`` is no page, states something else, or there is no run in the folder.
        RunError: a file of the run is damaged.
    """
    return write_statement(subject, out)[0]


def write_statement(subject: Spec | str | Path, out: str | Path | None) -> tuple[Path, Statement]:
    """Write a statement as `statement` does; returns the path of the page and the content of the statement.

    Args:
        subject: a spec, or the folder of a run.
        out: file of the page, ``*.html``; ``None``: ``statement.html``. The JSON is written beside it.

    Raises:
        SpecError: ``out`` has another ending; or ``statement.html``, by default, states another plan;
            others as of `statement`.
    """
    from sfumato.report.statement.page import statement_page
    from sfumato.run_folder.reader import write_json, write_text
    from sfumato.spec.document import Spec

    page = Path("statement.html" if out is None else out)
    if page.suffix != ".html":
        raise SpecError(Argument("out"), str(page), "must end with .html; the JSON is written beside it")
    found = _statement_of_spec(subject) if isinstance(subject, Spec) else _statement_of_run(Path(subject))
    if out is None:
        _refuse_to_replace(page, found)
    write_text(page, statement_page(found))
    write_json(page.with_suffix(".json"), found.to_dict())
    return page, found


def _refuse_to_replace(page: Path, found: Statement) -> None:
    """Refuse to replace a statement of another plan or run by ``found``, where nobody named the file.

    Raises:
        SpecError: the file at ``page``, or the JSON beside it, is such a statement, or something else.
    """
    from sfumato.user_text import parse_json, read_text

    beside = page.with_suffix(".json")
    if not page.exists() and not beside.exists():
        return
    there: dict[str, Any] = {}
    if beside.exists():
        parsed = parse_json(read_text(beside), str(beside))
        there = parsed if isinstance(parsed, dict) else {}
    source, name = there.get("source", ""), there.get("name", "")
    if (str(source).partition(" (")[0], name) != (found.source.partition(" (")[0], str(found.spec["name"])):
        said = f"is a statement of {name} ({source})" if name else "is something else"
        other = f"name another file, such as {found.spec['name']}-statement.html"
        raise SpecError(Argument("out"), str(page), f"{said}, and is left as it is; {other}")


def _statement_of_spec(spec: Spec) -> Statement:
    """The statement of a spec that has not been run."""
    from sfumato.accounting import account
    from sfumato.report.results.held import held_by
    from sfumato.report.statement.content import Statement
    from sfumato.run_folder.recorded_privacy import RecordedPrivacy
    from sfumato.spec.frozen import versions

    report = account(spec)
    planned = report.plan.spec
    rates = report.plan.releases.batches.rates
    each = None if rates is None else rates.tolist()
    held = held_by(each, planned.training.batch_size, planned.privacy.unit)
    resolved = planned.model_dump(mode="json", by_alias=True, exclude_none=True)
    privacy = RecordedPrivacy.from_dict(report.to_dict())
    today = date.today().isoformat()
    return Statement(resolved, privacy, "A plan, before any run", versions(), today, held=held)


def _statement_of_run(folder: Path) -> Statement:
    """The statement of a run in ``folder``, checked by the checker."""
    from sfumato.report.results.held import held_in_run
    from sfumato.report.statement.assumptions import without_folder
    from sfumato.report.statement.content import PlayedRun, Statement
    from sfumato.run_folder.label_counts import read_test_labels, read_test_persons
    from sfumato.run_folder.reader import MODEL_FILE, SPEC_FILE, load_run

    run = load_run(folder)
    deployed = run.deployed
    unnamed = ("a source that is not named",) if deployed else ()
    draws = tuple(map(str, deployed.get("draws", ()))) or unnamed
    state = "finished"
    if not run.finished:
        state = (
            f"stopped after {len(run.metrics):,} of {run.rounds:,} rounds; the figures are for all of them"
        )
    outcome, source = verify_run(folder), str(run.spec_dict["data"]["source"])
    last = folder / (MODEL_FILE if run.finished else SPEC_FILE)
    played = PlayedRun(
        verified=(
            f"sfumato verify recomputed {outcome.rows:,} guarantees ({outcome.finite:,} finite bounds of ε) "
            f"from what the run recorded: {len(outcome.problems):,} mismatches."
        ),
        mismatches=tuple(without_folder(line, source) for line in outcome.problems),
        unchecked=tuple(without_folder(line, source) for line in outcome.unchecked),
        written=date.fromtimestamp(last.stat().st_mtime).isoformat(),
        recomputed=outcome.rows,
        session=str(deployed.get("session", "")),
        draws=draws,
        purpose=str(deployed.get("purpose", "")),
        on=str(deployed.get("on", "")),
    )
    versions, today = run.spec_dict.get("versions") or {}, date.today().isoformat()
    held = held_in_run(run, run.spec_dict["privacy"].get("unit", "device"))
    labels = read_test_labels(folder) or {}
    state = f"A run ({state})"
    apart = sum(labels.values()), read_test_persons(folder), tuple(labels)
    return Statement(run.spec_dict, run.privacy, state, versions, today, played, held, *apart)
