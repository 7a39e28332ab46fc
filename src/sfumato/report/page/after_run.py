"""ε after the run: what followed from who took part, and the noise that was drawn, beside the guarantees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.report import formatting as text
from sfumato.run_folder.reader import as_epsilon


def after_the_run(privacy: Mapping[str, Any]) -> str:
    """A folded table of the pairs whose ε after the run differs from the guarantee; empty where none does."""
    rows = []
    for row in privacy["guarantees"]:
        if "ex_post" not in row:
            continue
        before, after = as_epsilon(row["epsilon"]), as_epsilon(row["ex_post"]["epsilon"])
        if text.epsilon(before) != text.epsilon(after):
            shown = (text.epsilon(before), text.epsilon(after), row["ex_post"]["participations"])
            rows.append((row["unit"], row["observer"], *shown))
    if not rows:
        return ""
    table = text.table(
        ["devices like", "observer", "guaranteed ε", "ε after the run", "rounds took part"],
        rows,
        caption=f"Pairs whose ε after the run differs from the guarantee{text.at_delta(privacy)}",
        numeric=(2, 3, 4),
    )
    words = (
        "The guarantee is made before the run, when nobody knows who will be drawn or elected. After the run "
        "it is known, and a draw hides nothing any more: ε is larger for devices that took part, or whose "
        "peers were elected, more often than expected, and smaller for the others. These figures apply to "
        "this run only."
    )
    return (
        "<details><summary>ε after the run, where it differs from the guarantee</summary>"
        f"<p>{text.escape(words)}</p>{table}</details>"
    )
