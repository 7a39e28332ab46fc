"""One record of a device as the unit: what a release tells of it (docs/accounting.md derives the rules).

A message of the device is trained in m local steps from a model that exposed releases determine. If every
record is in every step by a draw of its own that nobody else sees, then with probability (1 - q)^m the
message has the law that it has without the record; otherwise it moves by at most twice the device's bound,
whatever its other records do. So the *flow* exposure of the device is charged with the probability that the
record is drawn at all, and, where single steps are clipped, with how much its first draw can move.

Whatever cannot be charged so is charged as if all data of the device were replaced: what other devices
pass on, what is hidden (the cut and the cheapest sets), offices of elected supernodes, batches that are
not drawn record by record, and devices that remember more than what they received.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from sfumato.privacy.charges import Composition, smallest_epsilon, ways_to_charge
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.release import DrawnReleases, Exposure, Release, total_mu_squared
from sfumato.privacy.sampling import GaussianTerm, Neighbours, Sampling

if TYPE_CHECKING:
    from sfumato.privacy.declared_releases import DeclaredReleases
    from sfumato.privacy.observers import Party


FloatArray = npt.NDArray[np.float64]

AS_REPLACED = "as if all data of the device were replaced"
"""In the reason of an ε of a record or person: how it is charged where its draws do not count."""


@dataclass(frozen=True, eq=False)
class BatchFacts:
    """How devices draw the batches that their messages are trained on.

    Attributes:
        rates: q, the probability that a record is in a local step, for each device; ``None`` where a record
            is charged as if it were in every message.
        moves: for each aggregation of a round (in groups there is one), the largest share of the message that
            moves if the record is first drawn at each of its local steps.
        replaced_moves: the same where the record is replaced, not zeroed out; empty where it is the same.
        clips_examples: whether gradients of single examples are clipped. Sensitivities of releases are then
            those of one example by itself, and no bound of a device's message.
        answering: the most gradients that a local step adds up, where gradients of examples are clipped and
            other records may answer; 0 where that was not asked for.
        beyond: probability that one local step adds up more than ``answering``.
        rounded: whether devices round messages, to a grid that depends on the whole message.
        step_multiplier: noise that a device adds to the sum of clipped gradients of each local step, over the
            norm that gradients of examples are clipped to; 0 for none.
        of_leaf: in a tree whose leaves take part in different aggregations, the facts for the devices of
            each; empty where all are alike.
        why_not_drawn: without ``rates``, why.
    """

    rates: FloatArray | None = None
    moves: tuple[tuple[float, ...], ...] = ()
    replaced_moves: tuple[tuple[float, ...], ...] = ()
    clips_examples: bool = False
    answering: int = 0
    beyond: float = 0.0
    rounded: bool = False
    step_multiplier: float = 0.0
    why_not_drawn: str = "batches are shuffled, so a record may be in every message"
    of_leaf: tuple[BatchFacts, ...] = ()

    def at(self, leaf: int) -> BatchFacts:
        """The facts for devices under leaf number ``leaf`` of the tree; these facts if leaves are alike."""
        return self.of_leaf[leaf] if self.of_leaf else self

    def to_dict(self) -> dict[str, object]:
        """The facts as a JSON object ``{"batches": ...}``; {} where records are not drawn one by one."""
        if self.rates is None:
            return {}
        first, replaced = "moved_share_by_first_step", "moved_share_by_first_step_replaced"
        shares: dict[str, object] = {first: self._shares(False), replaced: self._shares(True)}
        if self.of_leaf:
            shares = {
                f"{first}_per_leaf": [leaf._shares(False) for leaf in self.of_leaf],
                f"{replaced}_per_leaf": [leaf._shares(True) for leaf in self.of_leaf],
            }
        return {
            "batches": {
                "rate_per_device": self.rates.tolist(),
                **shares,
                **({"answering": self.answering, "beyond": self.beyond} if self.answering else {}),
                **({"rounded": True} if self.rounded else {}),
                "noise_at_steps": self.step_multiplier,
            }
        }

    def _shares(self, replaced: bool) -> list[list[float]]:
        """By how much the record may move each message: numbers ``[aggregation][step]``, as lists for JSON.

        Entry ``[a][s]`` is the share of the sensitivity of the message of aggregation a (from 0, within a
        round) by which it moves at most if local step s is the first one that the record is drawn in.

        Args:
            replaced: whether the record is replaced in the other world; ``False``: it is zeroed out.
        """
        listed = self.replaced_moves or self.moves if replaced else self.moves
        return [list(steps) for steps in listed]


SHUFFLED = BatchFacts()


RecordNeighbours = Literal["zero-out", "replace"]


@dataclass(frozen=True)
class RecordReleases:
    """Releases that were trained on the same draws of one device's records.

    Attributes:
        releases: of one such draw.
        count: how often it happens; the draws are independent of each other.
        moves: the share of their sensitivity that moves if the record is first drawn at each local step;
            empty where the record counts as drawn.
        replaced_moves: the same where the record is replaced; empty where it is the same.
        participation: probability that the device is drawn itself, where nobody sees it and it has one
            release in the draw; 1 otherwise: it is charged as taking part.
        largest_move: the share where the record counts as drawn.
        beyond: probability that more records answer to it than is charged.
    """

    releases: tuple[Release, ...]
    count: int
    moves: tuple[float, ...] = ()
    replaced_moves: tuple[float, ...] = ()
    participation: float = 1.0
    largest_move: float = 1.0
    beyond: float = 0.0

    def term(self, rate: float, neighbours: RecordNeighbours) -> GaussianTerm:
        """The accountant's term for a record that is in a local step with probability ``rate``.

        Even where the record is only zeroed out, a message moves by up to twice its bound, because later
        gradients of the other records may change with it. The message without a device that may be absent is
        at most half as far from either world.

        Args:
            rate: in [0, 1]; not used where draws of records do not amplify (no `moves`).
            neighbours: what happens to the record: *replace* exchanges it, *zero-out* takes it away.

        Returns:
            A term of `count` releases; its multiplier is ∞ where nothing moves.
        """
        square = total_mu_squared(self.releases, "replace")
        multiplier = math.inf if square == 0 else square**-0.5
        if not self.moves:
            return GaussianTerm(multiplier / self.largest_move, self.count)
        may_be_absent = self.participation < 1
        between = self.replaced_moves or self.moves if neighbours == "replace" else self.moves
        from_shared = [max(share, 0.5) if may_be_absent else share for share in self.moves]
        largest = max(*between, *from_shared)
        drawn = (
            (self.participation * rate * (1.0 - rate) ** step, one / largest, other / largest)
            for step, (one, other) in enumerate(zip(between, from_shared, strict=True))
        )
        sampling = Sampling.of_batches(drawn, shares_a_part=may_be_absent or neighbours == "replace")
        return GaussianTerm(multiplier / largest, self.count, sampling)


def releases_by_batches(
    drawn: DrawnReleases,
    batches: BatchFacts,
    *,
    one_draw: bool = False,
    sure: bool = False,
    rounded: bool = False,
) -> Iterator[RecordReleases]:
    """Yield the releases of ``drawn`` in parts, each with the local steps that its messages were trained in.

    Args:
        drawn: releases of the flow exposure, where messages are trained from what exposed releases determine.
        batches: how the device draws the records of a local step.
        one_draw: whether all messages of a round share their local steps.
        sure: whether the record counts as drawn into every message.
        rounded: whether the device rounds a message that has no noise yet, on a grid that its data choose.

    Yields:
        One part for each release; one for all of them where they share local steps. Where examples are
        clipped and nothing bounds how far other examples answer to the record: one without noise, so ε is ∞.
    """
    others = any(map(_others_move, drawn.releases))
    sure = sure or others
    unbounded = others or rounded or ((sure or one_draw) and not batches.answering)
    if batches.clips_examples and unbounded:
        bare = tuple(replace(release, variance=0.0) for release in drawn.releases)
        yield RecordReleases(bare, drawn.count)
        return
    largest = float(batches.answering or 1)
    if one_draw:
        steps = sum(map(len, batches.moves))
        moves = () if sure else (largest,) * steps
        yield RecordReleases(
            drawn.releases, drawn.count, moves, largest_move=largest, beyond=batches.beyond * steps
        )
        return
    single = len(drawn.releases) == 1 and drawn.sampling.kind == "poisson" and not drawn.divides_by_drawn
    device_draw_amplifies = single and drawn.amplifies and not batches.clips_examples
    participation = drawn.sampling.rate if device_draw_amplifies else 1.0
    both = zip(batches.moves, batches.replaced_moves or batches.moves, strict=True)
    for release, (moves, replaced) in zip(drawn.releases, both, strict=True):
        beyond = batches.beyond * len(moves)
        if sure:
            yield RecordReleases((release,), drawn.count, largest_move=largest, beyond=beyond)
            continue
        if rounded:
            moves = replaced = (1.0,) * len(moves)
        answered = beyond if len(moves) > 1 else 0.0
        yield RecordReleases(
            (release,), drawn.count, moves, replaced, participation, largest_move=largest, beyond=answered
        )


def noised_steps(multiplier: float, count: int) -> RecordReleases:
    """The releases by which a record is charged where its device noises the gradient sum of each local step.

    Everything that anybody receives is computed from these sums. A record zeroed out takes one gradient away,
    a record replaced exchanges it.

    Args:
        multiplier: noise std of a step over the norm that gradients of examples are clipped to.
        count: number of local steps in the whole training.
    """
    step = Release("local step", "the noised gradients", 1.0, 0.0, multiplier**2, True)
    return RecordReleases((step,), count, (0.5,), (1.0,))


def _others_move(release: Release) -> bool:
    """Whether the unit's data may move ``release`` through the messages of other devices."""
    return release.propagated_sensitivity > 0 or release.linking > 0


@dataclass(frozen=True)
class RecordCharge:
    """How a record of one device is charged towards one coalition.

    Attributes:
        rate: q of the record; ``None`` where it counts as drawn.
        drawn: the flow exposure by draws of batches; used with a ``rate`` only.
        why_not_drawn: without a ``rate``, why.
        neighbours: zero-out or replace; as the number of a device's records is public, one that is removed is
            one that is zeroed out.
        what: ``record``, or ``person`` whose rows are one record (the same rules hold of it).
        noised_steps: local steps to which the device adds noise itself; 0 where messages are noised.
        by_filter: whether a privacy filter holds the device's budget, whatever rounds are played instead.
    """

    rate: float | None
    drawn: tuple[RecordReleases, ...]
    why_not_drawn: str
    neighbours: RecordNeighbours
    by_filter: bool = False
    noised_steps: int = 0
    what: str = "record"

    @classmethod
    def of(
        cls,
        declared: DeclaredReleases,
        device: int,
        coalition: Sequence[Party],
        *,
        neighbours: Neighbours,
        drawn_like: int | None = None,
        by_filter: bool = False,
        what: str = "record",
    ) -> RecordCharge:
        """The charge of a record of ``device`` towards ``coalition``.

        Args:
            declared: the declared releases.
            device: whose record it is.
            coalition: who observes it.
            neighbours: the relation of the spec.
            drawn_like: the device whose records are drawn as often as this one; ``None``: ``device``.
            by_filter: whether a privacy filter holds the device's budget.
            what: ``record`` or ``person``.
        """
        batches = declared.batches
        rate = None
        if batches.rates is not None:
            rate = float(batches.rates[device if drawn_like is None else drawn_like])
        relation: RecordNeighbours = "replace" if neighbours == "replace" else "zero-out"
        drawn = declared.record_releases(device, coalition)
        steps = sum(part.count for part in drawn) if batches.step_multiplier else 0
        return cls(rate, drawn, batches.why_not_drawn, relation, by_filter, steps, what)

    def bound_epsilon(
        self, exposure: Exposure, *, delta: float, ways: Sequence[Composition] = ()
    ) -> EpsilonBound:
        """The smallest ε of the record at ``delta``, as a bound; ``exposure`` is its device's.

        ``ways``: the result of `ways` for ``exposure`` where it is known already; empty: it is computed.
        """
        bound = smallest_epsilon(ways or self.ways(exposure), self._number_of_releases(exposure), delta=delta)
        return replace(bound, neighbours=self.neighbours)

    def _number_of_releases(self, exposure: Exposure) -> int:
        """How many releases the bound of ``exposure`` charges for the record, repeated ones counted.

        Where draws of the record count, under flow, they are those of `drawn`; else those of ``exposure``.
        """
        if self.rate is None or exposure.bound_name != "flow":
            return exposure.release_count
        return sum(part.count * len(part.releases) for part in self.drawn)

    def ways(self, exposure: Exposure) -> tuple[Composition, ...]:
        """Every sound way to charge the record, given the ``exposure`` of its device.

        One counts how rarely the record is drawn, where that is known; the others charge as if all data of
        the device were replaced.
        """
        reason = self._why_replaced(exposure)
        if self.by_filter and self.neighbours == "zero-out":
            charged = ways_to_charge(_with_doubled_sensitivities(exposure), "zero-out")
        else:
            charged = ways_to_charge(exposure, "replace")
        replaced = tuple(replace(way, how=f"{way.how}; {AS_REPLACED} ({reason})") for way in charged)
        if not self.counts_draws(exposure):
            return replaced
        failure = min(1.0, math.fsum(part.count * part.beyond for part in self.drawn))
        releases = tuple(part.releases for part in self.drawn)
        drawn = Composition(self.drawn_terms(), self.neighbours, self._in_words(), failure, releases)
        return (drawn, *replaced)

    def _why_replaced(self, exposure: Exposure) -> str:
        """A phrase for people: why the record is charged as if all data of its device were replaced."""
        if exposure.bound_name != "flow":
            return f"behind hidden releases no draw of {self.what}s amplifies"
        if self.rate is None:
            return self.why_not_drawn
        if not self.counts_draws(exposure):
            return f"draws of {self.what}s are not counted where members may be elected"
        return f"counting how rarely the {self.what} is drawn gives no less"

    def counts_draws(self, exposure: Exposure) -> bool:
        """Whether one of the ways to charge the record in ``exposure`` counts how rarely it is drawn."""
        office = bool(exposure.election_events or exposure.alternatives)
        return self.rate is not None and exposure.bound_name == "flow" and not (office or self.by_filter)

    def drawn_terms(self) -> tuple[GaussianTerm, ...]:
        """The terms to compose where draws into batches count: one for each entry of `drawn`."""
        assert self.rate is not None  # `counts_draws` says when
        return tuple(part.term(self.rate, self.neighbours) for part in self.drawn)

    def _in_words(self) -> str:
        """A phrase for people: how likely the record is in a message, and its device in a round."""
        assert self.rate is not None
        if self.noised_steps:
            return (
                f"the device adds noise at {self.noised_steps:,} local steps, and the {self.what} is in each "
                f"with probability {self.rate:.4g}, unseen; what anybody receives follows from these"
            )
        steps = sorted({len(part.moves) for part in self.drawn if part.moves})
        if not steps or self.rate == 1:
            return f"the {self.what} counts as drawn in every message"
        counts = " or ".join(map(str, steps))
        chances = " or ".join(f"{-math.expm1(n * math.log1p(-self.rate)):.4g}" for n in steps)
        plural = "s" if steps[-1] > 1 else ""
        how = f"the {self.what} is in a message of {counts} local step{plural}"
        how += f" with probability {chances}, unseen"
        participation = min(part.participation for part in self.drawn)
        if participation < 1:
            how += f", and its device in a round with probability {participation:.4g}, unseen"
        return how


def _with_doubled_sensitivities(exposure: Exposure) -> Exposure:
    """``exposure`` with every sensitivity doubled, as for a device that is replaced.

    A privacy filter keeps the sum of μ² under zero-out below a budget, though rounds may turn out other than
    declared. The μ² of a replaced device is at most four times that, whatever the rounds.
    """

    def doubled(releases: tuple[Release, ...]) -> tuple[Release, ...]:
        return tuple(
            replace(
                release,
                own_sensitivity=2.0 * release.own_sensitivity,
                propagated_sensitivity=2.0 * release.propagated_sensitivity,
            )
            for release in releases
        )

    return replace(
        exposure, draws=tuple(replace(drawn, releases=doubled(drawn.releases)) for drawn in exposure.draws)
    )
