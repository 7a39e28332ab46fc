"""An observer's observations of one worker in groups: a model before its work, and a model after it.

In every seen group of the worker the finest vector that holds its message is used: the message itself,
otherwise the sum, otherwise what the group's model moved by. The worker started from the model of the group,
in a merging step from the mean of its groups' models; of groups that are not seen the observer knows nothing,
and takes the mean of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.attacks.observations import Observation, spread_evenly
from sfumato.attacks.views import RecordedView, RoundVectors, require_known_training
from sfumato.errors import SpecError
from sfumato.privacy.observers import Party
from sfumato.run_folder.reader import SPEC_FILE, RunFolder
from sfumato.schedule.group_participation import draw_assignments, group_turnout, without_lost
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.resolve.groups import resolve_groups
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec
from sfumato.spec.training import Server

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class AttackedGroups:
    """A run over groups; see `AttackedRun`.

    Attributes:
        plan: of the run.
    """

    plan: GroupPlan

    def spec_of(self, number: int) -> Spec:
        """The spec of the messages of round ``number``.

        If a message covers an interval of rounds, its clip norm is √(rounds of an interval) times as large.
        """
        spec, clip = self.plan.spec, self.plan.spec.privacy.clip
        if clip is None or not self.plan.by_interval:
            return spec
        longer = clip.model_copy(update={"norm": clip.norm * math.sqrt(self.plan.merge_every)})
        return spec.model_copy(update={"privacy": spec.privacy.model_copy(update={"clip": longer})})

    def nearby_devices(self, coalition: Sequence[Party]) -> BoolArray:
        """Mask ``[workers]`` of all members of the groups whose averages ``coalition`` receives."""
        found = np.zeros(self.plan.groups.workers, dtype=np.bool_)
        for group in self._seen_groups(coalition):
            found[self.plan.groups.members_of(group)] = True
        return found

    def observations(
        self,
        view: RecordedView,
        initial: Tensor,
        units: Sequence[int],
        coalition: Sequence[Party],
        *,
        rounds: int,
    ) -> dict[int, tuple[Observation, ...]]:
        """What ``coalition`` observed of each of ``units``, by number of the worker, in order of time.

        Args:
            view: the recorded view.
            initial: the model that training started from ``[M]``; it is public.
            units: workers, without members of the coalition.
            coalition: the colluding observers.
            rounds: the most rounds for each worker and group, evenly over those in which it took part; over
                all where the coalition does not see the group's draws.
        """
        plan, seen = self.plan, self._seen_groups(coalition)
        there = {n: self._senders_of_round(n) for n in view.rounds if plan.releases_after(n)}
        told = {g for g in seen if Party("node", 1, g) in coalition or self._is_in_secure_sum(g, coalition)}
        wanted = {
            (unit, group): spread_evenly(
                [n for n, of_round in there.items() if group not in told or (unit, group) in of_round], rounds
            )
            for unit in units
            for group in plan.groups.groups_of(unit).tolist()
            if group in seen
        }
        models = dict.fromkeys(seen, initial)
        found: dict[int, list[Observation]] = {unit: [] for unit in units}
        for number in view.rounds:
            vectors = view.vectors(number)
            for (unit, group), numbers in wanted.items():
                if number in numbers:
                    found[unit] += self._observation_in_group(vectors, models, number, unit, group)
            for group in seen:
                models[group] = vectors.get((0, "broadcast", 1, group), models[group])
        return {unit: tuple(observations) for unit, observations in found.items()}

    def _observation_in_group(
        self, vectors: RoundVectors, models: dict[int, Tensor], number: int, unit: int, group: int
    ) -> Iterator[Observation]:
        """Yield what is seen of a unit's message to ``group``, if anything, in a round with a release.

        Args:
            vectors: what was recorded in the round.
            models: of each group at the beginning, as far as known.
            number: of the round.
            unit: number of the worker.
            group: to which it sends.
        """
        plan, start = self.plan, models[group]
        if plan.by_interval or number % plan.merge_every == 0:
            own = [models[g] for g in plan.groups.groups_of(unit).tolist() if g in models]
            start = torch.stack(own).mean(dim=0)
        denominator = float(plan.denominators[group])
        single = vectors.get((group, "sent", 2, unit))
        summed = vectors.get((0, "received", 1, group))
        model = vectors.get((0, "broadcast", 1, group))
        own_noise = 0.0 if plan.trusted[group] else float(plan.noise_std(number)[group])
        if single is not None:
            moved, share, others, std = single, 1.0, 0.0, own_noise
        elif summed is not None:
            moved, share, others = summed / denominator, 1 / denominator, denominator - 1
            std = own_noise * math.sqrt(denominator) / denominator
        elif model is not None:
            moved, share, others = model - models[group], 1 / denominator, denominator - 1
            std = float(plan.model_noise_std(number)[group])
        else:
            return
        began = plan.interval_start(number) if plan.by_interval else number
        steps = (plan.spec.training.local_steps or 1) * (plan.merge_every if plan.by_interval else 1)
        yield Observation(unit, began, 0, steps, start, start + moved, share, max(0.0, others), std)

    def _senders_of_round(self, number: int) -> set[tuple[int, int]]:
        """Pairs (worker, group) of the messages in the sums of round ``number``, one with a release."""
        plan = self.plan
        seats = draw_assignments(plan, plan.interval_start(number) if plan.by_interval else number)
        kept = without_lost(seats, group_turnout(plan, number))
        return set(zip(kept.workers.tolist(), kept.groups.tolist(), strict=True))

    def _seen_groups(self, coalition: Sequence[Party]) -> tuple[int, ...]:
        """The groups whose averages ``coalition`` receives, ascending."""
        view = self.plan.releases.view(coalition, 1)
        return tuple(sorted(group for _, group in view.averages))

    def _is_in_secure_sum(self, group: int, coalition: Sequence[Party]) -> bool:
        """Whether a device of ``coalition`` is a party of the group's secure sums, who know each other."""
        inside = self.plan.groups.members_of(group)
        masked = self.plan.releases.transport != "plain"
        return masked and any(party.kind == "device" and party.index in inside for party in coalition)


def load_attacked_groups(run: RunFolder) -> AttackedGroups:
    """The plan of a run over groups, resolved from its spec, as attacks use it.

    Raises:
        SpecError: attacks do not support the protocol, groups that change, compression, a server optimizer or
            intervals without ``local_steps``.
    """
    plan = resolve_groups(load_spec(run.path / SPEC_FILE))
    spec = require_known_training(plan.spec)
    if not plan.noises_every_update:
        allowed = "must be dp-ogl or dp-ogl-local to attack a run over groups"
        raise SpecError("protocol", spec.protocol, allowed)
    if plan.eras:
        raise SpecError("topology.eras", None, "must be left out to attack a run over groups")
    if spec.compression is not None:
        raise SpecError("compression", None, "must be left out to attack a run over groups")
    if spec.training.server != Server():
        allowed = "must be plain averaging to attack a run over groups"
        raise SpecError("training.server", None, allowed)
    if plan.by_interval and plan.merge_every > 1 and spec.training.local_steps is None:
        allowed = "must be stated to attack intervals of several rounds"
        raise SpecError("training.local_steps", None, allowed)
    return AttackedGroups(plan)
