"""What a report says of DP-OGL+ alone: its verdict, and rounds whose models are not released."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.accounting import account
from sfumato.claims.dp_ogl_counts import DP_OGL_PLUS, DP_OGL_PLUS_REASON, DP_OGL_PLUS_VERDICT
from sfumato.errors import SfumatoError
from sfumato.report.formatting import epsilon, number, sentence
from sfumato.report.results.series import Series
from sfumato.run_folder.reader import SPEC_FILE, RunFolder
from sfumato.spec.load import load_spec


def protocol_warnings(spec: Mapping[str, Any]) -> list[str]:
    """A list; for DP-OGL+ with one text: whom it protects from whom, and which protocol to use instead.

    [] for other protocols, and if every round releases. ``spec``: resolved.
    """
    return [DP_OGL_PLUS] if _interval(spec) > 1 else []


def lead_of_run(run: RunFolder) -> list[str]:
    """A list; for a run of DP-OGL+ with a verdict on its protection and the ε of the sound protocol.

    That is dp-ogl-local with the run's settings. [] where `protocol_warnings` has nothing.
    """
    if not protocol_warnings(run.spec_dict):
        return []
    return [f"{DP_OGL_PLUS_VERDICT}{_epsilon_of_sound_protocol(run)}. {sentence(DP_OGL_PLUS_REASON)}"]


def _epsilon_of_sound_protocol(run: RunFolder) -> str:
    """A clause, after a comma, on the ε of dp-ogl-local with the settings of a run, from an account of it.

    "" where the spec is not one of that protocol.
    """
    try:
        found = account(load_spec(run.path / SPEC_FILE, ["protocol=dp-ogl-local"]))
    except SfumatoError:
        return ""
    rows = [row for row in found.guarantees if row.relation.kind in ("peer", "other-device")]
    if not rows or (worst := max(row.epsilon for row in rows)) == math.inf:
        return ""
    return (
        f", with ε of at most {epsilon(worst)} (δ = {number(found.delta)}) towards every other worker in "
        "this run's settings"
    )


def rounds_to_a_release(one: Series) -> int:
    """Number of rounds from one noised release of the models to the next.

    It is ``merge_every`` in DP-OGL+ with noise, whose groups train without noise in between; else 1.
    """
    every = _interval(one.first.spec_dict)
    return every if every > 1 and one.network.has_noise else 1


def note_between_releases(series: Sequence[Series]) -> str:
    """A sentence, after a space, on rounds whose models have no noise and are not released; else "".

    ``series``: at least one.
    """
    every = max(rounds_to_a_release(one) for one in series)
    if every == 1:
        return ""
    return (
        f" DP-OGL+ adds noise every {every} rounds, when models are released. In between the models have no "
        "noise, and are sent to their own group only."
    )


def _interval(spec: Mapping[str, Any]) -> int:
    """The rounds from one release of a group to the next in DP-OGL+; 1 for other protocols."""
    return int(spec["training"].get("merge_every") or 1) if spec["protocol"] == "dp-ogl+" else 1
