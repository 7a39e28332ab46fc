"""Over the air: how many messages a device's power limit made weaker."""

from __future__ import annotations

import math

from sfumato.report import formatting as text
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import stated_participation


def power_limit_sentences(one: Series) -> list[str]:
    """A list of sentences on the messages that would have exceeded their device's power limit.

    [] without such. PFELS sets the amplitude so that the limit holds on average over what compression keeps
    (docs/errata.md, P7).
    """
    exceeding = one.total("power_violations").value
    if math.isnan(exceeding) or exceeding == 0:
        return []
    many = f"{text.whole(round(exceeding))}{_of_all(one)}"
    said = f"To keep within the power limit of their device, {many} messages were sent with less power."
    if one.first.spec_dict["protocol"] != "pfels":
        return [said]
    return [said, "The paper's rule for the amplitude keeps the limit on average only (P7)."]


def _of_all(one: Series) -> str:
    """The text " of N", N being the messages of all rounds; "" where channels or draws decide how many."""
    spec = one.first.spec_dict
    part = stated_participation(spec["training"])
    silent = (spec.get("air") or {}).get("min_gain")
    if part["kind"] != "fixed" or not isinstance(part["count"], int) or silent:
        return ""
    return f" of {text.whole(part['count'] * one.rounds_played)}"
