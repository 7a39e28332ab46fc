"""The first screen of a report: who learns what, at what cost, whether it is worth it, and warnings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from sfumato.network.tree import Tree
from sfumato.report import formatting as text
from sfumato.report.drawings.moving import moved_sentence
from sfumato.report.drawings.network_canvas import noise_sentence
from sfumato.report.figures.coalitions import sentences_on_colluders
from sfumato.report.figures.control import budget_sentence, stop_reasons
from sfumato.report.page.comparison import best_runs, comparison, largest_epsilons_in_words
from sfumato.report.page.html import under_name_of_run
from sfumato.report.page.not_accounted import seed_sentence
from sfumato.report.page.tiles import (
    Tile,
    energy_tile,
    epsilon_tiles,
    epsilon_tiles_caption,
    meaning_of_looks,
    name_of_aggregator,
    of_which_class,
    tiles_html,
)
from sfumato.report.results.attack_findings import attacked_run, observers_of, verdict
from sfumato.report.results.claim_sentences import claims_by_reading, claims_sentence
from sfumato.report.results.comparability import (
    asks_for_energy,
    warnings_of_series,
)
from sfumato.report.results.cost_of_privacy import (
    command_without_noise,
    cost_of_privacy,
    cost_of_privacy_or_commands,
    scores_without_noise,
    twins_beside,
)
from sfumato.report.results.dp_ogl_plus import lead_of_run, protocol_warnings
from sfumato.report.results.effect_of_control import (
    commands_without_control,
    effect_of_control,
    unknown_effect,
)
from sfumato.report.results.matrix import Matrix
from sfumato.report.results.network import Network
from sfumato.report.results.observer_labels import labels_for
from sfumato.report.results.power_limit import power_limit_sentences
from sfumato.report.results.protection_words import protection_paragraphs, warnings_of_run
from sfumato.report.results.score_by_epsilon import score_by_epsilon
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import has_noise, steps_of_everybody
from sfumato.report.results.summary import (
    Summary,
    of_main_unit,
    score_sentence,
    score_text,
)
from sfumato.run_folder.headline import ACCURACY, headline_of, scores_beside

_NO_BASELINE = (
    "What the noise costs in all is not known: no run without it is among these or lies beside them."
)

_ASKED = "How to find out what the noise costs"


def first_screen(
    series: Sequence[Series],
    summaries: Sequence[Summary],
    matrices: Sequence[Matrix],
    pictures: str,
    twin: Series | None,
) -> str:
    """HTML of the top of a report: the score of the model, who learns how much, and warnings.

    With several runs it begins with what cannot be compared, then has tables and ``pictures``.

    Args:
        series: the runs.
        summaries: one for each series.
        matrices: one for each series.
        pictures: HTML of figures that compare the runs.
        twin: of a single run, the run without noise beside it; ``None`` if there is none.
    """
    parts = [_notice_html(sentence) for one in series if (sentence := _unfinished_sentence(one))]
    if len(series) == 1:
        parts.append(_answers_html(series[0], summaries[0], matrices[0], twin))
    else:
        warned = " ".join(warnings_of_series(series))
        parts += [_notice_html(warned)] if warned else []
        steps, costs = score_by_epsilon(series, summaries), _costs_of_privacy(series)
        unknown = [_NO_BASELINE] if steps and not costs else []
        best = best_runs(series, summaries, epsilons=not steps)
        parts.append(_lead_html([*steps, *(costs or unknown), *best]))
        parts += [_twin_commands_html(series[0])] if unknown else []
        parts.append(_paragraphs(seed_sentence(series)))
        parts.append("" if steps else _paragraphs(largest_epsilons_in_words(series)))
        parts.append(comparison(series, summaries))
        parts.append(pictures)
        parts.append(_each_run_html(series, matrices))
    if any(len(one.runs) > 1 for one in series):
        parts.append(
            '<p class="facts">With several seeds, figures and tables of single parties and the published '
            "claims are those of the first seed; ε towards the cloud above and ε over rounds are the largest "
            "over the seeds.</p>"
        )
    return f'<section aria-label="Headline">{"".join(parts)}</section>'


def _costs_of_privacy(series: Sequence[Series]) -> list[str]:
    """Sentences on what noise costs each run in its score, by runs of the report or else beside them."""
    return cost_of_privacy(series) or cost_of_privacy([*series, *twins_beside(series)])


def _each_run_html(series: Sequence[Series], matrices: Sequence[Matrix]) -> str:
    """HTML of the findings of all runs, with the names of the runs, and of what each guarantees, folded."""
    found: dict[str, list[str]] = {}
    told = []
    for one, matrix in zip(series, matrices, strict=True):
        for said in warnings_of_run(one, matrix):
            found.setdefault(said, []).append(one.name)
        said = _leakage_html(one, matrix) + _further_html(one, matrix) + _paragraphs(stop_reasons(one))
        told.append(under_name_of_run(one, series, said))
    findings = _findings_html({said: who if len(who) < len(series) else [] for said, who in found.items()})
    words = "<summary>What each run guarantees, in words</summary>"
    return f"{findings}<details>{words}{''.join(told)}</details>"


def _unfinished_sentence(one: Series) -> str:
    """A sentence on how many rounds of an unfinished run are done; "" where all are.

    With adaptive control nobody knows how many rounds a run will have.
    """
    unfinished = [run for run in one.runs if not run.finished]
    if not unfinished:
        return ""
    played = text.whole(min(len(run.metrics) for run in unfinished))
    every = "" if one.first.spec_dict.get("control") else f" of {text.whole(one.first.rounds)}"
    of = f"{played}{every} rounds are done"
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


def _leakage_html(one: Series, matrix: Matrix) -> str:
    """HTML of who is protected how well in the runs of a series: ε is for which moves, and towards whom."""
    return _paragraphs([*moved_sentence(one.network), *protection_paragraphs(one, matrix)])


def _further_html(one: Series, matrix: Matrix) -> str:
    """HTML of what the guarantees of a run rest on: noise, secure aggregation; then claims and attacks."""
    attacked = attacked_run(one)
    tried = [] if attacked is None else [verdict(observers_of(attacked))]
    network = one.network
    privacy, secure = one.first.privacy, network.secure
    receivers = text.join_names(sorted({_receiver(hop) for hop in secure}))
    summed = [f"By secure aggregation only the sum of the messages arrives at {receivers}."] if secure else []
    shape = network.shape
    placed = network.over_air or network.step_noise > 0 or (isinstance(shape, Tree) and shape.depth == 1)
    told = protocol_warnings(one.first.spec_dict)
    noise = [*([_who_adds_noise(one, network)] if placed else []), *budget_sentence(one)]
    labels = labels_for(network)
    paragraphs = [
        noise,
        [*summed, *sentences_on_colluders(one, matrix)],
        *([said] for said in claims_sentence(privacy.claims, labels, told, privacy.coalitions)),
    ]
    return (
        _paragraphs(" ".join(sentences) for sentences in paragraphs if sentences)
        + claims_by_reading(privacy.claims, labels)
        + _paragraphs(tried)
    )


def _who_adds_noise(one: Series, network: Network) -> str:
    """A sentence on who adds noise, and at how many steps where every device has as many."""
    said, steps = noise_sentence(network), steps_of_everybody(one.first.spec_dict["training"])
    if not (network.step_noise and steps):
        return said
    return said.replace("at every local step", f"at each of its {text.whole(steps)} local steps")


def _receiver(hop: str) -> str:
    """The receiver of a hop such as ``devices_to_edge``, in words."""
    name = hop.partition("_to_")[2]
    return "the cloud" if name == "cloud" else f"every {name}"


def _answers_html(one: Series, summary: Summary, matrix: Matrix, twin: Series | None) -> str:
    """HTML of the first screen of one run: a verdict on its protocol, three columns, and the warnings."""
    score, asked = headline_of(one.first.metrics), asks_for_energy([one])
    costs = [Tile("Rounds", text.whole(summary.rounds))]
    for way, column in (("up", "bytes_up"), ("down", "bytes_down")):
        costs.append(Tile(f"Traffic {way}", text.quantity(one.total(column).value, text.BYTES)))
    if one.network.over_air:
        costs.append(Tile("Uses of subcarriers (up)", text.number(one.total("channel_uses").value)))
    if asked:
        time = text.quantity(summary.delay_s, text.SECONDS)
        costs += [energy_tile(one, summary.energy_j), Tile("Time to transmit", time)]
    known, shown = _worth_html(one, twin)
    tiles = epsilon_tiles(one, summary)
    colours = meaning_of_looks(tile.look for tile in tiles if tile.value != "–")
    epsilons = [
        f'<p class="facts">{text.escape(epsilon_tiles_caption(one, summary))}</p>',
        tiles_html(tiles),
        f'<p class="facts">{colours}</p>' if colours else "",
    ]
    beside = scores_beside(one.first.metrics)
    final = tiles_html([
        Tile(f"Final {each.name}{of_which_class(each, one)}", score_text(each, one))
        for each in (score, *beside)
    ])  # fmt: skip
    columns = {
        "Who learns what": [*epsilons, _leakage_html(one, matrix)],
        "At what cost": [
            tiles_html(costs),
            _paragraphs(power_limit_sentences(one)),
        ],
        "Accuracy" if score is ACCURACY else text.title(score.name): [
            final,
            _paragraphs(
                [score_sentence(one), *stop_reasons(one), *known, *scores_without_noise(beside, twin)]
            ),
            shown,
        ],
    }
    blocks = "".join(f"<div><h3>{title}</h3>{''.join(content)}</div>" for title, content in columns.items())
    nothing, others = one.findings
    others = [said for said in others if said not in protocol_warnings(one.first.spec_dict)]
    findings = _findings_html(dict.fromkeys([*_advice_for_bare_pairs(one), *others], ()))
    lead = _lead_html([*lead_of_run(one.first), *map(text.sentence, nothing)])
    seeded = _paragraphs(seed_sentence([one]))
    further = f'<div class="further">{_further_html(one, matrix)}{seeded}</div>'
    return f'{lead}<div class="answers">{blocks}</div>{findings}{further}'


def _worth_html(one: Series, twin: Series | None) -> tuple[list[str], str]:
    """Sentences on what noise costs a run in its score and what control saves it, and HTML of folded commands
    that tell what of that is not known; "" for none.
    """
    if one.first.spec_dict.get("control"):
        effect = effect_of_control(one)
        if effect:
            return effect, ""
        question = "How to find out what control saves and noise costs"
        return [unknown_effect(one)], _commands_html(question, *commands_without_control(one))
    known, command = cost_of_privacy_or_commands(one, twin)
    how = (
        "These commands, in the folder that holds the run, train it without noise and write this page again:"
    )
    shown = _commands_html(_ASKED, how, command) if command else ""
    return known, shown


def _twin_commands_html(one: Series) -> str:
    """HTML of the folded command that trains the first of several runs without noise; "" where there is
    none.
    """
    if not has_noise(one.first.spec_dict) or one.first.spec_dict.get("control"):
        return ""
    how = (
        "This command, in the folder that holds the run, trains it without noise; then write this page anew:"
    )
    return _commands_html(_ASKED, how, command_without_noise(one, one.folder))


def _advice_for_bare_pairs(one: Series) -> list[str]:
    """A finding on what protects pairs without a guarantee; [] where there are none, or no others.

    Also [] where the warning on the protocol says what to do. Which pairs they are is told before.
    """
    rows = of_main_unit(one.first.privacy.guarantees)
    endless = [row for row in rows if row.epsilon == math.inf and not row.trusted]
    if not endless or len(endless) == len(rows) or protocol_warnings(one.first.spec_dict):
        return []
    kinds = {row.relation.kind for row in endless}
    key = "trust.trusted_aggregators" if one.network.device_word == "worker" else "trust.trusted_edges"
    whom = [
        *(["the cloud (trust.cloud)"] if "cloud" in kinds else []),
        *([f"their own {name_of_aggregator(one)} ({key})"] if "own-edge" in kinds else []),
    ]
    trust = f", or, where devices trust {' or '.join(whom)}, write so in the spec" if whom else ""
    return [
        "where there is no guarantee (∞), let a party add noise (privacy.noise) before the message reaches "
        f"the observer{trust}"
    ]


def _commands_html(question: str, how: str, commands: str) -> str:
    """HTML of commands that answer a question, folded, below a sentence on what they do."""
    shown = f'<pre class="command" tabindex="0">{text.escape(commands)}</pre>'
    return f"<details><summary>{question}</summary>{_paragraphs([how])}{shown}</details>"


def _findings_html(found: Mapping[str, Sequence[str]]) -> str:
    """An HTML list of warnings, each with the names of runs that it is about, if any; "" for no warnings."""
    lines = "".join(
        f"<li>{f'<b>{text.escape(text.join_names(who))}</b>: ' if who else ''}"
        f"{text.escape(text.sentence(said))}</li>"
        for said, who in found.items()
    )
    return f'<div class="notice"><p>Findings</p><ul>{lines}</ul></div>' if lines else ""
