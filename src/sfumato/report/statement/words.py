"""Sentences of a privacy statement that a reader without mathematics understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from sfumato.network.tree import Tree
from sfumato.privacy.guarantee import Guarantee
from sfumato.report import formatting as text
from sfumato.report.results.network import GroupNetwork, Network

UNITS = {
    "device": "all data of one device",
    "record": "any one record (one row, one example) of one device or site",
    "person": "any one person of one device or site: all rows with one value of data.person_column",
}
RELATIONS = {
    "zero-out": (
        "The compared worlds differ in this: in one the unit contributes what it has, in the other "
        "everything that it contributes is zero. It takes part and counts as before in both. Numbers of "
        "devices, and of examples or persons, weights and schedules are public."
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
    "zero-out": "Hidden is whether its data were used; that it is there and is counted is public.",
    "remove": "Hidden is whether it took part, except from those who see who takes part.",
    "replace": "Hidden is which data it has; that it is there and is counted is public.",
}
_MOST_NAMES = 6
ATTACKER = (
    "An observer may know the data of all others and every public setting, and may compute without limit: "
    "that is assumed to its advantage, and whoever knows less learns no more."
)


class Assumed(NamedTuple):
    """Something that is taken on trust, and whether that is a concern; both are sentences."""

    what: str
    why: str


def place_of(network: Network) -> str:
    """What a party with data is called: a site where the spec names each of them, else a device."""
    return "site" if _parties(network)[1] else "device"


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


def training_in_words(spec: Mapping[str, Any], network: Network) -> str:
    """Sentences on who trains which model on what, from a resolved spec."""
    count, names, sites = _parties(network)
    who = text.how_many(count, "device") if count else "several devices"
    if names:
        who = f"{text.how_many(count, 'site')} ({text.join_names(names, _MOST_NAMES)})"
    elif sites:
        who += f" of {text.how_many(len(sites), 'site')} ({text.join_names(sites, _MOST_NAMES)})"
    data = spec["data"]
    labels, features = data.get("label_column"), data.get("feature_columns")
    if labels:
        predicted = text.join_names([labels] if isinstance(labels, str) else labels, _MOST_NAMES)
        after = f" from {text.join_names(features, _MOST_NAMES)}" if features else ""
        learned = f"that predicts {predicted}{after}"
    else:
        learned = f"on the data {PurePath(str(data['source'])).name}"
    stay = "The data stay where they are; only messages about the model are sent."
    return f"{text.title(who)} train one model together {learned}. {stay}"


def unit_in_words(kind: str, place: str, data: Mapping[str, Any]) -> str:
    """What one unit of ``kind`` is, as a noun phrase; ``data``: section of the spec."""
    match kind:
        case "record":
            return f"one record (one row, or one example, of a {place})"
        case "person":
            column = data.get("person_column") or "person_column"
            return f"one person (all rows of a {place} with the same {column})"
        case _:
            return f"a whole {place} (all its data together)"


def protected(kinds: Sequence[str], relation: str, place: str, data: Mapping[str, Any]) -> str:
    """Sentences on what is protected, and in which sense."""
    units = " and ".join(unit_in_words(kind, place, data) for kind in kinds)
    return f"Protected is {units}, over the whole training, all rounds together. {_HIDDEN[relation]}"


def not_protected(kinds: Sequence[str], place: str, clip: str) -> list[str]:
    """Sentences on what is not protected.

    Args:
        kinds: the kinds of units with guarantees.
        place: what a party with data is called.
        clip: ``privacy.clip.kind``; where examples are clipped nothing bounds what a whole device sends.
    """
    said = []
    for kind in kinds:
        if kind == "device":
            said.append(f"From the {place} itself nothing is hidden: it has the data.")
            continue
        said.append(f"From the {place} that holds the data of a {kind} nothing is hidden: it has them.")
        if "device" not in kinds:
            whole = "there is no limit (ε = ∞)" if clip == "example" else "no limit is computed"
            said.append(
                f"A {place} as a whole is not protected: to what is learned of all its data together {whole}."
            )
    return [
        *said,
        "What holds for many alike is what the model is to learn. It may be told of somebody whose data were "
        "not used, too.",
    ]


def observer_phrase(row: Guarantee, peer: str, place: str) -> str:
    """Who observes, in words, such as "the cloud".

    Args:
        row: the guarantee.
        peer: a device at the same place as the unit's.
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
    """The party that holds the data of one unit of ``kind``."""
    return f"the {place} itself" if kind == "device" else f"the {place} that holds the data"


def observers_explained(rows: Sequence[Guarantee], place: str) -> list[str]:
    """A sentence on what each kind of observer in ``rows`` is and receives."""
    kinds = {row.relation.kind for row in rows}
    others = "peer" in kinds or "other-device" in kinds
    said = {
        "The cloud is the server at the top. It receives what is sent up to it and makes the global model.": (
            "cloud" in kinds
        ),
        "The public is whoever sees every global model that is ever sent out.": "public" in kinds,
        f"A {place}'s own edge or master is the party that it sends its messages to.": "own-edge" in kinds,
        f"Another {place} takes part as well and receives models to go on from.": others,
    }
    return [sentence for sentence, is_there in said.items() if is_there]


def assumed_of_observers() -> tuple[Assumed, ...]:
    """What is assumed of those who observe."""
    return (
        Assumed(
            "Every observer follows the protocol and keeps everything that it receives (honest but curious).",
            "A party that sends something else, or leaves out its noise, is not covered. That is a concern "
            "where a party would gain by breaking the rules.",
        ),
        Assumed(
            "Observers do not put together what they receive.",
            "Each line is about one observer. Several together learn more; the command sfumato account SPEC "
            "--observer A,B says how much.",
        ),
    )


def assumed_of_noise(draws: Sequence[str], seed: object, *, played: bool) -> Assumed:
    """Who can know the noise.

    Args:
        draws: where the secret draws of a deployed run came from; empty for others.
        seed: of the spec.
        played: whether there was a run.
    """
    what = "Noise is drawn in secret by the party that adds it."
    if draws:
        where = f"Noise is discrete Gaussian, exact, and drawn from: {', '.join(draws)}."
        return Assumed(what, f"Real parties played the run. {where}")
    if not played:
        return Assumed(
            what,
            "A simulation draws it from its seed, and whoever has that can compute the noise. Real parties "
            "draw it anew.",
        )
    return Assumed(
        what,
        f"This run is a simulation: one machine played all parties, and their noise follows from the seed "
        f"{seed}. Whoever has the seed can compute the noise, and against them nothing here holds. That is "
        "no concern where the seed stays with the data; do not give away the model together with the seed "
        "(spec.yaml has it).",
    )


def assumed_of_files(*, played: bool) -> Assumed:
    """That the statement is about what was, or will be, done."""
    if not played:
        return Assumed(
            "The training will be played by this plan.",
            "The figures hold for no other: compare the hash of the resolved spec.",
        )
    return Assumed(
        "The program did what the files of the run say.",
        "Files cannot prove that, and whoever writes all of them anew has some that fit. That is a concern "
        "where somebody would gain by it: keep the hashes below where nobody can change them, or sign this "
        "statement.",
    )


def assumed_of_persons(column: str) -> tuple[Assumed, ...]:
    """What is assumed of the rows of persons."""
    return (
        Assumed(
            "To a local step a device brings each of its persons with one probability, and of a person one "
            "row.",
            "The program draws so; no file can prove it.",
        ),
        Assumed(
            f"A person is one value of {column}.",
            "A table in which one stands at two devices, or among rows to train on and to test on, is "
            "refused. Whoever has another value at another device counts as two persons, and less is "
            "guaranteed of the two together.",
        ),
    )


def unchecked_as_assumed(lines: Sequence[str]) -> tuple[Assumed, ...]:
    """What `verify` did not recompute, from its lines ``WHAT: WHY``."""
    parts = (line.partition(": ") for line in lines)
    return tuple(
        Assumed(text.sentence(f"not recomputed: {what}"), text.sentence(why)) for what, _, why in parts
    )
