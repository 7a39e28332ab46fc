"""What becomes of a setting when something on the page is changed; no browser is needed to test it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sfumato.arguments import Argument, PythonSpelling, spelled_by
from sfumato.errors import SfumatoError, SpecError
from sfumato.explore.accounted_setting import account_setting
from sfumato.explore.controls import (
    choice_controls_of,
    controls_of,
    participation_of,
    with_participation,
    with_value,
)
from sfumato.explore.edited_spec import EditedSpec, with_name_suffix
from sfumato.explore.trust import trusted_names, why_trust_is_fixed, with_trust_toggled, with_trusted
from sfumato.planning import plan
from sfumato.report.formatting import join_names, number, sentence, title
from sfumato.report.results.network import parties_in_words, towards_in_words
from sfumato.spec.words_of_keys import key_in_words

TRUST, COALITION, UNIT = "trust", "coalition", "unit"
CLICKS = {
    TRUST: "trusts or distrusts an aggregator",
    COALITION: "adds a party to the coalition, or removes it",
    UNIT: "chooses the device that is protected",
}


_KEY = re.compile(r"([a-z_]+(?:\.[a-z_]+)+): ")  # of a spec, at the beginning of a message


class PageSpelling(PythonSpelling):
    """How messages on the page name what a person entered: ``training.rounds``, the key of the spec."""

    def argument(self, argument: Argument) -> str:
        """How the page calls an argument in messages: its key in the spec, or its name where it has none."""
        return argument.key or super().argument(argument)


@dataclass(frozen=True)
class Choices:
    """What the page's controls show.

    Attributes:
        trusted: names of the aggregators whose boxes are checked; ``None`` where the page has no boxes.
        numbers: by the name of their control; ``None`` for one that is empty.
        participation: its kind; "" where it cannot be chosen.
        unit: ``device:N``, ``record:N`` or ``person:N``.
        coalition: names joined by commas.
        picked: words of the option that is chosen, by the name of its control; ``None`` for none.
    """

    trusted: tuple[str, ...] | None
    numbers: Mapping[str, float | None]
    participation: str
    unit: str
    coalition: str
    picked: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def members(self) -> tuple[str, ...]:
        """A tuple of the names in ``coalition``, split at commas."""
        return tuple(name for part in self.coalition.split(",") if (name := part.strip()))


@dataclass(frozen=True)
class EditResult:
    """A setting after a change.

    Attributes:
        setting: changed, or as before if the change was wrong.
        choices: what the controls show.
        problem: what was wrong with the change; "" if nothing.
        done: sentences on what was done, where the controls do not show it; else "".
    """

    setting: EditedSpec
    choices: Choices
    problem: str = ""
    done: str = ""


@spelled_by(PageSpelling())
def with_choices(
    setting: EditedSpec, choices: Choices, slider: tuple[str, float] | None = None
) -> EditResult:
    """The setting with the choices of the controls; unchanged, with the problem, if the spec would be wrong.

    Args:
        setting: before.
        choices: what the controls say now.
        slider: the name of the slider that was moved, and its position from 0 to `STEPS`; ``None``: none was.
    """
    try:
        changed = _with_choices_applied(setting, choices, slider)
        account_setting(changed)
        return EditResult(changed, choices)
    except SfumatoError as error:
        return EditResult(setting, choices, problem_in_words(setting, error))


@spelled_by(PageSpelling())
def with_click(setting: EditedSpec, choices: Choices, party: str, mode: str) -> EditResult:
    """The setting and the choices after a click on a party in the drawing.

    A click makes the party the protected unit, or changes whether it is in the coalition or trusted.

    Args:
        setting: before.
        choices: what the controls say.
        party: its name.
        mode: which of these, one of `CLICKS`.
    """
    if mode == COALITION:
        members = [name for name in choices.members if name != party]
        if len(members) == len(choices.members):
            members.append(party)
        return EditResult(setting, replace(choices, coalition=",".join(members)))
    if mode == UNIT:
        if not party.startswith("device:"):
            return EditResult(setting, choices, f"{party} is an aggregator: the protected unit is a device")
        kind = choices.unit.partition(":")[0]
        kind = kind if kind in ("device", "record", "person") else "device"
        return EditResult(setting, replace(choices, unit=f"{kind}:{party.partition(':')[2]}"))
    if party.startswith("device:"):
        return EditResult(setting, choices, f"{party} is a device: aggregators are trusted, or not")
    try:
        changed = with_trust_toggled(setting, account_setting(setting), party)
        account_setting(changed)
    except SfumatoError as error:
        return EditResult(setting, choices, problem_in_words(setting, error))
    return EditResult(changed, choices)


@spelled_by(PageSpelling())
def with_planned_noise(setting: EditedSpec, targets: str) -> EditResult:
    """The setting with the least noise that meets targets of ε, found as `sfumato plan` does.

    It is unchanged, with the problem, where there is none.

    Args:
        setting: before.
        targets: ``OBSERVER=EPSILON``, separated by spaces or semicolons.
    """
    choices = choices_of(setting)
    try:
        wanted = _targets(targets)
        found = plan(setting.spec(), wanted)
        done = EditedSpec.of(with_name_suffix(found.spec, "-plan"))
        account_setting(done)
    except SfumatoError as error:
        return EditResult(setting, choices, problem_in_words(setting, error))
    met = join_names(
        [f"ε = {number(value)} {towards_in_words(observer)}" for observer, value in wanted.items()]
    )
    said = (
        f"Planned: the least noise that keeps {met}. This setting is now the planned one: a noise multiplier "
        "for each party, in place of the noise it had. Undo the last change returns to that. To get its "
        "figures in a terminal, download it."
    )
    notes = [sentence(parties_in_words(note)) for note in found.notes]
    said = " ".join([said, *notes])
    return EditResult(done, choices_of(done), done=said)


def problem_in_words(setting: EditedSpec, error: SfumatoError) -> str:
    """The message of ``error``, with the name of a control, or words, in place of the key of the spec.

    A message that does not begin with such a key stays as it is.
    """
    said = str(error)
    found = _KEY.match(said)
    if found is None:
        return said
    controls = controls_of(account_setting(setting).spec).values()
    label = next((control.label for control in controls if control.key == found[1]), key_in_words(found[1]))
    return f"{title(label)}: {said[found.end() :]}"


def choices_of(setting: EditedSpec) -> Choices:
    """What the page's controls show of ``setting`` before anything on the page is changed.

    Boxes, numbers and options are as in the setting. The unit is the one with the largest finite ε towards
    the cloud (`AccountedSetting.default_unit`); the coalition is the cloud alone, or without one the first
    observer that is no device ("" if all are).

    Raises:
        SpecError: the spec is wrong.
    """
    accounted = account_setting(setting)
    shown = not why_trust_is_fixed(accounted)
    observers = [row.observer for row in accounted.report.guarantees]
    first = next((name for name in observers if not name.startswith("device:")), "")
    return Choices(
        trusted=tuple(sorted(trusted_names(accounted))) if shown else None,
        numbers={name: control.value for name, control in controls_of(accounted.spec).items()},
        participation=participation_of(accounted.spec),
        unit=accounted.default_unit,
        coalition="cloud" if "cloud" in observers else first,
        picked={name: choice.chosen or None for name, choice in choice_controls_of(accounted.spec).items()},
    )


def _with_choices_applied(
    setting: EditedSpec, choices: Choices, slider: tuple[str, float] | None
) -> EditedSpec:
    """``setting`` with the trust, numbers, options and participation of ``choices``, and the slider's value.

    The slider's value replaces the number of its control.

    Raises:
        SpecError: a value is not allowed.
    """
    accounted = account_setting(setting)
    spec, changed = accounted.spec, setting
    controls = controls_of(spec)
    if choices.participation:
        changed = with_participation(changed, spec, choices.participation, accounted.smallest_place)
        if choices.participation != participation_of(spec):
            controls = {name: one for name, one in controls.items() if name not in ("rate", "count")}
    for name, choice in choice_controls_of(spec).items():
        words = choices.picked.get(name)
        if words and words != choice.chosen:
            if words not in choice.options:
                raise SpecError(choice.key, words, f"must be one of {', '.join(choice.options)}")
            changed = changed.with_change(choice.key, choice.options[words])
    for name, control in controls.items():
        value = choices.numbers.get(name)
        if slider is not None and slider[0] == name:
            value = control.at(slider[1])
        if value is None:
            raise SpecError(control.key, None, "is empty or no number")
        changed = with_value(changed, control, value)
    if choices.trusted is not None and set(choices.trusted) != trusted_names(accounted):
        changed = with_trusted(changed, accounted, set(choices.trusted))
    return changed


def _targets(text: str) -> dict[str, float]:
    """ε by observer, from the text that a user typed, such as ``cloud=2 own-edge=8``; {} for an empty text.

    `planning.targets` checks both.

    Raises:
        SpecError: it is not of that form, or an observer is named twice.
    """
    found: dict[str, float] = {}
    for part in text.replace(";", " ").split():
        observer, _, value = part.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not observer or observer in found or not number > 0:
            allowed = "must be OBSERVER=EPSILON, each observer once, e.g. cloud=2"
            raise SpecError(Argument("targets"), part, allowed)
        found[observer] = number
    return found
