"""The drawing of overlapping groups: masters, workers, and the links between groups that share workers."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from sfumato.network.groups import Groups
from sfumato.network.tree import IntArray
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
)
from sfumato.report.figures.figure import Figure
from sfumato.report.results.network import GroupNetwork, Network


def group_figure(network: Network, shape: GroupNetwork) -> Figure:
    """A drawing of overlapping groups: masters side by side, with lines to the workers that link them.

    Only the first `MOST_LEAVES` groups are drawn; a text says how many more there are. ``shape``: that of the
    ``network``.
    """
    canvas, groups = Canvas(), shape.groups
    slots, low = min(groups.count, MOST_LEAVES), 0.0
    _draw_shared_links(canvas, groups, slots)
    for group in range(slots):
        master, members = f"master:{group}", groups.members_of(group)
        trusted = bool(shape.trusted[group])
        noise = multiplier_lines(network.noise.get(master, ()))
        at_workers = device_noise_lines(network.noise_of_devices(master))
        lines = [TRUST_WORDS[trusted], f"{text.whole(len(members))} workers", *noise]
        title = groups.titled(master)
        inside = "" if groups.group_names else str(group)
        canvas.mark("trusted" if trusted else "untrusted", group, 0, title, lines, inside, party=master)
        if groups.group_names:
            canvas.word(group, 0, shortened_to_fit(title, slots), xanchor="right", xshift=-16, yshift=12)
        if noise:
            canvas.mark("noise", group, 22, f"{title} adds noise", noise, party=master)
        summed = "devices_to_master" in network.secure
        kind = kind_of_link(noised=bool(at_workers), secure=summed, trusted=trusted)
        canvas.link(kind, (group, 0), (group, 50))
        describe = partial(_worker_details, groups, members, at_workers)
        low = max(low, canvas.dots(group, 64, len(members), slots, describe))
    hidden = groups.count - slots
    if hidden:
        words = f"… and {text.whole(hidden)} more {text.pluralise('group', hidden)}"
        canvas.word(slots - 1, -76, words, xanchor="right", xshift=-48)
    masters = f"{text.whole(int(shape.trusted.sum()))} of {text.how_many(groups.count, 'master')}"
    said = (
        f"{groups_in_words(groups)}; a worker of two groups is shown in both. "
        f"Trusted with raw updates: {masters}. {noise_sentence(network)}"
    )
    if shape.changes:
        rounds = text.join_names([text.whole(number) for number in shape.changes])
        said += (
            f" Members change with {text.pluralise('round', len(shape.changes))} {rounds}: shown are all who "
            "are in a group at any time."
        )
    return canvas_figure(canvas, slots, low, said, top=-90.0)


def groups_in_words(groups: Groups) -> str:
    """How many workers there are, in how many groups of which sizes: "100 workers in 4 groups of 26"."""
    least, most = int(groups.sizes.min()), int(groups.sizes.max())
    sizes = text.whole(least) if least == most else f"{text.whole(least)} to {text.whole(most)}"
    count = text.how_many(groups.count, "group")
    return f"{text.how_many(groups.workers, 'worker')} in {count} of {sizes}"


def _worker_details(groups: Groups, members: IntArray, noise: list[str], number: int) -> Dot:
    """The worker ``members[number]`` in the drawing; ``noise``: lines on the noise that it adds."""
    worker = int(members[number])
    mine = groups.groups_of(worker).tolist()
    named = list(map(groups.group_title, mine))
    device, where = f"device:{worker}", f"in {text.pluralise('group', len(mine))} {text.join_names(named)}"
    return Dot(device, groups.titled(device), where, noise)


def _draw_shared_links(canvas: Canvas, groups: Groups, slots: int) -> None:
    """Draw on ``canvas`` a link for each two of the first ``slots`` groups that share workers.

    The link is straight between adjacent groups, otherwise above the groups between them.
    """
    shared = groups.shared[:slots, :slots].tocoo()
    pairs = [
        (int(a), int(b), int(n)) for a, b, n in zip(shared.row, shared.col, shared.data, strict=True) if a < b
    ]
    for a, b, count in pairs:
        height = 0.0 if b - a == 1 else -34 - 26 * (1 - 1 / (b - a))
        corners: list[tuple[float, float]] = [(a, 0.0), (a, height), (b, height), (b, 0.0)]
        for start, end in pairwise(corners):
            canvas.link("shared", start, end)
        if len(pairs) <= slots and slots <= MOST_LEAVES // 2:  # else there is no room for words
            canvas.word((a + b) / 2, height - 10, f"{text.whole(count)} in common")
