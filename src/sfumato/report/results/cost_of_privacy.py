"""What privacy costs in accuracy: a run beside one without noise that is otherwise the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from sfumato.errors import SfumatoError
from sfumato.report.formatting import number, title
from sfumato.report.results.comparability import sends_over_the_air
from sfumato.report.results.series import Series, load_series
from sfumato.run_folder.beside import baseline_folder
from sfumato.run_folder.headline import ACCURACY, headline_of
from sfumato.run_folder.manifest import MANIFEST_FILE
from sfumato.run_folder.reader import SPEC_FILE
from sfumato.spec.used_keys import WITHOUT_NOISE
from sfumato.spec.without_noise import settings_without_noise

_MOST_FOLDERS = 50  # the most recent ones
_SAME = ("data", "model", "topology", "training", "compression", "faults")


def cost_of_privacy(series: Sequence[Series]) -> list[str]:
    """Sentences on how much accuracy a run with noise loses to one without that is otherwise the same.

    [] where no such two runs are among ``series``.
    """
    silent = [one for one in series if not has_noise(one)]
    said = []
    for one in series:
        score = headline_of(one.first.metrics)
        reached = one.final(score.column).value
        beside = [other for other in silent if _differ_in_privacy_only(one, other)] if has_noise(one) else []
        alike = [other for other in beside if headline_of(other.first.metrics) == score]
        finals = [(other.final(score.column).value, other) for other in alike]
        measured = [(value, other) for value, other in finals if not math.isnan(value)]
        if math.isnan(reached) or not measured:
            continue
        sign = 1 if score.higher_is_better else -1
        best, other = max(measured, key=lambda pair: sign * pair[0])
        lost = sign * (best - reached)
        on_air = sends_over_the_air(one.first.spec_dict)
        what = "noise, the receiver's included," if on_air else "privacy"
        amount = (
            f"{100 * lost:.1f} points of accuracy" if score is ACCURACY else f"{number(lost)} of {score.name}"
        )
        cost = f"{title(what)} costs {amount}"
        seen = lost >= 0.0005 if score is ACCURACY else lost > 0
        cost = cost if seen else f"No cost of {what} is seen"
        seeds = " (one seed each)" if len(one.runs) == len(other.runs) == 1 else ""
        said.append(
            f"{cost}: {one.name} ends at {score.text(reached)}, and {other.name}, which has no noise, at "
            f"{score.text(best)}{seeds}."
        )
    return said


def adds_noise(one: Series) -> bool:
    """Whether any party adds noise in the runs of a series."""
    spec = one.first.spec_dict
    noise = spec.get("privacy", {}).get("noise") or {}
    kind = noise.get("kind") if isinstance(noise, Mapping) else noise
    return spec["protocol"] not in WITHOUT_NOISE and kind not in (None, "none")


def has_noise(one: Series) -> bool:
    """Whether averages contain any noise: that of parties, or of the receiver over the air."""
    return adds_noise(one) or sends_over_the_air(one.first.spec_dict)


def _differ_in_privacy_only(one: Series, other: Series) -> bool:
    """Whether two runs, of equally many rounds, have specs that agree in all that accuracy depends on but
    privacy.
    """
    if one.rounds_played != other.rounds_played:
        return False
    return all(
        _sections_agree(one.first.spec_dict.get(name), other.first.spec_dict.get(name)) for name in _SAME
    )


def _sections_agree(one: Any, other: Any) -> bool:
    """Whether two sections have equal values at all keys that both have: earlier versions had fewer."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(_sections_agree(one[key], other[key]) for key in one.keys() & other.keys())
    return bool(one == other)


def cost_of_privacy_or_commands(one: Series) -> tuple[list[str], str]:
    """What privacy costs in accuracy, by a run in a folder beside this one; else how to find out.

    Returns:
        Sentences, and the commands to find out, in the folder that holds the run; empty where it is known.
    """
    if not has_noise(one):
        return [], ""
    for folder in _folders_beside(one):
        try:
            (other,) = load_series([folder])
        except (SfumatoError, OSError, ValueError):
            continue  # damaged, or being written
        if all(run.finished for run in other.runs):
            named = replace(other, name=f"the run in the folder {folder.name} beside it")
            if said := cost_of_privacy([one, named]):
                return said[:1], ""
    folder = one.folder.resolve()
    spec = one.first.path.resolve().relative_to(folder.parent) / SPEC_FILE
    settings = " ".join(f"--set {setting}" for setting in settings_without_noise(one.first.spec_dict))
    command = (
        f"sfumato run {quote(spec.as_posix())} {settings} "
        f"--out {quote(baseline_folder(folder).name)}\nsfumato report {quote(folder.name)}"
    )
    unknown = (
        "What privacy costs in accuracy is not known: there is no such run without noise beside this one."
    )
    if sends_over_the_air(one.first.spec_dict):
        unknown += " Over the air the receiver's noise stays, so that run sends its messages one by one."
    how = "These commands, in the folder that holds the run, train it and write this report again:"
    return [f"{unknown} {how}"], command


def _folders_beside(one: Series) -> Iterator[Path]:
    """Folders beside that of ``one`` that hold a run, or seeds of one, the most recent first."""
    own = one.folder.resolve()
    seeds = {path.parent.parent for path in own.parent.glob(f"*/seed-*/{MANIFEST_FILE}")}
    folders = {path.parent for path in own.parent.glob(f"*/{MANIFEST_FILE}")} | seeds
    recent = sorted(folders - {own}, key=lambda folder: folder.stat().st_mtime_ns, reverse=True)
    yield from recent[:_MOST_FOLDERS]
