"""One sentence on why a guarantee is what it is: who meets what, behind how much noise, how it was composed.

What was composed is told in words: how many of which messages, at which noise, moved how often. A multiplier
is the standard deviation of the noise that the observer does not know over how far the message moves between
neighbours, as it was composed. The ε follows from these words, unless they say "at least" or "not written
out" (docs/accounting.md, "What a sentence says").
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from sfumato.privacy.charges import Composition
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Exposure, Release
from sfumato.privacy.sampling import GaussianTerm, Sampling
from sfumato.rounding import number, upper_bound
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.watch import watched_coalitions

_number = lru_cache(maxsize=1024)(number)  # rows share their terms


def is_covered_by_filter(plan: Plan, coalition: tuple[Party, ...]) -> bool:
    """Whether the ε towards ``coalition`` holds whatever rounds adaptive control chooses.

    A privacy filter keeps it towards every single observer, and towards the coalitions that ``watch`` names
    (`schedule.control.budget`). True of every coalition where the spec has no control.
    """
    if plan.spec.control is None or len(coalition) == 1:
        return True
    return frozenset(coalition) in map(frozenset, watched_coalitions(plan.spec, plan.parties))


def explain(
    plan: Plan,
    device: int,
    coalition: tuple[Party, ...],
    exposure: Exposure,
    bound: EpsilonBound,
    way: Composition,
    *,
    of_record: bool,
) -> str:
    """One sentence on why an ε is what it is: the releases an observer meets, their noise, the composition.

    Args:
        plan: that the pair is of.
        device: the unit, or the device of the record.
        coalition: the observers.
        exposure: of the device, that gives the smallest bound.
        bound: the smallest.
        way: of charging ``exposure``, that gives it.
        of_record: whether the unit is a record.
    """
    if not any(release.depends_on_unit and count for release, count in exposure.counted_releases):
        return "nothing that depends on this device reaches the observer."
    raw = next((r for r, count in exposure.counted_releases if r.is_unprotected and count), None)
    if raw is not None and math.isinf(bound.epsilon):
        return _explain_unprotected(plan, device, coalition, raw, of_record=of_record)
    if not is_covered_by_filter(plan, coalition):
        return (
            "settings are chosen on the way; a privacy filter holds epsilon towards single observers and the "
            "coalitions that watch names."
        )
    charged = composed_terms(way, in_groups=exposure.groups_draw_separately)
    others = any(release.propagated_sensitivity for release in exposure.releases)
    if others and exposure.bound_name != "flow" and not exposure.groups_draw_separately:
        charged += "; devices that started from hidden averages count as replaced"
    if way.failure_probability > 0:
        charged += f"; nothing protects with probability {upper_bound(way.failure_probability)}, "
        charged += "which is not below δ" if math.isinf(bound.epsilon) else "which is taken off δ"
    how = bound.how
    if plan.spec.control is not None:
        how = "a budget that a privacy filter holds, whatever control chooses"
    chosen = "" if bound.gap is None else f"; {_describe_gap(bound.gap)}"
    return f"charged {charged}; {how}; {bound.neighbours}, composed by {bound.method}{chosen}."


def _describe_gap(gap: float) -> str:
    """A phrase on how far a set of releases may be from the cheapest one.

    ``gap``: the largest ratio of its divergence to the cheapest set's, at least 1 (`Exposure.gap`).
    """
    if gap == 1:
        return "certified: no exposed set has a smaller divergence"
    if math.isinf(gap):
        return "not certified: how small another set's divergence may be is not known"
    return f"not certified: another set's divergence may be up to {upper_bound(gap)} times smaller"


def _explain_unprotected(
    plan: Plan, device: int, coalition: tuple[Party, ...], raw: Release, *, of_record: bool
) -> str:
    """Write a sentence on why a device has no guarantee towards a coalition.

    Args:
        plan: of the network.
        device: index of the unit, or of the device that holds it.
        coalition: its members.
        raw: the release that has no noise.
        of_record: whether the unit is a record or a person of the device.
    """
    if plan.spec.privacy.noise.kind == "none":
        return "nothing adds noise, so nothing protects."
    law = plan.releases.noise_law
    counts = law.is_composed(of_records=of_record)
    trusted = next((party for party in coalition if plan.trusts(party, device)), None)
    if counts and trusted is not None:
        name = plan.releases.party_name(trusted)
        return f"{name} is trusted with raw updates of device:{device}, before any noise is added."
    if law.why_not_composed and counts and plan.releases.batches.rounded:
        return (
            "messages of clipped examples are rounded before they are noised, on a grid that depends on all "
            "of a message, so nothing bounds how far one example moves them."
        )
    if law.why_not_composed:
        return f"{law.name} noise is charged as none: {law.why_not_composed}."
    if plan.releases.has_raw_intervals:
        whose = raw.name.partition(",")[0]
        return f"between releases the models of {whose} are sent to its workers without noise."
    observer = ",".join(plan.releases.party_name(party) for party in coalition)
    return f"{raw.vector} has no noise that {observer} does not know: nobody else adds any before it arrives."


_MOST_TERMS = 6
_MOST_MOVES = 3


def composed_terms(way: Composition, *, in_groups: bool) -> str:
    """The terms of ``way`` in words: how many messages, at which noise, moved how often; equal ones once.

    Args:
        way: that was composed.
        in_groups: whether each group has its own draw.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for place, term in enumerate(way.terms):
        releases = way.releases[place] if place < len(way.releases) else ()
        counts[
            _describe_draw(term),
            _describe_messages(releases, in_groups=in_groups) + _describe_multiplier(term),
        ] += term.count
    listed = list(counts.items())
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for (moved, what), count in listed[:_MOST_TERMS]:
        alike[moved].append(f"{count:,}{what.replace(' rounds', ' round') if count == 1 else what}")
    said = [_join_with_and(found) + moved for moved, found in alike.items()]
    if len(listed) > _MOST_TERMS:
        said.append(f"{sum(count for _, count in listed[_MOST_TERMS:]):,} more, not written out")
    return "; ".join(said)


def _describe_messages(releases: Sequence[Release], *, in_groups: bool) -> str:
    """A phrase on which messages one term is made of: those of one draw together.

    ``releases``: none for a term that elections add; ``in_groups``: whether each group has its own draw.
    """
    if not releases:
        return " rounds, in which an elected member receives more,"
    if len(releases) == 1:
        return f" of {_describe_message(releases[0], in_groups=in_groups)}"
    counts = Counter(_describe_message(release, in_groups=in_groups) for release in releases)
    each = [f"{count} of {vector}" for vector, count in list(counts.items())[:_MOST_TERMS]]
    if len(counts) > _MOST_TERMS:
        each.append("others")
    return f" rounds, each with {_join_with_and(each)} together"


def _describe_message(release: Release, *, in_groups: bool) -> str:
    """A phrase on which messages ``release`` is about; ``in_groups``: of groups, not of a tree."""
    if not in_groups:
        return release.vector
    group = release.name.partition(",")[0]
    vector = release.vector if group in release.vector else f"{release.vector} of {group}"
    if release.linking:
        one = release.linking == 1
        who = (
            "1 worker that passes on what it" if one else f"{release.linking} workers that pass on what they"
        )
        far = f"{'' if one else 'each '}by up to twice the largest norm of a message"
        return f"{vector}, moved by {who} learnt ({far}),"
    return f"{vector}, moved by the others of the group, too," if release.propagated_sensitivity else vector


def _describe_multiplier(term: GaussianTerm) -> str:
    """A phrase on the noise multiplier of ``term``, with "at least" where noise is there by chance."""
    by_chance = term.sampling is not None and (term.sampling.scales or term.sampling.seen_scales)
    return f" at multiplier {_number(term.multiplier)}{' at least' if by_chance else ''}"


def _describe_draw(term: GaussianTerm) -> str:
    """A phrase on how often a release of ``term`` moves, and who sees it; empty: always."""
    sampling = term.sampling
    if sampling is None or (sampling.rate == 1 and sampling.kind != "batches"):
        return ""
    if sampling.kind == "batches":
        return f", each moved with probability {_describe_batch_draw(sampling)}"
    seen = "unseen" if sampling.hidden else "seen"
    if sampling.kind == "fixed":
        apart = _join_with_and([_number(distance) for distance in sampling.apart])
        return (
            f", each moved by a draw of {sampling.sample} of {sampling.population}, {seen} (by {apart} times "
            "that from where another device's message is)"
        )
    said = f", each moved with probability {_number(sampling.rate)}, {seen}"
    if sampling.shares_a_part:
        return said + _describe_shared_moves(dict.fromkeys(map(_as_share, sampling.apart)))
    return said


def _describe_batch_draw(sampling: Sampling) -> str:
    """A phrase on how far a message moves, by the local step that first draws the record."""
    listed = sampling.moves[:_MOST_MOVES]
    found = [
        _number(chance) + (f" by {_as_share(between)} of that" if len(sampling.moves) > 1 else "")
        for chance, between, _ in listed
    ]
    if len(sampling.moves) > _MOST_MOVES:
        found.append("others by less, not written out")
    said = f"{_join_with_and(found)}, unseen"
    if not sampling.shares_a_part:
        return said
    far = [_as_share(from_shared) for _, _, from_shared in listed]
    if all(from_shared == between for _, between, from_shared in listed):
        return f"{said}, in both worlds"
    return said + _describe_shared_moves(far)


def _describe_shared_moves(shares: Iterable[str]) -> str:
    """A phrase on the shares by which several messages move together."""
    return f", in both worlds by {_join_with_and(list(shares))} of that from where it is otherwise"


def _as_share(of_move: float) -> str:
    """A share of a move as text: "all" for 1, else the number."""
    return "all" if of_move == 1 else _number(of_move)


def _join_with_and(parts: Sequence[str]) -> str:
    """The parts as text, with commas and "and" between them."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
