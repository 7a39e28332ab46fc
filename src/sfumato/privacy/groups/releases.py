"""The ledger of overlapping groups: DP-OGL and its kin (docs/leakage.md derives every rule).

Every group has a model, a master and releases: the noised sum of its workers' clipped updates, one a step. A
worker sees the models of its groups. Every `merge_every` epochs workers start from the mean of their groups'
models, and that is how one group's releases reach another.

Three bounds for a unit ``u`` and a coalition ``o``:

*flow*: all releases upstream of what ``o`` sees are charged, ``u`` being no link; only ``u``'s own
contributions count, each under the independent draw of its group (amplified for who does not see it).

*cut*: only what ``o`` sees is charged; a worker that started from a hidden model which ``u``'s data had
reached counts with 2c, never amplified.

*min-cost*: the cheapest set of releases between the two (`sfumato.privacy.groups.exposed_set`).

Observers are devices and masters. No model of a group is public and there is no cloud, so those parties do
not exist here: asking for them is refused rather than answered with a figure about nobody.

============== ============================= ============================ ==================================
kind           a step is                     towards its own workers      towards workers of other groups
============== ============================= ============================ ==================================
dp-ogl         an epoch                      a noised sum an epoch        what merging steps carry over
dp-ogl-local   a whole interval              a noised sum an interval     the same, an interval a step
dp-ogl+        an interval, un-noised inside nothing protects (S >= 2)    sums of sensitivity 1 + 2(|W| - 1)
ms-fedavg      an epoch, merging each time   nothing protects             nothing protects where flow arrives
============== ============================= ============================ ==================================
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from sfumato.privacy.accountant import GaussianTerm, PoissonSampling, RevealedSampling
from sfumato.privacy.groups.automorphisms import orbits
from sfumato.privacy.groups.exposed_set import ChargedSum, ExposureProblem, cheapest
from sfumato.privacy.groups.vector_clocks import (
    UNREACHED,
    Block,
    GroupStructure,
    IntArray,
    Kinds,
    alike_until,
    blocks_of,
    clocks,
    distances,
    prefixes_closed_form,
)
from sfumato.privacy.guarantee import Composition, EpsilonBound, composed
from sfumato.privacy.hops import hides_messages, senders_see_the_draw
from sfumato.privacy.noise_law import GAUSSIAN, NoiseLaw
from sfumato.privacy.observers import PairClass, Party, covering
from sfumato.privacy.relation import Neighbours
from sfumato.privacy.release import Draw, Exposure, Release, without_noise
from sfumato.privacy.views import View

GroupedKind = Literal["dp-ogl", "dp-ogl+", "dp-ogl-local", "ms-fedavg"]


@dataclass(frozen=True)
class SampledRelease(Release):
    """A release whose participants are drawn for it alone, independently of every other release.

    Attributes:
        draw: how they are drawn (``all`` or ``poisson``).
        draw_hidden: whether the whole coalition is blind to that draw.
        linking: how many workers move it whatever the unit does, if they are drawn. With none, ``others`` (if
            any) move only when the unit was drawn, whose draw is then the only one that matters.
    """

    draw: Draw = field(default_factory=Draw)
    draw_hidden: bool = True
    linking: int = 0

    @property
    def moved(self) -> float:
        """Probability that anybody is drawn who moves it."""
        movers = self.linking + (self.own_sensitivity > 0)
        return self.draw.rate if movers == 1 else 1.0 - (1.0 - self.draw.rate) ** movers

    @property
    def hides_the_draw(self) -> bool:
        """Whether the unit's Poisson draw amplifies: it is not seen, and decides about its message only."""
        return (
            self.draw.kind == "poisson"
            and self.draw_hidden
            and self.noise_is_draw_independent
            and not self.linking
        )


@dataclass(frozen=True)
class GroupReleases:
    """Facts of a grouped protocol.

    Attributes:
        kind: which protocol.
        device_count: number of devices.
        eras: who is in which group, from which epoch on; one era if the groups never change.
        rounds: training epochs: models 1..rounds + 1 of every group are seen by its workers.
        merge_every: S, epochs from one merging of a worker's groups to the next.
        clip: l2 bound of a worker's update in an epoch, of every group; not used by ``ms-fedavg``.
        noise_multiplier: noise std over that bound, of every group, at each noiser.
        rate: Poisson rate at which a group's workers are drawn; 1: all of them, always.
        noise_owner: who adds it: the (trusted) master to the sum, or every device to its message.
        transport: from devices to masters: messages met singly, or only their sum.
        unmask_thresholds: under secure aggregation, how many of a group's workers hold enough shares of the others'
            secrets to take the masks off their messages, with the master's help; for each group. Empty: sums
            hide messages whoever colludes.
        noise_law: of all noise; a law that is not composed counts as no noise.
    """

    kind: GroupedKind
    device_count: int
    eras: tuple[GroupStructure, ...]
    rounds: int
    merge_every: int
    clip: tuple[float, ...]
    noise_multiplier: tuple[float, ...]
    rate: tuple[float, ...]
    noise_owner: Literal["master", "devices"] = "master"
    transport: Literal["plain", "secure-aggregation"] = "plain"
    unmask_thresholds: tuple[int, ...] = ()
    noise_law: NoiseLaw = GAUSSIAN
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _validate(self)

    # --- time and groups ------------------------------------------------------------------------

    @property
    def group_count(self) -> int:
        """Number of groups."""
        return len(self.eras[0].groups)

    @property
    def in_intervals(self) -> bool:
        """Whether one step is a whole interval of ``merge_every`` epochs."""
        return self.kind in ("dp-ogl+", "dp-ogl-local") and self.merge_every > 1

    @property
    def raw_inside(self) -> bool:
        """Whether a group's workers see un-noised models of it (DP-OGL+ between its releases)."""
        return self.kind == "dp-ogl+" and self.merge_every > 1

    @property
    def steps(self) -> int:
        """Number of releases of every group: epochs, or intervals (DP-OGL+: the one begun included)."""
        if not self.in_intervals:
            return self.rounds
        return -(-self.rounds // self.merge_every) if self.raw_inside else self.rounds // self.merge_every

    @cached_property
    def _era_steps(self) -> tuple[int, ...]:
        """First step of every era."""
        length = self.merge_every if self.in_intervals else 1
        return tuple((era.first_epoch - 1) // length + 1 for era in self.eras)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Time, cut where anything can cross between groups or workers change them."""
        period = 1 if self.in_intervals or self.kind == "ms-fedavg" else self.merge_every
        return blocks_of(self.steps, period, self._era_steps)

    @cached_property
    def kinds(self) -> Kinds:
        """Workers told apart by their groups."""
        return Kinds.among(self.device_count, self.eras)

    @cached_property
    def _ends(self) -> IntArray:
        """Last step of every block, after a 0."""
        return np.array([0, *(b.first + b.length - 1 for b in self.blocks)], dtype=np.int64)

    @cached_property
    def _alike_until(self) -> IntArray:
        return alike_until(self.blocks)

    def party_name(self, party: Party) -> str:
        """What the command line calls ``party``."""
        self._require_party(party)
        return f"{'device' if party.kind == 'device' else 'master'}:{party.index}"

    def _require_party(self, party: Party) -> None:
        known = {"device": self.device_count, "node": self.group_count}.get(party.kind, 0)
        if not 0 <= party.index < known or (party.kind == "node" and party.tier != 1):
            raise ValueError(
                f"observer: got {party}; must be a device 0..{self.device_count - 1} or a master "
                f"(a node of tier 1) 0..{self.group_count - 1}: groups have no cloud and publish nothing"
            )

    # --- what is upstream -----------------------------------------------------------------------

    def view(self, coalition: Sequence[Party], epoch: int) -> View:
        """What ``coalition`` receives in training epoch ``epoch`` (from 1).

        Raises:
            ValueError: a party that does not exist.
        """
        for party in coalition:
            self._require_party(party)
        masters = frozenset((1, p.index) for p in coalition if p.kind == "node")
        workers = [p.index for p in coalition if p.kind == "device"]
        era = sum(e.first_epoch <= epoch for e in self.eras) - 1
        colluders = Counter(g for worker in workers for g in self.kinds.groups[self.kinds.of[worker]][era])
        summed = frozenset(
            (tier, group)
            for tier, group in masters
            if hides_messages(
                self.transport,
                colluders=colluders[group],
                threshold=self.unmask_thresholds[group] if self.unmask_thresholds else None,
            )
        )
        return View(
            single=masters - summed,
            summed=summed,
            averages=masters | {(1, group) for group in colluders},
            senders=frozenset((2, worker) for worker in workers),
        )

    def _worst_view(self, coalition: Sequence[Party]) -> View:
        """The view of the first era, with every master that meets single messages in any era."""
        views = [self.view(coalition, era.first_epoch) for era in self.eras]
        single = frozenset().union(*(view.single for view in views))
        return replace(views[0], single=single, summed=views[0].summed - single)

    def _seen_steps(self, coalition: Sequence[Party]) -> IntArray:
        """Step until which the coalition sees each group's releases."""
        seen = np.zeros(self.group_count, dtype=np.int64)
        for number, (era, first) in enumerate(zip(self.eras, self._era_steps, strict=True)):
            if first > self.steps:
                break
            last = self._era_steps[number + 1] - 1 if number + 1 < len(self.eras) else self.steps
            groups = [group for _, group in self.view(coalition, era.first_epoch).averages]
            seen[groups] = np.maximum(seen[groups], min(last, self.steps))
        return seen

    def reach(self, unit_kind: int, seen: IntArray, *, by_clocks: bool | None = None) -> IntArray:
        """Number of releases of every group upstream of what is seen, the unit being no link.

        Args:
            unit_kind: of the unit.
            seen: releases seen of every group.
            by_clocks: vector clocks, or (static groups seen to the end) the closed form; by default the
                closed form where it holds.
        """
        static = len(self.eras) == 1 and bool(np.isin(seen, (0, self.steps)).all())
        if not static or by_clocks:
            others = self.kinds.without(unit_kind)
            links = [self.kinds.links(era, others) for era in range(len(self.eras))]
            known = clocks(self.blocks, links, seen)
        else:
            period = self.blocks[0].length if self.blocks else 1
            key = ("prefixes", unit_kind)
            if key not in self._cache:
                self._cache[key] = prefixes_closed_form(self._hops(unit_kind), self.steps, period)
            known = self._cache[key]
        at_seen = known[seen > 0]
        upstream: IntArray = at_seen.max(axis=0) if len(at_seen) else np.zeros_like(seen)
        return np.maximum(upstream, seen)

    def _hops(self, unit_kind: int) -> IntArray:
        """Hops between the (first era's) groups, the unit being no link."""
        key = ("hops", unit_kind)
        if key not in self._cache:
            self._cache[key] = distances(self.kinds.links(0, self.kinds.without(unit_kind)))
        hops: IntArray = self._cache[key]
        return hops

    def _scene(self, unit_kind: int, coalition: Sequence[Party]) -> ExposureProblem:
        seen = self._seen_steps(coalition)
        upstream = self.reach(unit_kind, seen)
        return ExposureProblem(
            self.kinds,
            self.blocks,
            self._alike_until,
            unit_kind,
            np.searchsorted(self._ends, seen),
            np.searchsorted(self._ends, upstream),
        )

    def flow_counts(self, unit: int, coalition: Sequence[Party]) -> dict[int, int]:
        """Releases with the unit's own contribution that reach the coalition, of every group that has any."""
        scene = self._scene(int(self.kinds.of[unit]), coalition)
        counts: Counter[int] = Counter()
        for row, count in scene.charged(scene.reach).items():
            counts[row.group] += count
        return dict(sorted(counts.items()))

    # --- exposures ------------------------------------------------------------------------------

    def exposures(self, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
        """The flow, the cut and the cheapest exposure of ``unit`` towards ``coalition``.

        Raises:
            ValueError: a party that does not exist, or a coalition that contains the unit.
        """
        met = self._worst_view(coalition)
        if Party("device", 0, unit) in coalition:
            raise ValueError(f"observer: got device:{unit}; must not be the unit, which knows its own data")
        unit_kind = int(self.kinds.of[unit])
        members = {p.index for p in coalition if p.kind == "device"}
        spotted = tuple(sorted(Counter(int(self.kinds.of[i]) for i in members).items()))
        key = ("exposures", unit_kind, spotted, met.single, met.summed)
        if key not in self._cache:
            scene = self._scene(unit_kind, coalition)
            view = _View(self, scene, met, dict(spotted))
            least = cheapest(scene, view.price)
            self._cache[key] = (
                view.exposure("flow", scene.reach),
                view.exposure("cut", scene.seen),
                view.exposure("min-cost", least.blocks),
            )
        exposures: tuple[Exposure, ...] = self._cache[key]
        if not self.noise_law.why_not_composed:
            return exposures
        return tuple(without_noise(exposure) for exposure in exposures)

    def judge(self, exposure: Exposure, *, delta: float, neighbours: Neighbours) -> EpsilonBound:
        """The bound that an exposure of this ledger gives; equal ones are composed once."""
        key = ("bound", _anonymous(exposure), delta, neighbours)
        if key not in self._cache:
            self._cache[key] = bound_each_epsilon(exposure, delta=delta, neighbours=neighbours)
        bound: EpsilonBound = self._cache[key]
        return bound

    def after(self, rounds: int) -> GroupReleases:
        """The ledger of the first ``rounds`` epochs."""
        return replace(self, rounds=rounds)

    def to_dict(self) -> dict[str, Any]:
        """The facts as JSON: enough to recompute every epsilon without this library (docs/leakage.md)."""
        return {
            "kind": self.kind,
            **({"noise_not_composed": self.noise_law.name} if self.noise_law.why_not_composed else {}),
            "rounds": self.rounds,
            "merge_every": self.merge_every,
            "devices": self.device_count,
            "eras": [
                {"first_epoch": era.first_epoch, "groups": [list(group) for group in era.groups]}
                for era in self.eras
            ],
            "clip_per_group": list(self.clip),
            "noise_multiplier_per_group": list(self.noise_multiplier),
            "poisson_rate_per_group": list(self.rate),
            "noise_added_by": self.noise_owner,
            "transport": self.transport,
            "shares_that_unmask": list(self.unmask_thresholds),
        }

    # --- classes of pairs -----------------------------------------------------------------------

    @cached_property
    def _unit_classes(self) -> tuple[tuple[int, int], ...]:
        """One kind of units for every orbit of the groups' symmetries, and how many units it stands for."""
        alike, _ = orbits(self.kinds, self._colours)
        _, firsts = np.unique(alike, return_index=True)
        return tuple(
            (int(kind), int(self.kinds.size[alike == alike[kind]].sum())) for kind in np.sort(firsts)
        )

    @property
    def _colours(self) -> list[tuple[float, ...]]:
        """Parameters of every group."""
        return list(zip(self.clip, self.noise_multiplier, self.rate, strict=True))

    def pair_classes(self, unit: int | None = None) -> Iterator[PairClass]:
        """One representative of every class of equivalent ordered pairs; ``stands_for`` adds up to all pairs.

        Observers are every master and every other device. Units count as equivalent if a symmetry of the
        groups maps one to the other, observers of one unit if all their exposures are equal. With ``unit``,
        only the pairs of that one device.
        """
        observers = self.group_count + self.device_count - 1
        if unit is not None:
            return covering(self._pairs_of(unit, 1), observers)
        classes = (
            pair
            for kind, units in self._unit_classes
            for pair in self._pairs_of(int(self.kinds.first[kind]), units)
        )
        return covering(classes, self.device_count * observers)

    def _pairs_of(self, unit: int, units: int) -> Iterator[PairClass]:
        unit_kind = int(self.kinds.of[unit])
        classes: dict[Any, PairClass] = {}
        for party, count in self._observers_of(unit, unit_kind):
            relation = self._relation(unit_kind, party)
            signature = (relation, tuple(_anonymous(e) for e in self.exposures(unit, (party,))))
            first = classes.get(signature, PairClass(unit, party, relation, 0))
            classes[signature] = replace(first, pair_count=first.pair_count + units * count)
        yield from classes.values()

    def _observers_of(self, unit: int, unit_kind: int) -> Iterator[tuple[Party, int]]:
        """Masters and other devices, one for each position relative to the unit, and how many are there."""
        rows = self.kinds.groups[unit_kind]
        marked = [
            (*colour, *(float(group in era) for era in rows)) for group, colour in enumerate(self._colours)
        ]
        of_kinds, of_groups = orbits(self.kinds, marked)
        for group, count in zip(*np.unique(of_groups, return_counts=True), strict=True):
            yield Party("node", 1, int(group)), int(count)
        others = self.kinds.without(unit_kind)
        for place in np.unique(of_kinds):
            count = int(others[of_kinds == place].sum())
            if count:
                kind = int(np.flatnonzero((of_kinds == place) & (others > 0))[0])
                members = np.flatnonzero(self.kinds.of == kind)
                yield Party("device", 0, int(members[members != unit][0])), count

    def _relation(self, unit_kind: int, party: Party) -> str:
        who = "master" if party.kind == "node" else "device"
        theirs = (
            tuple((party.index,) for _ in self.eras)
            if party.kind == "node"
            else self.kinds.groups[self.kinds.of[party.index]]
        )
        own = self.kinds.groups[unit_kind]
        if any(set(a) & set(b) for a, b in zip(own, theirs, strict=True)):
            return "own master" if who == "master" else "device in a common group"
        if len(self.eras) > 1:
            return f"{who} in no common group"
        hops = int(self._hops(unit_kind)[np.ix_(own[0], theirs[0])].min(initial=UNREACHED))
        if hops == UNREACHED:
            return f"{who}, not connected"
        return f"{who}, {hops} {'group' if hops == 1 else 'groups'} away"

    def shares_group(self, relation: str) -> bool:
        """Whether ``relation`` of a pair class means a common group: trusted under Threat model 2."""
        return relation in ("own master", "device in a common group")


class _View:
    """How one coalition meets sums: which releases a `ChargedSum` amounts to, and their price."""

    def __init__(
        self, ledger: GroupReleases, scene: ExposureProblem, met: View, members: dict[int, int]
    ) -> None:
        self.ledger, self.scene, self.met, self.members = ledger, scene, met, members
        self.prices: dict[ChargedSum, float] = {}

    def price(self, row: ChargedSum) -> float:
        """Rényi divergence of order 2 of one such sum."""
        if row not in self.prices:
            self.prices[row] = math.fsum(_renyi_2(release) for release in self.releases(row, 1))
        return self.prices[row]

    def exposure(self, bound: Literal["flow", "cut", "min-cost"], exposed: IntArray) -> Exposure:
        """All releases charged if the first ``exposed[g]`` blocks of every group are."""
        counted: Counter[SampledRelease] = Counter()
        for row, count in sorted(self.scene.charged(exposed).items()):
            for release in self.releases(row, count):
                counted[replace(release, count=0)] += release.count
        found = tuple(replace(release, count=count) for release, count in counted.items())
        return Exposure(bound, found, Draw("all"), all(r.draw_hidden for r in found), self.ledger.steps)

    def releases(self, row: ChargedSum, count: int) -> tuple[SampledRelease, ...]:
        """What the coalition meets, or is charged as if it met, in ``count`` such sums."""
        ledger, group = self.ledger, row.group
        interval = math.sqrt(ledger.merge_every) if ledger.in_intervals else 1.0
        clip = 1.0 if ledger.kind == "ms-fedavg" else ledger.clip[group] * interval
        noise = (clip * ledger.noise_multiplier[group]) ** 2
        rate = ledger.rate[group]
        draw = Draw("poisson", rate) if rate < 1 else Draw()
        own, others = float(row.own), 2.0 * row.linking
        size, known = self._present(row)
        how = self.met.how(1, group)
        at_master = how is not None
        name = f"group {group}" + (f", {row.linking} linking" if row.linking else "")
        if ledger.kind == "ms-fedavg" or (ledger.raw_inside and (at_master or self.scene.seen[group])):
            noise = 0.0
        elif (
            ledger.raw_inside
        ):  # un-noised in-group models pass the unit's or a linking worker's input on to all
            others = 2.0 * (size - row.own)
        standing = True
        view = f"the sum of group {group}"
        if ledger.noise_owner == "master":
            noise = 0.0 if at_master else noise
        elif how == "single":
            single = SampledRelease(
                name, "single messages", 0.0, 0.0, noise, rate == 1, count, draw=draw, draw_hidden=False
            )
            linked = replace(single, propagated_sensitivity=2 * clip, count=count * row.linking, linking=1)
            return ((replace(single, own_sensitivity=clip),) if row.own else ()) + (
                (linked,) if row.linking else ()
            )
        else:
            # drawn devices only are sure to add noise; with all of them, all outside the coalition
            noise *= size - known if rate == 1 else row.own + row.linking
            standing = rate == 1
        told = at_master or (known > 0 and senders_see_the_draw(ledger.transport))
        return (
            SampledRelease(
                name,
                view,
                own * clip,
                others * clip,
                noise,
                standing,
                count,
                draw=draw,
                draw_hidden=not told,
                linking=row.linking,
            ),
        )

    def _present(self, row: ChargedSum) -> tuple[int, int]:
        """Number of workers in a group, and how many of them are in the coalition."""
        inside = self.ledger.kinds.incidence[row.era][:, row.group]
        known = sum(count for kind, count in self.members.items() if inside[kind])
        return int(self.ledger.kinds.size[inside].sum()), known


def charges_each(exposure: Exposure, neighbours: Neighbours) -> Composition:
    """Terms of an exposure whose releases have a draw each (`SampledRelease`).

    A release that no linking worker moves is the unit's sampled Gaussian: amplified for the blind where the
    noise stands whoever is drawn, else a mixture over participations that are seen. What linking workers move
    are replace pairs, never amplified: the draws of all who move it are revealed (they are independent of the
    data), and it counts at its whole sensitivity whenever any of them was drawn. Under *remove* the unit's
    own draw must stay hidden.
    """
    terms = []
    amplified = False
    for release in exposure.releases:
        if not isinstance(release, SampledRelease):
            raise TypeError(f"releases: got {release!r}; must be DrawnRelease")
        if not release.depends_on_unit:
            continue
        hidden = release.hides_the_draw and neighbours != "replace"
        if neighbours == "remove" and release.own_sensitivity and not hidden:
            return Composition(
                (), neighbours, "what is seen tells whether the unit is there at all", failure_probability=1.0
            )
        multiplier = math.sqrt(release.variance) / release.sensitivity(neighbours)
        sampling: PoissonSampling | RevealedSampling | None = None
        if release.draw.kind == "poisson":
            sampling = PoissonSampling(release.draw.rate) if hidden else RevealedSampling(release.moved)
            amplified = amplified or hidden
        terms.append(GaussianTerm(multiplier, release.count, sampling))
    how = "each group's own draw amplifies what the unit alone moves" if amplified else "not amplified"
    return Composition(tuple(terms), neighbours, how)


def bound_each_epsilon(
    exposure: Exposure, *, delta: float, neighbours: Neighbours = "zero-out"
) -> EpsilonBound:
    """The bound that an exposure of a grouped ledger gives."""
    charge = charges_each(exposure, neighbours)
    releases = sum(release.count for release in exposure.releases)
    # in one order, so that pairs which only the naming of groups tells apart are composed once
    terms = tuple(sorted(charge.terms, key=repr))
    if charge.failure_probability >= delta:
        return EpsilonBound(math.inf, releases, "gdp", neighbours, charge.how)
    epsilon, method = composed(terms, neighbours, delta)
    return EpsilonBound(epsilon, releases, method, neighbours, charge.how)


@dataclass(frozen=True)
class PerWorker:
    """Per-worker privacy: the worst observer of one class of units, over training.

    Attributes:
        unit: one of the class.
        stands_for: number of units in it.
        epochs: numbers of training epochs.
        epsilon: towards the worst observer, at each of them; not a number where nobody is curious.
        observer: the worst one at the last of them.
    """

    unit: int
    stands_for: int
    epochs: tuple[int, ...]
    epsilon: tuple[float, ...]
    observer: Party | None


def per_worker(
    ledger: GroupReleases,
    epochs: Iterable[int],
    *,
    threat_model: Literal[1, 2],
    delta: float,
    neighbours: Neighbours = "zero-out",
) -> tuple[PerWorker, ...]:
    """PwP of every class of workers: the paper's (15) with the exact leakage.

    Args:
        ledger: facts.
        epochs: numbers of training epochs to look at (the paper's t - 1).
        threat_model: 1: every other worker is curious; 2: only those that never share a group with the unit.
        delta: of every epsilon.
        neighbours: neighbouring relation.
    """
    moments = tuple(epochs)
    found: dict[int, list[tuple[float, Party | None]]] = {unit: [] for unit, _ in ledger._unit_classes}
    spent: dict[Any, float] = {}
    for moment in moments:
        shorter = ledger.after(moment)
        for kind in found:
            unit, worst = int(ledger.kinds.first[kind]), (math.nan, None)
            for pair in shorter.pair_classes(unit):
                if pair.observer.kind != "device" or (
                    threat_model == 2 and ledger.shares_group(pair.relation)
                ):
                    continue
                exposures = shorter.exposures(unit, (pair.observer,))
                epsilon = math.inf
                for exposure in exposures:
                    key = _anonymous(exposure)[1]
                    if key not in spent:
                        spent[key] = bound_each_epsilon(exposure, delta=delta, neighbours=neighbours).epsilon
                    epsilon = min(epsilon, spent[key])
                if not worst[0] >= epsilon:
                    worst = (epsilon, pair.observer)  # type: ignore[assignment]
            found[kind].append(worst)
    return tuple(
        PerWorker(
            int(ledger.kinds.first[kind]),
            units,
            moments,
            tuple(epsilon for epsilon, _ in found[kind]),
            found[kind][-1][1] if moments else None,
        )
        for kind, units in ledger._unit_classes
    )


def _anonymous(exposure: Exposure) -> tuple[Any, ...]:
    """An exposure without the names of groups: equal for pairs that only naming tells apart."""
    counted: Counter[tuple[Any, ...]] = Counter()
    for r in exposure.releases:
        if isinstance(r, SampledRelease):
            key = (
                r.own_sensitivity,
                r.propagated_sensitivity,
                r.variance,
                r.noise_is_draw_independent,
                r.draw.kind,
                r.draw.rate,
                r.draw_hidden,
                r.linking,
            )
            counted[key] += r.count
    return exposure.bound, tuple(sorted(counted.items()))


def _renyi_2(release: SampledRelease) -> float:
    """Rényi divergence of order 2 under zero-out, times ``count``.

    That of a hidden draw is log(1 + q² (e^(μ²) - 1)), that of a draw that is seen log(1 + q (e^(μ²) - 1)).
    """
    square = release.mu_squared("zero-out")
    if square == 0 or release.draw.kind == "all" or math.isinf(square):
        return release.count * square
    weight = release.draw.rate**2 if release.hides_the_draw else release.moved
    if weight == 1.0:  # so many may link that somebody is as good as sure to be drawn
        return release.count * square
    return release.count * float(np.logaddexp(math.log1p(-weight), math.log(weight) + square))


def _validate(ledger: GroupReleases) -> None:
    groups = len(ledger.eras[0].groups) if ledger.eras else 0
    if not groups:
        raise ValueError("eras: got no group; must have at least one")
    if ledger.kind not in ("dp-ogl", "dp-ogl+", "dp-ogl-local", "ms-fedavg"):
        raise ValueError(f"kind: got {ledger.kind!r}; must be a grouped protocol")
    if ledger.rounds < 0 or ledger.merge_every < 1:
        raise ValueError(
            f"rounds, merge_every: got {ledger.rounds}, {ledger.merge_every}; must be >= 0, >= 1"
        )
    if ledger.eras[0].first_epoch != 1:
        raise ValueError(f"eras: the first begins at epoch {ledger.eras[0].first_epoch}; must begin at 1")
    for name in ("clip", "noise_multiplier", "rate"):
        values = getattr(ledger, name)
        if len(values) != groups:
            raise ValueError(f"{name}: got {len(values)} values; must be one for each of {groups} groups")
        top = 1.0 if name == "rate" else math.inf
        least = "> 0" if name != "noise_multiplier" else ">= 0"
        bad = [v for v in values if not (0 <= v <= top and math.isfinite(v)) or (v == 0 and least == "> 0")]
        if bad:
            raise ValueError(f"{name}: got {bad[0]}; must be {least}{', at most 1' if top == 1 else ''}")
    if ledger.noise_owner == "devices" and ledger.kind == "dp-ogl+" and ledger.merge_every > 1:
        raise ValueError(
            "noise_owner: got 'devices' with dp-ogl+; its in-group models are un-noised: must be 'master'"
        )
    for before, era in zip((None, *ledger.eras), ledger.eras, strict=False):
        if before is not None and era.first_epoch <= before.first_epoch:
            raise ValueError(f"eras: got {before.first_epoch} then {era.first_epoch}; must increase")
        if ledger.in_intervals and (era.first_epoch - 1) % ledger.merge_every:
            raise ValueError(f"eras: got one at epoch {era.first_epoch}; must begin with an interval")
        if len(era.groups) != groups:
            raise ValueError(f"eras: got {len(era.groups)} groups; must be {groups} in every era")
        for number, members in enumerate(era.groups):
            if len(set(members)) != len(members) or not all(0 <= i < ledger.device_count for i in members):
                raise ValueError(
                    f"eras: group {number} has a member twice or outside 0..{ledger.device_count - 1}"
                )


__all__ = [
    "DrawnRelease",
    "Era",
    "GroupReleases",
    "GroupedKind",
    "PerWorker",
    "charges_each",
    "judge_each",
    "per_worker",
]
