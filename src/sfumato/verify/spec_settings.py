"""What spec.yaml says: trees, sites, groups, eras, trust and dropouts; and facts compared with it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING
from sfumato.verify.read import Json, UnknownKindError, shortened


class WrittenEra(NamedTuple):
    """Rounds in a row with the same devices under the same edges, and the same trust.

    Attributes:
        first: the first of them, from 1.
        rounds: how many.
        places: the edge of every device.
        trusted: indices of the trusted edges, ascending.
        trust_changes: whether the trusted edges differ between eras of the spec.
    """

    first: int
    rounds: int
    places: tuple[int, ...]
    trusted: tuple[int, ...]
    trust_changes: bool


def eras_in_spec(spec: Json) -> list[WrittenEra]:
    """The eras (rounds with the same places and trust) that spec.yaml determines, in order.

    [] where it has neither moves nor ``trust.from``.

    Raises:
        UnknownKindError: the tree has more than two tiers, or moves are not listed one by one.
    """
    moves, changes = spec["topology"].get("moves"), (spec.get("trust") or {}).get("from")
    if moves is None and changes is None:
        return []
    names, _, sizes = tree_shape(spec["topology"])
    if len(names) != 2 or (moves is not None and moves.get("trace") is None):
        raise UnknownKindError("spec.yaml: topology.moves: this checker has no rule for them as they stand")
    place = [edge for edge, size in enumerate(sizes) for _ in range(size)]
    told = {read.count(int(first)): tuple(sorted(set(edges))) for first, edges in (changes or {}).items()}
    always = tuple(np.flatnonzero(trusted_edges(spec, len(sizes))).tolist()) if changes is None else ()
    trusted = told[0] if changes is not None else always
    found: list[WrittenEra] = []
    for round_ in range(1, read.count(spec["training"]["rounds"]) + 1):
        for first, device, edge in (moves or {}).get("trace", ()):
            if first == round_:
                place[read.count(device)] = read.count(edge)
        trusted = told.get(round_, trusted)
        if found and (found[-1].places, found[-1].trusted) == (tuple(place), trusted):
            found[-1] = found[-1]._replace(rounds=found[-1].rounds + 1)
        else:
            found.append(WrittenEra(round_, 1, tuple(place), trusted, False))
    several = len({era.trusted for era in found}) > 1
    return [era._replace(trust_changes=several) for era in found]


def clip_kind(spec: Json) -> str:
    """What is clipped: ``update`` (where the spec names nothing), ``step`` or ``example``."""
    return str((spec["privacy"].get("clip") or {}).get("kind", "update"))


def has_gaussian_law(spec: Json) -> bool:
    """Whether the noise of a spec is Gaussian; true where no mechanism is named."""
    mechanism = spec["privacy"].get("mechanism")
    return not mechanism or str(mechanism.get("law", "other")) == "gaussian"


def keeps_control_variates(spec: Json) -> bool:
    """Whether devices keep SCAFFOLD's control variates, so that messages depend on earlier rounds."""
    correction = spec.get("training", {}).get("drift_correction") or {}
    return (correction if isinstance(correction, str) else correction.get("kind")) == "scaffold"


def worker_count(topology: Json) -> int:
    """Number of devices of a topology of groups: ``devices``, else one more than the largest index listed."""
    return topology.get("devices") or 1 + max(max(group) for group in groups_in_spec(topology))


def unlike_spec(name: str, held: Any, wanted: Any) -> Iterator[str]:
    """Yield a line if the value ``held`` in ``ledger.json`` differs from the one that spec.yaml gives.

    Args:
        name: of the fact, in the message.
        held: value, or values, of ``ledger.json``; numbers are compared up to rounding.
        wanted: value, or values, by spec.yaml.
    """
    if isinstance(held, bool) or isinstance(wanted, str | bool):
        same = held == wanted
    else:
        one, other = np.atleast_1d(np.asarray(held, float)), np.atleast_1d(np.asarray(wanted, float))
        same = one.shape == other.shape and np.allclose(one, other, rtol=ROUNDING, atol=0.0)
    if not same:
        yield f"ledger.json: {name}: {shortened(held)}; spec.yaml gives {shortened(wanted)}"


def tree_shape(topology: Json) -> tuple[list[str], list[list[int]], list[int]]:
    """The shape of the tree that a topology describes.

    Returns:
        Names of the tiers from the root; for each tier the parent of each node (-1 for the root); and the
        number of devices of each leaf.

    Raises:
        UnknownKindError: the tree is written in a form without a rule.
    """
    if topology["kind"] == "star":
        return ["cloud"], [[-1]], [topology["devices"]]
    if topology.get("edges") is not None:
        count, each = topology["edges"], topology["devices_per_edge"]
        return ["cloud", "edge"], [[-1], [0] * count], each if isinstance(each, list) else [each] * count
    parents, named = [[-1]], topology.get("level_names") or ["edge"]
    if topology.get("levels") is not None:
        *above, below = topology["levels"]
        for children in above:
            parents.append([node for node in range(len(parents[-1])) for _ in range(children)])
        return ["cloud", *named], parents, [below] * len(parents[-1])
    if topology.get("sites") is None:
        no_rule = "this checker has no rule for a tree that is not written out"
        raise UnknownKindError(f"spec.yaml: topology: {no_rule}")
    sites = list(topology["sites"])
    parents.append([0] * len(sites))
    while any(site.get("sites") for site in sites):
        parents.append([place for place, site in enumerate(sites) for _ in site["sites"]])
        sites = [below for site in sites for below in site["sites"]]
    return ["cloud", *named], parents, [site["devices"] for site in sites]


def survival_threshold(spec: Json, parties: int) -> int:
    """Fewest clients, of ``parties``, that must survive for a session of secure aggregation to give a sum.

    More than 2/3 of them, or the share of ``faults.survival_threshold``, but always more than half.
    """
    share = (spec.get("faults") or {}).get("survival_threshold")
    if share is None:
        return 2 * parties // 3 + 1
    return max(math.ceil(read.figure(share) * parties - 1e-9), parties // 2 + 1)


def one_per_edge(value: Any, edges: int) -> list[int]:
    """One whole number for each of ``edges`` edges: the list ``value``, or the number ``value`` repeated.

    Raises:
        ValueError: a list has another length.
        UnknownKindError: ``value`` is a mapping by name of the edges.
    """
    if isinstance(value, dict):
        raise UnknownKindError("spec.yaml: training: this checker has no rule for counts by name of edges")
    found: list[int] = read.counts(value if isinstance(value, list) else [value] * edges).tolist()
    if len(found) != edges:
        raise ValueError(f"spec.yaml: training: {len(found)} numbers for {edges} edges")
    return found


def trusted_edges(spec: Json, leaves: int) -> npt.NDArray[np.bool_]:
    """For each leaf under a cloud, whether spec.yaml calls it trusted in all rounds, ``[leaves]``.

    Raises:
        UnknownKindError: trust is given as a share of the edges, not as a list.
    """
    trust, found = spec.get("trust") or {}, np.zeros(leaves, dtype=np.bool_)
    sites = spec["topology"].get("sites") or ()
    for place, site in enumerate(sites):
        found[place] = bool(site.get("trusted"))
    listed = trust.get("trusted_edges") or []
    if not isinstance(listed, list):
        raise UnknownKindError("spec.yaml: trust: this checker has no rule for a share of trusted edges")
    found[listed] = True
    named = places_of_named_sites(sites)
    level = tree_shape(spec["topology"])[0][-1]
    named |= {f"{level}:{leaf}": (1, leaf) for leaf in range(leaves)}
    found[[named[name][1] for name in trust.get("trusted") or ()]] = True
    return found


def places_of_named_sites(sites: Sequence[Json], tier: int = 1) -> dict[str, tuple[int, int]]:
    """The tier and the index in it of every named site, by name, at any depth; empty without names.

    ``sites``: the nodes of tier ``tier``, each with its own ``sites`` below.
    """
    found: dict[str, tuple[int, int]] = {}
    below: list[Json] = []
    for index, site in enumerate(sites):
        if site.get("name"):
            found[str(site["name"])] = tier, index
        below += site.get("sites") or ()
    return found | (places_of_named_sites(below, tier + 1) if below else {})


def may_drop_out(spec: Json) -> bool:
    """Whether spec.yaml has a dropout rate above 0, so that a message may be lost."""
    rates = (spec.get("faults") or {}).get("dropout_rate", 0.0)
    return any(rates.values() if isinstance(rates, dict) else [rates])


def sort_members(listed: Any) -> list[list[int]]:
    """Copies of the groups in ``listed``, each as an ascending list of its workers' indices."""
    return [sorted(read.counts(group).tolist()) for group in listed]


def groups_in_spec(topology: Json) -> list[list[int]]:
    """The ascending indices of the workers of each group, listed or by ``structure``.

    Raises:
        UnknownKindError: there is no rule for this structure.
    """
    if isinstance(topology.get("groups"), list):
        return sort_members(topology["groups"])
    structure, workers = topology["structure"], topology["devices"]
    if structure == "global":
        return [list(range(workers))]
    if structure not in ("clusters", "ring", "string"):
        raise UnknownKindError(f"spec.yaml: topology: this checker has no rule for groups by {structure!r}")
    count = topology["groups"]
    starts = [group * workers // count for group in range(count + 1)]
    held = [range(first, stop + (structure != "clusters")) for first, stop in pairwise(starts)]
    if structure == "ring":
        return [sorted({i % workers for i in one}) for one in held]
    return [[i for i in one if i < workers] for one in held]
