"""What a statement takes on trust, and what it does not cover, in sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from sfumato.report import formatting as text
from sfumato.report.results.secure_sums import BY_DEFAULT
from sfumato.report.statement.words import Played

ATTACKER = (
    "The figures hold also against an observer that already knows the data of everybody else and every "
    "public setting."
)
_RELEASED = (
    "What the metrics hold, such as losses, accuracies and shares of what was clipped, and counts of labels "
    "of the test examples. They are measured on data, exactly, for whoever runs the training.",
    "The presence of a device on the network, and timing.",
    "Other trainings on the same data, also those by which settings were chosen: their ε add up. That of a "
    "training without noise, such as a twin that this one is compared with, is ∞: give its model to nobody.",
    "Files of the run. They hold the SHA-256 of the data, model.pt too: whoever knows all other rows can "
    "hash a guess of the last one and compare. So this statement has no hash of data or of a file that "
    "follows from data, and where a model may be given away, give its weights, not the file.",
)
_OF_TESTS = "No ε is about the people in them; accuracy and counts of labels among them are exact."
_ASIDE = {
    "test_fraction": "drawn by lot",
    "test_column": "marked in a column of the table",
    "test_file": "in a file of their own",
}
_KEYS = re.compile(r" \([a-z_]+(?:, [a-z_]+)*\)(?=:)")
_FLOATS = "Rounding of Gaussian noise to floating-point numbers, which is treated as exact."
_WHOSE_KEYS: Mapping[Played, str] = {
    "rehearsed": (
        "One machine started all parties: a rehearsal. It made all keys and read all rows, so against "
        "whoever started it nothing here holds."
    ),
    "deployed": (
        "Every party had its own machine. Whoever made the keys of others, or handed out their rows, can act "
        "as them, or has the rows: the sheet of each party says whose keys were made."
    ),
    "by parties": (
        "The files do not say on which machines the parties were. Where one machine started all parties, it "
        "made all keys and read all rows, and against whoever started it nothing here holds."
    ),
}


class Assumed(NamedTuple):
    """Something that a statement takes on trust.

    Attributes:
        what: the assumption, a sentence.
        why: when it is a concern, sentences.
    """

    what: str
    why: str


OF_OBSERVERS = (
    Assumed(
        "Every observer follows the protocol and keeps everything that it receives (honest but curious).",
        "A party that sends something else, or leaves out its noise, is not covered. That is a concern where "
        "a party would gain by breaking the rules.",
    ),
    Assumed(
        "Observers do not put together what they receive.",
        "Each line is about one observer. Several together may learn more; the command sfumato account says "
        "how much, of any that are named.",
    ),
)
OF_RECEIVERS = Assumed(
    "The receiver's noise is at least what the spec says.",
    "It protects those who send, and no device makes it. Whoever hears better, or from nearer, learns more "
    "than the figures say.",
)
"""Where messages are added over the air."""
OF_SEEN_COINS = Assumed(
    "Devices take part by coins, and figures are over all ways that these may fall.",
    "Towards those who see who takes part, a device that happened to take part in more rounds than most, or "
    "in all of them, has told more than the figure says.",
)
"""Where real devices draw by themselves whether they take part in a round: no run folder says how often."""
OF_TRUSTED_DRAWS = Assumed(
    "Trusted aggregators draw devices as the spec says.",
    "Each draws the fixed number for every round in secret, and nobody else can check it: a device that it "
    "draws more often tells others more than the figures say.",
)
"""Where real aggregators draw a fixed number of their devices."""


def of_draws(played: Played, *, parties: bool) -> Assumed:
    """The assumption that it stays secret which units were drawn: amplification by sampling rests on it.

    Args:
        played: who played the training, or that it was not yet played.
        parties: whether devices are drawn for a round; if false, only rows are drawn for batches.
    """
    what = "Who and which rows were drawn stays secret." if parties else "Which rows were drawn stays secret."
    more = "Whoever knows what was drawn learns more than the figures say."
    if played == "simulated":
        return Assumed(
            what,
            f"{more} In this run it is no secret: every draw follows from the seed, which is in "
            "spec.yaml, and which others can guess or try.",
        )
    kept = []
    if played != "not yet":
        kept.append("the keys and the memories of the parties")
        if parties:
            kept.append("what those receive to whom devices send")
    elif parties:
        kept.append("ledger.json, which says how often each took part")
    keep = f" Keep secret {text.join_names(kept)}." if kept else ""
    return Assumed(what, f"{more}{keep}")


def of_ciphers(hops: str, least: str, played: Played) -> tuple[Assumed, ...]:
    """Assumptions about the computing power of attackers: on ciphers, and on secure aggregation if used.

    The cipher of noise is left out for a simulation, whose noise follows from its seed anyway.

    Args:
        hops: with secure aggregation, in words; "" for none.
        least: the threshold of shares, from `least_of_sums`; "" if not known.
        played: by whom the training was played, or that it was not yet.
    """
    noise = Assumed(
        "Nobody breaks the cipher that noise comes from.",
        "Noise follows from a secret key by a cipher: against those who could break it nothing here holds.",
    )
    of_noises = () if played == "simulated" else (noise,)
    if not hops:
        return of_noises
    many = f"at least {least} of them" if least[:1].isdigit() else f"{least or BY_DEFAULT} of them"
    return (
        *of_noises,
        Assumed(
            f"Messages {hops} are added up under secure aggregation, and whoever adds them up sees the sum.",
            f"Together with {many} it sees single messages, and so does whoever breaks the masks or holds "
            "keys in the names of others: against these no figure holds. Each key must be that of the party "
            "that it is said to be of.",
        ),
    )


def of_noise(played: Played, draws: Sequence[str]) -> Assumed:
    """The assumption that nobody but the party that adds it knows the noise.

    Args:
        played: by whom the training was played, or that it was not yet.
        draws: sources of the secret draws of a deployed run; empty for others.
    """
    what = "Noise is drawn in secret by the party that adds it."
    if played in _WHOSE_KEYS:
        exact = f"Noise is discrete Gaussian, exact, and drawn from: {', '.join(draws)}."
        return Assumed(what, f"{exact} {_WHOSE_KEYS[played]}")
    if played == "not yet":
        return Assumed(
            what,
            "A simulation draws it from its seed, a number that others can guess or try: whoever has it can "
            "compute the noise. Real parties draw it anew, from a secret source.",
        )
    return Assumed(
        what,
        "In this run it was not: it follows from the seed, which is in spec.yaml and not on this page. Do "
        "not publish the model of a simulation of data that must stay secret: deploy, and the parties draw "
        "their noise from a secret source.",
    )


def of_files(*, played: bool) -> Assumed:
    """The assumption that files, or the plan, say what was or will be done.

    ``played``: whether the training is over.
    """
    if not played:
        return Assumed(
            "The training will be played by this plan.",
            "The figures hold for no other: compare the hash of the resolved spec.",
        )
    return Assumed(
        "The program did what the files of the run say.",
        "Files cannot prove that, and whoever writes all of them anew has some that fit. That is a concern "
        "where somebody would gain by it: sign this statement, and keep the SHA-256 of the run's "
        "manifest.json where nobody can change it, among those who may see the data.",
    )


def of_persons(column: str, place: str) -> tuple[Assumed, ...]:
    """A tuple of assumptions about persons as units: how rows are drawn, and that a value is a person.

    Args:
        column: that names the person of a row.
        place: what a party with data is called.
    """
    return (
        Assumed(
            f"To a local step a {place} brings each of its persons with the same probability, and of a "
            "person one row.",
            "The program draws so; no file can prove it.",
        ),
        Assumed(
            f"A person is one value of the column {column}.",
            f"A table in which one stands at two {place}s, or among rows to train on and to test on, is "
            f"refused. Whoever has another value at another {place} counts as two persons, and less is "
            "guaranteed of the two together.",
        ),
    )


def unchecked_as_assumed(lines: Sequence[str]) -> tuple[Assumed, ...]:
    """What `verify` did not recompute, as assumptions.

    ``lines``: of `verify`, ``WHAT: WHY``; keys in brackets are left out.
    """
    parts = (_KEYS.sub("", line).partition(": ") for line in lines)
    return tuple(
        Assumed(text.sentence(f"not recomputed: {what}"), text.sentence(why)) for what, _, why in parts
    )


def without_folder(line: str, source: str) -> str:
    """A line of `verify` with the path ``source`` of the data (``data.source``) cut to the file's name.

    A line without the path stays as it is.
    """
    return line.replace(source, PurePath(source).name)


def set_aside(data: Mapping[str, Any]) -> list[str]:
    """The keys of the spec's section ``data`` that set rows of the parties aside for testing; [] for none.

    ``test_fraction`` is one also without a value where it has a default: for tables, and for data that name
    ``test_within``.
    """
    keys = [key for key in ("test_fraction", "test_column", "test_file") if data.get(key) is not None]
    return keys or (["test_fraction"] if data.get("label_column") or data.get("test_within") else [])


def not_covered(data: Mapping[str, Any], *, exact: bool) -> tuple[str, ...]:
    """A tuple of sentences on what no ε of the statement covers.

    It is what is released anyway, test rows, and rounding.

    Args:
        data: section of the resolved spec.
        exact: whether noise is discrete, as in deployments.
    """
    tested = [f"Rows that were set aside for testing, {_ASIDE[key]}. {_OF_TESTS}" for key in set_aside(data)]
    return (*_RELEASED, *tested, *(() if exact else (_FLOATS,)))
