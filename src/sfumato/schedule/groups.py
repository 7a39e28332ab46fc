"""The grouped protocol's plan: everything that ``account`` judges and ``run`` plays, without training.

DP-OGL, DP-OGL+, dp-ogl-local and MS-FedAvg (docs/leakage.md). An *epoch* of the paper is a round here;
rounds are numbered from 0, so epoch t is round t - 1. ``merge_every`` (S) rounds are an *interval*: in its
first round workers start from the mean of their groups' models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfumato.network.groups import BoolArray, FloatArray, Groups, union_of
from sfumato.privacy.groups.facts import GroupedKind
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.vector_clocks import GroupStructure
from sfumato.privacy.observers import Party
from sfumato.schedule.batches import batch_facts
from sfumato.schedule.local_steps import learning_rate, momentum_gain
from sfumato.schedule.noise.placement import noise_law_of
from sfumato.schedule.participation import colluders_that_unmask, guaranteed_survivors_of
from sfumato.spec.document import Spec

HOP = "devices_to_master"
IntArray = npt.NDArray[np.int64]
BY_INTERVAL = ("dp-ogl+", "dp-ogl-local")


@dataclass(frozen=True, eq=False)
class GroupPlan:
    """A resolved grouped protocol. All of it is public.

    Attributes:
        spec: as resolved: every random choice made, every source's noise written out.
        groups: who is in which group; of plans with ``eras`` at first.
        kind: of the protocol.
        rounds: T, epochs of training.
        merge_every: S, rounds between exchanges of groups.
        clips: c_m, l2 bound of one round's update, for each group ``[M]``; infinite without clipping.
        multipliers: sigma_m, noise std over the clip norm, at each noiser of a group ``[M]``; 0 for none.
        rates: pi_m, probability that a worker of a group is sampled ``[M]``; 1 for all.
        trusted: groups whose master adds the noise, once, to the sum ``[M]``; in the others each sampled
            worker adds its own.
        notes: what the user should hear.
        eras: who is in which group from which round (from 0) on, where the groups change.
        cohort: how many workers every group draws without replacement; then all ``rates`` are 1. Empty: they
            are drawn by ``rates``.
        drawn: the workers that every group has drawn, in every round, ascending: an audit decides about the
            unit. Empty: they follow from the seed.
    """

    spec: Spec
    groups: Groups
    kind: GroupedKind
    rounds: int
    merge_every: int
    clips: FloatArray
    multipliers: FloatArray
    rates: FloatArray
    trusted: BoolArray
    notes: tuple[str, ...]
    eras: tuple[tuple[int, Groups], ...] = ()
    cohort: tuple[int, ...] = ()
    drawn: tuple[IntArray, ...] = ()

    @cached_property
    def structures(self) -> tuple[tuple[int, Groups], ...]:
        """The groups of each era, with the round (from 0) from which on they hold."""
        return ((0, self.groups), *self.eras)

    @property
    def by_era(self) -> tuple[GroupPlan, ...]:
        """One plan for each era, with the groups of that era and no eras of its own."""
        return tuple(replace(self, groups=groups, eras=()) for _, groups in self.structures)

    def era_of(self, number: int) -> int:
        """The index of the era (rounds with the same groups) that holds round ``number`` (from 0)."""
        return sum(first <= number for first, _ in self.eras)

    @cached_property
    def union_of_eras(self) -> Groups:
        """Groups, as many as in each era, that each hold every worker who belongs to them in any round."""
        return union_of([groups for _, groups in self.structures]) if self.eras else self.groups

    @property
    def parties(self) -> Groups:
        """The groups of the first era."""
        return self.groups

    @property
    def devices_per_place(self) -> IntArray:
        """The number of workers, as one place: data are divided among all at once, since groups overlap."""
        return np.array([self.groups.workers], dtype=np.int64)

    @property
    def is_sampled(self) -> bool:
        """Whether any group draws its participants."""
        return any(bool((plan.shares_drawn < 1).any()) for plan in self.by_era)

    @property
    def shares_drawn(self) -> FloatArray:
        """Probability that a given worker of each group takes part in a round, float64 ``[M]``.

        In the first era; 1 where all take part.
        """
        return np.array(self.cohort) / self.groups.sizes if self.cohort else self.rates

    @property
    def default_watch(self) -> tuple[str, ...]:
        """``("peer", "device")``: the worst worker of a common group, and the worst of all workers."""
        return ("peer", "device")

    def trusts(self, party: Party, device: int) -> bool:
        """Whether ``party`` is a trusted master of one of the groups of worker ``device``, in any era."""
        mine = self.union_of_eras.groups_of(device)
        return party.kind == "node" and party.index in mine and bool(self.trusted[party.index])

    def ever_trusts(self, party: Party, device: int) -> bool:
        """Whether ``party`` is a trusted master of a group of worker ``device`` in any era, as `trusts`."""
        return self.trusts(party, device)

    def is_near(self, party: Party, device: int) -> bool:
        """Whether ``party`` is a master of worker ``device``, or shares a group with it, in any era."""
        theirs = [party.index] if party.kind == "node" else self.union_of_eras.groups_of(party.index)
        return bool(set(theirs) & set(self.union_of_eras.groups_of(device)))

    @property
    def moves_without_change(self) -> tuple[tuple[int, int, int], ...]:
        """Always an empty tuple: devices do not move in groups."""
        return ()

    @property
    def grows_in_proportion(self) -> bool:
        """Always false: data reach other groups at merging rounds only."""
        return False

    @property
    def rounds_are_alike(self) -> bool:
        """Whether every round has the same releases: groups never change, and no messages can be lost."""
        return not (self.eras or self.releases.least_survivors)

    @property
    def classes_share_trust(self) -> bool:
        """Always true: the accountant's classes hold only workers whose groups' masters are trusted alike."""
        return True

    @property
    def devices_at_untrusted_edges(self) -> int:
        """How many workers are ever in a group whose master is not trusted."""
        untrusted = np.repeat(~self.trusted, self.union_of_eras.sizes)
        return len(np.unique(self.union_of_eras.members[untrusted]))

    @property
    def raw_to_trusted_edge(self) -> int:
        """Number of workers that send raw updates to a trusted master."""
        return len(np.unique(self.union_of_eras.members[np.repeat(self.trusted, self.union_of_eras.sizes)]))

    @property
    def by_interval(self) -> bool:
        """Whether one sample of workers and one release are for an interval of rounds, not for one round."""
        return self.kind in BY_INTERVAL

    @property
    def noises_every_update(self) -> bool:
        """Whether every update leaves its worker only under noise: no model or step is sent without it."""
        return self.kind not in ("ms-fedavg", "dp-ogl+")

    def interval_start(self, number: int) -> int:
        """The first round of the interval of ``merge_every`` rounds that round ``number`` is in."""
        return number - number % self.merge_every

    def releases_after(self, number: int) -> bool:
        """Whether the masters release their groups' averages at the end of round ``number`` (from 0).

        Every round does, except that `by_interval` only the last round of an interval does. The release has
        noise where ``multipliers`` are above 0.
        """
        return not self.by_interval or (number + 1) % self.merge_every == 0

    def sends_in(self, number: int) -> bool:
        """Whether anything is sent in round ``number``; in dp-ogl-local only at the end of an interval."""
        return self.kind != "dp-ogl-local" or self.releases_after(number)

    @property
    def release_count(self) -> int:
        """Number of releases of each group in all rounds, noised or not; an unfinished interval has none."""
        return self.rounds // self.merge_every if self.by_interval else self.rounds

    @property
    def bounds(self) -> FloatArray:
        """l2 bound of what one worker adds to a release of each group, ``[M]``.

        c_m, or sqrt(S) c_m where a release is of S rounds; ∞ without clipping.
        """
        return self.clips * (math.sqrt(self.merge_every) if self.by_interval else 1.0)

    def noise_std(self, number: int) -> FloatArray:
        """Std, a coordinate, of each noiser's noise in the sum of round ``number`` (from 0), ``[M]``.

        In units of the model; 0 without noise. Where gradients of examples are clipped, it is the multiplier
        times `example_bound`, else times `bounds`.
        """
        bounds = self.bounds
        if self.spec.privacy.clips_examples:
            bounds = np.full(len(bounds), self.example_bound(number))
        return self.multipliers * np.where(self.multipliers > 0, bounds, 0.0)

    def example_bound(self, number: int) -> float:
        """l2 bound on how far one example, over all its local steps, moves a message of round ``number``.

        Only where gradients of examples are clipped.
        """
        return self.gradient_bound(number) * momentum_gain(self._message_steps, self.spec.training.momentum)

    def gradient_bound(self, number: int) -> float:
        """l2 bound on how far one gradient of an example moves the model in a step of round ``number``.

        It is step size times clip norm over batch size. Only where gradients of examples are clipped.
        """
        training, clip = self.spec.training, self.spec.privacy.clip
        assert clip is not None  # of examples
        began = self.interval_start(number) if self.by_interval else number
        return clip.norm * learning_rate(training, began) / float(training.batch_size)

    @property
    def denominators(self) -> FloatArray:
        """The public constants that groups' sums are divided by, ``[M]``: pi_m |N_m| or the number drawn."""
        return np.array(self.cohort, dtype=np.float64) if self.cohort else self.rates * self.groups.sizes

    def model_noise_std(self, number: int) -> FloatArray:
        """Expected std, a coordinate, of the noise that round ``number`` leaves in each group's model.

        ``[M]``; with the expected number of noisers.
        """
        noisers = np.where(self.trusted, 1.0, self.denominators)
        return self.noise_std(number) * np.sqrt(noisers) / self.denominators

    @property
    def _message_steps(self) -> int:
        """The number of local steps behind one message; 1 where steps are not counted."""
        return (self.spec.training.local_steps or 1) * (self.merge_every if self.by_interval else 1)

    @cached_property
    def releases(self) -> GroupReleases:
        """The facts that ε is computed from: what every party sees of the groups' messages in all rounds.

        Without a clip norm there is no noise, so that the bound on messages does not matter: it is set to 1.
        """
        transport: Literal["plain", "secure-aggregation"] = "plain"
        shares: tuple[int, ...] = ()
        faults = self.spec.faults
        if self.spec.transport.get(HOP) == "secure-aggregation":
            transport = "secure-aggregation"
            smallest = np.min([groups.sizes for _, groups in self.structures], axis=0)
            sizes = zip(self.cohort or smallest, self.rates, strict=True)
            shares = tuple(colluders_that_unmask(faults, int(n), drawn=bool(rate < 1)) for n, rate in sizes)
        return GroupReleases(
            kind=self.kind,
            device_count=self.groups.workers,
            eras=tuple(GroupStructure(first + 1, groups.as_lists()) for first, groups in self.structures),
            rounds=self.rounds,
            merge_every=self.merge_every,
            clip=tuple(np.where(np.isfinite(self.clips), self.clips, 1.0).tolist()),
            noise_multiplier=tuple(self.multipliers.tolist()),
            rate=tuple(self.rates.tolist()),
            noise_owner=tuple("master" if trusted else "devices" for trusted in self.trusted),
            transport=transport,
            unmask_thresholds=shares,
            noise_law=noise_law_of(self.spec),
            batches=batch_facts(
                self.spec, self.devices_per_place, [[self._message_steps]], starts_from_hidden=True
            ),
            cohort=self.cohort,
            least_survivors=self._least_survivors(transport),
            named=bool(self.groups.worker_names),
            rows_may_fold=self.spec.privacy.unit == "device" and not self.groups.worker_names,
            searched_under=self.spec.privacy.neighbours,
        )

    def _least_survivors(
        self, transport: Literal["plain", "secure-aggregation"]
    ) -> tuple[tuple[int, ...], ...]:
        """The fewest messages in any released sum, by era and group; empty where no message is lost."""
        found = [
            guaranteed_survivors_of(
                self.spec.faults, transport, of_era.denominators, by_chance=self.rates < 1
            ).least
            for of_era in self.by_era
        ]
        return tuple(tuple(least.tolist()) for least in found if least is not None)
