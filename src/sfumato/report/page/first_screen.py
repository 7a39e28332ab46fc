"""The first screen of a report: who learns what, at what cost, whether it is worth it, and warnings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sfumato.findings.large_epsilons import without_meaning
from sfumato.network.tree import Tree
from sfumato.report import formatting as text
from sfumato.report.drawings.moving import moved_sentence
from sfumato.report.drawings.network_canvas import noise_sentence
from sfumato.report.figures.coalitions import sentences_on_colluders
from sfumato.report.figures.control import budget_sentence, stop_reasons
from sfumato.report.page.lead import (
    WHAT_NOISE_COSTS,
    commands_html,
    findings_html,
    lead_html,
    notice_html,
    paragraphs_html,
)
from sfumato.report.page.not_accounted import seed_sentence
from sfumato.report.page.several_runs import several_runs_html
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
from sfumato.report.results.comparability import asks_for_energy
from sfumato.report.results.cost_of_privacy import (
    CostOfNoise,
    cost_of_privacy_or_commands,
    scores_without_noise,
)
from sfumato.report.results.dp_ogl_plus import lead_of_run, protocol_warnings
from sfumato.report.results.effect_of_control import (
    commands_without_control,
    effect_of_control,
    unknown_effect,
)
from sfumato.report.results.epsilon_words import FROM_EVEN_ODDS
from sfumato.report.results.matrix import Matrix
from sfumato.report.results.network import Network
from sfumato.report.results.observer_labels import labels_for
from sfumato.report.results.power_limit import power_limit_sentences
from sfumato.report.results.protection_words import protection_paragraphs
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import steps_of_everybody
from sfumato.report.results.summary import (
    Summary,
    of_main_unit,
    score_sentence,
    score_text,
)
from sfumato.run_folder.headline import ACCURACY, headline_of, scores_beside


def first_screen(
    series: Sequence[Series],
    summaries: Sequence[Summary],
    matrices: Sequence[Matrix],
    pictures: str,
    costs: Sequence[CostOfNoise],
) -> str:
    """HTML of the top of a report: the score of the model, who learns how much, and warnings.

    Args:
        series: the runs.
        summaries: one for each series.
        matrices: one for each series.
        pictures: HTML of figures that compare several runs.
        costs: what the noise costs the runs of which that is known, by runs without it.
    """
    parts = [notice_html(sentence) for one in series if (sentence := _unfinished_sentence(one))]
    if len(series) == 1:
        twin = costs[0].other if costs else None
        parts.append(_answers_html(series[0], summaries[0], matrices[0], twin))
    else:
        guarantees = list(map(_guarantees_html, series, matrices))
        parts.append(several_runs_html(series, summaries, matrices, pictures, costs, guarantees))
    if any(len(one.runs) > 1 for one in series):
        parts.append(
            '<p class="facts">With several seeds, figures and tables of single parties and the published '
            "claims are those of the first seed; ε towards the cloud above and ε over rounds are the largest "
            "over the seeds.</p>"
        )
    return f'<section aria-label="Headline">{"".join(parts)}</section>'


def _guarantees_html(one: Series, matrix: Matrix) -> str:
    """HTML of what one of several runs guarantees, in words."""
    return _leakage_html(one, matrix) + _further_html(one, matrix) + paragraphs_html(stop_reasons(one))


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


def _leakage_html(one: Series, matrix: Matrix) -> str:
    """HTML of who is protected how well in the runs of a series: ε is for which moves, and towards whom."""
    return paragraphs_html([*moved_sentence(one.network), *protection_paragraphs(one, matrix)])


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
        paragraphs_html(" ".join(sentences) for sentences in paragraphs if sentences)
        + claims_by_reading(privacy.claims, labels)
        + paragraphs_html(tried)
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
    tiles = epsilon_tiles([row for run in one.runs for row in run.privacy.guarantees], one.network)
    colours = meaning_of_looks(tile.look for tile in tiles)
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
    leakage = _leakage_html(one, matrix)
    columns = {
        "Who learns what": [*epsilons, leakage],
        "At what cost": [
            tiles_html(costs),
            paragraphs_html(power_limit_sentences(one)),
        ],
        "Accuracy" if score is ACCURACY else text.title(score.name): [
            final,
            paragraphs_html(
                [score_sentence(one), *stop_reasons(one), *known, *scores_without_noise(beside, twin)]
            ),
            shown,
        ],
    }
    blocks = "".join(f"<div><h3>{title}</h3>{''.join(content)}</div>" for title, content in columns.items())
    nothing, others = one.findings
    others = [said for said in others if said not in protocol_warnings(one.first.spec_dict)]
    if FROM_EVEN_ODDS in leakage:  # what a large ε means is said there
        others = list(map(without_meaning, others))
    findings = findings_html(dict.fromkeys([*_advice_for_bare_pairs(one), *others], ()))
    saved, how = _control_lead(one)
    lead = lead_html([*lead_of_run(one.first), *map(text.sentence, nothing), *saved])
    seeded = paragraphs_html(seed_sentence([one]))
    further = f'<div class="further">{_further_html(one, matrix)}{seeded}</div>'
    return f'{lead}{how}<div class="answers">{blocks}</div>{findings}{further}'


def _worth_html(one: Series, twin: Series | None) -> tuple[list[str], str]:
    """Sentences on what noise costs a run in its score, and HTML of commands that tell it where unknown.

    The HTML, which is folded, is "" where it is known. Both are empty of a run with control, of which
    `_control_lead` says it. ``twin``: the run without noise; ``None``: there is none.
    """
    known, command = cost_of_privacy_or_commands(one, twin)
    how = (
        "These commands, in the folder that holds the run, train it without noise and write this page again:"
    )
    return known, commands_html(WHAT_NOISE_COSTS, how, command) if command else ""


def _control_lead(one: Series) -> tuple[list[str], str]:
    """Sentences on what adaptive control saves and the noise costs a run, and HTML of folded commands.

    The commands tell it where it is not known; else "". [] and "" without control.
    """
    if not one.first.spec_dict.get("control"):
        return [], ""
    effect = effect_of_control(one)
    if effect:
        return effect, ""
    question = "How to find out what control saves and noise costs"
    return [unknown_effect(one)], commands_html(question, *commands_without_control(one))


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
        *([f"their own {name_of_aggregator(one.network)} ({key})"] if "own-edge" in kinds else []),
    ]
    trust = f", or, where devices trust {' or '.join(whom)}, write so in the spec" if whom else ""
    return [
        "where there is no guarantee (∞), let a party add noise (privacy.noise) before the message reaches "
        f"the observer{trust}"
    ]
