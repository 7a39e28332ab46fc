"""The canvas that networks are drawn on: marks for parties, links for messages, words.

Colour and shape of a mark show trust; a further mark shows added noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sfumato.report import formatting as text
from sfumato.report.figures.figure import NEUTRAL, NOISE, RAW, SECURE, TRUSTED, Figure, Json
from sfumato.report.results.network import AT_STEPS, DeviceNoise, Network

MOST_LEAVES = 20  # leaves in one row
_MOST_DEVICES = 240  # dots in total
_SIGN = 7.0  # width of a sign in pixels, on average
_WIDTH = 900.0  # width of a figure in pixels; determines how many dots are in one row
_DOT = 15.0  # pixels from dot to dot
_LEAST_WIDTH = 680  # in a narrower drawing marks would overlap
_SWARM = 0.26  # of a slot: half the width of one swarm of the most devices, with a margin
_WIDEST_SWARM = 560
_NARROW = 300  # with room for the legend
ADDS_NOISE = "aggregator that adds noise"
"""Name of the marks beside aggregators that add noise."""
TRUST_WORDS = {True: "trusted with raw updates", False: "not trusted"}
_MARKS: dict[str, tuple[str, Json]] = {
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
        ADDS_NOISE,
        {"symbol": "diamond", "size": 12, "color": NOISE, "line": {"color": "#6B4B00", "width": 1}},
    ),
}
_LINKS: dict[str, tuple[str, Json]] = {
    "raw": ("messages without noise go up", {"color": RAW, "width": 2}),
    "entrusted": ("messages without noise go up to who is trusted", {"color": TRUSTED, "width": 2}),
    "noised": ("messages with noise go up", {"color": NEUTRAL, "width": 1.5, "dash": "dot"}),
    "secure": ("only the sum arrives, with noise (secure aggregation)", {"color": SECURE, "width": 3}),
    "secure raw": (
        "only the sum arrives, without noise (secure aggregation)",
        {"color": RAW, "width": 3, "dash": "dash"},
    ),
    "secure entrusted": (
        "only the sum arrives, without noise, at a trusted party (secure aggregation)",
        {"color": TRUSTED, "width": 3, "dash": "dash"},
    ),
    "superposed": ("messages are added over the air", {"color": NEUTRAL, "width": 1.5, "dash": "dash"}),
    "shared": ("workers in common", {"color": NEUTRAL, "width": 1.5}),
}


def kind_of_link(*, noised: bool, secure: bool, trusted: bool) -> str:
    """The kind of link, a key of `_LINKS`, for the messages that arrive at a party.

    Args:
        noised: whether what arrives has noise.
        secure: whether only the sum of the messages arrives.
        trusted: whether the party is trusted with raw updates.
    """
    if noised:
        return "secure" if secure else "noised"
    return f"{'secure ' if secure else ''}{'entrusted' if trusted else 'raw'}"


class Dot(NamedTuple):
    """A device in a drawing.

    Attributes:
        party: its name, such as ``device:3``.
        title: first line of the hover text.
        where: a line on where it is.
        noise: lines on the noise that it adds; empty if it adds none.
    """

    party: str
    title: str
    where: str
    noise: Sequence[str]


@dataclass
class Canvas:
    """Marks and links by kind, on a plane that is cut into equally wide slots, one for each node of a row.

    The unit of x is a slot; that of y is a pixel, counted downwards.

    Attributes:
        marks: by kind (x, y, hover text, text inside, name of the party) of each.
        links: by kind (x, y) of the start and (x, y) of the end of each.
        words: annotations of Plotly.
    """

    marks: dict[str, list[tuple[float, float, str, str, str]]] = field(default_factory=dict)
    links: dict[str, list[tuple[float, float, float, float]]] = field(default_factory=dict)
    words: list[Json] = field(default_factory=list)
    exposed_to: dict[tuple[str, bool], list[int]] = field(default_factory=dict)
    """Numbers of the aggregators that receive messages without noise though they are not trusted, by kind and
    whether secure aggregation leaves them only sums."""

    def mark(
        self,
        kind: str,
        x: float,
        y: float,
        title: str,
        lines: Sequence[str],
        inside: str = "",
        party: str = "",
    ) -> None:
        """Add the mark of a party.

        Args:
            kind: a key of `_MARKS`, which sets symbol and colour.
            x: position, in slots.
            y: position, in pixels downwards.
            title: first line of the hover text.
            lines: the others.
            inside: text inside the mark.
            party: its name for observers; without it the title.
        """
        hover = "<br>".join(
            [f"<b>{text.plotly_label(title)}</b>", *(text.plotly_label(line) for line in lines)]
        )
        self.marks.setdefault(kind, []).append((x, y, hover, inside, party or title))

    def link(self, kind: str, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Add a line from ``start`` to ``end``, (x, y) on the canvas; ``kind``: a key of `_LINKS`.

        The kind says what goes over the link and sets its style.
        """
        self.links.setdefault(kind, []).append((*start, *end))

    def word(self, x: float, y: float, words: str, **style: Any) -> None:
        """Add the text ``words`` at (x, y); ``style`` has further properties of a Plotly annotation."""
        place = {"x": x, "y": y, "text": text.plotly_label(words), "showarrow": False}
        self.words.append(place | {"font": {"size": 11}} | style)

    def dots(self, x: float, y: float, count: int, slots: int, describe: Callable[[int], Dot]) -> float:
        """Add marks of devices as a grid centred below ``(x, y)``, and a text on how many did not fit.

        Args:
            x: position, in slots.
            y: position of the first row, in pixels downwards.
            count: how many devices there are.
            slots: slots across the drawing; with more of them fewer devices fit.
            describe: gives the n-th device, from 0.

        Returns:
            The lowest y that is used, in pixels.
        """
        pixels = _WIDTH / slots
        shown = min(count, max(6, _MOST_DEVICES // slots))
        across = min(shown, max(2, int(pixels / _DOT) - 1), max(2, math.ceil(math.sqrt(2.5 * shown))))
        for number in range(shown):
            row, column = divmod(number, across)
            at = x + (column - (across - 1) / 2) * _DOT / pixels
            dot = describe(number)
            kind = "noisy device" if dot.noise else "device"
            lines = [dot.where, *dot.noise]
            self.mark(kind, at, y + row * _DOT, dot.title, lines, party=dot.party)
        low = y + (math.ceil(shown / across) - 1) * _DOT
        if count == shown:
            return low
        more = text.whole(count - shown)
        self.word(x, low + 18, f"… and {more} more" if pixels > 110 else f"+{more}")
        return low + 18


def shortened_to_fit(name: str, slots: int) -> str:
    """``name``, cut off with … where it would be wider than one of ``slots`` slots across the drawing."""
    most = int(_WIDTH / slots / _SIGN) - 4
    return name if len(name) <= most else f"{name[: max(1, most - 1)]}…"


def width_beside_each_other(names: Sequence[str]) -> int:
    """The least width in pixels, 300 to 680, of a drawing with these names, at least one, in one row."""
    widest = _SIGN * max(map(len, names)) + _DOT
    return min(_LEAST_WIDTH, max(_NARROW, math.ceil(len(names) * widest)))


def noise_sentence(network: Network) -> str:
    """A sentence on which parties add noise, counted by kind of party, or that none adds any."""
    received = "the received signals contain the receiver's noise"
    if not network.has_noise:
        return f"No party adds noise of its own; {received}." if network.over_air else "No party adds noise."
    said = [AT_STEPS] if network.step_noise else _noisy_parties(network)
    also = f"; {received} too" if network.over_air else ""
    return f"Noise is added by {text.join_names(said, 9)}{also}."


def _noisy_parties(network: Network) -> list[str]:
    """The parties that add noise, counted by kind: ``5 edges``, ``the devices under 2 other edges``.

    They are *other* edges where none of these adds any noise itself.
    """
    above: dict[tuple[str, str], set[str]] = {}
    for owner in network.noise:
        party, slash, devices = owner.partition("/devices")
        named = text.pluralise(network.device_word)
        whose = f"{'some' if devices else 'the'} {named} under " if slash else ""
        above.setdefault((party.partition(":")[0], whose), set()).add(party)
    said = []
    for (kind, whose), parties in above.items():
        alone = above.get((kind, ""), set())
        other = "other " if whose and alone and not alone & parties else ""
        many = text.how_many(len(parties), f"{other}{kind}")
        said.append(f"{whose}{'the cloud' if kind == 'cloud' else many}")
    return said


def device_noise_lines(noise: DeviceNoise, tiers: Sequence[str] = ()) -> list[str]:
    """Lines of hover text on the noise that a device adds; [] where it adds none.

    ``tiers``: names of the tiers below the cloud, in order, for noise that differs by aggregation.
    """
    if noise.at_steps:
        return [f"noise multiplier {text.number(noise.at_steps)} at every local step"]
    return multiplier_lines(noise.multipliers, tiers)


def multiplier_lines(multipliers: Sequence[float], tiers: Sequence[str] = ()) -> list[str]:
    """Lines of hover text, one for each noise multiplier, with the aggregations that it is for.

    Args:
        multipliers: by aggregating tier, that of the global aggregation first.
        tiers: names of the tiers below the cloud.
    """
    if len(multipliers) == 1:
        return [f"noise multiplier {text.number(multipliers[0])}"]
    names = ["the global step", *(f"{tier} aggregations" for tier in tiers)]
    return [
        f"noise multiplier {text.number(multiplier)} at {name}"
        for name, multiplier in zip(names, multipliers, strict=False)
    ]


def canvas_figure(
    canvas: Canvas,
    slots: int,
    low: float,
    said: str,
    *,
    top: float = -44.0,
    min_width: int = _LEAST_WIDTH,
) -> Figure:
    """The marks, links and words of ``canvas`` as a figure.

    Args:
        slots: slots across the drawing.
        low: y of its lower end, in pixels.
        top: y of its upper end, in pixels.
        said: the caption.
        min_width: smallest width of the figure in pixels.
    """
    data: list[Json] = []
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
    side = _SWARM if slots == 1 else 0.55  # of a slot, from the middle of the first to the edge
    hidden = {"visible": False, "fixedrange": True}
    return Figure(
        title="Trust and noise in the network",
        caption=said[0].upper() + said[1:],
        description="Drawing of the network: " + said,
        data=data,
        layout={
            "height": height + 48,
            "margin": {"l": 8, "r": 8, "t": 4, "b": 44},
            "xaxis": hidden | {"range": [-side, slots - 1 + side]},
            "yaxis": hidden | {"range": [low + 16, top]},
            "annotations": canvas.words,
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0.5, "xanchor": "center", "y": 0, "yanchor": "top"},
        },
        kind="network",
        min_width=_NARROW if slots == 1 else max(min_width, 32 * slots),
        max_width=_WIDEST_SWARM if slots == 1 else None,
    )
