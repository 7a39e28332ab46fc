"""The page of a study: verdicts first, then figures like the paper's, tables, and how it was computed."""

from __future__ import annotations

from collections import Counter

from sfumato.report import formatting as text
from sfumato.report.page.html import PlacedFigures, bullet_list, render_page, section
from sfumato.report.page.papers import with_papers_explained
from sfumato.run_folder.manifest import FileRecord
from sfumato.run_folder.reader import write_text
from sfumato.studies.cost import quickstart_steps
from sfumato.studies.grids import PAPER_FORM, StudyPlan, points_of, setting_text
from sfumato.studies.measures.registry import measure_named
from sfumato.studies.page.agreement import agreement_figures, verdict_tables
from sfumato.studies.page.matrices import pairs_in_words
from sfumato.studies.page.panel_data import PanelData
from sfumato.studies.page.panels import figures_of
from sfumato.studies.page.tables import measure_table
from sfumato.studies.result import StudyResult
from sfumato.studies.verdicts import Outcome


def write_study_page(result: StudyResult) -> FileRecord:
    """Write the page of a study into its folder, as one file that loads nothing else.

    Returns:
        The record of the file for the manifest.
    """
    plan, figures = result.plan, PlacedFigures()
    study = plan.study
    subtitle = f'<p class="facts">{text.escape(f"{study.paper} · {study.figure} · {plan.name}")}</p>'
    sections = [_top(result)]
    if study.statements:
        agreement = "".join(map(figures.place, agreement_figures(result.verdicts)))
        sections.append(
            section(
                "What the paper says, and what was found",
                [*verdict_tables(result.verdicts, trained=_trains(plan)), agreement],
            )
        )
    sections.append(section("Figures and tables", _panels(result, figures)))
    sections.append(section("How it was computed", [_how(result)]))
    page = render_page(study.title, subtitle, with_papers_explained(sections), figures)
    return write_text(result.page, page)


def _top(result: StudyResult) -> str:
    """HTML on what the study is about and what came out; notices of shortened runs and of failures."""
    plan = result.plan
    notices = []
    if plan.quick:
        notices.append(
            "A shortened run, for a look: it has fewer rounds, seeds or points, and decides nothing."
        )
    if result.failures:
        notices.append(
            f"{text.how_many(len(result.failures), 'run')} failed; what depends on them is not judged."
        )
        notices += [f"{who}: {why}" for who, why in result.failures[:5]]
    shown = f'<div class="notice" role="note">{bullet_list(notices)}</div>' if notices else ""
    lead, intro = text.paragraphs([plan.study.intro]), ""
    if plan.study.found:
        of_form = f" of the form {plan.form}" if len(plan.study.forms) > 1 else ""
        lead, intro = text.paragraphs([f"What a full run{of_form} found: {plan.study.found}"]), lead
    return f'<div class="lead">{lead}</div>{shown}{_counts(result)}{intro}'


def _counts(result: StudyResult) -> str:
    """A sentence on how many statements agree, differ and are not settled; "" without statements.

    Sentences of the paper and questions of the study are counted apart.
    """
    if result.plan.quick:
        return ""
    said = []
    kinds = (("check", "sentences of the paper", True), ("question", "this study", False))
    for noun, whose, of_paper in kinds:
        counts = Counter(one.outcome for one in result.verdicts if one.statement.is_of_paper is of_paper)
        if counts:
            each = ", ".join(f"{outcome} {counts[outcome]}" for outcome in Outcome if counts[outcome])
            said.append(f"{text.how_many(counts.total(), noun)} of {whose}: {each}.")
    return text.paragraphs([f"Verdicts on {' On '.join(said)}"]) if said else ""


def _trains(plan: StudyPlan) -> bool:
    """Whether any grid of the study trains models."""
    return any(grid.trains for grid in plan.study.grids.values())


def _panels(result: StudyResult, figures: PlacedFigures) -> list[str]:
    """A list with the HTML of all panels in order; neighbouring heatmaps of workers stand side by side.

    Figures are added to ``figures``. A panel without points, as a shortened run may have, is left out.
    """
    parts: list[str] = []
    beside: list[str] = []
    every = [PanelData.of(result.plan, panel, result.table) for panel in result.plan.study.panels]
    pairs = [data for data in every if data.panel.kind == "pairs"]
    for data in every:
        if not data.points:  # a shortened run has other points
            continue
        if data.panel.kind == "pairs":
            parts.append(pairs_in_words(data))
            beside += map(figures.place, figures_of(data, pairs))
            continue
        parts += _side_by_side(beside)
        beside = []
        if data.panel.kind == "table":
            parts.append(measure_table(data))
        else:
            parts += map(figures.place, figures_of(data))
    return parts + _side_by_side(beside)


def _side_by_side(placed: list[str]) -> list[str]:
    """A list with one HTML block that holds ``placed`` side by side; [] without any."""
    return [f'<div class="panels">{"".join(placed)}</div>'] if placed else []


def _how(result: StudyResult) -> str:
    """HTML on what is unstated and how it is set, the form, the grids, the cost and the command."""
    plan = result.plan
    study, form = plan.study, plan.study.forms[plan.form]
    lines = []
    if len(study.forms) > 1:
        lines.append(_form_sentence(plan))
    if form.changes:
        lines.append(f"It sets {_changes(form.changes)}.")
    if plan.quick and study.quick.changes:
        lines.append(f"Shortened by {_changes(study.quick.changes)}.")
    if form.needs:
        lines.append(form.needs)
    lines += [_grid_sentence(plan, name) for name in study.grids]
    if result.steps:
        multiple = text.number(result.steps / quickstart_steps(), 2)
        lines.append(
            f"{text.number(result.steps, 3)} device steps: {multiple} times those of the quickstart "
            "(sfumato run quickstart)."
        )
    took = text.quantity(round(result.seconds), text.SECONDS)
    lines.append(f"This call took {took}, without what earlier calls had computed.")
    lines.append(f"All figures: results.parquet, {text.whole(len(result.table))} rows.")
    command = f"sfumato study {plan.name}{_options(plan)}"
    unstated = text.paragraphs([study.unstated]) if study.unstated else ""
    title = "<h3>What the paper leaves open, and what is different here</h3>" if unstated else ""
    return f"{title}{unstated}{bullet_list(lines)}<pre>{text.escape(command)}</pre>"


def _form_sentence(plan: StudyPlan) -> str:
    """Which form the page is of, and how the other one is run: there are the first one and the paper's."""
    if plan.form == PAPER_FORM:
        return (
            "This page is of the form paper. Without --paper the study runs "
            f"in its form {plan.study.first_form}, on any machine."
        )
    paper = plan.study.forms.get(PAPER_FORM)
    other = f" With --paper the study runs in its form paper. {paper.needs}".rstrip() if paper else ""
    return f"This page is of the form {plan.form}, which runs on any machine.{other}"


def _options(plan: StudyPlan) -> str:
    """The options of ``sfumato study`` that make this plan, each after a space; "" for the default."""
    chosen = [
        name
        for name, wanted in (("--quick", plan.quick), ("--paper", plan.form != plan.study.first_form))
        if wanted
    ]
    usual = plan.study.quick.seeds if plan.quick else plan.study.seeds
    chosen += [f"--seeds {plan.seeds}"] if plan.seeds != usual else []
    return "".join(f" {option}" for option in chosen)


def _changes(changes: dict[str, object]) -> str:
    """Keys of a spec and their values as text: ``key = value``, the first 8 of many."""
    return text.join_names([f"{key} = {value}" for key, value in changes.items()], 8)


def _listed(names: list[str]) -> str:
    """Names of settings in one text: ``a, b and c``, parted by semicolons where some have commas."""
    return "; ".join(names) if any("," in name for name in names) else text.join_names(names, 12)


def _grid_sentence(plan: StudyPlan, name: str) -> str:
    """A grid in one sentence: how many specs it has, whether they are trained, its seeds and its axes."""
    axes = [
        f"{axis.words}: {_listed([setting_text(s) for s in axis.settings])}"
        for axis in plan.axes(name)
        if len(axis.settings) > 1
    ]
    listed = "; ".join(axes)
    specs = text.how_many(len(points_of(plan.axes(name))), "spec")
    seeds = text.how_many(plan.seeds_of(name), "seed")
    timed = any(measure_named(measure)[0].is_timed for measure in plan.measures(name))
    how = f"trained with {seeds} each" if plan.study.grids[name].trains else "accounted for, not trained"
    how = f"timed {text.how_many(plan.seeds_of(name), 'time')} each, not trained" if timed else how
    grid = f"Grid {name}: " if len(plan.study.grids) > 1 else ""
    return f"{grid}{specs}, {how}{f' ({listed})' if axes else ''}."
