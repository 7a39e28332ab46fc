"""The first screen of a report: who learns what, at what cost, whether it is worth it, and warnings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sfumato.network.tree import Tree
from sfumato.report import formatting as text
from sfumato.report.attack_findings import attacked_run, observers_of, verdict
from sfumato.report.baseline import is_it_worth_it
from sfumato.report.claims import claims_sentence
from sfumato.report.comparability import energy_text, incomparable
from sfumato.report.control import stop_reasons
from sfumato.report.html_page import of_run
from sfumato.report.matrix import Matrix
from sfumato.report.network import read_network
from sfumato.report.privacy_words import cost_of_privacy
from sfumato.report.run_findings import findings_of_run
from sfumato.report.series import Series
from sfumato.report.summary import (
    Summary,
    about_records,
    protection_sentences,
    protocol_warnings,
    score_sentence,
    score_text,
)
from sfumato.run_folder.headline import headline_of
from sfumato.run_folder.reader import as_epsilon

_ALIKE = ("rounds", "seeds")  # of the comparison: left out where all runs are alike


def first_screen(series: Sequence[Series], summaries: Sequence[Summary], matrices: Sequence[Matrix]) -> str:
    """HTML of the answers; several runs are compared in a table first."""
    parts = [_notice(sentence) for one in series if (sentence := _unfinished(one))]
    if len(series) == 1:
        parts.append(_answers(series[0], summaries[0], matrices[0]))
    else:
        parts.append(_lead(cost_of_privacy(series)))
        parts.append(_comparison(series, summaries))
        parts += [_notice(sentence) for sentence in incomparable(series)]
        for one, matrix in zip(series, matrices, strict=True):
            said = _lead([*_who_learns(one, matrix), *stop_reasons(one)]) + _findings(one)
            parts.append(of_run(one, series, said))
    if any(len(one.runs) > 1 for one in series):
        parts.append(
            '<p class="facts">With several seeds, figures and tables of single parties and the published '
            "claims are those of the first seed; ε towards the cloud above and ε over rounds are the largest "
            "over the seeds.</p>"
        )
    return f'<section aria-label="Headline">{"".join(parts)}</section>'


def _unfinished(one: Series) -> str:
    unfinished = [run for run in one.runs if not run.finished]
    if not unfinished:
        return ""
    played = text.whole(min(len(run.metrics) for run in unfinished))
    of = f"{played} of {text.whole(one.first.rounds)} rounds are done"
    return f"{one.name} is not finished: {of}. The results may still change."


def _notice(sentence: str) -> str:
    return f'<p class="notice">{text.escape(sentence)}</p>'


def _lead(lines: Sequence[str]) -> str:
    return f'<div class="lead">{_paragraphs(lines)}</div>' if lines else ""


def _paragraphs(lines: Sequence[str]) -> str:
    """Sentences in which an ε, or a δ, stays on one line with its value."""
    joined = (text.escape(line).replace(" = ", "&nbsp;=&nbsp;") for line in lines)
    return "".join(f"<p>{line}</p>" for line in joined)


def _who_learns(one: Series, matrix: Matrix) -> list[str]:
    attacked = attacked_run(one)
    tried = [] if attacked is None else [verdict(observers_of(attacked))]
    return [*protection_sentences(one, matrix), *claims_sentence(one.first.privacy["claims"]), *tried]


def _answers(one: Series, summary: Summary, matrix: Matrix) -> str:
    """Three columns of sentences and figures, and the findings."""
    score = headline_of(one.first.metrics)
    costs = [
        ("Rounds", text.whole(summary.rounds)),
        ("Traffic", text.quantity(summary.total_bytes, text.BYTES)),
        ("Energy", _energy(one, summary)),
        ("Time to transmit", text.quantity(summary.delay_s, text.SECONDS)),
    ]
    worth = [score_sentence(one), *stop_reasons(one), *is_it_worth_it(one)]
    columns = [
        ("Who learns what", _who_learns(one, matrix), _epsilons(one, summary)),
        ("At what cost", [], costs),
        ("Is it worth it", worth, [(f"Final {score.name}", score_text(score, one))]),
    ]
    blocks = "".join(
        f"<div><h3>{text.escape(title)}</h3>{_tiles(tiles)}{_paragraphs(lines)}</div>"
        for title, lines, tiles in columns
    )
    return f'<div class="answers">{blocks}</div>{_findings(one)}'


def _findings(one: Series) -> str:
    found = [*findings_of_run(one.first), *protocol_warnings(one.first)]
    lines = "".join(f"<li>{text.escape(_capitalised(said).rstrip('.'))}.</li>" for said in found)
    return f'<div class="notice"><p>Findings</p><ul>{lines}</ul></div>' if lines else ""


def _capitalised(said: str) -> str:
    """A sentence with its first letter large, if that is a Latin one: ε is a name."""
    return said[:1].upper() + said[1:] if said[:1].isascii() else said


def _energy(one: Series, summary: Summary) -> str:
    return energy_text(one.first.spec_dict, summary.energy_j)


def _raw_to_cloud(one: Series, summary: Summary) -> str:
    """In a star: all devices, where they trust the cloud."""
    raw = one.first.privacy.get("raw_to_trusted_edge")
    if not (summary.cloud_is_trusted and isinstance(raw, Mapping)):
        return "–"
    return f"{text.whole(raw['of'])} of {text.whole(raw['of'])}"


def _towards_devices(one: Series) -> float:
    """The largest ε towards another single device; NaN without such a row."""
    found = [
        as_epsilon(row["epsilon"])
        for run in one.runs
        for row in run.privacy["guarantees"]
        if str(row["observer"]).startswith("device:") and "," not in str(row["observer"])
    ]
    return max(found, default=math.nan)


def _has_edges(one: Series) -> bool:
    shape = read_network(one.first.spec_dict).shape
    return not isinstance(shape, Tree) or shape.depth > 1


def _epsilons(one: Series, summary: Summary) -> list[tuple[str, str]]:
    """The largest ε towards each kind of observer; all are at the same δ."""
    grouped = not math.isnan(summary.epsilon_peers)
    edge = "master" if grouped else "edge"
    trusted = summary.cloud_is_trusted
    of = "ε of a record" if about_records(one.first) else "ε"
    return [
        (
            f"{of} towards the cloud, at most",
            "∞ (trusted)" if trusted else text.epsilon(summary.epsilon_cloud),
        ),
        (f"{of} towards the public, at most", text.epsilon(summary.epsilon_public) if trusted else ""),
        (f"{of} towards the own {edge}, if not trusted, at most", text.epsilon(summary.epsilon_own_edge)),
        (f"{of} towards another {edge}, at most", text.epsilon(summary.epsilon_other_edge)),
        (
            f"{of} towards other {'workers' if grouped else 'devices'}, at most",
            text.epsilon(_towards_devices(one)),
        ),
        (
            f"{'workers' if grouped else 'devices'} that send raw updates to a trusted {edge}",
            summary.raw_to_trusted_edge if _has_edges(one) else "",
        ),
    ]


def _tiles(tiles: Sequence[tuple[str, str]]) -> str:
    shown = [(name, value) for name, value in tiles if value not in ("–", "")]
    return '<dl class="tiles">' + "".join(
        f"<div><dt>{text.escape(name)}</dt><dd>{text.escape(value)}</dd></div>" for name, value in shown
    ) + "</dl>"  # fmt: skip


def _comparison(series: Sequence[Series], summaries: Sequence[Summary]) -> str:
    """A row for each run; columns in which nothing was measured, or all are alike, are left out."""
    scores = [headline_of(one.first.metrics) for one in series]
    raw = [
        summary.raw_to_trusted_edge if _has_edges(one) else _raw_to_cloud(one, summary)
        for summary, one in zip(summaries, series, strict=True)
    ]
    mixed = len(set(scores)) > 1
    columns: list[tuple[str, list[str]]] = [
        ("run", [s.run for s in summaries]),
        (
            "final score" if mixed else f"final {scores[0].name}",
            [score_text(score, one, named=mixed) for score, one in zip(scores, series, strict=True)],
        ),
        ("ε, cloud", [text.epsilon(s.epsilon_cloud) for s in summaries]),
        ("ε, own-edge", [text.epsilon(s.epsilon_own_edge) for s in summaries]),
        ("ε, other-edge", [text.epsilon(s.epsilon_other_edge) for s in summaries]),
        ("raw devices", raw),
        ("traffic", [text.quantity(s.total_bytes, text.BYTES) for s in summaries]),
        ("energy", [_energy(one, s) for s, one in zip(summaries, series, strict=True)]),
        ("delay", [text.quantity(s.delay_s, text.SECONDS) for s in summaries]),
        ("rounds", [text.whole(s.rounds) for s in summaries]),
        ("seeds", [text.whole(s.seeds) for s in summaries]),
    ]
    deltas = {text.number(s.delta) for s in summaries}
    if len(deltas) > 1:
        columns.append(("δ", [text.number(s.delta) for s in summaries]))
    kept = [
        (title, values)
        for title, values in columns
        if title == "run" or (set(values) != {"–"} and (title not in _ALIKE or len(set(values)) > 1))
    ]
    said = f" at δ = {next(iter(deltas))}" if len(deltas) == 1 else ""
    return text.table(
        [title for title, _ in kept],
        list(zip(*(values for _, values in kept), strict=True)),
        caption=f"Comparison of the runs: the largest ε towards each kind of observer{said}; ∞: no "
        "guarantee, –: does not apply or was not measured. own-edge: where the edge is not trusted with raw "
        "updates",
        numeric=tuple(range(1, len(kept))),
    )
