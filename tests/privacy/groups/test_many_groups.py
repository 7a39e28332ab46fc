"""Accounts of many groups: what is left out or found in another way changes no figure."""

from __future__ import annotations

import itertools
import random
from collections import deque

import numpy as np
import pytest

from sfumato.privacy.groups.exposure_problem import ChargedSum, ExposureProblem
from sfumato.privacy.groups.minimum_cut import LinksInto, least_cost_of_any_set
from sfumato.privacy.groups.received_sums import ReceivedSums
from sfumato.privacy.groups.releases import GroupReleases
from sfumato.privacy.groups.symmetries import _Search
from sfumato.privacy.groups.vector_clocks import GroupStructure, as_bits, groups_of_bits
from sfumato.privacy.observers import Party


def random_groups(draw: random.Random) -> GroupReleases:
    """Three to six groups of one to four workers, of every protocol, in one era or two."""
    count, workers = draw.randint(3, 6), draw.randint(4, 9)
    kind = draw.choice(("dp-ogl", "dp-ogl", "dp-ogl-local", "dp-ogl+", "ms-fedavg"))
    owner = "master" if kind == "dp-ogl+" else draw.choice(("master", "devices"))
    every = draw.randint(1, 4)
    rounds = draw.randint(every + 1, 5 * every)

    def structure() -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(sorted(draw.sample(range(workers), draw.randint(1, min(4, workers))))) for _ in range(count)
        )

    eras = [GroupStructure(1, structure())]
    if draw.random() < 0.3:
        eras.append(GroupStructure(1 + every * draw.randint(1, (rounds - 1) // every), structure()))
    rates = tuple(draw.choice((1.0, 0.7, 0.3)) for _ in range(count))
    sigmas = (draw.choice((0.7, 2.0)),) * count
    facts = (kind, workers, tuple(eras), rounds, every, (1.0,) * count, sigmas, rates)
    return GroupReleases(*facts, noise_owner=(owner,) * count)


def random_scene(draw: random.Random) -> tuple[ExposureProblem, ReceivedSums]:
    """The problem of a random pair, and how its observer receives sums."""
    plan = random_groups(draw)
    unit = draw.randrange(plan.device_count)
    if draw.random() < 0.3:
        coalition = (Party("node", 1, draw.randrange(plan.group_count)),)
    else:
        coalition = (Party("device", 0, draw.choice([d for d in range(plan.device_count) if d != unit])),)
    received = plan._received(unit, coalition)
    return received.problem, received


def test_where_no_group_of_the_target_is_upstream_nothing_is_charged() -> None:
    """`ExposureProblem` follows no block then; it would find nothing, whatever is exposed."""
    draw = random.Random("far away")
    far = near = 0
    while far < 60 or near < 60:
        scene, _ = random_scene(draw)
        exposed = np.array(
            [draw.randint(int(a), int(b)) for a, b in zip(scene.seen, scene.reach, strict=True)]
        )
        is_near = scene._is_target_upstream
        found = scene.charged(exposed)
        scene.__dict__["_is_target_upstream"] = True
        followed = scene._followed(exposed)
        assert found == followed
        assert is_near or not followed
        far, near = far + (not is_near), near + bool(followed)


def plain_links(scene: ExposureProblem, received: ReceivedSums) -> dict[int, list[tuple[float, set[int]]]]:
    """`LinksInto` by sets of groups, of all groups at once."""
    bridges, price, found = scene.bridges[0], received.price, {}
    groups_of = [set(groups.tolist()) for groups in np.split(bridges.groups, bridges.first[1:])]
    for group in range(scene.kinds.group_count):
        kinds = [
            (size, groups) for size, groups in zip(bridges.size, groups_of, strict=False) if group in groups
        ]
        own = bool(scene.with_unit(0)[group])
        alone = price(ChargedSum(group, 0, True, 0)) if own and kinds else 0.0

        def extra(number: float, group: int = group, own: bool = own, alone: float = alone) -> float:
            return price(ChargedSum(group, 0, own, int(number))) - alone if alone < np.inf else 0.0

        some = [(extra(size), groups - {group}) for size, groups in kinds]
        if kinds and extra(1) == extra(sum(size for size, _ in kinds)):
            some = [(extra(1), set().union(*(groups for _, groups in kinds)) - {group})]
        found[group] = some
    return found


def plain_least_cost(scene: ExposureProblem, received: ReceivedSums) -> float:
    """`least_cost_of_any_set` of one era, one way after the other, by sets of groups."""
    length, price = scene.blocks[0].length, received.price
    own = np.flatnonzero(scene.with_unit(0))
    ends = np.cumsum([0, *(block.length for block in scene.blocks)])
    paid = sum(int(ends[scene.seen[g]]) * price(ChargedSum(int(g), 0, True, 0)) for g in own if scene.seen[g])
    links = plain_links(scene, received)
    left = {(g, n): cost for g, some in links.items() for n, (cost, _) in enumerate(some)}
    supply = {int(g): length * price(ChargedSum(int(g), 0, True, 0)) for g in own if not scene.seen[g]}

    def way():
        ways = {int(g): () for g in np.flatnonzero(scene.seen > 0)}
        queue = deque(ways)
        while queue:
            group = queue.popleft()
            if supply.get(group, 0.0) > 0:
                return group, ways[group]
            if len(ways[group]) + 1 >= len(scene.blocks):
                continue
            for number, (_, others) in enumerate(links[group]):
                for other in sorted(others - ways.keys()) if left[group, number] > 0 else ():
                    ways[other] = (*ways[group], (group, number))
                    queue.append(other)
        return None

    while (found := way()) is not None:
        source, through = found
        amount = min(supply[source], *(left[link] for link in through))
        if amount == np.inf:
            return np.inf
        paid += amount * (len(scene.blocks) - len(through))
        supply[source] -= amount
        for link in through:
            left[link] -= amount
    return paid


def test_links_and_the_least_cost_are_those_of_the_plain_search() -> None:
    draw = random.Random("links")
    checked = linked = 0
    while checked < 150 or linked < 50:
        scene, received = random_scene(draw)
        if len(scene.kinds.incidence) > 1 or not scene.blocks or not scene.links_add_up:
            continue
        plain, links = plain_links(scene, received), LinksInto(scene, received.price, 0)
        for group, wanted in plain.items():
            assert [(cost, set(groups_of_bits(others))) for cost, others in links[group]] == wanted
        wanted = plain_least_cost(scene, received)
        assert least_cost_of_any_set(scene, received.price) == pytest.approx(wanted, rel=1e-12)
        checked, linked = checked + 1, linked + (wanted > 0 and any(plain.values()))


def test_sets_of_groups_as_bits() -> None:
    for groups in itertools.product((False, True), repeat=6):
        bits = as_bits(np.array(groups))
        assert list(groups_of_bits(bits)) == np.flatnonzero(groups).tolist()


def refined_one_by_one(search: _Search, marked: int) -> list[int]:
    """The stable colouring of vertices with group ``marked`` apart: multisets of colours, no hashes."""
    kinds, colours = search.kinds, search.start.tolist()
    colours[marked] = -1
    edges = [
        (era, group, search.groups + kind)
        for kind, rows in enumerate(kinds.groups)
        for era, groups in enumerate(rows)
        for group in groups
    ]
    while True:
        seen = [[] for _ in colours]
        for era, group, kind in edges:
            seen[group].append((era, colours[kind]))
            seen[kind].append((era, colours[group]))
        names: dict[object, int] = {}
        after = [
            names.setdefault((own, tuple(sorted(others))), len(names))
            for own, others in zip(colours, seen, strict=True)
        ]
        if len(names) == len(set(colours)):
            return after
        colours = after


def test_colours_are_refined_as_far_as_by_comparing_neighbours() -> None:
    draw = random.Random("colours")
    for _ in range(60):
        plan = random_groups(draw)
        search = _Search(plan.kinds, [draw.randint(0, 1) for _ in range(plan.group_count)])
        marked = draw.randrange(plan.group_count)
        start = search.start.copy()
        start[marked] = len(start) + 5
        found = search._refine_both(start, start)
        assert found is not None
        wanted = refined_one_by_one(search, marked)
        pairs = set(zip(found[0].tolist(), wanted, strict=True))
        assert len(pairs) == len(set(wanted)) == len(set(found[0].tolist()))
