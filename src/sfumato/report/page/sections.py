"""The report of runs: all sections of the page, in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from sfumato.report import formatting as text
from sfumato.report.drawings.group_graph import spread_html
from sfumato.report.drawings.moving import places_figure
from sfumato.report.drawings.topology_figure import topology_figure
from sfumato.report.figures.attacks import attacks_part
from sfumato.report.figures.claims import claims_figure, claims_table
from sfumato.report.figures.coalitions import coalitions_part
from sfumato.report.figures.control import control_figures, kept_choices, noise_factor_sentence
from sfumato.report.figures.costs import accuracy_vs_cost_figures, cost_figures, even_costs_table
from sfumato.report.figures.curves import personal_figure, score_figures
from sfumato.report.figures.elections import elections_figure, elections_part
from sfumato.report.figures.epsilon_curves import epsilon_figures
from sfumato.report.figures.figure import Figure
from sfumato.report.figures.heatmap import after_run_table, heatmap_figure
from sfumato.report.figures.per_worker_privacy import per_worker_privacy_figure
from sfumato.report.figures.score_against_epsilon import score_against_epsilon_figures
from sfumato.report.figures.worker_heatmap import worker_heatmap_figure
from sfumato.report.page.first_screen import first_screen
from sfumato.report.page.html import (
    PlacedFigures,
    bullet_list,
    placeholder,
    render_page,
    section,
    shared_script,
    under_name_of_run,
)
from sfumato.report.page.papers import with_papers_explained
from sfumato.report.page.who_adds_noise import noise_of, noise_part, training_of
from sfumato.report.results.attack_findings import attacked_run, observers_of
from sfumato.report.results.cost_of_privacy import adds_noise, twin_beside
from sfumato.report.results.grouped_run import grouped_run
from sfumato.report.results.matrix import Matrix
from sfumato.report.results.network import GroupNetwork, read_network
from sfumato.report.results.series import Series, load_series
from sfumato.report.results.summary import Summary, matrix_of, reasons_without_guarantee, summarise
from sfumato.run_folder.reader import add_text

_NOT_ACCOUNTED = (
    "Losses, accuracies, clip fractions and noise levels are measured by the simulator on devices' data. "
    "A deployment does not release them, and they are not accounted for here.",
    "The noise can be computed from the seed. A published seed is acceptable in a simulation only; a "
    "deployment must draw its noise from a secret source.",
    "The guarantees assume exact Gaussian noise and do not cover floating-point effects.",
    "Wall time depends on the machine that ran the simulation.",
)


def write_report(run_folders: Sequence[str | Path], out: str | Path) -> Path:
    """Writes a report of runs, in common figures, to the self-contained HTML file ``out``; returns ``out``.

    Folders named ``seed-K`` in one folder, or the folder that contains them, are one run: mean and 95 % band.

    Raises:
        SpecError: no folder was given, one of them is not a run, or another process is writing to ``out``.
        RunError: a run is damaged, or the page cannot be written.
    """
    return write_page(load_series([Path(folder) for folder in run_folders]), Path(out))


def write_page(series: Sequence[Series], out: Path) -> Path:
    """Write the report of loaded runs to ``out``; in a run folder it is added to the manifest.

    Returns ``out``.
    """
    add_text(out, page_of(series, out.parent))
    return out


def page_of(series: Sequence[Series], place: Path) -> str:
    """The report of runs as one HTML text, for a page in the folder ``place``."""
    figures = PlacedFigures()
    matrices = [matrix_of(one.first) for one in series]
    summaries = [summarise(one) for one in series]
    by_name = {one.name: matrix for one, matrix in zip(series, matrices, strict=True)}
    title = text.join_names([one.name for one in series], 3)
    several = len(series) > 1  # then what compares them comes first
    twin = None if several else twin_beside(series[0])
    pictures = _pictures_html(series, summaries, figures)
    over_rounds = [_section_over_rounds(series, None, figures)] if several else []
    if several and not pictures:
        pictures, over_rounds = over_rounds[0], []
    first = first_screen(series, summaries, matrices, pictures, twin)
    who = section(
        "Who learns what about whom",
        [
            under_name_of_run(one, series, _guarantees_html(one, matrix, figures))
            for one, matrix in zip(series, matrices, strict=True)
        ],
    )
    sections = [
        first,
        *over_rounds,
        who,
        *([] if several else [_section_over_rounds(series, twin, figures)]),
        *_by_run("Attacks and audits", series, lambda one: _attacks_html(one, figures)),
        *_by_run("Leakage through overlapping groups", series, lambda one: _overlap_html(one, figures)),
        *_elections_section(series, figures),
        *_by_run("Colluding devices", series, lambda one: coalitions_part(one, by_name[one.name], figures)),
        section(
            "The network", [*_networks_html(series, figures), *(_noise_html(one, series) for one in series)]
        ),
        *_by_run("Published claims", series, lambda one: _claims_html(one, figures)),
        _costs_section(series, figures),
        section("What is not accounted", [bullet_list(_NOT_ACCOUNTED)], folded=True),
        section(
            "Spec and versions", [*(_spec_html(one, series) for one in series), *_versions_table(series)],
            folded=True,
        ),
    ]  # fmt: skip
    told = with_papers_explained(sections)
    return render_page(title, _subtitle_html(series), told, figures, shared=shared_script(place))


def _pictures_html(series: Sequence[Series], summaries: Sequence[Summary], figures: PlacedFigures) -> str:
    """HTML of the figures that compare several runs first: the score against ε; "" for one run."""
    drawn = score_against_epsilon_figures(series, summaries) if len(series) > 1 else []
    return f'<div class="panels">{"".join(map(figures.place, drawn))}</div>' if drawn else ""


def _subtitle_html(series: Sequence[Series]) -> str:
    """HTML lines below the title: protocol, data and model of every run; one line where they are alike."""
    facts: dict[str, str] = {}
    for one in series:
        spec = one.first.spec_dict
        data, model = spec.get("data"), spec.get("model")
        said = [f"protocol {spec['protocol']}"]
        said += [f"data {_source_in_words(data)}"] if isinstance(data, Mapping) and "source" in data else []
        said += [f"model {model['kind']}"] if isinstance(model, Mapping) and "kind" in model else []
        topology = spec.get("topology")
        said += ["devices move"] if isinstance(topology, Mapping) and topology.get("moves") else []
        said += ["adaptive control"] if spec.get("control") else []
        said += [f"{len(one.runs)} seeds"] if len(one.runs) > 1 else [f"seed {spec.get('seed', 0)}"]
        facts[one.name] = " · ".join(said)
    if len(set(facts.values())) == 1:
        return f'<p class="facts">{text.escape(next(iter(facts.values())))}</p>'
    return "".join(f'<p class="facts">{text.escape(f"{name}: {said}")}</p>' for name, said in facts.items())


def _source_in_words(data: Mapping[str, Any]) -> str:
    """The source of the data; of a file its name, without the folders of the machine that it lies on."""
    source = str(data["source"])
    return PurePath(source).name if PurePath(source).is_absolute() else source


def _by_run(title: str, series: Sequence[Series], content_of: Callable[[Series], str]) -> list[str]:
    """An HTML section with ``content_of`` each run, below its name; [] if it is "" for all."""
    parts = [under_name_of_run(one, series, content) for one in series if (content := content_of(one))]
    return [section(title, parts)] if parts else []


def _section_over_rounds(series: Sequence[Series], twin: Series | None, figures: PlacedFigures) -> str:
    """The HTML section with scores, ε towards watched observers and adaptive control over rounds.

    ``twin``: of a single run, that without noise, whose score is drawn too.
    """
    scores, epsilon, personal = score_figures(series, twin), epsilon_figures(series), personal_figure(series)
    parts = [
        *([figures.place(score) for score in scores] or [placeholder("The model was not evaluated.")]),
        *([figures.place(personal)] if personal else []),
        *map(figures.place, epsilon),
        *(figures.place(chosen) for chosen in control_figures(series)),
    ]
    panels = f'<div class="panels">{"".join(parts)}</div>'
    said = [*([] if epsilon else ["No ε towards a watched observer is finite."]), *kept_choices(series)]
    return section("Accuracy and privacy over rounds", [panels, text.paragraphs(said)])


def _guarantees_html(one: Series, matrix: Matrix, figures: PlacedFigures) -> str:
    """HTML of the matrix of guarantees of a run, its notes and the reasons for missing guarantees."""
    privacy, network = one.first.privacy, read_network(one.first.spec_dict)
    titled = network.titled
    rows = [replace(g, unit=titled(g.unit), observer=titled(g.observer)) for g in privacy.guarantees]
    figure = heatmap_figure(matrix, rows, privacy.delta, network.device_word)
    if figure is None:
        return placeholder("The run has no guarantees.")
    notes = [text.sentence(note) for note in privacy.notes]
    reasons = reasons_without_guarantee(matrix)
    parts = [figures.place(figure), bullet_list(notes) if notes else ""]
    if reasons:
        listed = bullet_list(reasons)
        parts.append(f"<details open><summary>Why pairs have no guarantee</summary>{listed}</details>")
    return "".join([*parts, after_run_table(privacy)])


def _attacks_html(one: Series, figures: PlacedFigures) -> str:
    """HTML of the attacks on a run; empty where there were none."""
    run = attacked_run(one)
    return "" if run is None else attacks_part(run, observers_of(run), figures)


def _overlap_html(one: Series, figures: PlacedFigures) -> str:
    """HTML on overlapping groups: ε of pairs of workers, ε by round, and how releases spread.

    "" without groups.
    """
    overlaps = isinstance(read_network(one.first.spec_dict).shape, GroupNetwork)
    run = grouped_run(one.first) if overlaps else None
    if run is None:
        return ""
    drawn = [worker_heatmap_figure(run), per_worker_privacy_figure(run)]
    # where groups change, when a release arrives depends on who is where until then
    spread = "" if run.plan.eras else spread_html(run, figures.place)
    return "".join(figures.place(figure) for figure in drawn if figure) + spread


def _elections_section(series: Sequence[Series], figures: PlacedFigures) -> list[str]:
    """The HTML section about elected supernodes; [] without elections."""
    figure = elections_figure(series)
    if figure is None:
        return []
    parts = [under_name_of_run(one, series, content) for one in series if (content := elections_part(one))]
    return [section("Elected supernodes", [*parts, figures.place(figure)])]


def _networks_html(series: Sequence[Series], figures: PlacedFigures) -> list[str]:
    """HTML of each different network among the runs, once, with the names of the runs that have it."""
    drawn: dict[str, tuple[list[str], list[Figure] | str]] = {}
    for one in series:
        network = read_network(one.first.spec_dict)
        shown = [figure for figure in (topology_figure(network), places_figure(network)) if figure]
        key = json.dumps([[f.data, f.layout] for f in shown]) if shown else str(network.shape)
        drawn.setdefault(key, ([], shown or str(network.shape)))[0].append(one.name)
    parts = []
    for names, found in drawn.values():
        content = placeholder(found) if isinstance(found, str) else "".join(map(figures.place, found))
        heading = f"<h3>{text.escape(text.join_names(names))}</h3>" if len(drawn) > 1 else ""
        parts.append(f'<div class="run">{heading}{content}</div>')
    return parts


def _noise_html(one: Series, series: Sequence[Series]) -> str:
    """HTML on who takes part, what is clipped and who adds how much noise; "" where the spec adds none."""
    if not adds_noise(one):
        return ""
    spec, network = one.first.spec_dict, read_network(one.first.spec_dict)
    factors = text.paragraphs(noise_factor_sentence(one))
    noise = noise_part(noise_of(spec, network), training_of(spec, network))
    return under_name_of_run(one, series, f"<h3>Who adds noise</h3>{factors}{noise}")


def _claims_html(one: Series, figures: PlacedFigures) -> str:
    """HTML of the published claims beside the rigorous ε; empty without claims."""
    privacy = one.first.privacy
    figure = claims_figure(privacy.claims)
    if figure is None:
        return ""
    return figures.place(figure) + claims_table(privacy.claims, text.at_delta(privacy.delta))


def _costs_section(series: Sequence[Series], figures: PlacedFigures) -> str:
    """The HTML section with traffic, energy, time and diagnostics."""
    drawn = [*accuracy_vs_cost_figures(series), *cost_figures(series)]
    placed = "".join(figures.place(figure) for figure in drawn)
    table = even_costs_table(series[0]) if len(series) == 1 else ""
    return section("Costs and diagnostics", [table, f'<div class="panels">{placed}</div>'], folded=True)


def _spec_html(one: Series, series: Sequence[Series]) -> str:
    """HTML of the spec of a run, folded where there are several runs."""
    seed = f" (seed {one.first.spec_dict.get('seed', 0)}; the other seeds differ in it)"
    pre = (
        f"<details{' open' if len(series) == 1 else ''}>"
        f"<summary>The resolved, calibrated spec{seed if len(one.runs) > 1 else ''}</summary>"
        f'<pre tabindex="0">{text.escape(one.first.spec_text)}</pre></details>'
    )
    return under_name_of_run(one, series, pre)


def _versions_table(series: Sequence[Series]) -> list[str]:
    """An HTML table of package versions, with a column for each different set of them; [] if none is
    known.
    """
    found: dict[str, tuple[list[str], Mapping[str, Any]]] = {}
    for one in series:
        versions = one.first.spec_dict.get("versions")
        if isinstance(versions, Mapping):
            found.setdefault(json.dumps(versions, sort_keys=True), ([], versions))[0].append(one.name)
    if not found:
        return []
    packages = sorted({str(package) for _, versions in found.values() for package in versions})
    columns = ["version"] if len(found) == 1 else [text.join_names(names) for names, _ in found.values()]
    rows = [(name, *(str(versions.get(name, "–")) for _, versions in found.values())) for name in packages]
    return [text.html_table(["package", *columns], rows, caption="Versions of the packages that were used")]
