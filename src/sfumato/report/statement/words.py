"""Sentences of a privacy statement that a reader without mathematics understands."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal, NamedTuple, TypeAlias

from sfumato.families import family_of_topology
from sfumato.findings.large_epsilons import LARGE_EPSILON
from sfumato.network.tree import Tree
from sfumato.privacy.guarantee import Guarantee
from sfumato.report import formatting as text
from sfumato.report.results.held import HeldCounts
from sfumato.report.results.network import GroupNetwork, Network
from sfumato.report.statement.gains import bound_of_several
from sfumato.rounding import certainty

UNITS = {
    "device": "all data of one device",
    "record": "any one record (one row, one example) of one {place}",
    "person": "any one person of one {place}: all its rows with one value of “{person_column}”",
}
RELATIONS = {
    "zero-out": (
        "The compared worlds differ in this: in one the unit contributes what it has, in the other "
        "everything that it contributes is zero. It takes part and counts as before in both. Numbers of "
        "parties, of examples and of persons, weights and schedules are public."
    ),
    "remove": (
        "The compared worlds differ in this: in one the device is there, in the other it is not, and its "
        "weight is in no denominator. Towards whoever sees who takes part there is no guarantee."
    ),
    "replace": (
        "The compared worlds differ in this: in the other one the unit has any other data instead of its "
        "own. It takes part and counts as before in both. Numbers, weights and schedules are public."
    ),
}
_HIDDEN = {
    "zero-out": "Hidden is whether the data of a certain {unit} were used; {public} is public.",
    "remove": "Hidden is whether a certain {unit} took part, except from those who see who takes part.",
    "replace": "Hidden is which data a certain {unit} has; {public} is public.",
}
_QUESTIONS = {
    "zero-out": "whether the data of a certain {unit} were used",
    "remove": "whether a certain {unit} took part",
    "replace": "which of two possible data a certain {unit} has",
}
IN_SHORT = {"zero-out": "data used?", "remove": "took part?", "replace": "which data?"}
"""What an observer may want to know, by neighbouring relation, for the head of a column."""
OF_GROUPS = (
    "Each group has a model of its own. No figure is about the models in model.pt and groups.pt: give them "
    "to nobody."
)
OF_ONE_GROUP = (
    "Each group has a model of its own. This folder has the one of the group whose master wrote it. Figures "
    "are about those who take part: give the model to nobody else."
)
LEARNED_OF_MANY = (
    "What the model learns from many people it may tell of others like them, also of people whose data were "
    "not used. No figure limits that."
)
SEVERAL = 3  # records of a person, as an example
_LARGE_DELTA = 0.001  # of which a reader is warned: one failure in a thousand
_TESTED = {"device": "example", "person": "row"}  # of other units: record
_MOST_NAMES = 6
Played: TypeAlias = Literal["not yet", "simulated", "rehearsed", "deployed", "by parties"]
"""Whether a training was played, and by whom; by parties of which it is not known on whose machines."""


def question(relation: str, unit: str) -> str:
    """What an observer may want to know of a unit, as a clause: "which of two values a certain record has".

    Args:
        relation: ``zero-out``, ``remove`` or ``replace``.
        unit: device, record or person.

    Raises:
        KeyError: there is no such relation.
    """
    if relation == "replace" and unit == "record":
        return "which of two values a certain record has"
    if relation == "replace" and unit == "person":
        return "which of two things is true of a certain person"
    return _QUESTIONS[relation].format(unit=unit)


def two_values(kind: str, labels: Sequence[str], column: str | Sequence[str] | None = None) -> str:
    """Two values that a unit may have, as an example: of a record the ``labels`` where these are two.

    A person or device may have several rows, each with a label of its own.

    Args:
        kind: device, record or person.
        labels: of the test examples; empty where they are not known.
        column: of the table, that holds the labels, or several; ``None`` where the data are no table.

    >>> two_values("record", ["no", "yes"], "ill")
    '“ill” is no or yes'
    """
    if kind == "device":
        return "such as with or without a certain row"
    if kind == "person" or len(labels) != 2:
        return "such as ill or not ill"
    of_column = f"“{column}” is " if isinstance(column, str) else ""
    return f"{of_column}{labels[0]} or {labels[1]}"


def place_of(network: Network, kinds: Collection[str]) -> str:
    """The word for a party with data, "site" or "device".

    "site" where each device has a name, or where no sites are named and only records or persons are units.

    Args:
        network: of the spec.
        kinds: of units that have guarantees.
    """
    _, names, sites = _parties(network)
    return "site" if names or not (sites or "device" in kinds) else "device"


def _parties(network: Network) -> tuple[int, Sequence[str], Sequence[str]]:
    """How many devices there are, their names, and those of sites; 0 where the network is not known."""
    match network.shape:
        case Tree() as tree:
            return tree.device_count, tree.device_names, tree.site_names
        case GroupNetwork() as grouped:
            groups = grouped.groups
            return groups.workers, groups.device_names, groups.site_names
        case _:
            return 0, (), ()


class Promise(NamedTuple):
    """The range of ε of one kind of unit.

    Attributes:
        kind: device, record or person.
        relation: neighbouring relation of its rows.
        least: the smallest ε of a row; ∞ where none protects.
        most: the largest ε that is finite; ∞ where none is.
    """

    kind: str
    relation: str
    least: float
    most: float


def training_in_words(
    spec: Mapping[str, Any], network: Network, played: Played, place: str, held: HeldCounts, tested: str
) -> str:
    """Sentences on who trains which model on what, and where the data are.

    Args:
        spec: resolved.
        network: that it describes.
        played: by whom the training was played, or that it was not yet.
        place: what a party with data is called.
        held: how many records or persons there are.
        tested: a sentence on the test data, from `rows_to_test_on`; "" for none.
    """
    count, names, sites = _parties(network)
    who = text.how_many(count, place) if count else f"several {place}s"
    if names:
        who += f" ({text.join_names(names, _MOST_NAMES)})"
    elif place == "site":
        who += " (devices in the spec)"
    elif sites:
        who += f" of {text.how_many(len(sites), 'site')} ({text.join_names(sites, _MOST_NAMES)})"
    data = spec["data"]
    labels, features = data.get("label_column"), data.get("feature_columns")
    if labels:
        predicted = _quoted([labels] if isinstance(labels, str) else labels)
        after = f" from {_quoted(features)}" if features else ""
        learned = f"that predicts {predicted}{after}"
    else:
        learned = f"on the data set {PurePath(str(data['source'])).name}"
    where = " ".join(filter(None, [held.in_words(place), tested, _where_data_are(played, count, place)]))
    family = family_of_topology(spec["topology"]["kind"])
    if family is None or family.one_model:
        return f"{text.title(who)} train one model together {learned}. {where}"
    parted = (
        f" in {text.how_many(len(shape.trusted), 'group')}"
        if isinstance(shape := network.shape, GroupNetwork)
        else " in groups"
    )
    whose = OF_ONE_GROUP if played == "deployed" else OF_GROUPS
    return f"{text.title(who)}{parted} train models {learned}. {whose} {where}"


def _quoted(columns: Sequence[str]) -> str:
    """Names of columns of a table, in a sentence: “age” and “sex”; the first few of many."""
    return text.join_names([f"“{name}”" for name in columns], _MOST_NAMES)


def rows_to_test_on(unit: str, count: int, persons: int | None, *, set_aside: bool) -> str:
    """A sentence on the examples that the model is tested on, which no ε protects; "" for none.

    Args:
        unit: ``privacy.unit``.
        count: number of examples; 0 where that is not known.
        persons: number of persons that they are of; ``None`` where that is not known.
        set_aside: whether the spec takes them out of the parties' rows.
    """
    if not count and not set_aside:
        return ""
    exactly = "measured without noise, and nothing protects them."
    if unit == "person" and persons:
        whom = text.how_many(persons, "further person")
        return f"The model is tested on {whom}: scores on their rows are {exactly}"
    name = f"further {_TESTED.get(unit, 'record')}"
    what = text.how_many(count, name) if count else text.pluralise(name)
    of = ", of other persons" if unit == "person" else ""
    return f"The model is tested on {what}{of}: scores on them are {exactly}"


def _where_data_are(played: Played, count: int, place: str) -> str:
    """Sentences on who has the data of the ``count`` devices, or of an unknown number (0).

    ``place``: what a device is called.
    """
    stay = "the data stay where they are, and only messages about the model are sent"
    everybody = f"all {count:,} {place}s" if count > 1 else f"all {place}s"
    match played:
        case "not yet":
            return f"With real parties {stay}. Whoever simulates it has the data of {everybody}."
        case "deployed":
            return f"Real parties played the run: {stay}."
        case "by parties":
            return (
                f"Real parties played the run. On machines of their own {stay}; where one machine started "
                f"all of them, whoever started it has the data of {everybody}."
            )
        case "rehearsed":
            return (
                "This was a rehearsal of real parties on one machine: it held the data and keys of "
                f"{everybody}, and whoever started it has them. On machines of their own {stay}."
            )
        case _:
            return (
                f"One machine simulated the training with the data of {everybody}: whoever runs it has them."
            )


def unit_in_words(kind: str, place: str, data: Mapping[str, Any]) -> str:
    """A noun phrase on what one unit is, such as "one record (the row of a patient at a hospital)".

    Args:
        kind: of the unit: device, record or person.
        place: what a party with data is called, such as hospital.
        data: the spec's section ``data``; ``row`` and ``person_column`` are used where they are set.
    """
    row = data.get("row")
    match kind:
        case "record":
            what = f"the row of {row} at a {place}" if row else f"one row, or one example, of a {place}"
            return f"one record ({what})"
        case "person":
            column = data.get("person_column") or "person_column"
            each = f", {row} each," if row else ""
            return f"one person (all rows{each} of a {place} with the same {column})"
        case _:
            return f"a whole {place} (all its data together)"


def protected(promises: Sequence[Promise], place: str, data: Mapping[str, Any]) -> str:
    """Sentences on what is protected, in which sense, and on units that are not.

    Args:
        promises: one of each kind of unit.
        place: what a party with data is called.
        data: section of the spec.
    """
    said = []
    for relation in dict.fromkeys(one.relation for one in promises):
        alike = [one for one in promises if one.relation == relation and one.least <= LARGE_EPSILON]
        if alike:
            units = " and ".join(unit_in_words(one.kind, place, data) for one in alike)
            said.append(f"Protected is {units}, over the whole training, all rounds together.")
            unit = " or ".join(place if one.kind == "device" else one.kind for one in alike)
            of_devices = any(one.kind == "device" for one in alike)
            public = f"which {place}s there are" if of_devices else "how many there are"
            said.append(_HIDDEN[relation].format(unit=unit, public=public))
    for one in promises:
        unit = unit_in_words(one.kind, place, data)
        if one.least == math.inf:
            said.append(f"{text.title(unit)} is not protected (ε = ∞ towards everybody).")
        elif one.least > LARGE_EPSILON:
            said.append(
                f"{text.title(unit)} is hardly protected: where ε is finite it is above {LARGE_EPSILON:g}, "
                "and that protects hardly anybody."
            )
        elif one.most > LARGE_EPSILON:
            said.append(f"Towards some observers ε is above {LARGE_EPSILON:g}: that protects hardly anybody.")
    return " ".join(said)


def whoever_runs(played: Played) -> str:
    """Who has everybody's data because they run the training; "" where nobody has."""
    return {
        "not yet": "whoever simulates it", "simulated": "whoever runs the simulation",
        "rehearsed": "whoever started the rehearsal", "deployed": "", "by parties": "",
    }[played]  # fmt: skip


def not_protected(promises: Sequence[Promise], place: str, clip: str, delta: float) -> list[str]:
    """Sentences on what is not protected from observers: several records together, whole devices, and so on.

    Args:
        promises: one of each kind of unit.
        place: what a party with data is called.
        clip: ``privacy.clip.kind``; with ``example`` nothing bounds what a whole device sends.
        delta: δ of every ε.
    """
    finite = {one.kind for one in promises if one.least < math.inf}
    said = []
    for one in promises:
        if one.kind == "record" and one.kind in finite:
            said.append(_of_several_records(one, delta))
        if one.kind != "device" and "device" not in finite:
            whole = "there is no limit (ε = ∞)" if clip == "example" else "no limit is computed"
            said.append(
                f"A {place} as a whole is not protected: to what is learned of all its data together {whole}."
            )
    return [*said, LEARNED_OF_MANY]


def _of_several_records(promise: Promise, delta: float) -> str:
    """A sentence on somebody with several records, whose ε is at most ``promise.most`` each."""
    bound = bound_of_several(promise.most, delta, SEVERAL)
    told = promise.relation == "zero-out" and bound.epsilon <= LARGE_EPSILON
    sure = f"50 : 50 on whether their data were used becomes at most {certainty(bound.epsilon)}"
    becomes = f". Leaving δ aside, {sure}" if told else ""
    limit = f"at most {text.epsilon(bound.epsilon)} at δ = {text.epsilon(bound.delta, 2)}{becomes}"
    if bound.epsilon == math.inf:
        limit = "not limited by these figures"
    weak = (
        " Such a δ is hardly a promise."
        if math.isfinite(bound.epsilon) and bound.delta >= _LARGE_DELTA
        else ""
    )
    return (
        "Somebody with several records is protected less: where ε is finite, that of somebody with "
        f"{SEVERAL} is {limit}.{weak}"
    )


def observer_phrase(row: Guarantee, peer: str, place: str) -> str:
    """Who observes, in words, such as "the cloud".

    Args:
        row: the guarantee.
        peer: what an observer that is a peer is called, as of `Statement.peer`.
        place: what a party with data is called.
    """
    words = row.relation.words
    match row.relation.kind:
        case "cloud" | "public":
            who = f"the {words}"
        case "own-edge":
            whose = f"the {place}'s" if row.unit_kind == "device" else f"the {row.unit_kind}'s"
            who = words.replace("own", f"{whose} own", 1)
        case "peer" if words == "peer":
            who = peer
        case _:
            who = words
    return f"{who}, trusted with raw updates" if row.trusted else who


def holder_phrase(kind: str, place: str) -> str:
    """The party that holds the data of one unit of ``kind``: "the site itself" of a device, for example.

    ``place``: what a party with data is called.
    """
    return f"the {place} itself" if kind == "device" else f"the {place} that holds the data"


def observers_explained(rows: Sequence[Guarantee], place: str) -> list[str]:
    """Sentences on what each kind of observer in ``rows`` is and receives; [] without rows.

    ``place``: what a party with data is called.
    """
    kinds = {row.relation.kind for row in rows}
    others = "peer" in kinds or "other-device" in kinds
    said = {
        "The cloud is the server at the top. It receives what is sent up to it and makes the global model.": (
            "cloud" in kinds
        ),
        "The public is whoever sees every global model that is ever sent out.": "public" in kinds,
        f"A {place}'s own edge or master is the party that it sends its messages to.": "own-edge" in kinds,
        "An edge or master elsewhere is above others; it receives what is sent down to it.": (
            "other-edge" in kinds
        ),
        f"Another {place} takes part as well: it receives models and trains on from them.": others,
    }
    return [sentence for sentence, is_there in said.items() if is_there]
