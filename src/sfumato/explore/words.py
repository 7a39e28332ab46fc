"""What the page says in sentences: the figures of a setting, of a coalition, and how two settings differ."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sfumato.errors import SpecError
from sfumato.explore.accounted_setting import AccountedSetting
from sfumato.explore.compared import ABSENT, differing_pairs
from sfumato.explore.trust import aggregators
from sfumato.network.tree import Tree
from sfumato.planning.costs import TrainingCost
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.records import AS_REPLACED
from sfumato.report import formatting as text
from sfumato.report.results.comparability import energy_text, stated_radio
from sfumato.report.results.epsilon_words import epsilon_in_words
from sfumato.report.results.matrix import Matrix
from sfumato.report.results.network import parties_in_words, towards_in_words
from sfumato.report.results.summary import of_main_unit
from sfumato.run_folder.recorded_privacy import RawDevices
from sfumato.schedule.noise.calibration import NO_TARGET
from sfumato.spec.diff import changed_values
from sfumato.spec.document import Spec
from sfumato.spec.words_of_keys import key_in_words, setting_in_words

_MOST = 12
_NOISE = "privacy.noise."
_SOME_DIFFER = "No largest ε differs; that of some classes does, as the table says."
FIELDS_OF_PAIR = {"unit": "Protected unit", "observer": "Observers, joined by commas"}
"""The labels of the page's fields, by the argument of `AccountedSetting.pair` that they fill."""
_ELSEWHERE = ("name", "versions", "hashes", "trust")


def epsilon_phrase(value: float) -> str:
    """``value`` of ε as text, such as "ε = 8", rounded up; for ∞ a text that there is no guarantee."""
    return "no guarantee (ε = ∞)" if value == math.inf else f"ε = {text.epsilon(value)}"


def largest_epsilon_by_kind(matrix: Matrix) -> dict[str, float]:
    """The largest ε towards each kind of observer, by its title, in the order of the matrix.

    An aggregator that the unit trusts with its raw updates is left out, as in reports; `cost_rows` counts
    these.
    """
    found: dict[str, float] = {}
    for (_, column), cell in matrix.cells.items():
        title = matrix.columns[column].title
        values = [g.epsilon for g in cell.guarantees if not g.trusted]
        if values:
            found[title] = max(*values, found.get(title, 0.0))
    return {column.title: found[column.title] for column in matrix.columns if column.title in found}


def what_tiles_show(accounted: AccountedSetting) -> str:
    """The sentence that introduces the tiles of ε: of which unit, at which δ."""
    if not accounted.matrix.cells:
        return "The spec has no guarantees."
    kinds = " or ".join(f"a {kind}" for kind in sorted({g.unit_kind for g in accounted.report.guarantees}))
    unseen = any("unseen" in g.why for g in accounted.report.guarantees)
    drawn = ", as long as nobody sees who or what is drawn," if unseen else ""
    return f"The largest ε of {kinds}{text.at_delta(accounted.report.delta)}{drawn} towards"


def what_epsilon_means(accounted: AccountedSetting) -> str:
    """Sentences on what the largest finite ε towards the cloud and the public means; "" without one.

    They say towards which of both it is.
    """
    rows = of_main_unit(accounted.report.guarantees)
    far = (row for row in rows if row.relation.kind in ("cloud", "public"))
    worst = max((row for row in far if row.epsilon < math.inf), key=lambda row: row.epsilon, default=None)
    if worst is None:
        return ""
    meaning = epsilon_in_words(worst.unit_kind, worst.epsilon)
    return f"{meaning} This is the ε {towards_in_words(worst.relation.kind)}."


def whose_target_does_not_hold(accounted: AccountedSetting) -> str:
    """Sentences on parties whose target of ε does not hold, as they trust its observer; "" without any.

    They are the notes of the account, with parties by their titles.
    """
    found = (note for note in accounted.report.notes if NO_TARGET in note)
    return " ".join(text.sentence(parties_in_words(accounted.network.titled(note))) for note in found)


def cost_rows(accounted: AccountedSetting) -> list[tuple[str, str]]:
    """What a setting costs, as pairs (name, value) of texts: trusting devices, energy, delay and bytes.

    A star has no edges that devices could trust.
    """
    grouped = accounted.network.family is not None and accounted.network.family.devices_observe
    plan = accounted.report.plan
    raw = str(RawDevices(plan.raw_to_trusted_edge, plan.parties.device_count))
    who, whom = ("Workers", "master") if grouped else ("Devices", "edge")
    shape = accounted.network.shape
    star = isinstance(shape, Tree) and shape.depth == 1
    rows = [] if star else [(f"{who} that send raw updates to a trusted {whom}", raw)]
    cost = accounted.cost
    if isinstance(cost, str):
        return [*rows, ("Costs", f"not known before a run: {cost}")]
    return [*rows, *_costs_of_all_rounds(accounted, cost)]


def _costs_of_all_rounds(accounted: AccountedSetting, cost: TrainingCost) -> Iterator[tuple[str, str]]:
    """Pairs of the name and the value of a cost of all rounds: energy, delay and traffic."""
    rounds = f"all {text.how_many(accounted.spec.training.rounds, 'round')}"
    document = accounted.spec.model_dump(mode="json")
    if stated_radio(document) is not None:
        at_most = ", at most" if cost.energy_is_bound else ""
        yield f"Energy to transmit, {rounds}{at_most}", energy_text(document, cost.energy_j)
        yield f"Time to transmit, {rounds}", text.quantity(cost.delay_s, text.SECONDS)
    yield f"Traffic up, {rounds}", text.quantity(cost.bytes_up, text.BYTES)
    yield f"Traffic down, {rounds}", text.quantity(cost.bytes_down, text.BYTES)


def heatmap_as_table(accounted: AccountedSetting) -> tuple[list[str], list[list[str]], str]:
    """The matrix of ε as a table for screen readers.

    Returns:
        Headings, rows of texts that begin with the class of units, and the caption.
    """
    matrix = accounted.matrix
    rows = []
    for r, row in enumerate(matrix.rows):
        cells = [matrix.cells.get((r, c)) for c in range(len(matrix.columns))]
        name = f"{row.title}: {row.detail}" if row.detail else row.title
        rows.append([name, *("–" if cell is None else text.epsilon(cell.epsilon) for cell in cells)])
    word = accounted.network.device_word
    headings = [f"class of {word}", *(column.title for column in matrix.columns)]
    caption = (
        f"Largest ε{text.at_delta(accounted.report.delta)} of each class of {word} towards each kind of "
        "observer; ∞: no guarantee, –: no such pair"
    )
    return headings, rows, caption


def answer_about_coalition(accounted: AccountedSetting, unit: str, observers: str) -> str:
    """A sentence on the ε of ``unit`` towards a coalition, or on what is wrong with one of these names.

    Args:
        accounted: of a setting.
        unit: ``device:N``, ``record:N`` or ``person:N``.
        observers: names joined by commas.
    """
    if not unit.strip() or not observers.strip():
        return "Name a unit and at least one observer."
    try:
        return coalition_sentence(accounted, accounted.pair(unit.strip(), observers.strip()))
    except SpecError as error:
        argument = "" if error.argument is None else error.argument.name
        if argument not in FIELDS_OF_PAIR:
            return str(error)
        return text.sentence(f"{FIELDS_OF_PAIR[argument]}: got {error.value}; {error.allowed}")


def coalition_sentence(accounted: AccountedSetting, row: Guarantee) -> str:
    """Sentences on the ε of a unit towards the coalition of ``row``, or why there is no guarantee.

    With what such an ε means, and how many noised messages are counted.
    """
    unit, observers = (
        parties_in_words(accounted.network.titled(names)) for names in (row.unit, row.observer)
    )
    said = f"{unit} towards {text.join_names(observers.split(','), 12)}: {epsilon_phrase(row.epsilon)}."
    if row.epsilon == math.inf:
        return f"{said} {text.sentence(parties_in_words(accounted.network.titled(row.why)))}"
    one = row.releases == 1
    counted = f"{'depends' if one else 'depend'} on its data and {'is' if one else 'are'} counted"
    many = text.how_many(row.releases, "noised message")
    said += f" {epsilon_in_words(row.unit_kind, row.epsilon)} {text.title(many)} {counted}"
    as_device = AS_REPLACED in row.why
    return f"{said}, {AS_REPLACED}; so ε may be above that of the device." if as_device else f"{said}."


def setting_differences(kept: AccountedSetting, now: AccountedSetting) -> list[str]:
    """Sentences on how the setting ``now`` differs from the ``kept`` one, in trust, spec, ε and costs.

    If nothing differs, one sentence that says so.
    """
    said = [*_trust_differences(kept, now), *changed_keys(kept.spec, now.spec)]
    if not said:
        return ["The settings are the same."]
    changes = len(said)
    before, after = largest_epsilon_by_kind(kept.matrix), largest_epsilon_by_kind(now.matrix)
    for title in [*before, *(title for title in after if title not in before)]:
        old, new = before.get(title), after.get(title)
        if old is None or new is None:
            if all(_has_column(one.matrix, title) for one in (kept, now)):
                continue  # trusted in one of the settings, as said before
            which = "kept" if new is None else "present"
            said.append(f"Only the {which} setting has pairs towards {title}.")
        elif text.epsilon(old) != text.epsilon(new):
            verb = "falls" if new < old else "rises"
            said.append(
                f"The largest ε towards {title} {verb} from {text.epsilon(old)} to {text.epsilon(new)}."
            )
    pairs = differing_pairs(kept, now)
    said += [
        f"{one.unit} towards {one.observer}: ε = {one.before} before, {one.now} now."
        for one in pairs
        if ABSENT not in (one.before, one.now) and "∞" in (one.before, one.now)
    ][:_MOST]
    if len(said) == changes:
        said.append(_SOME_DIFFER if pairs else "No ε differs to four digits.")
    old_facts = dict(cost_rows(kept))
    for name, value in cost_rows(now):
        if old_facts.get(name, value) != value:
            said.append(f"{name}: {old_facts[name]} before, {value} now.")
    return said


def _has_column(matrix: Matrix, title: str) -> bool:
    """Whether there are pairs towards this kind of observer, trusted or not."""
    return any(column.title == title for column in matrix.columns)


def _trusted_titles(accounted: AccountedSetting) -> list[str]:
    """A list of the titles of the aggregators that are trusted with raw updates."""
    trusted = [one.name for one in aggregators(accounted) if one.trusted]
    return [parties_in_words(accounted.network.titled(name)) for name in trusted]


def _trust_differences(kept: AccountedSetting, now: AccountedSetting) -> Iterator[str]:
    """Sentences on whom the two settings trust, where that differs."""
    before, after = map(_trusted_titles, (kept, now))
    if before != after:
        old, new = (text.join_names(names, 8) or "nobody" for names in (before, after))
        yield f"Trusted with raw updates: {old} before, {new} now."


def changed_keys(before: Spec, now: Spec) -> list[str]:
    """A sentence for each key in which two specs differ, with both values, in words; trust is left out.

    Of many keys, the first `_MOST` and the number of the others. Where noise is stated in another way, one
    sentence names both ways in place of the keys of the noise. [] where nothing differs.
    """
    found = {
        key: pair
        for key, pair in changed_values(before, now).items()
        if key.partition(".")[0] not in _ELSEWHERE
    }
    if f"{_NOISE}kind" in found:  # then the keys of one kind say nothing of the other
        found = {k: pair for k, pair in found.items() if k == f"{_NOISE}kind" or not k.startswith(_NOISE)}
    said = [
        f"{text.title(key_in_words(key))}: {setting_in_words(key, old)} before, "
        f"{setting_in_words(key, new)} now."
        for key, (old, new) in found.items()
    ]
    more = len(said) - _MOST
    return said if more <= 0 else [*said[:_MOST], f"And {more} more keys."]
