"""The drawing of the network: cloud, aggregators, devices, with trust and noise.

A drawing has at most a few hundred marks: for a large network it shows examples of all parties that differ in
trust or noise, and the number of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sfumato.network.tree import Tree
from sfumato.report import formatting as text
from sfumato.report.drawings.network_canvas import (
    MOST_LEAVES,
    TRUST_WORDS,
    Canvas,
    Dot,
    canvas_figure,
    device_noise_lines,
    kind_of_link,
    multiplier_lines,
    noise_sentence,
    shortened_to_fit,
    width_beside_each_other,
)
from sfumato.report.figures.figure import Figure
from sfumato.report.results.network import Network

_ROW = 96.0  # pixels from tier to tier
_MOST_NAMED = 10  # devices of a star that are drawn each with its name


def topology_figure(network: Network) -> Figure | None:
    """A drawing of the tree or the groups of a network; ``None`` if its shape is not known."""
    if network.family is None:
        return None
    return network.family.figure(network)


def tree_figure(network: Network, tree: Tree) -> Figure:
    """A drawing of a tree with the cloud on top; of many nodes or devices only examples.

    Nodes and devices that differ in trust or noise are among the examples; texts say how many more there are.
    """
    if tree.depth == 1 and tree.device_count <= _MOST_NAMED:
        return _star_figure(network, tree)
    canvas = Canvas()
    children = _drawn_children(network, tree)
    order = [leaf for shown in children[-1].values() for leaf in shown] if children else [0]
    places: list[dict[int, float]] = [{} for _ in tree.tiers]
    places[-1] = {leaf: float(slot) for slot, leaf in enumerate(order)}
    for depth in range(tree.depth - 2, -1, -1):
        for parent, shown in children[depth].items():
            places[depth][parent] = sum(places[depth + 1][c] for c in shown) / len(shown)
    for depth, tier_places in enumerate(places):
        for index, x in tier_places.items():
            _draw_node(canvas, network, tree, depth, index, x, len(order))
            if depth < tree.depth - 1:
                _draw_links_below(
                    canvas, network, tree, depth, index, x, places[depth + 1], children[depth][index]
                )
    bottom = (tree.depth - 1) * _ROW
    low = max(
        _draw_devices(canvas, network, tree, leaf, x, bottom, len(order)) for leaf, x in places[-1].items()
    )
    return canvas_figure(canvas, len(order), low, _caption(network, tree, canvas))


def _caption(network: Network, tree: Tree, canvas: Canvas) -> str:
    """The sentences below a drawing: who there is, who is trusted, who else gets raw updates, whose noise.

    Read after all links are drawn on ``canvas``.
    """
    tiers = [text.how_many(tier.size, tier.name) for tier in tree.tiers[1:]]
    devices = text.how_many(tree.device_count, "device")
    parties = text.join_names(["the cloud", *tiers, devices], 9)
    trusted = _trust_sentence(tree)
    for summed, what in ((False, "messages"), (True, "sums of messages")):
        whom = [_exposed(kind, nodes) for (kind, sums), nodes in canvas.exposed_to.items() if sums == summed]
        if whom:
            names = text.join_names(whom, 9)
            trusted += f" Not trusted, and yet sent {what} without noise (orange): {names}."
    return f"{parties}; {trusted} {noise_sentence(network)}"


def _star_figure(network: Network, tree: Tree) -> Figure:
    """A drawing of a star of few devices: each has a place of its own, and its name."""
    canvas, count, trusted = Canvas(), tree.device_count, bool(tree.tiers[0].trusted[0])
    devices, centre = network.noise_of_devices("cloud"), (count - 1) / 2
    names: list[str] = []
    for number in range(count):
        device = f"device:{number}"
        title = tree.titled(device)
        names.append(shortened_to_fit(title if title != device else f"device {number}", count))
        adds = devices.is_of(number)
        noise = device_noise_lines(devices, _tier_names(tree)) if adds else []
        kind = "noisy device" if adds else "device"
        way = _way_up(network, tree, noised=adds, some_noised=devices.of_some, trusted=trusted)
        canvas.link(way, (centre, 0.0), (float(number), _ROW))
        _note_exposure(canvas, tree, 0, 0, way)
        canvas.mark(kind, float(number), _ROW, title, ["under the cloud", *noise], party=device)
        canvas.word(number, _ROW + 20, names[-1])
    _draw_node(canvas, network, tree, 0, 0, centre, count)
    return canvas_figure(
        canvas, count, _ROW + 24, _caption(network, tree, canvas), min_width=width_beside_each_other(names)
    )


def _way_up(network: Network, tree: Tree, *, noised: bool, some_noised: bool, trusted: bool) -> str:
    """The kind of link from devices to their aggregator.

    Args:
        network: that is drawn.
        tree: its tree.
        noised: whether every message on the link contains noise.
        some_noised: whether any device under the aggregator adds noise, so that the sum contains some.
        trusted: whether the aggregator is trusted with raw updates.
    """
    if tree.hop_names[-1] in network.secure:
        return kind_of_link(noised=some_noised, secure=True, trusted=trusted)
    return "superposed" if network.over_air else kind_of_link(noised=noised, secure=False, trusted=trusted)


def _drawn_children(network: Network, tree: Tree) -> list[dict[int, list[int]]]:
    """For every tier except the last: drawn node to the list of its children that are drawn.

    There is room for a limited number of leaves; children that look different come first.
    """
    room, drawn = float(MOST_LEAVES), [0]
    chosen: list[dict[int, list[int]]] = []
    for depth in range(tree.depth - 1):
        most = max(1, round(room ** (1 / (tree.depth - 1 - depth))))
        parents = tree.parents[depth + 1]
        level: dict[int, list[int]] = {}
        for parent in drawn:
            first = int(parents.searchsorted(parent))
            every = range(first, first + int(tree.children[depth][parent]))
            level[parent] = _representatives(every, most, partial(_appearance, network, tree, depth + 1))
        chosen.append(level)
        drawn = [child for shown in level.values() for child in shown]
        room = max(1.0, room / max(len(shown) for shown in level.values()))
    return chosen


def _representatives(every: Sequence[int], most: int, look: Callable[[int], object]) -> list[int]:
    """At most ``most`` of ``every``, ascending: the first of each appearance, then evenly spaced ones.

    Entries have the same appearance where ``look`` gives the same.
    """
    if len(every) <= most:
        return list(every)
    looks: dict[object, int] = {}
    for entry in every:
        looks.setdefault(look(entry), entry)
    kept = list(looks.values())[:most]
    spread = [every[round(i * (len(every) - 1) / max(1, most - 1))] for i in range(most)]
    kept += [entry for entry in spread if entry not in kept][: most - len(kept)]
    return sorted(kept)


def _appearance(network: Network, tree: Tree, depth: int, index: int) -> object:
    """A hashable key of node ``index`` of tier ``depth``, equal for nodes that are drawn alike.

    It says whether the node is trusted, and whether it or the devices at it add noise.
    """
    name = tree.node_name(depth, index)
    devices = network.noise_of_devices(name)
    noises = network.adds_noise(name), devices.of_some, devices.numbers
    return bool(tree.tiers[depth].trusted[index]), *noises


def _draw_node(
    canvas: Canvas, network: Network, tree: Tree, depth: int, index: int, x: float, slots: int
) -> None:
    """Draw the aggregator ``index`` of tier ``depth`` on ``canvas``, with a mark where it adds noise.

    ``x``: its position in slots; ``slots``: how many there are across.
    """
    name, tier = tree.node_name(depth, index), tree.tiers[depth]
    trusted, y = bool(tier.trusted[index]), depth * _ROW
    below = int(tree.children[depth][index])
    kind = tree.tiers[depth + 1].name if depth < tree.depth - 1 else "device"
    title = tier.labels[index] if tier.labels else name
    noise = multiplier_lines(network.noise.get(name, ()), _tier_names(tree))
    lines = [name] if title != name else []
    lines += [TRUST_WORDS[trusted], f"{text.how_many(below, kind)} below", *noise]
    is_named = depth > 0 and title != name
    inside = str(index) if depth and not is_named else ""
    canvas.mark("trusted" if trusted else "untrusted", x, y, title, lines, inside, name)
    if is_named:
        canvas.word(x, y, shortened_to_fit(title, slots), xanchor="left", xshift=18, yshift=-4)
    if depth == 0:
        canvas.word(x, y - 26, "cloud", font={"size": 12})
    if noise:
        canvas.mark("noise", x, y - 20 if depth else y + 22, f"{title} adds noise", noise, party=name)


def _draw_links_below(
    canvas: Canvas,
    network: Network,
    tree: Tree,
    depth: int,
    index: int,
    x: float,
    places: dict[int, float],
    shown: list[int],
) -> None:
    """Draw the links from a node to its drawn children, and a text with how many children are not drawn.

    Args:
        depth: of the node.
        index: of the node among those of its depth.
        x: its position in slots.
        places: positions of the drawn nodes one tier below, by index.
        shown: its children that are drawn.
    """
    y = depth * _ROW
    is_secure = tree.hop_names[depth] in network.secure
    for child in shown:
        # under secure aggregation the one sum of all children counts, else the message of each
        senders = _children_of(tree, depth, index) if is_secure else [child]
        has_noise = all(  # in every step in which they send to this node
            any(_sends_noise(network, tree, depth + 1, sender, tier) for sender in senders)
            for tier in network.aggregating
            if tier <= depth
        )
        trusted = bool(tree.tiers[depth].trusted[index])
        kind = kind_of_link(noised=has_noise, secure=is_secure, trusted=trusted)
        canvas.link(kind, (x, y), (places[child], y + _ROW))
        _note_exposure(canvas, tree, depth, index, kind)
    hidden = int(tree.children[depth][index]) - len(shown)
    if hidden:
        words = f"… and {text.whole(hidden)} more {text.pluralise(tree.tiers[depth + 1].name, hidden)}"
        canvas.word(x, y, words, xanchor="left", xshift=20, yshift=14)


def _draw_devices(
    canvas: Canvas, network: Network, tree: Tree, leaf: int, x: float, y: float, slots: int
) -> float:
    """Draw the devices of ``leaf`` as dots below the leaf's mark; returns the lowest y that they reach.

    ``x``, ``y``: position of the mark, in slots and pixels; ``slots``: how many there are across.
    """
    owner = tree.node_name(tree.depth - 1, leaf)
    devices = network.noise_of_devices(owner)
    noise, first = device_noise_lines(devices, _tier_names(tree)), int(tree.first_device[leaf])
    always = all(map(devices.adds_in, network.aggregating))
    trusted = bool(tree.tiers[-1].trusted[leaf])
    way = _way_up(
        network,
        tree,
        noised=devices.of_all and always,
        some_noised=devices.of_some and always,
        trusted=trusted,
    )
    canvas.link(way, (x, y), (x, y + 44))
    _note_exposure(canvas, tree, tree.depth - 1, leaf, way)

    def describe(number: int) -> Dot:
        """The device with this number, counted under the leaf."""
        device = f"device:{first + number}"
        own = noise if devices.is_of(number) else []
        return Dot(device, tree.titled(device), f"under {tree.titled(owner)}", own)

    return canvas.dots(x, y + 58, int(tree.devices[leaf]), slots, describe)


def _note_exposure(canvas: Canvas, tree: Tree, depth: int, index: int, way: str) -> None:
    """Note on ``canvas`` an aggregator that is not trusted, where what comes the ``way`` to it has no noise.

    ``depth`` and ``index``: of the aggregator; ``way``: the kind of link.
    """
    if way in ("raw", "secure raw"):
        kind = "the cloud" if depth == 0 else tree.tiers[depth].name
        found = canvas.exposed_to.setdefault((kind, way == "secure raw"), [])
        if index not in found:
            found.append(index)


def _exposed(kind: str, indices: Sequence[int]) -> str:
    """Aggregators as of `Canvas.exposed_to`, with their numbers: "edges 0, 4", "the cloud"."""
    numbers = f" {text.ranges_text(sorted(indices))}" if kind != "the cloud" else ""
    named = text.pluralise(kind, len(indices)) if numbers else kind
    return f"{named}{numbers}"


def _sends_noise(network: Network, tree: Tree, depth: int, index: int, tier: int) -> bool:
    """Whether what a node sends up contains noise, of itself or of any party below it.

    Args:
        network: that is drawn.
        tree: its tree.
        depth: of the node's tier.
        index: of the node in its tier.
        tier: the tier that aggregates in the steps that are asked about.
    """
    name = tree.node_name(depth, index)
    if network.adds_noise_in(name, tier):
        return True
    if depth == tree.depth - 1:
        return network.over_air or network.noise_of_devices(name).adds_in(tier)
    return any(
        _sends_noise(network, tree, depth + 1, child, tier) for child in _children_of(tree, depth, index)
    )


def _children_of(tree: Tree, depth: int, index: int) -> range:
    """The nodes one tier below node ``index`` of tier ``depth``, as numbers within their tier."""
    first = int(tree.parents[depth + 1].searchsorted(index))
    return range(first, first + int(tree.children[depth][index]))


def _tier_names(tree: Tree) -> list[str]:
    """Names of the tiers below the cloud."""
    return [tier.name for tier in tree.tiers[1:]]


def _trust_sentence(tree: Tree) -> str:
    """The end of a sentence on how many aggregators of each tier are trusted with raw updates."""
    parts = [f"{text.whole(int(t.trusted.sum()))} of {text.how_many(t.size, t.name)}" for t in tree.tiers[1:]]
    cloud = "the cloud" if tree.tiers[0].trusted[0] else ""
    if not any(tier.trusted.any() for tier in tree.tiers):
        return "no party is trusted with raw updates."
    return f"trusted with raw updates: {text.join_names(list(filter(None, [cloud, *parts])), 9)}."
