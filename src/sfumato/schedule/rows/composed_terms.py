"""What was composed for an ε, in words: how many of which messages, at which noise, moved how often.

A multiplier is the standard deviation of the noise that the observer does not know over how far the message
moves between neighbours, as it was composed. The ε follows from these words, unless they say "at least" or
"not written out" (docs/accounting.md, "What a sentence says").
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from sfumato.privacy.charges import Composition
from sfumato.privacy.release import Release
from sfumato.privacy.sampling import GaussianTerm, Sampling
from sfumato.rounding import number

_MOST_TERMS = 6
_MOST_MOVES = 3
_figure = lru_cache(maxsize=1024)(number)  # as text; many rows have the same terms


def composed_terms(way: Composition, *, in_groups: bool) -> str:
    """The terms of ``way``: equal ones are added up, those that are moved as often stand together.

    Args:
        way: that was composed.
        in_groups: whether each group has its own draw.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for place, term in enumerate(way.terms):
        releases = way.releases[place] if place < len(way.releases) else ()
        counts[_moved(term), _named(releases, in_groups=in_groups) + _multiplier(term)] += term.count
    listed = list(counts.items())
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for (moved, what), count in listed[:_MOST_TERMS]:
        alike[moved].append(f"{count:,}{what.replace(' rounds', ' round') if count == 1 else what}")
    said = [_joined(found) + moved for moved, found in alike.items()]
    if len(listed) > _MOST_TERMS:
        said.append(f"{sum(count for _, count in listed[_MOST_TERMS:]):,} more, not written out")
    return "; ".join(said)


def _named(releases: Sequence[Release], *, in_groups: bool) -> str:
    """Of which messages one term is: those of one draw together."""
    if not releases:
        return " rounds, in which an elected member receives more,"
    counts = Counter(_vector(release, in_groups=in_groups) for release in releases)
    if len(releases) == 1:
        return f" of {next(iter(counts))}"
    each = [f"{count} of {vector}" for vector, count in list(counts.items())[:_MOST_TERMS]]
    if len(counts) > _MOST_TERMS:
        each.append("others")
    return f" rounds, each with {_joined(each)} together"


def _vector(release: Release, *, in_groups: bool) -> str:
    if not in_groups:
        return release.vector
    group = release.name.partition(",")[0]
    vector = release.vector if group in release.vector else f"{release.vector} of {group}"
    if release.linking == 1:
        return f"{vector}, moved by 1 worker that passes on what it learnt,"
    if release.linking:
        return f"{vector}, moved by {release.linking} workers that pass on what they learnt,"
    return f"{vector}, moved by the others of the group, too," if release.propagated_sensitivity else vector


def _multiplier(term: GaussianTerm) -> str:
    by_chance = term.sampling is not None and (term.sampling.scales or term.sampling.seen_scales)
    return f" at multiplier {_figure(term.multiplier)}{' at least' if by_chance else ''}"


def _moved(term: GaussianTerm) -> str:
    """How often one of the releases of ``term`` moves, and who sees it; empty: always."""
    sampling = term.sampling
    if sampling is None or (sampling.rate == 1 and sampling.kind != "batches"):
        return ""
    if sampling.kind == "batches":
        return f", each moved with probability {_moves(sampling)}"
    seen = "unseen" if sampling.hidden else "seen"
    if sampling.kind == "fixed":
        apart = _joined([_figure(distance) for distance in sampling.apart])
        return (
            f", each moved by a draw of {sampling.sample} of {sampling.population}, {seen} (by {apart} times "
            "that from where another device's message is)"
        )
    said = f", each moved with probability {_figure(sampling.rate)}, {seen}"
    if sampling.shares_a_part:
        return said + _from_shared(dict.fromkeys(map(_share, sampling.apart)))
    return said


def _moves(sampling: Sampling) -> str:
    """How far a message moves, by the local step that first draws the record."""
    listed = sampling.moves[:_MOST_MOVES]
    found = [
        _figure(chance) + (f" by {_share(between)} of that" if len(sampling.moves) > 1 else "")
        for chance, between, _ in listed
    ]
    if len(sampling.moves) > _MOST_MOVES:
        found.append("others by less, not written out")
    said = f"{_joined(found)}, unseen"
    if not sampling.shares_a_part:
        return said
    far = [_share(from_shared) for _, _, from_shared in listed]
    if all(from_shared == between for _, between, from_shared in listed):
        return f"{said}, in both worlds"
    return said + _from_shared(far)


def _from_shared(shares: Iterable[str]) -> str:
    return f", in both worlds by {_joined(list(shares))} of that from where it is otherwise"


def _share(of_move: float) -> str:
    return "all" if of_move == 1 else _figure(of_move)


def _joined(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
