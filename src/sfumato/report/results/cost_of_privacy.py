"""What privacy costs in accuracy: a run beside one without noise that is otherwise the same."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import numpy as np

from sfumato.report.formatting import (
    how_many,
    join_names,
    number,
    percents_apart,
    points_between,
    title,
    whole,
)
from sfumato.report.results.chance import MAY_BE_CHANCE, note_on_chance, tested_examples
from sfumato.report.results.dp_ogl_plus import rounds_to_a_release
from sfumato.report.results.folders_beside import finished_run_in, folders_in, spec_beside
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import clip_of, has_noise, sends_over_the_air
from sfumato.run_folder.beside import baseline_folder
from sfumato.run_folder.headline import ACCURACY, Headline, headline_of
from sfumato.spec.without_noise import settings_without_noise, trains_alike_but_for_noise

OVER = 10  # values in a running mean
_MANY, _JUMP = 50, 0.02  # values from which it is taken; mean step between two from which it is drawn
_PERSONAL = Headline("personal_accuracy", "accuracy on data like the workers' own %", 100.0)
_MOST_LOOKED_FOR = 4  # runs of a report, for each of which folders beside it are read


def costs_of_noise(series: Sequence[Series]) -> list[CostOfNoise]:
    """What each run with noise loses in its score to one of the same spec but for noise, in their order.

    Of several such runs without noise it is the one to which most is lost. Empty where no such two runs are
    among ``series``.
    """
    silent = [one for one in series if not has_noise(one.first.spec_dict)]
    found = []
    for one in (one for one in series if has_noise(one.first.spec_dict)):
        score = headline_of(one.first.metrics)
        beside = [other for other in silent if _differ_in_noise_only(one, other)]
        alike = [other for other in beside if headline_of(other.first.metrics) == score]
        pairs = [pair for other in alike if (pair := CostOfNoise.of(one, other, score)) is not None]
        if pairs:
            found.append(min(pairs, key=lambda pair: pair.gain))
    return found


def costs_by_runs_beside(series: Sequence[Series]) -> list[CostOfNoise]:
    """`costs_of_noise`, each by a run without noise among ``series`` or else by one in a folder beside it.

    In the order of ``series``; runs of which it is not known are left out.
    """
    costs = {cost.one.name: cost for cost in costs_of_noise(series)}
    lacking = [one for one in series if one.name not in costs]
    costs |= {cost.one.name: cost for cost in costs_of_noise([*lacking, *twins_beside(lacking)])}
    return [costs[one.name] for one in series if one.name in costs]


class CostOfNoise(NamedTuple):
    """A run beside one of the same spec without noise.

    Attributes:
        one: the run with noise.
        other: the run without.
        score: by which they are compared.
        over: number of the last values whose means are compared: more than one where there are many.
        reached: the mean of ``one``.
        best: the mean of ``other``.
    """

    one: Series
    other: Series
    score: Headline
    over: int
    reached: float
    best: float

    @classmethod
    def of(cls, one: Series, other: Series, score: Headline) -> CostOfNoise | None:
        """The pair; ``None`` where either has no measured value. Whether the specs fit is not checked."""
        over = max(values_in_mean(each, score.column) for each in (one, other))
        reached, best = (mean_in_the_end(each, score.column, over) for each in (one, other))
        measured = not (math.isnan(reached) or math.isnan(best))
        return cls(one, other, score, over, reached, best) if measured else None

    @property
    def gain(self) -> float:
        """By how much ``one`` is better than ``other``, as a share or in the unit of the score.

        Negative where the noise costs something.
        """
        return (self.reached - self.best) * (1 if self.score.higher_is_better else -1)

    @property
    def amount(self) -> str:
        """The loss, ``0.8 points`` of accuracy or ``0.05`` of another score; "" where none is seen."""
        if self.score is not ACCURACY:
            return number(-self.gain) if self.gain < 0 else ""
        lost = points_between(self.best, self.reached)
        return f"{lost:.1f} points" if lost > 0 else ""

    @property
    def note_on_chance(self) -> str:
        """`chance.note_on_chance` of the two runs."""
        return note_on_chance([self.one, self.other], self.score, [self.reached, self.best])

    @property
    def sentence(self) -> str:
        """Sentences on what the noise costs, with both scores, chance, and what clipping costs."""
        score, what = self.score, _what_costs([self])
        lost = f"{self.amount} of {score.name}{self._in_examples()}"
        cost = f"{title(what)} costs {lost}" if self.amount else f"No cost of {what} is seen"
        many = f" on average over the last {self.over} evaluations" if self.over > 1 else ""
        note = f" ({self.note_on_chance})" if self.note_on_chance else ""
        reached, best = score.text(self.reached), score.text(self.best)
        if score is ACCURACY:
            reached, best = percents_apart(self.reached, self.best)
        return (
            f"{cost}: {self.one.name} ends at {reached}{many}, and "
            f"{self.other.name}, which has no noise, at {best}{note}."
            f"{self._in_the_last()}{_clipping_left_out([self])}"
        )

    def _in_examples(self) -> str:
        """The loss in test examples, after a space: `` (13 of 1,000 test examples)``; else "".

        Only where both accuracies are of one model on the same examples. Of a mean over workers' models it
        says that it is one.
        """
        family = self.one.network.family
        if self.score is ACCURACY and family is not None and family.devices_observe:
            return " in the mean over the workers' models"
        count = tested_examples(self.one, self.score)
        if not count or self.over > 1 or not len(self.one.runs) == len(self.other.runs) == 1:
            return ""
        return f" ({whole(round(-self.gain * count))} of {how_many(count, 'test example')})"

    def _in_the_last(self) -> str:
        """A sentence, after a space, on the last round alone, where means of several rounds are compared.

        "" where they are not, or are written as the last round's.
        """
        if self.over == 1:
            return ""
        ends = [self.score.text(each.final(self.score.column).value) for each in (self.one, self.other)]
        if ends == [self.score.text(self.reached), self.score.text(self.best)]:
            return ""
        return f" In the last round alone they have {ends[0]} and {ends[1]}."


def several_costs_in_words(costs: Sequence[CostOfNoise]) -> list[str]:
    """What the noise costs several runs, as one paragraph where they are judged by one score; [] for none."""
    if len(costs) < 2 or len({each.score for each in costs}) > 1:
        return [each.sentence for each in costs]
    score = costs[0].score
    told = [
        f"{each.amount or 'none seen'} in {each.one.name}"
        f"{' (may be chance)' if each.note_on_chance.endswith(MAY_BE_CHANCE) else ''}"
        for each in costs
    ]
    others = dict.fromkeys(f"{each.other.name} ({score.text(each.best)})" for each in costs)
    named = f"{join_names(list(others), len(others))}, which {'has' if len(others) == 1 else 'have'} no noise"
    over = max(each.over for each in costs)
    many = f" Compared are means of the last {over} evaluations." if over > 1 else ""
    return [
        f"What {_what_costs(costs)} costs in {score.name}: {join_names(told, len(told))}, compared with "
        f"{named}.{many}{_clipping_left_out(costs)}"
    ]


def _what_costs(costs: Sequence[CostOfNoise]) -> str:
    """What runs without noise lack, as words: "the noise", over the air also that of the receiver."""
    air = any(sends_over_the_air(each.one.first.spec_dict) for each in costs)
    return "noise, the receiver's included," if air else "the noise"


def _clipping_left_out(costs: Sequence[CostOfNoise]) -> str:
    """A sentence, after a space, that what clipping costs is in none of ``costs``; "" where no run clips.

    Where no run was ever clipped it says that clipping costs nothing.
    """
    if not any(clip_of(each.one.first.spec_dict) for each in costs):
        return ""
    if all(_was_never_clipped(run) for each in costs for run in (each.one, each.other)):
        several = "either run" if len(costs) == 1 else "any of these runs"
        return f" The clip never acted in {several}, so clipping costs nothing here."
    if len(costs) == 1:
        return " Both runs clip, so what clipping costs is not in this figure."
    return " All these runs clip, so what clipping costs is not in these figures."


def _was_never_clipped(one: Series) -> bool:
    """Whether in no measured round of ``one`` the clip acted; False where none is measured."""
    shares = [run.metrics["clip_fraction"].dropna() for run in one.runs if "clip_fraction" in run.metrics]
    return any(len(each) for each in shares) and all((each == 0).all() for each in shares)


def values_in_mean(one: Series, column: str) -> int:
    """How many last values of ``column`` to average: `OVER` for an accuracy of at least 50 values; else 1.

    One value alone may be chance. Models that are not released between two rounds are no values of the same
    kind: 1 there.
    """
    if column != ACCURACY.column or rounds_to_a_release(one) != 1:
        return 1
    return OVER if len(one.curve(column).mean) >= _MANY else 1


def values_drawn_as_mean(one: Series, column: str) -> int:
    """`values_in_mean` where the column varies by more than two points from value to value; else 1."""
    over = values_in_mean(one, column)
    return over if over > 1 and float(np.abs(np.diff(one.curve(column).mean)).mean()) > _JUMP else 1


def mean_in_the_end(one: Series, column: str, over: int) -> float:
    """The mean of the last ``over`` measured values of a metrics column, over seeds too; NaN without any."""
    if over == 1:
        return one.final(column).value
    values = one.curve(column).mean[-over:]
    return float(values.mean()) if len(values) else math.nan


def _differ_in_noise_only(one: Series, other: Series) -> bool:
    """Whether two runs are of as many rounds, and of specs that are the same but for noise."""
    if one.rounds_played != other.rounds_played:
        return False
    return trains_alike_but_for_noise(one.first.spec_dict, other.first.spec_dict)


def twins_beside(series: Sequence[Series]) -> list[Series]:
    """A list: for each run in ``series`` with noise, its most recent finished twin in a folder beside it.

    A twin has a spec that differs only in having no noise; its name says in which folder it is. Runs without
    noise have none. Of more than `_MOST_LOOKED_FOR` runs none is looked for, as each may read many folders;
    what lies in one folder is read once.
    """
    if len(series) > _MOST_LOOKED_FOR:
        return []
    places: dict[Path, list[Series]] = {}
    for one in series:
        places.setdefault(one.folder.resolve().parent, []).append(one)
    own = {one.folder.resolve() for one in series}
    return [
        twin for place, ones in places.items() for twin in _twins_in(place, ones, own) if twin is not None
    ]


def twin_in(place: Path, one: Series) -> Series | None:
    """The most recent finished run in a folder of ``place`` whose spec is that of ``one`` but for noise.

    ``None`` where there is none, or ``one`` has no noise.
    """
    return _twins_in(place, [one], {one.folder.resolve()})[0]


def _twins_in(place: Path, series: Sequence[Series], own: Collection[Path]) -> list[Series | None]:
    """`twin_in` of each run; folders are read until all that have noise have one, those ``own`` never.

    Of several twins one that ``run --baseline`` trained for one of the runs comes first.
    """
    found: list[Series | None] = [None] * len(series)
    wanted = [number for number, one in enumerate(series) if has_noise(one.first.spec_dict)]
    baselines = {baseline_folder(one.folder.resolve()) for one in series}
    for folder in sorted(
        folders_in(place, own) if wanted else (), key=lambda folder: folder.resolve() not in baselines
    ):
        twin = _finished_twin(folder, [series[number] for number in wanted])
        if twin is not None:
            fitting = [number for number in wanted if costs_of_noise([series[number], twin])]
            found = [twin if number in fitting else one for number, one in enumerate(found)]
            wanted = [number for number in wanted if number not in fitting]
        if not wanted:
            break
    return found


def _finished_twin(folder: Path, series: Sequence[Series]) -> Series | None:
    """The run in a folder, if it is finished, has no noise, and a spec that trains as one of ``series``."""

    def trains_alike(spec: Mapping[str, Any]) -> bool:
        """Whether ``spec`` trains as one of the runs, but for noise."""
        return any(trains_alike_but_for_noise(one.first.spec_dict, spec) for one in series)

    one = finished_run_in(folder, trains_alike)
    return None if one is None or has_noise(one.first.spec_dict) else one


def cost_of_privacy_or_commands(one: Series, twin: Series | None) -> tuple[list[str], str]:
    """Sentences on what privacy costs in accuracy, by a run without noise; else commands that train that run.

    Args:
        one: the run.
        twin: the run without noise beside it; ``None`` if there is none.

    Returns:
        Sentences, and shell commands for the folder that holds the run; "" where the cost is known. Both are
        empty for a run without noise or with adaptive control.
    """
    if twin is not None:
        return [each.sentence for each in costs_of_noise([one, twin])], ""
    if not can_have_twin(one):
        return [], ""
    command = f"{command_without_noise(one, one.folder)}\nsfumato report {quote(one.folder.resolve().name)}"
    unknown = (
        "What the noise costs in accuracy is not known: there is no such run without noise beside this one."
    )
    if sends_over_the_air(one.first.spec_dict):
        unknown += " Over the air the receiver's noise stays, so that run sends its messages one by one."
    return [unknown], command


def can_have_twin(one: Series) -> bool:
    """Whether a run of the same spec but for noise can be; under control what is drawn depends on noise."""
    spec_dict = one.first.spec_dict
    return has_noise(spec_dict) and not spec_dict.get("control")


def command_without_noise(one: Series, folder: Path) -> str:
    """The shell command, for the folder that holds ``folder``, that trains the spec of a run without noise.

    ``folder``: of the run, or of the sweep that it is a point of; what is trained stands beside it.
    """
    settings = " ".join(f"--set {setting}" for setting in settings_without_noise(one.first.spec_dict))
    out = quote(baseline_folder(folder.resolve()).name)
    return f"sfumato run {spec_beside(one, folder)} {settings} --out {out}"


def scores_without_noise(scores: Sequence[Headline], twin: Series | None) -> list[str]:
    """A list with a sentence on the last ``scores`` of the run without noise, personalised models included.

    [] without such a run (``twin`` is ``None``), or where it has none of these.
    """
    if twin is None:
        return []
    told = [one for one in [*scores, _PERSONAL] if one.column in twin.first.metrics]
    said = [f"{one.name} {one.text(twin.final(one.column).value)}" for one in told]
    return [f"Without noise: {join_names(said, len(said))} after the last round."] if said else []
