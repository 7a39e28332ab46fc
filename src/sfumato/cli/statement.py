"""``sfumato statement``: what is protected against whom, as a page and JSON for an auditor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.arguments import Argument
from sfumato.cli.options import Debug
from sfumato.cli.spec_argument import locating_errors, read_spec
from sfumato.errors import SpecError

if TYPE_CHECKING:
    from sfumato.report.statement.content import Statement

Source = Annotated[
    str, typer.Argument(metavar="SPEC|RUN", help="A YAML file, the name of a built-in spec, or a run folder.")
]


def statement(
    spec: Source,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The page to write, NAME.html; NAME.json beside it. Default: statement.html"
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write a privacy statement for an auditor: an HTML page, and the same as JSON.

    Of a run folder every ε is recomputed first, as by `sfumato verify`; the statement says what was found.
    """
    from sfumato.report.statement.page import statement_page
    from sfumato.run_folder.reader import holds_run, write_json, write_text
    from sfumato.spec.load import builtin_names

    page = Path("statement.html") if out is None else out
    if page.suffix != ".html":
        raise SpecError(Argument("out"), str(page), "must end with .html; the JSON is written beside it")
    is_run = spec not in builtin_names() and holds_run(Path(spec))
    found = _statement_of_run(Path(spec)) if is_run else _statement_of_spec(spec)
    write_text(page, statement_page(found))
    write_json(page.with_suffix(".json"), found.to_dict())
    print(page)
    print(page.with_suffix(".json"))


def _statement_of_spec(source: str) -> Statement:
    """The privacy statement of a spec that has not been run."""
    from sfumato.accounting import account
    from sfumato.report.statement.content import Statement
    from sfumato.run_folder.recorded_privacy import RecordedPrivacy
    from sfumato.spec.frozen import versions

    loaded = read_spec(source, None)
    with locating_errors(source):
        report = account(loaded)
    resolved = report.plan.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    privacy = RecordedPrivacy.from_dict(report.to_dict())
    return Statement(resolved, privacy, "A plan, before any run", versions())


def _statement_of_run(folder: Path) -> Statement:
    """The privacy statement of the run in ``folder``, whose every ε the checker has recomputed."""
    from sfumato.report.statement.content import Statement
    from sfumato.run_folder.reader import load_run
    from sfumato.verify.checker import check_run

    run = load_run(folder)
    state = "finished" if run.finished else "not finished"
    outcome = check_run(folder)
    verified = (
        f"sfumato verify recomputed {outcome.finite:,} finite bounds of {outcome.rows:,} guarantees from the "
        f"certificates of the run: {len(outcome.problems):,} mismatches."
    )
    files = {name: record.sha256 for name, record in sorted(run.manifest.files.items()) if name in _FILES}
    versions = run.spec_dict.get("versions") or {}
    return Statement(run.spec_dict, run.privacy, f"A run ({state})", versions, verified, files)


_FILES = ("spec.yaml", "privacy.json", "ledger.json", "model.pt", "groups.pt")
