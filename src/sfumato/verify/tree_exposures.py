"""The releases that a coalition meets in a tree, and a certificate against them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from sfumato.verify import read
from sfumato.verify.draws import Draw
from sfumato.verify.parties import Party
from sfumato.verify.read import Json, UnknownKindError
from sfumato.verify.releases import MOST_COMPARED, ExpectedRelease, release_problems, sampling_problems
from sfumato.verify.tree_noise import CheckedTreeNoise


class CheckedTree(CheckedTreeNoise):
    """A tree, and the releases that a coalition meets in it."""

    def release(self, step: int, unit: int, coalition: Sequence[Party]) -> ExpectedRelease:
        """What the flow bound charges for the unit's message at one aggregation.

        It is the smallest sum with the message in it that the coalition knows, with the noise it does not
        know.

        Args:
            step: index of the aggregation in the round.
            unit: index of the device.
            coalition: who observes together.
        """
        facts, leaf = self.steps[step], self.leaf_of(unit)
        own = float(facts["message_bound_per_leaf"][leaf]) * float(self.class_weight[self.class_of(unit)])
        tier, sent = self.finest_known_sum(step, unit, coalition)
        if tier == self.depth:
            alone = np.array([float(self.message_variance(step)[self.class_of(unit)]), 0.0, 0.0])
            vector, sure = "the device's own message", self.ledger["draw"]["kind"] == "all"
            return ExpectedRelease(facts["name"], vector, own, 0.0, self._if_composed(alone), sure)
        node = self.node_name(tier, int(self.paths[leaf, tier]))
        vector = f"the average of {node}" if tier else "the global average"
        vector = vector if sent else f"the sum that {node} receives"
        noise = self._if_composed(self.variance_unknown_to(step, unit, coalition, tier, sent))
        own *= self.weight_in_average(leaf, tier)
        independent, divides = self._draw_independent(step, leaf), self.ledger["denominator_depends_on_draw"]
        return ExpectedRelease(facts["name"], vector, own, 0.0, noise, independent, bool(divides))

    def flow(self, unit: int, coalition: Sequence[Party]) -> list[ExpectedRelease]:
        """The releases of a round that flow charges for ``unit``: one for each aggregation that it sends to.

        ``coalition``: the observers.
        """
        return [self.release(step, unit, coalition) for step in self.sending_steps(self.leaf_of(unit))]

    def cut(self, unit: int, coalition: Sequence[Party]) -> list[ExpectedRelease]:
        """The releases of a round that cut charges for ``unit``: one an average that ``coalition`` receives.

        Each is charged together with the hidden aggregations before it.
        """
        return self.releases_between(unit, coalition, self.seen_steps(unit, coalition))

    def releases_between(
        self, unit: int, coalition: Sequence[Party], exposed: Sequence[int]
    ) -> list[ExpectedRelease]:
        """The releases of a round if exactly the averages of the aggregations ``exposed`` are exposed.

        Each is charged together with the hidden aggregations since the last exposed one. ``unit``: index of
        the device; ``coalition``: the observers.
        """
        found, hidden = [], list[int]()
        for step in self.sending_steps(self.leaf_of(unit)):
            if step not in exposed:
                hidden.append(step)
                continue
            found.append(self._release_after_hidden_steps(step, unit, coalition, hidden))
            hidden = []
        return found

    def exposable_sets(self, unit: int, coalition: Sequence[Party]) -> tuple[list[list[int]], bool]:
        """Sets of aggregations that may be charged as exposed, by index; and whether these are all.

        Where there are too many, only the smallest and the largest set are returned, with False. ``unit``:
        index of the device; ``coalition``: the observers.
        """
        steps, seen = self.sending_steps(self.leaf_of(unit)), self.seen_steps(unit, coalition)
        hidden = [step for step in steps if step not in seen]
        if 2 ** len(hidden) * len(steps) > MOST_COMPARED:
            return [seen, steps], False
        more = (one for count in range(len(hidden) + 1) for one in combinations(hidden, count))
        found = (sorted({*seen, *one}) for one in more)
        return [one for one in found if not any(self.exposed_problems(one, unit, coalition))], True

    def squared_mu_of_set(
        self, exposed: Sequence[int], unit: int, coalition: Sequence[Party], relation: str
    ) -> float | None:
        """Σ μ² over one round if the aggregations ``exposed`` are exposed; ``None`` where devices are drawn.

        Args:
            exposed: indices of aggregations in the round, ascending.
            unit: index of the device.
            coalition: the observers.
            relation: between neighbouring data sets: ``zero-out``, ``remove`` or ``replace``.
        """
        if self.sampling_seen_by(unit, coalition)[0]["kind"] != "all":
            return None
        return math.fsum(one.squared_mu(relation) for one in self.releases_between(unit, coalition, exposed))

    def exposed_problems(
        self, exposed: Sequence[int], unit: int, coalition: Sequence[Party]
    ) -> Iterator[str]:
        """Yield a line for each reason why the aggregations ``exposed`` may not be charged by themselves.

        Once an average is exposed, devices outside its node must not have started from a hidden one: no
        average of a tier above may have been hidden since the last exposed one. And a message that is sent
        again at the end of a round moves by all that was hidden. ``unit``: index of the device;
        ``coalition``: the observers.
        """
        steps, seen = self.sending_steps(self.leaf_of(unit)), self.seen_steps(unit, coalition)
        if list(exposed) != sorted(set(exposed) & set(steps)):
            yield "exposed set: it must list aggregations of the unit's messages, each once, in order"
        for step in sorted(set(seen) - set(exposed)):
            yield f"exposed set: {self.steps[step]['name']} is not in it; the observer receives that average"
        again = any(self.steps[step]["repeats_hidden_steps_per_leaf"][self.leaf_of(unit)] for step in steps)
        if again and list(exposed) not in (steps, seen):
            yield "exposed set: a round that is sent again has all averages exposed, or what is received"
        hidden = list[int]()
        for step in steps:
            if step not in exposed:
                hidden.append(step)
                continue
            tier = read.count(self.steps[step]["aggregating_tier"])
            if any(read.count(self.steps[one]["aggregating_tier"]) < tier for one in hidden):
                yield f"exposed set: {self.steps[step]['name']} comes after a hidden average of a tier above"
            hidden = []

    def _release_after_hidden_steps(
        self, step: int, unit: int, coalition: Sequence[Party], hidden: Sequence[int]
    ) -> ExpectedRelease:
        """`release` of one aggregation, moved also by the ``hidden`` aggregations before it.

        Sensitivities add up; only the noise of the exposed aggregation counts. ``hidden``: indices in the
        round, ascending; the other arguments are those of `release`.
        """
        seen = self.release(step, unit, coalition)
        if not hidden:
            return seen
        leaf = self.leaf_of(unit)
        tier, sent = self.finest_known_sum(step, unit, coalition)
        noise = seen.noise
        if self.ledger["devices_may_drop_out"] and tier < self.depth:
            absent = self._if_composed(
                self.variance_unknown_to(step, unit, coalition, tier, sent, present=False)
            )
            noise = noise if noise.sum() < absent.sum() else absent
        again = bool(self.steps[step]["repeats_hidden_steps_per_leaf"][leaf])
        mine = self.weight_in_average(leaf, tier) * float(self.class_weight[self.class_of(unit)])
        own, others, widest = seen.own, 0.0, self.depth
        for earlier in hidden:
            others += self._propagated_by_others(earlier, earlier, unit, widest, tier)
            if not again:
                own += mine * float(self.steps[earlier]["message_bound_per_leaf"][leaf])
            widest = min(widest, read.count(self.steps[earlier]["aggregating_tier"]))
        last = self._propagated_by_others(step, step, unit, widest, tier)
        if again:  # all that was done since the first hidden average is sent again
            others = min(others + self._propagated_by_others(step, hidden[0], unit, widest, tier), last)
        else:
            others += last
        if self.ledger["rounded_after_noise"] and (others or not again):
            others = math.inf  # nothing bounds how far a rounded message moves
        name = f"{seen.name} (with {len(hidden)} hidden before it)"
        return seen._replace(name=name, own=own, others=others, noise=noise)

    def _propagated_by_others(self, step: int, bounds: int, unit: int, widest: int, to: int) -> float:
        """Σ 2 a_j C_j over the devices, but the unit, that started from a hidden average of tier ``widest``.

        a_j is the weight of their message in the average of tier ``to``, C_j their message's bound.

        Args:
            step: the aggregation that they send in.
            bounds: the aggregation whose bounds C_j count.
            unit: index of the device.
            widest: tier of the hidden average; one past the last tier: none is hidden, and the result is 0.
            to: tier of the average that they move.
        """
        if widest >= self.depth:
            return 0.0
        leaf, top = self.leaf_of(unit), max(widest, to)
        norms, total = self.steps[bounds]["message_bound_per_leaf"], 0.0
        for other in np.flatnonzero(self.paths[:, top] == self.paths[leaf, top]):
            weight = self.class_weight[self.class_leaf == other]
            count = self.class_size[self.class_leaf == other]
            fixed = self.ledger["draw"]["kind"] == "fixed"
            most = float(self.drawn[other]) * float(weight.max()) if fixed else float((weight * count).sum())
            total += most * self.weight_in_average(int(other), to) * float(norms[other])
        mine = self.weight_in_average(leaf, to) * float(self.class_weight[self.class_of(unit)])
        return 2 * max(0.0, total - mine * float(norms[leaf]))

    def exposure_problems(
        self, bound: str, cert: Json, draws: Sequence[Draw], unit: int, coalition: Sequence[Party],
        allowed: Sequence[ExpectedRelease] | None = None,
    ) -> Iterator[str]:  # fmt: skip
        """Yield a line for each mismatch between the releases that a bound charges and the exposed ones.

        Args:
            bound: ``flow``, ``cut`` or ``min-cost``.
            cert: what the certificate states of this bound.
            draws: the certificate's draws; must be one.
            unit: index of the device.
            coalition: who observes together.
            allowed: releases to compare with in place of those of the facts.
        """
        if cert.get("elections") or cert.get("chances"):
            yield "elections: nobody is elected who observes this"
            return
        exposed = self._exposed_steps(bound, cert, unit, coalition)
        yield from self.exposed_problems(exposed, unit, coalition)
        wanted = self.releases_between(unit, coalition, exposed) if allowed is None else allowed
        stated = [r for draw in draws for r in draw.releases]
        if len(draws) != 1 or len(stated) != len(wanted):
            yield f"exposed set: it has {len(stated)} releases a round; the observer meets {len(wanted)}"
            return
        sampling, ratio = self.sampling_seen_by(unit, coalition)
        yield from sampling_problems(draws[0], sampling, read.count(self.ledger["rounds"]), ratio)
        yield from self.drawn_noise_problems(draws[0], exposed, unit, coalition)
        for mine, theirs in zip(stated, wanted, strict=True):
            yield from release_problems(mine, theirs)

    def _exposed_steps(self, bound: str, cert: Json, unit: int, coalition: Sequence[Party]) -> list[int]:
        """Indices of the aggregations of a round that a bound charges as exposed, ascending.

        Args:
            bound: its name.
            cert: its certificate.
            unit: index of the device.
            coalition: the observers.

        Raises:
            UnknownKindError: the bound is neither ``flow``, ``cut`` nor ``min-cost``.
        """
        if bound == "flow":
            return self.sending_steps(self.leaf_of(unit))
        if bound == "cut":
            return self.seen_steps(unit, coalition)
        if bound == "min-cost":
            return [read.count(aggregation) - 1 for aggregation in cert["exposed_aggregations"]]
        raise UnknownKindError(f"bound: this checker has no rule for the kind {bound!r} in a tree")
