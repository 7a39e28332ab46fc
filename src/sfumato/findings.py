"""Findings: facts about a spec or a run that are worth a warning, each in one sentence that says why.

A finding refuses nothing. Each is a function of its own that returns a sentence, or ``None``:

    before a run    `warn_of_large_delta`, that of `sfumato.large_epsilons`, `warn_of_odd_learning_rate`,
                    `warn_of_odd_radio_power`, `warn_of_unscaled_columns`, `warn_of_columns_of_ids`,
                    `warn_of_sites_without_rows`, `warn_of_whole_batches`, `warn_of_forgotten_persons`,
                    those of `sfumato.idle_changes`
    after a run     `warn_of_idle_clip`, `warn_of_empty_sums`, and those of `sfumato.guessing`
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.data.builtin_datasets import BUILT_IN
from sfumato.data.dataset_sizes import dataset_facts, known_examples
from sfumato.data.repeats import looks_like_id, repeating_ids
from sfumato.errors import SfumatoError, first_names
from sfumato.families import GROUPS, family_of
from sfumato.guessing import classes_of, warn_of_chance_accuracy, warn_of_one_label_accuracy
from sfumato.idle_changes import warn_of_idle_moves, warn_of_late_changes
from sfumato.large_epsilons import warn_of_large_epsilon
from sfumato.privacy.guarantee import Guarantee
from sfumato.radio.channels import radio_of
from sfumato.rounding import number
from sfumato.schedule.base import Plan
from sfumato.schedule.local_steps import learning_rate
from sfumato.spec.data import TABLE_SUFFIXES
from sfumato.spec.radio import LinkRadio
from sfumato.spec.topology import TreeTopology
from sfumato.user_code import GIVEN

LARGEST_RATE = 10.0
"""Gradient descent diverges above 2 / smoothness; with inputs of order 1 smoothness is far above 1/5."""
LEAST_PATH = 1e-3
"""Learning rate times local steps of the training; gradients are of order 1, weights of order 0.01 to 1."""
LEAST_POWER_DBM, MOST_POWER_DBM = -30.0, 60.0
"""1 µW and 1 kW: phones send with 10 to 33 dBm, base stations with up to about 50."""
LEAST_SNR_DB, MOST_SNR_DB = -50.0, 90.0
"""Receivers tell signal from noise over some 140 dB; beyond, the channel is silence or no channel at all."""
NEVER, ALWAYS = 1e-3, 0.99
_CLIPPED = {
    "update": (
        "message",
        "the messages",
        "nearly all have the same length then, and what is beyond it is lost; a larger privacy.clip.norm "
        "{now}keeps more, with noise in proportion to it",
    ),
    "step": (
        "gradient of a local step",
        "the gradients of local steps",
        "nearly all steps have the same length then, whatever the gradients, so that near the optimum they "
        "may overshoot; a smaller training.learning_rate makes them shorter, a larger privacy.clip.norm {now}"
        "keeps more of their differences, with noise in proportion to it",
    ),
    "example": ("gradient of an example", "the gradients of examples", ""),  # usual there: asks for nothing
}
"""What a clip of each kind bounds: one of it, all of it, and what to do where nearly all is clipped."""
_NAMED = 5  # places in a sentence


@dataclass(frozen=True)
class Finding:
    """A fact worth a warning: ``kind`` names it for programs, ``text`` says it."""

    kind: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """The finding as a row of ``findings`` in ``account --json``, with ``kind`` and ``text``."""
        return {"kind": self.kind, "text": self.text}


def findings_of_plan(plan: Plan, delta: float) -> tuple[Finding, ...]:
    """Warnings that follow from the plan and ``delta`` alone, before any ε is computed."""
    columns = feature_columns_of(plan)
    found = {
        "delta": warn_of_large_delta(delta, *protected_units(plan)),
        "learning-rate": warn_of_odd_learning_rate(plan),
        "radio-power": warn_of_odd_radio_power(plan),
        "unscaled": warn_of_unscaled_columns(columns, plan.spec.data.scale or {}),
        "ids": warn_of_columns_of_ids(columns),
        "sites": warn_of_sites_without_rows(plan),
        "batches": warn_of_whole_batches(plan),
        "persons": warn_of_forgotten_persons(plan),
        "moves": warn_of_idle_moves(plan),
        "changes": warn_of_late_changes(plan.spec),
    }
    return _findings(found)


def findings_before(plan: Plan, delta: float, guarantees: Iterable[Guarantee]) -> tuple[Finding, ...]:
    """Warnings that can be given before a run: about the plan, ``delta`` and the ε of ``guarantees``."""
    apart = plan.devices_at_untrusted_edges
    at_edges = "" if apart is None else f"{apart:,} of {plan.parties.device_count:,}"
    in_groups = family_of(plan.spec) is GROUPS
    topology = plan.spec.topology
    moving = isinstance(topology, TreeTopology) and topology.moves is not None
    device = "worker" if in_groups else "device"
    large = warn_of_large_epsilon(guarantees, at_edges, device, moving=moving)
    found = {"epsilon": None if large is None else plan.parties.titled(large)}
    return (*findings_of_plan(plan, delta), *_findings(found))


def findings_after(
    source: str,
    clip_fractions: Sequence[float],
    accuracy: float,
    *,
    adds_noise: bool,
    clip_kind: str = "update",
    clip_norm: object = None,
    lost_sums: Mapping[str, Any] | None = None,
    test_labels: Mapping[str, int] | None = None,
    auc: float = math.nan,
) -> tuple[Finding, ...]:
    """Warnings that can be given after a run.

    Args:
        source: ``data.source`` of the spec.
        clip_fractions: share of what was clipped in each round; NaN where nothing was clipped.
        accuracy: the last that was measured; NaN for none.
        adds_noise: whether any party adds noise.
        clip_kind: ``privacy.clip.kind`` of the spec.
        clip_norm: ``privacy.clip.norm``; ``None``: not known.
        lost_sums: of the ledger, see `warn_of_empty_sums`.
        test_labels: number of test examples of each label, where they are known.
        auc: the last that was measured; NaN for none.
    """
    guessing = None if test_labels is None else warn_of_one_label_accuracy(accuracy, test_labels)
    guessing = guessing or warn_of_chance_accuracy(accuracy, classes_of(source))
    learned = guessing is None
    clip = warn_of_idle_clip(clip_fractions, clip_kind, clip_norm, learned=learned) if adds_noise else None
    if guessing and not math.isnan(auc):
        guessing += f"; AUC is {auc:.3f}, where guessing has 0.5"
    return _findings({"clip": clip, "accuracy": guessing, "lost-sums": warn_of_empty_sums(lost_sums)})


def warn_of_large_delta(delta: float, count: int, what: str) -> str | None:
    """A warning about a δ of at least one over the number of units; ``None`` otherwise.

    A mechanism that draws one of the n units and publishes all of it says nothing about the others: the
    probability that a unit is published is 1/n, so it is (0, 1/n)-differentially private.

    Args:
        delta: of all guarantees.
        count: n, how many units there are.
        what: what the units are, in words.
    """
    if delta < 1 / count:
        return None
    return (
        f"δ = {number(delta)} is at least 1/n for n = {count:,} {what}: a mechanism that publishes all "
        f"the data of one of them, drawn at random, would meet it; take a δ well below {number(1 / count)}"
    )


def protected_units(plan: Plan) -> tuple[int, str]:
    """How many units ε is about, and what they are in words: devices, records or persons.

    The number is what δ is compared with. Where both devices and records are protected, records, of which
    there are more. Where the sizes of the data are not known, devices: a δ that is too large for so many is
    too large for more records too.
    """
    devices, unit = plan.parties.device_count, plan.spec.privacy.unit
    if unit != "device":
        try:
            known = dataset_facts(plan.spec.data, devices).counted_in_persons
        except SfumatoError:  # neither tabulated nor on this machine
            return devices, "devices"
        return max(known.train_examples, 1), "persons" if unit == "person" else "records"
    return devices, "devices"


def warn_of_odd_learning_rate(plan: Plan) -> str | None:
    """A warning about a learning rate that makes training diverge, or that moves no weight; or ``None``."""
    training = plan.spec.training
    rates = [learning_rate(training, round_number) for round_number in (0, training.rounds - 1)]
    if max(rates) > LARGEST_RATE:
        inputs = "unless all inputs are far below 1 (those of a file are used as they are)"
        if plan.spec.data.source in BUILT_IN:
            inputs = "for every model here (inputs are standardised)"
        return (
            f"training.learning_rate is up to {number(max(rates))}: above {LARGEST_RATE:g} steps of "
            f"gradient descent diverge {inputs}"
        )
    steps = training.rounds * (training.local_steps or training.local_epochs or 1)
    if max(rates) * steps < LEAST_PATH:
        return (
            f"training.learning_rate is at most {number(max(rates))} over {steps:,} local steps: together "
            "less than "
            f"{LEAST_PATH:g}, which moves no weight by more than that many gradients"
        )
    return None


def warn_of_odd_radio_power(plan: Plan) -> str | None:
    """A warning about a transmit power or signal-to-noise ratio that no radio has; ``None`` otherwise."""
    radio = radio_of(plan.spec)
    if isinstance(radio, LinkRadio):
        powers = {"radio.power_dbm": radio.power_dbm, "radio.broadcast_power_dbm": radio.broadcast_power_dbm}
        for key, power in powers.items():
            if not LEAST_POWER_DBM <= power <= MOST_POWER_DBM:
                return (
                    f"{key} is {power:g} dBm: radios send with {LEAST_POWER_DBM:g} dBm (1 µW) to "
                    f"{MOST_POWER_DBM:g} dBm (1 kW); energies and delays mean nothing"
                )
        return None
    low, high = radio.snr_db
    if low < LEAST_SNR_DB or high > MOST_SNR_DB:
        return (
            f"radio.snr_db is {low:g} to {high:g} dB: receivers work with {LEAST_SNR_DB:g} to "
            f"{MOST_SNR_DB:g} dB; "
            "energies and delays mean nothing"
        )
    return None


def feature_columns_of(plan: Plan) -> tuple[str, ...]:
    """A tuple of the names of the feature columns of the plan's table.

    Empty for data that are no table (images, tokens), and where the table cannot be read now: it is missing
    or was given in Python to a call that is over. No error is raised.
    """
    data = plan.spec.data
    if data.vocabulary is not None or not _is_table(data.source):
        return ()
    try:
        return dataset_facts(data, plan.parties.device_count).feature_columns
    except SfumatoError:  # data given in Python are known inside a call only
        return ()


def warn_of_unscaled_columns(columns: Sequence[str], scale: Mapping[str, object]) -> str | None:
    """A warning that names the features without a stated range; ``None`` where all have one.

    Values are not looked at: a warning that depends on them would be a release nobody accounts for.

    Args:
        columns: names of the features.
        scale: the section ``data.scale``: a column's name to its range, the lowest and the highest value.
    """
    unscaled = [name for name in columns if name not in scale]
    if not unscaled:
        return None
    named = _named(unscaled)
    has = "has" if len(unscaled) == 1 else "have"
    return (
        f"{named} {has} no range in data.scale and so {'is' if len(unscaled) == 1 else 'are'} used as in the "
        "file: where numbers are far above 1, little or nothing is learned; write the range that everybody "
        f"knows without the rows, like data.scale: {{{unscaled[0]}: [LOW, HIGH]}}, so wide that few values "
        "are beyond it (those are kept, below 0 or above 1; [0, 1] changes nothing)"
    )


def warn_of_sites_without_rows(plan: Plan) -> str | None:
    """A warning where sites have names but no column of the table names the site of a row; or ``None``."""
    names, data = plan.parties.site_names, plan.spec.data
    if not names or data.site_column is not None or not _is_table(data.source):
        return None
    shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return (
        f"the sites are called {shown}, but the rows are divided among them by data.partition, whosever they "
        "are: no figure is about these sites; name the column that says whose a row is in data.site_column, "
        "or leave the names out"
    )


def warn_of_forgotten_persons(plan: Plan) -> str | None:
    """A warning where rows are protected though a column named like persons or ids repeats; or ``None``.

    Of a file on this machine. It says only that a value stands in several rows, not in how many.
    """
    data, unit = plan.spec.data, plan.spec.privacy.unit
    if unit not in ("record", "both") or not data.source.lower().endswith(TABLE_SUFFIXES):
        return None
    try:
        repeated = repeating_ids(data)
    except SfumatoError:  # not on this machine
        return None
    labels = (data.label_column,) if isinstance(data.label_column, str) else data.label_column or ()
    found = [name for name in repeated if name not in (*labels, data.site_column, data.group_column)]
    if not found:
        return None
    return (
        f"several rows have the same {found[0]}, and ε is about one row: if it says who a row is of, more is "
        "learned about a person with several rows than ε says; to protect all rows of one, write "
        f"privacy.unit: person and data.person_column: {found[0]}"
    )


def warn_of_whole_batches(plan: Plan) -> str | None:
    """A warning about Poisson batches that hold every record or person of a device; or ``None``.

    Records are drawn with probability min(1, batch size / number of records); at 1 nothing is hidden by the
    draw, and the noise for the same ε is largest.
    """
    training, privacy = plan.spec.training, plan.spec.privacy
    if training.batches != "poisson" or training.batch_size == "all" or privacy.unit == "device":
        return None
    try:
        sizes = known_examples(plan.spec, plan.devices_per_place)
    except SfumatoError:  # neither tabulated nor on this machine
        return None
    if sizes is None or not (whole := int((sizes <= training.batch_size).sum())):
        return None
    what = "persons" if privacy.unit == "person" else "records"
    fewest = int(sizes.min())
    share = f"take a small share of the fewest, {fewest:,}"
    apart = f"leave devices of so few {what} out, or put them together with others"
    return (
        f"{whole:,} of {len(sizes):,} devices {'has' if whole == 1 else 'have'} no more {what} than "
        f"training.batch_size, {training.batch_size:,}: each of them is in every local step, so drawing "
        f"hides nothing and the noise for the same ε is far larger; {share if fewest > 1 else apart}"
    )


def warn_of_columns_of_ids(columns: Sequence[str]) -> str | None:
    """A warning about feature ``columns`` with names like those of identifiers.

    ``None`` where there are none.
    """
    ids = [name for name in columns if looks_like_id(name)]
    if not ids:
        return None
    one = len(ids) == 1
    return (
        f"{_named(ids)} {'is a feature and is' if one else 'are features and are'} called like "
        f"{'an identifier' if one else 'identifiers'}: a model learns nothing of use from "
        f"{'it' if one else 'them'}; list the others in data.feature_columns"
    )


def _is_table(source: str) -> bool:
    """Whether ``data.source`` is a table of one's own."""
    return source.lower().endswith(TABLE_SUFFIXES) or source.startswith(GIVEN)


def _named(columns: Sequence[str]) -> str:
    """``the column age``, ``the columns age, bmi and 3 more``."""
    if len(columns) == 1:
        return f"the column {columns[0]}"
    return f"the columns {first_names(columns, _NAMED)}"


def warn_of_idle_clip(
    fractions: Sequence[float], kind: str = "update", norm: object = None, *, learned: bool = True
) -> str | None:
    """A warning about a clip that changed nothing in the run, or nearly everything; ``None`` otherwise.

    Args:
        fractions: share of what was clipped, for each round; NaN where nothing is clipped.
        kind: ``privacy.clip.kind``, which says what is clipped.
        norm: ``privacy.clip.norm``, which the sentence states where it is one number.
        learned: whether the model is better than guessing; where it is not, it is not near the optimum, which
            the sentence on clipped local steps is about.
    """
    measured = [fraction for fraction in fractions if not math.isnan(fraction)]
    if not measured:
        return None
    one, many, advice = _CLIPPED[kind]
    known = f" = {number(float(norm))}" if isinstance(norm, int | float) else ""
    if max(measured) <= NEVER:
        return (
            f"the clip never acted: no {one} was as long as privacy.clip.norm{known}, and the noise is in "
            "proportion to that norm; a smaller one gives the same ε with less noise"
        )
    if min(measured) >= ALWAYS and advice and (learned or kind != "step"):
        always = len(measured) == len(fractions)
        when = "in every round the clip" if always else "in every round that uses the clip it"
        now = f"than{known.removeprefix(' =')} " if known else ""
        return f"{when} acted on at least 99 % of {many}: {advice.format(now=now)}"
    return None


def warn_of_empty_sums(lost: Mapping[str, Any] | None) -> str | None:
    """A warning about sums that were not formed (``realised.lost_sums`` of a ledger); or ``None``."""
    if lost is None:
        return None
    by = sorted(lost["by"].items(), key=lambda one: -one[1])
    named = [f"{name} ({count:,} {'time' if count == 1 else 'times'})" for name, count in by[:_NAMED]]
    where = ", ".join([*named, *([f"{len(by) - _NAMED:,} more"] if len(by) > _NAMED else [])])
    return (
        f"{sum(lost['by'].values()):,} of {lost['of']:,} sums of devices' messages were not formed, because "
        f"too few devices were left or the supernode failed: {where}; nothing was sent on for them"
    )


def _findings(found: dict[str, str | None]) -> tuple[Finding, ...]:
    """A finding for each kind in ``found`` whose text is not ``None``."""
    return tuple(Finding(kind, text) for kind, text in found.items() if text is not None)
