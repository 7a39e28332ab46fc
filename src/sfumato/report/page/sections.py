"""The report of runs: all sections of the page, in order."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sfumato.claims.papers import errors_named
from sfumato.report import formatting as text
from sfumato.report.drawings.group_graph import spread_html
from sfumato.report.drawings.moving import places_figure
from sfumato.report.drawings.topology_figure import topology_figure
from sfumato.report.figures.after_run import after_run_table
from sfumato.report.figures.attacks import attacks_part
from sfumato.report.figures.claims import claims_figure, claims_table
from sfumato.report.figures.coalitions import coalitions_part
from sfumato.report.figures.control import control_figures, kept_choices, looked_at, noise_factor_sentence
from sfumato.report.figures.costs import accuracy_vs_cost_figures, cost_figures, even_costs_table
from sfumato.report.figures.curves import personal_figure, score_figures
from sfumato.report.figures.elections import elections_figure, elections_part
from sfumato.report.figures.epsilon_curves import endless_observers, epsilon_figures
from sfumato.report.figures.figure import Figure
from sfumato.report.figures.heatmap import guarantees_html
from sfumato.report.figures.per_worker_privacy import per_worker_privacy_figure
from sfumato.report.figures.score_against_epsilon import score_against_epsilon_figures
from sfumato.report.figures.worker_heatmap import workers_html
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
from sfumato.report.page.not_accounted import not_accounted
from sfumato.report.page.papers import with_papers_explained
from sfumato.report.page.party_words import with_words_for_parties
from sfumato.report.page.who_adds_noise import noise_of, noise_part, training_of
from sfumato.report.results.attack_findings import attacked_run, observers_of
from sfumato.report.results.comparability import asks_for_energy, data_of, has_no_radio
from sfumato.report.results.cost_of_privacy import CostOfNoise, costs_by_runs_beside
from sfumato.report.results.dp_ogl_plus import protocol_warnings
from sfumato.report.results.grouped_run import grouped_run
from sfumato.report.results.matrix import Matrix
from sfumato.report.results.network import GroupNetwork, Network
from sfumato.report.results.observer_labels import labels_for, watched_title
from sfumato.report.results.protection_words import reasons_without_guarantee
from sfumato.report.results.series import Series, load_series
from sfumato.report.results.spec_sections import adds_noise, partition_in_words
from sfumato.report.results.summary import Summary, matrix_of, of_main_unit, summarise, unit_of_run
from sfumato.run_folder.reader import add_text

_NO_ENERGY = '<p class="facts">Energy and time to transmit are shown for a spec that describes its radio.</p>'


def write_report(run_folders: Sequence[str | Path], out: str | Path) -> Path:
    """Write a report of runs to the self-contained HTML file ``out``; returns ``out``.

    Folders named ``seed-K`` in one folder, or the folder that contains them, are one run: mean and 95 % band.

    Raises:
        SpecError: no folder was given, one of them is not a run, or another process is writing to ``out``.
        RunError: a run is damaged, or the page cannot be written.
    """
    return write_page(load_series([Path(folder) for folder in run_folders]), Path(out))


def write_page(series: Sequence[Series], out: Path) -> Path:
    """Write the report of the loaded runs ``series`` to the file ``out``; returns ``out``.

    In a run folder it is added to the manifest. Errors are those of `write_report` for ``out``.
    """
    add_text(out, page_of(series, out.parent))
    return out


def page_of(series: Sequence[Series], place: Path) -> str:
    """The report of the runs ``series`` as one HTML text, for a page in the folder ``place``."""
    figures = PlacedFigures()
    matrices = [matrix_of(one) for one in series]
    summaries = [summarise(one) for one in series]
    by_name = {one.name: matrix for one, matrix in zip(series, matrices, strict=True)}
    title = text.join_names([one.name for one in series], 3)
    several = len(series) > 1  # then what compares them comes first
    costs = costs_by_runs_beside(series)
    twin = costs[0].other if costs and not several else None
    pictures = _pictures_html(series, summaries, costs, figures)
    over_rounds = [_section_over_rounds(series, None, figures)] if several else []
    if several and not pictures:
        pictures, over_rounds = over_rounds[0], []
    first = first_screen(series, summaries, matrices, pictures, costs)

    def matrix_part(one: Series) -> str:
        """HTML of the guarantees of one run."""
        return _guarantees_html(one, by_name[one.name], figures)

    def control_part(one: Series) -> str:
        """HTML of what control chose in one run."""
        return _control_html(one, figures)

    sections = [
        first,
        *over_rounds,
        *_by_run("Who learns what about whom", series, matrix_part),
        *([] if several else [_section_over_rounds(series, twin, figures)]),
        *(_by_run("What adaptive control chose", series, control_part) if several else []),
        *_by_run("Attacks and audits", series, lambda one: _attacks_html(one, figures)),
        *_by_run("Leakage through overlapping groups", series, lambda one: _overlap_html(one, figures)),
        *_elections_section(series, figures),
        *_by_run("Colluding devices", series, lambda one: coalitions_part(one, by_name[one.name], figures)),
        section("The network", _networks_html(series, figures), folded=several),
        *_by_run("Published claims", series, lambda one: _claims_html(one, figures)),
        _costs_section(series, figures),
        section("What is not accounted", [bullet_list(not_accounted(series))], folded=True),
        section(
            "Spec and versions", [*(_spec_html(one, series) for one in series), *_versions_table(series)],
            folded=True,
        ),
    ]  # fmt: skip
    words = {one.network.device_word for one in series}
    told = with_papers_explained(
        with_words_for_parties(sections, words.pop() if len(words) == 1 else "device")
    )
    return render_page(title, _subtitle_html(series), told, figures, shared=shared_script(place))


def _pictures_html(
    series: Sequence[Series],
    summaries: Sequence[Summary],
    costs: Sequence[CostOfNoise],
    figures: PlacedFigures,
) -> str:
    """HTML of the figures that compare several runs first: the score against ε; "" for one run.

    Those towards other observers than the first are folded away. ``costs``: what the noise costs the runs of
    which that is known.
    """
    drawn = score_against_epsilon_figures(series, summaries, costs) if len(series) > 1 else []
    if not drawn:
        return ""
    first, *others = (f'<div class="panels">{figures.place(figure)}</div>' for figure in drawn)
    whom = text.join_names([figure.title.partition(" towards ")[2] for figure in drawn[1:]], len(drawn))
    more = text.escape(f"Show the same against ε towards {whom}")
    folded = f"<details><summary>{more}</summary>{''.join(others)}</details>" if others else ""
    return f"{first}{folded}"


def _subtitle_html(series: Sequence[Series]) -> str:
    """HTML lines below the title: protocol, data, model and network; one line if all runs are alike."""
    facts: dict[str, str] = {}
    for one in series:
        spec = one.first.spec_dict
        model, topology = spec.get("model"), spec.get("topology")
        said = [] if one.name == one.first.name else [f"spec {one.first.name}"]
        said.append(f"protocol {spec['protocol']}")
        data = ", ".join(filter(None, [data_of(one), partition_in_words(spec)])) if data_of(one) else ""
        said += [f"data {data}"] if data else []
        said += [f"model {model['kind']}"] if isinstance(model, Mapping) and "kind" in model else []
        said += _parties_in_words(one.network)
        unit = unit_of_run(one.first)
        said.append(f"ε of one {one.network.device_word if unit == 'device' else unit}")
        said += _moves_in_words(topology.get("moves")) if isinstance(topology, Mapping) else []
        said += ["adaptive control"] if spec.get("control") else []
        said += [f"{len(one.runs)} seeds"] if len(one.runs) > 1 else [f"seed {spec.get('seed', 0)}"]
        facts[one.name] = " · ".join(said)
    if len(set(facts.values())) == 1:
        return f'<p class="facts">{text.escape(next(iter(facts.values())))}</p>'
    return "".join(f'<p class="facts">{text.escape(f"{name}: {said}")}</p>' for name, said in facts.items())


def _parties_in_words(network: Network) -> list[str]:
    """A list with a phrase, such as ``5 edges, 50 devices``; [] where the network is not known."""
    shape, device = network.shape, network.device_word
    if isinstance(shape, str):
        return []
    if isinstance(shape, GroupNetwork):
        return [text.how_many(shape.groups.workers, device)]
    tiers = [text.how_many(tier.size, tier.name) for tier in shape.tiers[1:]]
    return [", ".join([*tiers, text.how_many(shape.device_count, device)])]


def _moves_in_words(moves: Any) -> list[str]:
    """A list with a phrase on devices that move, with the rate if ``moves`` has one; [] where none does."""
    if not moves:
        return []
    rate = moves.get("rate") if isinstance(moves, Mapping) else None
    return ["devices move" + (f" (rate {rate:g})" if isinstance(rate, float) else "")]


def _by_run(title: str, series: Sequence[Series], content_of: Callable[[Series], str]) -> list[str]:
    """An HTML section with ``content_of`` each run, below its name, folded; [] if it is "" for all.

    Of a single run it is open, without the name.
    """
    parts = [under_name_of_run(one, series, content) for one in series if (content := content_of(one))]
    return [section(title, parts, folded=len(series) > 1)] if parts else []


def _section_over_rounds(series: Sequence[Series], twin: Series | None, figures: PlacedFigures) -> str:
    """The HTML section with scores, ε towards watched observers and adaptive control over rounds.

    ``twin``: of a single run, that without noise, whose score is drawn too.
    """
    scores, epsilon, several = score_figures(series, twin), epsilon_figures(series), len(series) > 1
    known = [*scores, *filter(None, [personal_figure(series, twin)]), *epsilon]
    drawn = [figure for figure in known if several or any(len(trace["x"]) > 1 for trace in figure.data)]
    panels = f'<div class="panels">{"".join(map(figures.place, drawn))}</div>' if drawn else ""
    said = [] if scores else ["The model was not evaluated."]
    once, also = scores and scores[0] not in drawn, bool(epsilon) and epsilon[0] not in drawn
    said += _evaluated_once(series, with_epsilon=also) if once else []
    said += [] if epsilon else [_without_finite_epsilon(series)]
    control = "" if several else _control_html(series[0], figures)
    return section("Accuracy and privacy over rounds", [panels, text.paragraphs(said), control])


def _evaluated_once(series: Sequence[Series], *, with_epsilon: bool) -> list[str]:
    """A list with a sentence on why scores, and ε too if ``with_epsilon``, are not drawn over rounds."""
    rounds = {one.rounds_played for one in series}
    after = f", after round {text.whole(rounds.pop())}" if len(rounds) == 1 else ""
    what = "The model and ε were" if with_epsilon else "The model was"
    return [f"{what} evaluated once{after}; a smaller evaluate_every does so more often."]


def _without_finite_epsilon(series: Sequence[Series]) -> str:
    """Sentences that the largest ε is infinite, so that it has no curve over rounds.

    Of a single run also towards whom, and how many have a finite one towards the cloud or the public.
    """
    endless = endless_observers(series[0]) if len(series) == 1 else []
    if not endless:
        return "No largest ε towards a watched observer is finite, so none is drawn over rounds."
    whom = text.join_names([watched_title(series[0].network, observer) for observer in endless])
    unit = unit_of_run(series[0].first)
    worst = f"ε over rounds has no curve: towards {whom} the worst {unit} has no guarantee (∞) in any round"
    return " ".join([text.sentence(worst), *filter(None, map(partial(_how_many_finite, series[0]), endless))])


def _how_many_finite(one: Series, observer: str) -> str:
    """A sentence on how many units of a run have a finite ε towards the cloud or public; "" for others."""
    rows = [row for row in of_main_unit(one.first.privacy.guarantees) if row.observer == observer]
    finite = [row for row in rows if row.epsilon < math.inf]
    if observer not in ("cloud", "public") or not finite:
        return ""
    many, every = (sum(row.stands_for for row in some) for some in (finite, rows))
    have = "has" if many == 1 else "have"
    of = text.how_many(every, rows[0].unit_kind)
    most = text.epsilon(max(row.epsilon for row in finite))
    return f"{text.whole(many)} of {of} {have} a finite ε towards the {observer}, at most {most}."


def _control_html(one: Series, figures: PlacedFigures) -> str:
    """HTML of what adaptive control chose in a run; "" without control."""
    chosen = "".join(map(figures.place, control_figures([one])))
    panels = f'<div class="panels">{chosen}</div>' if chosen else ""
    return panels + text.paragraphs([*looked_at(one), *kept_choices([one])])


def _guarantees_html(one: Series, matrix: Matrix, figures: PlacedFigures) -> str:
    """HTML of the matrix of guarantees of a run, its notes and the reasons for missing guarantees."""
    privacy, network = one.first.privacy, one.network
    controlled = bool(one.first.spec_dict.get("control"))
    elected = one.first.spec_dict["topology"].get("supernodes") == "elected"
    drawn = guarantees_html(matrix, privacy.delta, network.device_word, figures.place, controlled=controlled)
    if not drawn:
        return placeholder("The run has no guarantees.")
    told = {error for claim in privacy.claims for error in errors_named(claim.why)}  # with the claims
    notes = [
        text.sentence(note)
        for note in privacy.notes
        if not (named := errors_named(note)) or not named <= told
    ]
    reasons = reasons_without_guarantee(matrix)
    parts = [drawn, bullet_list(notes) if notes else ""]
    if reasons:
        listed = bullet_list(reasons)
        parts.append(f"<details open><summary>Why pairs have no guarantee</summary>{listed}</details>")
    after = after_run_table(privacy, labels_for(network), elected=elected, over_air=network.over_air)
    return "".join([*parts, after])


def _attacks_html(one: Series, figures: PlacedFigures) -> str:
    """HTML of the attacks on a run; empty where there were none."""
    run = attacked_run(one)
    return "" if run is None else attacks_part(run, observers_of(run), figures)


def _overlap_html(one: Series, figures: PlacedFigures) -> str:
    """HTML on overlapping groups: ε of pairs of workers, ε by round, and how releases spread.

    "" without groups.
    """
    overlaps = isinstance(one.network.shape, GroupNetwork)
    run = grouped_run(one.first) if overlaps else None
    if run is None:
        return ""
    over_rounds = per_worker_privacy_figure(run)
    # where groups change, when a release arrives depends on who is where until then
    spread = "" if run.plan.eras else spread_html(run, figures.place)
    return f"{workers_html(run, figures.place)}{figures.place(over_rounds) if over_rounds else ''}{spread}"


def _elections_section(series: Sequence[Series], figures: PlacedFigures) -> list[str]:
    """The HTML section about elected supernodes; [] without elections."""
    figure = elections_figure(series)
    if figure is None:
        return []
    parts = [under_name_of_run(one, series, content) for one in series if (content := elections_part(one))]
    return [section("Elected supernodes", [*parts, figures.place(figure)])]


def _networks_html(series: Sequence[Series], figures: PlacedFigures) -> list[str]:
    """HTML of each different network among the runs, once, with the noise of every run that has it."""
    drawn: dict[str, tuple[list[Series], list[Figure] | str]] = {}
    for one in series:
        network = one.network
        shown = [figure for figure in (topology_figure(network), places_figure(network)) if figure]
        key = json.dumps([[f.data, f.layout] for f in shown]) if shown else str(network.shape)
        drawn.setdefault(key, ([], shown or str(network.shape)))[0].append(one)
    parts = []
    for runs, found in drawn.values():
        content = placeholder(found) if isinstance(found, str) else "".join(map(figures.place, found))
        names = text.join_names([one.name for one in runs])
        heading = f"<h3>{text.escape(names)}</h3>" if len(drawn) > 1 else ""
        noise = "".join(_noise_html(one, runs) for one in runs)
        parts.append(f'<div class="run">{heading}{content}{noise}</div>')
    return parts


def _noise_html(one: Series, alike: Sequence[Series]) -> str:
    """HTML on who takes part, what is clipped and who adds how much noise; "" where the spec adds none.

    ``alike``: the runs with the same network.
    """
    if not adds_noise(one.first.spec_dict):
        return ""
    spec, network = one.first.spec_dict, one.network
    factors = text.paragraphs(noise_factor_sentence(one))
    persons = unit_of_run(one.first) == "person"
    noise = noise_part(noise_of(spec, network), training_of(spec, network), persons=persons)
    whose = f": {text.escape(one.name)}" if len(alike) > 1 else ""
    return f"<h4>Who adds noise{whose}</h4>{noise}{factors}"


def _claims_html(one: Series, figures: PlacedFigures) -> str:
    """HTML of the published claims beside the rigorous ε; empty without claims."""
    privacy = one.first.privacy
    labels = labels_for(one.network)
    figure = claims_figure(privacy.claims, labels, privacy.coalitions)
    if figure is None:
        return ""
    told = protocol_warnings(one.first.spec_dict)
    return figures.place(figure) + claims_table(privacy.claims, labels, text.at_delta(privacy.delta), told)


def _costs_section(series: Sequence[Series], figures: PlacedFigures) -> str:
    """The HTML section with traffic, energy, time and diagnostics."""
    drawn = [*accuracy_vs_cost_figures(series), *cost_figures(series)]
    placed = "".join(figures.place(figure) for figure in drawn)
    table = even_costs_table(series[0]) if len(series) == 1 else ""
    parts = [table, f'<div class="panels">{placed}</div>', _note_on_energy(series)]
    return section("Costs and diagnostics", parts, folded=True)


def _note_on_energy(series: Sequence[Series]) -> str:
    """HTML of a sentence on when energy is shown; "" where it is, and where no run has a radio."""
    wired = all(has_no_radio(one.first.spec_dict) for one in series)
    return "" if wired or asks_for_energy(series) else _NO_ENERGY


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
    """A list with an HTML table of package versions, a column a set of them; [] if none is known."""
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
