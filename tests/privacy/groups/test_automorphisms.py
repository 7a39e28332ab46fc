"""Orbits of groups and workers, and what happens where a computation of them goes wrong without a word."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT

from sfumato import account, load_spec
from sfumato.privacy.groups import symmetries as symmetry
from sfumato.privacy.groups import vector_clocks as clocks
from sfumato.privacy.groups.pair_classes import GroupPairs
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.symmetries import orbits
from sfumato.privacy.groups.vector_clocks import UNREACHED, GroupStructure, WorkerKinds
from sfumato.privacy.observers import PUBLIC, PairClass, Party, covering
from sfumato.privacy.tree.pair_classes import TreePairs
from sfumato.schedule.resolve import resolve


def kinds_of(groups: tuple[tuple[int, ...], ...]) -> WorkerKinds:
    return WorkerKinds.among(1 + max(itertools.chain(*groups)), [GroupStructure(1, groups)])


def ring(groups: int, first: int = 0) -> tuple[tuple[int, ...], ...]:
    return tuple((first + g, first + (g + 1) % groups) for g in range(groups))


# --- the orbits themselves ------------------------------------------------------------------------


def by_trying_all(groups, colours):
    """Orbits of groups under every permutation of them that keeps colours and workers."""
    count = len(groups)
    workers = sorted(tuple(g for g in range(count) if w in groups[g]) for w in set(itertools.chain(*groups)))
    smallest = list(range(count))
    for permutation in itertools.permutations(range(count)):
        moved = sorted(tuple(sorted(permutation[g] for g in worker)) for worker in workers)
        if moved == workers and all(colours[g] == colours[permutation[g]] for g in range(count)):
            smallest = [min(old, permutation.index(g)) for g, old in enumerate(smallest)]
    return smallest


@st.composite
def structures(draw):
    workers = draw(st.integers(2, 8))
    member = st.lists(st.integers(0, workers - 1), min_size=1, max_size=4, unique=True).map(sorted)
    groups = draw(st.lists(member.map(tuple), min_size=1, max_size=5))
    in_none = [(w,) for w in range(workers) if w not in set(itertools.chain(*groups))]
    groups = tuple(groups + in_none)[:6]
    colours = draw(st.lists(st.integers(0, 1), min_size=len(groups), max_size=len(groups)))
    return groups, colours


@settings(max_examples=80, deadline=None, derandomize=True)
@given(structures())
def test_groups_in_one_orbit_are_those_that_a_permutation_swaps(structure):
    groups, colours = structure
    _, found = orbits(kinds_of(groups), colours)
    assert found.tolist() == by_trying_all(groups, colours)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.permutations(range(9)), max_size=4))
def test_joined_orbits_are_the_components_of_the_mappings(mappings):
    parent = list(range(9))

    def root(member: int) -> int:
        return member if parent[member] == member else root(parent[member])

    for mapping in mappings:
        for member, image in enumerate(mapping):
            low, high = sorted((root(member), root(image)))
            parent[high] = low
    assert symmetry._smallest_of_orbits(9, mappings).tolist() == [root(member) for member in range(9)]


# --- computed wrongly, without an error ----------------------------------------------------------


def merged(count: int, mappings: object) -> np.ndarray:
    """What scipy 1.11.1 and 1.11.2 amounted to: one class for everything."""
    return np.zeros(count, dtype=np.int64)


def unmarked(count: int, mappings: object) -> np.ndarray:
    """The labels that those versions left behind."""
    return np.full(count, -9999, dtype=np.int64)


DISJOINT = ((0, 1, 2), (3, 4, 5), (6, 7, 8))
UNEQUAL = {
    "colours": (DISJOINT, [20.0, 1.0, 1.0]),
    "sizes": (((0, 1), (2, 3, 4)), [1.0, 1.0]),
    "places on a path": (((0, 1), (1, 2), (2, 3)), [1.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("wrong", [merged, unmarked])
@pytest.mark.parametrize("structure", UNEQUAL.values(), ids=UNEQUAL)
def test_merged_orbits_are_refused(structure, wrong, monkeypatch):
    groups, colours = structure
    kinds = kinds_of(groups)
    assert len(set(orbits(kinds, colours)[1].tolist())) > 1
    monkeypatch.setattr(symmetry, "_smallest_of_orbits", wrong)
    with pytest.raises(RuntimeError, match="not alike; no privacy figure"):
        orbits(kinds, colours)


@pytest.mark.parametrize(
    ("groups", "colours", "of_kinds", "of_groups", "what"),
    [
        pytest.param(DISJOINT, [20.0, 1.0, 1.0], [0, 0, 0], [0, 1, 1], "kinds of workers", id="kinds alone"),
        pytest.param(DISJOINT, [20.0, 1.0, 1.0], [0, 1, 1], [0, 0, 0], "groups", id="groups alone"),
        pytest.param(((0, 1), (1,)), [1.0, 1.0], [0, 1], [0, 0], "groups", id="unequal workers"),
        pytest.param(DISJOINT, [1.0, 1.0, 1.0], [1, 1, 1], [0, 0, 0], "kinds of workers", id="not first"),
    ],
)
def test_orbits_that_are_wrong_on_one_side_are_refused(
    groups, colours, of_kinds, of_groups, what, monkeypatch
):
    answers = iter([np.array(of_kinds), np.array(of_groups)])
    monkeypatch.setattr(symmetry, "_smallest_of_orbits", lambda *_: next(answers))
    with pytest.raises(RuntimeError, match=f"^{what}: number"):
        orbits(kinds_of(groups), colours)


EXAMPLE = ROOT / "examples" / "dp-ogl" / "cl.yaml"


def test_no_figure_of_the_spec_that_merged_classes_got_wrong(monkeypatch):
    """With all groups in one class this spec said 1.97 for 9,900 pairs; 1,800 of them have 98.16."""
    spec = load_spec(EXAMPLE, ["privacy.noise.multiplier=[20,1,1,1]"])
    pairs = [
        pair
        for pair in resolve(spec).releases.pair_classes()
        if pair.relation.words == "device in a common group"
    ]
    assert [(pair.unit, pair.pair_count) for pair in pairs] == [(0, 600), (25, 1800)]
    monkeypatch.setattr(symmetry, "_smallest_of_orbits", merged)
    with pytest.raises(RuntimeError, match="no privacy figure"):
        account(spec)


# --- ways between groups ---------------------------------------------------------------------------


def linked(*links: tuple[int, int], groups: int) -> np.ndarray:
    matrix = np.eye(groups, dtype=np.bool_)
    for one, other in links:
        matrix[one, other] = matrix[other, one] = True
    return matrix


def test_hops():
    links = linked((0, 1), (1, 2), (2, 3), (0, 4), groups=6)
    assert clocks.hops_between_groups(links)[0].tolist() == [0, 1, 2, 3, 1, UNREACHED]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda hops: hops + 1, id="all one longer"),
        pytest.param(lambda hops: np.full_like(hops, np.inf), id="none found"),
        pytest.param(lambda hops: np.where(hops > 1, np.inf, hops), id="far ones not found"),
        pytest.param(lambda hops: np.where(hops > 1, np.nan, hops), id="not numbers"),
        pytest.param(lambda hops: np.where(np.triu(hops) > 1, np.inf, hops), id="far ones not found one way"),
        pytest.param(lambda hops: np.where(np.tril(hops) > 1, np.inf, hops), id="nor the other way"),
        pytest.param(lambda hops: np.where(hops == 2, 3, hops), id="a detour"),
        pytest.param(lambda hops: hops[:1], id="one row"),
    ],
)
def test_ways_that_are_too_long_are_refused(wrong, monkeypatch):
    """A way too long hides releases, and an ε would be too small."""
    from scipy.sparse import csgraph

    found = csgraph.shortest_path
    monkeypatch.setattr(csgraph, "shortest_path", lambda *args, **named: wrong(found(*args, **named)))
    with pytest.raises(RuntimeError, match="not the shortest"):
        clocks.hops_between_groups(linked((0, 1), (1, 2), (2, 3), groups=4))


# --- classes cover all pairs -----------------------------------------------------------------------


def pair(stands_for: int) -> PairClass:
    return PairClass(0, Party("public"), PUBLIC, stands_for)


def test_classes_that_do_not_cover_every_pair_once_are_refused():
    assert [found.pair_count for found in covering([pair(2), pair(3)], 5)] == [2, 3]
    for classes in ([pair(2)], [pair(2), pair(4)], [], [pair(5), pair(0)], [pair(6), pair(-1)]):
        with pytest.raises(RuntimeError, match="no privacy figure"):
            covering(classes, 5)


def test_a_lost_class_of_units_in_groups_is_refused(monkeypatch):
    declared = GroupReleases(
        "dp-ogl", 4, (GroupStructure(1, ((0, 1), (2, 3))),), 3, 1, (1.0, 1.0), (1.0, 2.0), (1.0, 1.0)
    )
    assert sum(found.pair_count for found in declared.pair_classes()) == 4 * (2 + 3)
    monkeypatch.setattr(GroupPairs, "unit_classes", ((0, 2),))
    with pytest.raises(RuntimeError, match=r"10 pairs .* 20;"):
        declared.after(3).pair_classes()


@pytest.mark.parametrize("unit", [None, 0])
def test_a_lost_class_of_observers_in_groups_is_refused(unit, monkeypatch):
    structure = GroupStructure(1, (DISJOINT[0], DISJOINT[1]))
    declared = GroupReleases("dp-ogl", 6, (structure,), 3, 1, (1.0,) * 2, (1.0,) * 2, (1.0,) * 2)
    found = GroupPairs._observers_of
    monkeypatch.setattr(GroupPairs, "_observers_of", lambda *args, **more: list(found(*args, **more))[1:])
    with pytest.raises(RuntimeError, match="no privacy figure"):
        declared.pair_classes(unit)


TREE = ["topology.edges=3", "topology.devices_per_edge=4", "privacy.noise={multiplier: 1}"]


@pytest.mark.parametrize("unit", [None, 0])
def test_a_class_of_devices_lost_or_counted_twice_in_a_tree_is_refused(unit, monkeypatch):
    declared = resolve(load_spec("quickstart", TREE)).releases
    nodes = sum(map(len, declared.parents))
    units = 1 if unit is not None else 12
    assert sum(found.pair_count for found in declared.pair_classes(unit)) == units * (nodes + 1 + 11)
    right = TreePairs._elsewhere
    monkeypatch.setattr(TreePairs, "_elsewhere", lambda *args: list(right(*args))[1:])
    with pytest.raises(RuntimeError, match="no privacy figure"):
        replace(declared).pair_classes(unit)
    monkeypatch.setattr(TreePairs, "_elsewhere", lambda *args: list(right(*args)) * 2)
    with pytest.raises(RuntimeError, match="no privacy figure"):
        replace(declared).pair_classes(unit)
