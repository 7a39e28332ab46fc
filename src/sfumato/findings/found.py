"""What is worth a warning about a spec or a run: all findings before it, and all after it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.families import GROUPS, family_of
from sfumato.findings.guessing import classes_of, warn_of_chance_accuracy, warn_of_one_label_accuracy
from sfumato.findings.large_epsilons import warn_of_large_epsilon
from sfumato.findings.tables import (
    feature_columns_of,
    warn_of_columns_of_ids,
    warn_of_forgotten_persons,
    warn_of_sites_without_rows,
    warn_of_unscaled_columns,
)
from sfumato.findings.training import (
    warn_of_empty_sums,
    warn_of_idle_clip,
    warn_of_odd_learning_rate,
    warn_of_odd_radio_power,
)
from sfumato.findings.units import protected_units, warn_of_large_delta, warn_of_whole_batches
from sfumato.findings.without_effect import warn_of_idle_moves, warn_of_kinds_nobody_is, warn_of_late_changes
from sfumato.privacy.guarantee import Guarantee
from sfumato.schedule.base import Plan
from sfumato.spec.topology import TreeTopology


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
        "watch": warn_of_kinds_nobody_is(plan),
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


def _findings(found: dict[str, str | None]) -> tuple[Finding, ...]:
    """A finding for each kind in ``found`` whose text is not ``None``."""
    return tuple(Finding(kind, text) for kind, text in found.items() if text is not None)
