"""The drawing of the network: cloud, aggregators, devices, with trust and noise.

Colour and shape of a mark show trust; a further mark shows added noise. A drawing has at most a few hundred
marks: for a large network it shows examples of all parties that differ in trust or noise, and the number of
the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from sfumato.network.groups import Groups
from sfumato.network.tree import IntArray, Tree
from sfumato.report import formatting as text
from sfumato.report.figure import NEUTRAL, NOISE, RAW, SECURE, TRUSTED, Figure
from sfumato.report.network import GroupNetwork, Network

_MOST_LEAVES = 20  # leaves in one row
_MOST_DEVICES = 240  # dots in total
_WIDTH = 900.0  # width of a figure in pixels; determines how many dots are in one row
_DOT = 15.0  # pixels from dot to dot
_LEAST_WIDTH = 680  # in a narrower drawing marks would overlap
_ROW = 96.0  # pixels from tier to tier
_TRUST = {True: "trusted with raw updates", False: "not trusted"}
_MARKS: dict[str, tuple[str, dict[str, Any]]] = {
    "trusted": ("trusted with raw updates", {"symbol": "square", "size": 26, "color": TRUSTED}),
    "untrusted": (
        "not trusted",
        {"symbol": "circle", "size": 27, "color": "#F4F4F2", "line": {"color": "#5B6470", "width": 1.5}},
    ),
    "device": ("device", {"symbol": "circle", "size": 7, "color": NEUTRAL}),
    "noisy device": (
        "device that adds noise",
        {"symbol": "diamond", "size": 9, "color": NOISE, "line": {"color": "#6B4B00", "width": 0.8}},
    ),
    "noise": (
        "adds noise",
        {"symbol": "diamond", "size": 12, "color": NOISE, "line": {"color": "#6B4B00", "width": 1}},
    ),
}
_LINKS: dict[str, tuple[str, dict[str, Any]]] = {
    "raw": ("raw updates go up", {"color": RAW, "width": 2}),
    "noised": ("noised updates go up", {"color": NEUTRAL, "width": 1.5, "dash": "dot"}),
    "secure": ("only the sum arrives (secure aggregation)", {"color": SECURE, "width": 3}),
    "superposed": ("messages are added over the air", {"color": NEUTRAL, "width": 1.5, "dash": "dash"}),
    "shared": ("workers in common", {"color": NEUTRAL, "width": 1.5}),
}


@dataclass
class _Canvas:
    """Marks and links by kind; x in slots, y in pixels downwards."""

    marks: dict[str, list[tuple[float, float, str, str, str]]] = field(default_factory=dict)
    links: dict[str, list[tuple[float, float, float, float]]] = field(default_factory=dict)
    words: list[dict[str, Any]] = field(default_factory=list)

    def mark(
        self,
        kind: str,
        x: float,
        y: float,
        title: str,
        lines: Sequence[str],
        inside: str = "",
        party: str | None = None,
    ) -> None:
        hover = "<br>".join([f"<b>{text.label(title)}</b>", *(text.label(line) for line in lines)])
        self.marks.setdefault(kind, []).append((x, y, hover, inside, party or title))

    def link(self, kind: str, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.links.setdefault(kind, []).append((*start, *end))

    def word(self, x: float, y: float, words: str, **style: Any) -> None:
        place = {"x": x, "y": y, "text": text.label(words), "showarrow": False}
        self.words.append(place | {"font": {"size": 11}} | style)

    def dots(
        self,
        kind: str,
        x: float,
        y: float,
        count: int,
        slots: int,
        describe: Callable[[int], tuple[str, list[str]]],
    ) -> float:
        """A grid of dots centred below ``(x, y)``, and the number of the others; returns the lowest y."""
        pixels = _WIDTH / slots
        shown = min(count, max(6, _MOST_DEVICES // slots))
        across = min(shown, max(2, int(pixels / _DOT) - 1), max(2, math.ceil(math.sqrt(2.5 * shown))))
        for number in range(shown):
            row, column = divmod(number, across)
            at = x + (column - (across - 1) / 2) * _DOT / pixels
            self.mark(kind, at, y + row * _DOT, *describe(number))
        low = y + (math.ceil(shown / across) - 1) * _DOT
        if count == shown:
            return low
        more = text.whole(count - shown)
        self.word(x, low + 18, f"… and {more} more" if pixels > 110 else f"+{more}")
        return low + 18


def topology_figure(network: Network) -> Figure | None:
    """The network as a drawing; ``None`` if its shape is not known."""
    if network.family is None:
        return None
    drawn: Figure = network.family.figure(network, network.shape)
    return drawn


def tree_figure(network: Network, tree: Tree) -> Figure:
    """A tree, the cloud on top."""
    canvas = _Canvas()
    children = _drawn_children(network, tree)
    order = [leaf for shown in children[-1].values() for leaf in shown] if children else [0]
    places: list[dict[int, float]] = [{} for _ in tree.tiers]
    places[-1] = {leaf: float(slot) for slot, leaf in enumerate(order)}
    for depth in range(tree.depth - 2, -1, -1):
        for parent, shown in children[depth].items():
            places[depth][parent] = sum(places[depth + 1][c] for c in shown) / len(shown)
    for depth, tier_places in enumerate(places):
        for index, x in tier_places.items():
            _node(canvas, network, tree, depth, index, x)
            if depth < tree.depth - 1:
                _below(canvas, network, tree, depth, index, x, places[depth + 1], children[depth][index])
    bottom = (tree.depth - 1) * _ROW
    low = max(_devices(canvas, network, tree, leaf, x, bottom, len(order)) for leaf, x in places[-1].items())
    tiers = [f"{text.whole(tier.size)} {text.pluralise(tier.name, tier.size)}" for tier in tree.tiers[1:]]
    devices = f"{text.whole(tree.device_count)} {text.pluralise('device', tree.device_count)}"
    said = f"{text.join_names(['the cloud', *tiers, devices], 9)}; {_trust_said(tree)} {_noise_said(network)}"
    return _figure(canvas, len(order), low, said)


def _drawn_children(network: Network, tree: Tree) -> list[dict[int, list[int]]]:
    """For every tier except the last, the children of drawn nodes that are drawn: examples of all kinds."""
    room, drawn = float(_MOST_LEAVES), [0]
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
    """At most ``most`` of ``every``, in order: one of each appearance, then evenly spaced ones."""
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
    name = tree.node_name(depth, index)
    return (
        bool(tree.tiers[depth].trusted[index]),
        network.adds_noise(name),
        network.adds_noise(f"{name}/devices"),
    )


def _node(canvas: _Canvas, network: Network, tree: Tree, depth: int, index: int, x: float) -> None:
    name, tier = tree.node_name(depth, index), tree.tiers[depth]
    trusted, y = bool(tier.trusted[index]), depth * _ROW
    below = int(tree.children[depth][index])
    kind = tree.tiers[depth + 1].name if depth < tree.depth - 1 else "device"
    title = tier.labels[index] if tier.labels else name
    noise = _multipliers(network, tree, name)
    lines = [name] if title != name else []
    lines += [_TRUST[trusted], f"{text.whole(below)} {text.pluralise(kind, below)} below", *noise]
    inside = str(index) if depth else ""
    canvas.mark("trusted" if trusted else "untrusted", x, y, title, lines, inside, name)
    if depth == 0:
        canvas.word(x, y - 26, "cloud", font={"size": 12})
    if noise:
        canvas.mark("noise", x, y - 20 if depth else y + 22, f"{name} adds noise", noise, party=name)


def _below(
    canvas: _Canvas,
    network: Network,
    tree: Tree,
    depth: int,
    index: int,
    x: float,
    places: dict[int, float],
    shown: list[int],
) -> None:
    y = depth * _ROW
    is_secure = f"{tree.tiers[depth + 1].name}_to_{tree.tiers[depth].name}" in network.secure
    for child in shown:
        kind = "secure" if is_secure else "noised" if _noised(network, tree, depth + 1, child) else "raw"
        canvas.link(kind, (x, y), (places[child], y + _ROW))
    hidden = int(tree.children[depth][index]) - len(shown)
    if hidden:
        words = f"… and {text.whole(hidden)} more {text.pluralise(tree.tiers[depth + 1].name, hidden)}"
        canvas.word(x, y, words, xanchor="left", xshift=20, yshift=14)


def _devices(
    canvas: _Canvas, network: Network, tree: Tree, leaf: int, x: float, y: float, slots: int
) -> float:
    owner = tree.node_name(tree.depth - 1, leaf)
    noise = _multipliers(network, tree, f"{owner}/devices")
    first = int(tree.first_device[leaf])
    way = "superposed" if network.over_air else "noised" if noise else "raw"
    if f"devices_to_{tree.tiers[-1].name}" in network.secure:
        way = "secure"
    canvas.link(way, (x, y), (x, y + 44))

    def describe(number: int) -> tuple[str, list[str]]:
        return f"device:{first + number}", [f"under {owner}", *noise]

    kind = "noisy device" if noise else "device"
    return canvas.dots(kind, x, y + 58, int(tree.devices[leaf]), slots, describe)


def _noised(network: Network, tree: Tree, depth: int, index: int) -> bool:
    """Whether all messages that this node sends up contain noise, of itself or of all parties below it."""
    name = tree.node_name(depth, index)
    if network.adds_noise(name):
        return True
    if depth == tree.depth - 1:
        return network.over_air or network.adds_noise(f"{name}/devices")
    first = int(tree.parents[depth + 1].searchsorted(index))
    below = range(first, first + int(tree.children[depth][index]))
    return all(_noised(network, tree, depth + 1, child) for child in below)


def _multipliers(network: Network, tree: Tree, owner: str) -> list[str]:
    """Lines for a hover: the multiplier at each kind of aggregation."""
    multipliers = network.noise.get(owner, ())
    if len(multipliers) == 1:
        return [f"noise multiplier {text.number(multipliers[0])}"]
    names = ["the global step", *(f"{tier.name} aggregations" for tier in tree.tiers[1:])]
    return [
        f"noise multiplier {text.number(multiplier)} at {name}"
        for name, multiplier in zip(names, multipliers, strict=False)
    ]


def group_figure(network: Network, shape: GroupNetwork) -> Figure:
    """Groups side by side, with the workers that link them."""
    canvas, groups = _Canvas(), shape.groups
    slots, low = min(groups.count, _MOST_LEAVES), 0.0
    _bridges(canvas, groups, slots)
    for group in range(slots):
        master, members = f"master:{group}", groups.members_of(group)
        trusted = bool(shape.trusted[group])
        noise = [f"noise multiplier {text.number(m)}" for m in network.noise.get(master, ())]
        at_workers = [
            f"noise multiplier {text.number(m)}" for m in network.noise.get(f"{master}/devices", ())
        ]
        lines = [_TRUST[trusted], f"{text.whole(len(members))} workers", *noise]
        title = groups.titled(master)
        shown = groups.group_names[group] if groups.group_names else str(group)
        canvas.mark("trusted" if trusted else "untrusted", group, 0, title, lines, shown, party=master)
        if noise:
            canvas.mark("noise", group, 22, f"{title} adds noise", noise, party=master)
        way = "noised" if at_workers else "raw"
        canvas.link("secure" if "devices_to_master" in network.secure else way, (group, 0), (group, 50))
        kind = "noisy device" if at_workers else "device"
        describe = partial(_worker, groups, members, at_workers)
        low = max(low, canvas.dots(kind, group, 64, len(members), slots, describe))
    hidden = groups.count - slots
    if hidden:
        words = f"… and {text.whole(hidden)} more {text.pluralise('group', hidden)}"
        canvas.word(slots - 1, -76, words, xanchor="right", xshift=-48)
    masters = f"{text.whole(int(shape.trusted.sum()))} of {text.whole(groups.count)}"
    said = (
        f"{text.whole(groups.count)} {text.pluralise('group', groups.count)} of {text.whole(groups.workers)} "
        "workers; a worker of two groups is drawn in both. Trusted with raw updates: "
        f"{masters} {text.pluralise('master', groups.count)}. {_noise_said(network)}"
    )
    if shape.changes:
        rounds = text.join_names([text.whole(number) for number in shape.changes])
        said += (
            f" Members change with {text.pluralise('round', len(shape.changes))} {rounds}: shown are all who "
            "are in a group at any time."
        )
    return _figure(canvas, slots, low, said, top=-90.0)


def _worker(groups: Groups, members: IntArray, noise: list[str], number: int) -> tuple[str, list[str]]:
    worker = int(members[number])
    mine = groups.groups_of(worker).tolist()
    return groups.titled(f"device:{worker}"), [
        f"in {text.pluralise('group', len(mine))} {text.join_names(list(map(str, mine)))}",
        *noise,
    ]


def _bridges(canvas: _Canvas, groups: Groups, slots: int) -> None:
    """Links between groups that share workers: straight for adjacent groups, otherwise above the others."""
    shared = groups.shared[:slots, :slots].tocoo()
    pairs = [
        (int(a), int(b), int(n)) for a, b, n in zip(shared.row, shared.col, shared.data, strict=True) if a < b
    ]
    for a, b, count in pairs:
        height = 0.0 if b - a == 1 else -34 - 26 * (1 - 1 / (b - a))
        corners: list[tuple[float, float]] = [(a, 0.0), (a, height), (b, height), (b, 0.0)]
        for start, end in pairwise(corners):
            canvas.link("shared", start, end)
        if len(pairs) <= slots and slots <= _MOST_LEAVES // 2:  # else there is no room for words
            canvas.word((a + b) / 2, height - 10, f"{text.whole(count)} in common")


def _trust_said(tree: Tree) -> str:
    parts = [
        f"{text.whole(int(t.trusted.sum()))} of {text.whole(t.size)} {text.pluralise(t.name, t.size)}"
        for t in tree.tiers[1:]
    ]
    cloud = "the cloud" if tree.tiers[0].trusted[0] else ""
    if not any(tier.trusted.any() for tier in tree.tiers):
        return "no party is trusted with raw updates."
    return f"trusted with raw updates: {text.join_names(list(filter(None, [cloud, *parts])), 9)}."


def _noise_said(network: Network) -> str:
    """The parties that add noise, counted by kind."""
    if not network.noise:
        return "No party adds noise." + (
            " The received signals contain the receivers' noise." if network.over_air else ""
        )
    counts: dict[tuple[str, bool], list[str]] = {}
    for owner in network.noise:
        party, _, devices = owner.partition("/")
        counts.setdefault((party.partition(":")[0], bool(devices)), []).append(party)
    said = []
    for (kind, at_devices), parties in counts.items():
        who = (
            "the cloud"
            if kind == "cloud"
            else f"{text.whole(len(parties))} {text.pluralise(kind, len(parties))}"
        )
        said.append(f"the devices under {who}" if at_devices else who)
    return f"Noise is added by {text.join_names(said, 9)}."


def _figure(canvas: _Canvas, slots: int, low: float, said: str, top: float = -44.0) -> Figure:
    data: list[dict[str, Any]] = []
    for kind, (name, line) in _LINKS.items():
        ends = canvas.links.get(kind, [])
        if ends:
            xs = [x for x0, _, x1, _ in ends for x in (x0, x1, None)]
            ys = [y for _, y0, _, y1 in ends for y in (y0, y1, None)]
            common = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "line": line, "name": name}
            data.append(common | {"x": xs, "y": ys})
    for kind, (name, marker) in _MARKS.items():
        marks = canvas.marks.get(kind, [])
        if marks:
            ink = "#FFFFFF" if kind == "trusted" else "#22262B"
            data.append({
                "type": "scatter", "mode": "markers+text", "name": name, "marker": marker,
                "hoverinfo": "text",
                "x": [m[0] for m in marks], "y": [m[1] for m in marks], "hovertext": [m[2] for m in marks],
                "customdata": [m[4] for m in marks],  # names of the parties, for `sfumato explore`
                "text": [m[3] for m in marks], "textfont": {"size": 11, "color": ink}, "cliponaxis": False,
            })  # fmt: skip
    height = low - top + 16
    hidden = {"visible": False, "fixedrange": True}
    return Figure(
        title="Trust and noise in the network",
        caption=said[0].upper() + said[1:],
        description="Drawing of the network: " + said,
        data=data,
        layout={
            "height": height + 48,
            "margin": {"l": 8, "r": 8, "t": 4, "b": 44},
            "xaxis": hidden | {"range": [-0.55, slots - 0.45]},
            "yaxis": hidden | {"range": [low + 16, top]},
            "annotations": canvas.words,
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0.5, "xanchor": "center", "y": 0, "yanchor": "top"},
        },
        kind="network",
        min_width=max(_LEAST_WIDTH, 32 * slots),
    )
