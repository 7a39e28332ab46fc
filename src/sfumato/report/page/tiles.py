"""Tiles of the first screen: a name and a value each, with what their colours mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sfumato.large_epsilons import LARGE_EPSILON
from sfumato.network.tree import Tree
from sfumato.report import formatting as text
from sfumato.report.figures.heatmap import BY_TRUST
from sfumato.report.results.comparability import radio_model
from sfumato.report.results.network import GroupNetwork
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import row_in_words
from sfumato.report.results.summary import (
    Summary,
    has_edges,
    kind_within_devices,
    largest_towards_device,
)
from sfumato.run_folder.headline import Headline


class Tile(NamedTuple):
    """A name and a value; ``look``: a class of the style, "" for that of most tiles."""

    name: str
    value: str
    look: str = ""


def tiles_html(tiles: Iterable[Tile]) -> str:
    """HTML of tiles with a name and a value each; those without a value are left out."""
    shown = [
        (f' class="{tile.look}"' if tile.look else "", text.escape(tile.name), text.escape(tile.value))
        for tile in tiles
        if tile.value not in ("–", "")
    ]
    blocks = "".join(f"<div{look}><dt>{name}</dt><dd>{value}</dd></div>" for look, name, value in shown)
    return f'<dl class="tiles">{blocks}</dl>'


def epsilon_tiles_caption(one: Series, summary: Summary) -> str:
    """The text above the tiles: of which unit and at which δ the ε are."""
    grouped = not math.isnan(summary.epsilon_peers)
    kind = kind_within_devices(one.first) or ("worker" if grouped else "device")
    row = row_in_words(one.first.spec_dict) if kind == "record" else ""
    at = text.at_delta(one.first.privacy.delta)
    which = f", which is {row}{at}," if row else at
    return f"The largest ε of a {kind}{which} towards"


def epsilon_tiles(one: Series, summary: Summary) -> list[Tile]:
    """A tile with the largest ε for each kind of observer."""
    network, edge = one.network, name_of_aggregator(one)
    own = f"one of its {text.pluralise(edge)}" if network.trees else f"its own {edge}"
    others = {"worker": "other workers", "site": "another site"}.get(network.device_word, "other devices")
    raw = one.first.privacy.raw_to_trusted_edge
    some_raw = has_edges(one) and bool(raw)
    found = [
        ("the cloud", summary.epsilon_cloud),
        ("the public", summary.epsilon_public),
        (f"{own}, if not trusted" if some_raw else own, summary.epsilon_own_edge),
        (f"another {edge}", summary.epsilon_other_edge),
        (others, largest_towards_device(one)),
    ]
    tiles = [Tile(name, text.epsilon(value), look_of_epsilon(value)) for name, value in found]
    if some_raw:
        alone = math.isnan(summary.epsilon_own_edge)
        name = own if alone else f"{own}, if trusted"
        tiles.insert(2, Tile(name, BY_TRUST if alone else "∞", "trusted"))
    if kind_within_devices(one.first):
        tiles.append(Tile(f"its own {network.device_word}", "has it", "trusted"))
    return [Tile("the cloud", BY_TRUST, "trusted"), *tiles[1:]] if summary.cloud_is_trusted else tiles


def look_of_epsilon(epsilon: float) -> str:
    """CSS class of the tile of an ε: ``unprotected`` for ∞, ``warn`` above `LARGE_EPSILON`, else ""."""
    return "unprotected" if epsilon == math.inf else "warn" if epsilon > LARGE_EPSILON else ""


def meaning_of_looks(looks: Iterable[str]) -> str:
    """A sentence on what the CSS classes of tiles of ε mean; "" for none.

    Args:
        looks: of the tiles, as of `look_of_epsilon`, and ``trusted``.
    """
    meanings = {
        "warn": f"yellow: above {LARGE_EPSILON:g}, hardly any protection",
        "unprotected": "red: no guarantee",
        "trusted": "dashed: trusted with the data, or with raw updates",
    }
    found = set(looks)
    said = [meaning for look, meaning in meanings.items() if look in found]
    return text.sentence("; ".join(said)) if said else ""


def energy_tile(one: Series, energy_j: float) -> Tile:
    """The tile of the energy: joules, or of a radio given by gains the power over the receiver's noise in dB.

    By gains an energy has no joules. Its sum over the uses of subcarriers by all devices, divided by their
    number, is the mean power of a symbol.
    """
    spec = one.first.spec_dict
    if radio_model(spec) == "gains":
        uses, radio = one.total("channel_uses").value, spec.get("radio")
        std = float(radio.get("noise_std") or 1.0) if isinstance(radio, Mapping) else 1.0
        if energy_j > 0 and uses > 0:
            decibel = 10 * math.log10(energy_j / uses / std**2)
            return Tile(
                "Mean power sent by all devices, a use of a subcarrier, over the receiver's noise",
                f"{decibel:.1f} dB".replace("-", "−"),
            )
        return Tile("Energy, relative to the receiver's noise", text.number(energy_j))
    return Tile("Energy", text.quantity(energy_j, text.JOULES))


def of_which_class(score: Headline, one: Series) -> str:
    """The class that an F1 of two classes is of, in words after a space: the second; else ""."""
    labels = list(one.test_labels or {})
    return f" of {labels[1]}" if score.column == "f1" and len(labels) == 2 else ""


def name_of_aggregator(one: Series) -> str:
    """What the aggregators of devices are called: masters of groups, or as the lowest tier of a tree."""
    shape = one.network.shape
    if isinstance(shape, Tree):
        return shape.tiers[-1].name if shape.depth > 1 else "edge"
    return "master" if isinstance(shape, GroupNetwork) else "edge"
