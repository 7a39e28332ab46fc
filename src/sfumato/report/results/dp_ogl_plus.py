"""What a report says of DP-OGL+ alone: its verdict, and rounds whose models are not released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.claims.dp_ogl_counts import DP_OGL_PLUS
from sfumato.report.results.network import read_network
from sfumato.report.results.series import Series
from sfumato.run_folder.reader import RunFolder


def protocol_warnings(spec: Mapping[str, Any]) -> list[str]:
    """For DP-OGL+ one text: whom it protects from whom, and which protocol to use instead; else [].

    ``spec``: resolved.
    """
    return [DP_OGL_PLUS] if _interval(spec) > 1 else []


def rounds_to_a_release(run: RunFolder) -> int:
    """Every how many rounds models get noise; above 1 for DP-OGL+ only, whose groups train without in
    between.
    """
    every = _interval(run.spec_dict)
    return every if every > 1 and read_network(run.spec_dict).has_noise else 1


def note_between_releases(series: Sequence[Series]) -> str:
    """A sentence, after a space, on rounds whose models have no noise and are not released; "" without."""
    every = max(rounds_to_a_release(one.first) for one in series)
    if every == 1:
        return ""
    return (
        f" DP-OGL+ adds noise every {every} rounds, when models are released. In between models have none "
        "and are sent to the own group only."
    )


def _interval(spec: Mapping[str, Any]) -> int:
    """The rounds from one release of a group to the next in DP-OGL+; 1 for other protocols."""
    return int(spec["training"].get("merge_every") or 1) if spec["protocol"] == "dp-ogl+" else 1
