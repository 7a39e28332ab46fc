"""The rounds that adaptive control played: a finished run's schedule, fixed after the fact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sfumato.errors import RunError
from sfumato.run_folder.lock import ways_to_continue
from sfumato.run_folder.reader import LEDGER_FILE, read_ledger
from sfumato.schedule.control.adaptive import RoundSettings, round_plan
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan


def with_realised_rounds(plan: TreePlan, settings: Sequence[RoundSettings]) -> TreePlan:
    """``plan`` with one era for each round that control chose, with the participants that the run drew.

    The releases of ``plan`` stay: they are what the run may spend. Participants are fixed, not drawn again,
    as another draw could let a device take part more often than its budget allows.

    Args:
        plan: of the run, with control.
        settings: of every round, in order.
    """
    rounds = []
    for number, setting in enumerate(settings):
        played = round_plan(plan, setting, number)
        drawn = draw_participants(played, number)
        fixed = replace(played.participants, kind="all", rate=1.0, cohort=drawn)
        rounds.append((number, replace(played, participants=fixed)))
    return replace(plan, eras=tuple(rounds))


def settings_of_run(folder: Path) -> tuple[RoundSettings, ...]:
    """Read the settings of every round, in order, of the finished run with control in ``folder``.

    Raises:
        RunError: the run is not finished, or its ledger is damaged.
    """
    path, realised = folder / LEDGER_FILE, read_ledger(folder).get("realised")
    if realised is None:
        raise RunError(
            f"{path}: has no settings of rounds yet: with control they are written when the run is finished; "
            f"{ways_to_continue(folder)}"
        )
    try:
        return tuple(_settings_of_round(kept) for kept in realised["settings"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path}: realised.settings: cannot be read: {error!r}") from None


def _settings_of_round(kept: Mapping[str, Any]) -> RoundSettings:
    """Read the settings of one round from ``kept``, its JSON object in the ledger.

    Raises:
        KeyError, TypeError, ValueError: the object is damaged.
    """
    trusted, untrusted = (
        tuple(map(int, n)) if isinstance(n, list) else int(n) for n in (kept["trusted"], kept["untrusted"])
    )
    return RoundSettings(int(kept["steps"]), trusted, untrusted, float(kept["rate"]), float(kept["noise"]))
