"""``sfumato show`` for overlapping groups: workers, neighbouring groups, trust and noise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sfumato.cli.console import empty_table, with_noun
from sfumato.cli.plan_summary import (
    describe_dropouts,
    describe_radio,
    describe_section,
    describe_training,
    first_rows,
)
from sfumato.rounding import number

if TYPE_CHECKING:
    from rich.table import Table

    from sfumato.network.groups import FloatArray
    from sfumato.schedule.groups import GroupPlan

MOST_GROUPS = 40
MOST_NEIGHBOURS = 6
MOST_TRUSTED = 8


@dataclass(frozen=True)
class GroupSummary:
    """The summary of a plan over overlapping groups."""

    legend: ClassVar[str] = (
        "×z: standard deviation z times the clip norm, at each noiser; +n: workers shared with a neighbour"
    )

    plan: GroupPlan

    def rows(self) -> Iterable[tuple[str, str]]:
        """Pairs of the name and the value of each property of the plan, as texts; see `PlanSummary.rows`."""
        from sfumato.radio.channels import Channels

        plan, spec = self.plan, self.plan.spec
        groups = plan.groups
        several = int((groups.memberships > 1).sum())
        yield from first_rows(spec)
        workers = f"{with_noun(groups.workers, 'worker')} in {with_noun(groups.count, 'group')}"
        yield "network", f"{workers}; {several:,} of them in more than one"
        for first, later in plan.eras:
            several = int((later.memberships > 1).sum())
            yield f"from round {first + 1}", f"other members; {several:,} of them in more than one group"
        yield "radio", describe_radio(spec, Channels.of_groups(spec, groups))
        yield "trusted", self._trusted_text()
        yield "training", describe_training(spec)
        yield "aggregations", self._round_text()
        yield "participation", self._participation_text()
        if spec.faults is not None:
            yield "faults", self._faults_text()
        yield "clip", self._clip_text()
        yield "noise", describe_section(spec.privacy.requested_noise)
        yield "releases", self._releases_text()
        yield "privacy", f"δ = {number(spec.privacy.delta)}, neighbours {spec.privacy.neighbours}"

    def drawing(self) -> Table:
        """A table with one row a group: workers, neighbouring groups, trust, sampling, clip norm, noise.

        At most `MOST_GROUPS` groups have a row; the last row says how many more there are.
        """
        plan = self.plan
        shown = empty_table(
            "group", "workers", "neighbours", "master", "sampled", "clip", "noise",
            right=("workers", "sampled", "clip"),
        )  # fmt: skip
        for group in range(min(plan.groups.count, MOST_GROUPS)):
            shown.add_row(
                self.plan.groups.group_title(group),
                f"{int(plan.groups.sizes[group]):,}",
                self._neighbours_text(group),
                "trusted" if plan.trusted[group] else "untrusted",
                f"{plan.cohort[group]:,}" if plan.cohort else f"{float(plan.rates[group]):g}",
                number(float(plan.clips[group])) if plan.clips[group] < float("inf") else "none",
                self._noise_text(group),
            )
        if plan.groups.count > MOST_GROUPS:
            shown.add_row("…", f"{plan.groups.count - MOST_GROUPS:,} more", "", "", "", "", "")
        return shown

    def _neighbours_text(self, group: int) -> str:
        """The groups that share workers with ``group``, and how many: ``group 1 +2``; "none" without any.

        Of many only the first `MOST_NEIGHBOURS`.
        """
        row = self.plan.groups.shared[[group]].tocoo()
        found = [(int(m), int(n)) for m, n in zip(row.col, row.data, strict=True) if int(m) != group]
        listed = [f"{self.plan.groups.group_title(m)} +{n}" for m, n in sorted(found)[:MOST_NEIGHBOURS]]
        return ", ".join([*listed, "…"] if len(found) > MOST_NEIGHBOURS else listed) or "none"

    def _noise_text(self, group: int) -> str:
        """Who adds noise to the sums of ``group``, and its multiplier, as text: ``master ×1.5``; "none"."""
        multiplier, step = float(self.plan.multipliers[group]), self.plan.spec.privacy.step_noise
        if step:
            return f"each worker ×{number(step)} at every local step"
        if multiplier == 0:
            return "none"
        who = "master" if self.plan.trusted[group] else "each worker"
        return f"{who} ×{number(multiplier)}"

    def _trusted_text(self) -> str:
        """The trusted masters as text, the first `MOST_TRUSTED` of many: "every master", names, or "none"."""
        trusted = self.plan.trusted
        if trusted.all():
            return "every master"
        named = [self.plan.groups.titled(f"master:{group}") for group in trusted.nonzero()[0]]
        if len(named) > MOST_TRUSTED:
            named = [*named[:MOST_TRUSTED], f"{len(named) - MOST_TRUSTED:,} more"]
        return ", ".join(named) or "none"

    def _round_text(self) -> str:
        """A phrase on what a round consists of: local steps, and how often models are merged."""
        plan, training = self.plan, self.plan.spec.training
        steps = training.local_steps or 1
        work = (
            with_noun(steps, "local step")
            if training.local_epochs is None
            else with_noun(training.local_epochs, "local epoch")
        )
        every = "every round" if plan.merge_every == 1 else f"every {plan.merge_every} rounds"
        return f"{work}; each worker merges the models of its groups {every} (S = {plan.merge_every})"

    def _participation_text(self) -> str:
        """A phrase on how workers are sampled, and how often."""
        plan = self.plan
        span = "interval" if plan.by_interval and plan.merge_every > 1 else "round"
        if not plan.is_sampled:
            return f"every worker, in every group it is in, every {span}"
        if plan.cohort:
            drawn = _format_range(plan.denominators)
            return f"each group draws {drawn} of its workers without replacement, every {span}"
        return f"each group samples its workers with probability {_format_range(plan.rates)}, every {span}"

    def _faults_text(self) -> str:
        """A phrase on dropouts and on the fewest messages of a released sum."""
        faults, least = self.plan.spec.faults, self.plan.releases.least_survivors
        assert faults is not None
        said = list(describe_dropouts(faults))
        if any(any(row) for row in least):
            sums = _format_range(np.array(least, dtype=np.float64))
            said.append(f"a group releases sums of at least {sums} messages, or none")
        return "; ".join(said) or "none"

    def _clip_text(self) -> str:
        """A phrase on what is clipped to which norm; "none" where nothing is."""
        plan = self.plan
        if plan.spec.privacy.clip is None or not plan.clips.max() < float("inf"):
            return "none"
        each = f"each update of a round to norm {_format_range(plan.clips)}"
        if plan.by_interval and plan.merge_every > 1:
            return f"{each}; of an interval to √{plan.merge_every} times that"
        return each

    def _releases_text(self) -> str:
        """A phrase on how many releases every group makes."""
        plan = self.plan
        kind = "with noise" if plan.multipliers.any() or plan.spec.privacy.step_noise else "without noise"
        when = f" of {plan.merge_every} rounds" if plan.by_interval and plan.merge_every > 1 else ""
        interval = f"one per interval{when}" if plan.by_interval else "one per round"
        return f"{plan.release_count:,} of every group, {kind}, {interval}"


def _format_range(values: FloatArray) -> str:
    """The least and the largest of ``values`` as text, ``1 to 2``; one number where they are equal.

    There is at least one value.
    """
    low, high = float(values.min()), float(values.max())
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
