"""The first screen of a report: who learns what, at what cost, whether it is worth it, and warnings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sfumato.findings import LARGE_EPSILON
from sfumato.report import formatting as text
from sfumato.report.drawings.moving import moved_sentence
from sfumato.report.figures.claims import claims_sentence
from sfumato.report.figures.control import stop_reasons
from sfumato.report.page.comparison import best_runs, comparison
from sfumato.report.page.html import under_name_of_run
from sfumato.report.results.attack_findings import attacked_run, observers_of, verdict
from sfumato.report.results.comparability import asks_for_energy, radio_model, warnings_of_series
from sfumato.report.results.cost_of_privacy import cost_of_privacy, cost_of_privacy_or_commands
from sfumato.report.results.matrix import Matrix
from sfumato.report.results.network import read_network
from sfumato.report.results.series import Series
from sfumato.report.results.summary import (
    Summary,
    findings_of_run,
    has_edges,
    kind_within_devices,
    protection_sentences,
    protocol_warnings,
    score_sentence,
    score_text,
    unprotected_finding,
)
from sfumato.run_folder.headline import headline_of

_NO_ENERGY = '<p class="facts">Energy and time to transmit are shown for a spec that describes its radio.</p>'


class _Tile(NamedTuple):
    """A name and a value; ``warns``: it looks like a finding."""

    name: str
    value: str
    warns: bool = False


def first_screen(series: Sequence[Series], summaries: Sequence[Summary], matrices: Sequence[Matrix]) -> str:
    """HTML of the top of a report: what the model is worth and who learns how much.

    ``summaries`` and ``matrices``: one for each series. Several runs are compared in a table.
    """
    parts = [_notice_html(sentence) for one in series if (sentence := _unfinished_sentence(one))]
    if len(series) == 1:
        parts.append(_answers_html(series[0], summaries[0], matrices[0]))
    else:
        parts.append(_lead_html([*cost_of_privacy(series), *best_runs(series, summaries)]))
        parts.append(comparison(series, summaries))
        parts += [_notice_html(sentence) for sentence in warnings_of_series(series)]
        for one, matrix in zip(series, matrices, strict=True):
            said = _lead_html([*_leakage_sentences(one, matrix), *stop_reasons(one)]) + _findings_html(
                one, matrix
            )
            parts.append(under_name_of_run(one, series, said))
    if any(len(one.runs) > 1 for one in series):
        parts.append(
            '<p class="facts">With several seeds, figures and tables of single parties and the published '
            "claims are those of the first seed; ε towards the cloud above and ε over rounds are the largest "
            "over the seeds.</p>"
        )
    return f'<section aria-label="Headline">{"".join(parts)}</section>'


def _unfinished_sentence(one: Series) -> str:
    """A sentence on how many rounds of an unfinished run are done; "" where all are."""
    unfinished = [run for run in one.runs if not run.finished]
    if not unfinished:
        return ""
    played = text.whole(min(len(run.metrics) for run in unfinished))
    of = f"{played} of {text.whole(one.first.rounds)} rounds are done"
    return f"{one.name} is not finished: {of}. The results may still change."


def _notice_html(sentence: str) -> str:
    """A sentence as HTML of a notice."""
    return f'<p class="notice">{text.escape(sentence)}</p>'


def _lead_html(lines: Sequence[str]) -> str:
    """Lines of text as HTML in large type; "" without lines."""
    return f'<div class="lead">{_paragraphs(lines)}</div>' if lines else ""


def _paragraphs(lines: Iterable[str]) -> str:
    """HTML paragraphs of sentences, in which an ε or δ is not parted from its value by a line break."""
    joined = (text.escape(line).replace(" = ", "&nbsp;=&nbsp;").replace(" %", "&nbsp;%") for line in lines)
    return "".join(f"<p>{line}</p>" for line in joined)


def _leakage_sentences(one: Series, matrix: Matrix) -> list[str]:
    """Sentences on who learns how much in the runs of a series: guarantees, claims and attacks."""
    attacked = attacked_run(one)
    tried = [] if attacked is None else [verdict(observers_of(attacked))]
    moved = moved_sentence(read_network(one.first.spec_dict))
    return [*moved, *protection_sentences(one, matrix), *claims_sentence(one.first.privacy.claims), *tried]


def _answers_html(one: Series, summary: Summary, matrix: Matrix) -> str:
    """HTML of the first screen of one run: three columns of sentences and tiles, and the warnings."""
    score, asked = headline_of(one.first.metrics), asks_for_energy([one])
    costs = [_Tile("Rounds", text.whole(summary.rounds))]
    costs.append(_Tile("Traffic", text.quantity(summary.total_bytes, text.BYTES)))
    if asked:
        time = text.quantity(summary.delay_s, text.SECONDS)
        costs += [_energy_tile(one, summary.energy_j), _Tile("Time to transmit", time)]
    known, command = cost_of_privacy_or_commands(one)
    worth = [score_sentence(one), *stop_reasons(one), *known]
    shown = f'<pre class="command" tabindex="0">{text.escape(command)}</pre>' if command else ""
    epsilons = [
        f'<p class="facts">{text.escape(_epsilon_tiles_caption(one, summary))}</p>',
        _tiles_html(_epsilon_tiles(one, summary)),
    ]
    final = _tiles_html([_Tile(f"Final {score.name}", score_text(score, one))])
    columns = {
        "Who learns what": [*epsilons, _paragraphs(_leakage_sentences(one, matrix))],
        "At what cost": [_tiles_html(costs), "" if asked or math.isnan(summary.energy_j) else _NO_ENERGY],
        "Is it worth it": [final, _paragraphs(worth), shown],
    }
    blocks = "".join(f"<div><h3>{title}</h3>{''.join(content)}</div>" for title, content in columns.items())
    return f'<div class="answers">{blocks}</div>{_findings_html(one, matrix)}'


def _findings_html(one: Series, matrix: Matrix) -> str:
    """An HTML list of the warnings about a run; "" where there are none."""
    found = [*unprotected_finding(matrix), *findings_of_run(one.first), *protocol_warnings(one.first)]
    lines = "".join(f"<li>{text.escape(text.sentence(said))}</li>" for said in found)
    return f'<div class="notice"><p>Findings</p><ul>{lines}</ul></div>' if lines else ""


def _energy_tile(one: Series, energy_j: float) -> _Tile:
    """The tile of the energy, in joules or relative to the receiver's noise."""
    if radio_model(one.first.spec_dict) == "gains":
        return _Tile("Energy, relative to the receiver's noise", text.number(energy_j))
    return _Tile("Energy", text.quantity(energy_j, text.JOULES))


def _largest_epsilon_towards_device(one: Series) -> float:
    """The largest ε towards another single device; NaN without such a row."""
    rows = (row for run in one.runs for row in run.privacy.guarantees)
    near = (row.epsilon for row in rows if row.relation.kind in ("peer", "other-device"))
    return max(near, default=math.nan)


def _epsilon_tiles(one: Series, summary: Summary) -> list[_Tile]:
    """A tile with the largest ε for each kind of observer."""
    grouped = not math.isnan(summary.epsilon_peers)
    edge = "master" if grouped else "edge"
    found = [
        ("the cloud", summary.epsilon_cloud),
        ("the public", summary.epsilon_public),
        (f"its own {edge}, if not trusted", summary.epsilon_own_edge),
        (f"another {edge}", summary.epsilon_other_edge),
        ("other workers" if grouped else "other devices", _largest_epsilon_towards_device(one)),
    ]
    tiles = [_Tile(name, text.epsilon(value), value > LARGE_EPSILON) for name, value in found]
    if has_edges(one) and one.first.privacy.raw_to_trusted_edge:
        tiles.insert(2, _Tile(f"its own {edge}, if trusted", "∞"))
    return [_Tile("the cloud", "∞ (trusted)"), *tiles[1:]] if summary.cloud_is_trusted else tiles


def _epsilon_tiles_caption(one: Series, summary: Summary) -> str:
    """The text above the tiles: of which unit and at which δ the ε are."""
    grouped = not math.isnan(summary.epsilon_peers)
    kind = kind_within_devices(one.first) or ("worker" if grouped else "device")
    return f"The largest ε of a {kind}{text.at_delta(one.first.privacy.delta)} towards"


def _tiles_html(tiles: Iterable[_Tile]) -> str:
    """HTML of tiles with a name and a value each; those without a value are left out."""
    shown = [
        (' class="warn"' if tile.warns else "", text.escape(tile.name), text.escape(tile.value))
        for tile in tiles
        if tile.value not in ("–", "")
    ]
    blocks = "".join(f"<div{look}><dt>{name}</dt><dd>{value}</dd></div>" for look, name, value in shown)
    return f'<dl class="tiles">{blocks}</dl>'
