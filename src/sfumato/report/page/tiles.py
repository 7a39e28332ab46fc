"""Tiles of the first screen: a name and a value each, with what their colours mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sfumato.findings.large_epsilons import LARGE_EPSILON
from sfumato.network.tree import Tree
from sfumato.privacy.guarantee import Guarantee
from sfumato.privacy.observers import ObserverKind
from sfumato.report import formatting as text
from sfumato.report.figures.heatmap import BY_TRUST
from sfumato.report.results.comparability import radio_model
from sfumato.report.results.network import GroupNetwork, Network
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import row_in_words
from sfumato.report.results.summary import Summary, kind_within_devices, of_main_unit
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
    """The text above the tiles, without a full stop: of which unit and at which δ the ε are.

    ``The largest ε of a record (δ = 1e-5) towards``, which the names of tiles go on with.
    """
    grouped = not math.isnan(summary.epsilon_peers)
    kind = kind_within_devices(one.first.privacy.guarantees) or ("worker" if grouped else "device")
    row = row_in_words(one.first.spec_dict) if kind == "record" else ""
    at = text.at_delta(one.first.privacy.delta)
    which = f", which is {row}{at}," if row else at
    return f"The largest ε of a {kind}{which} towards"


def epsilon_tiles(guarantees: Sequence[Guarantee], network: Network) -> list[Tile]:
    """A tile with the largest ε of the main unit for each kind of observer that there is, the far ones first.

    An observer that some units trust with raw updates has two tiles. Where units are records or persons, a
    last tile says that their own device has them. [] without guarantees.

    Args:
        guarantees: all rows of an account; of all seeds.
        network: whose parties they are about.
    """
    rows, edge = of_main_unit(guarantees), name_of_aggregator(network)
    own = f"one of its {text.pluralise(edge)}" if network.trees else f"its own {edge}"
    others = {"worker": "other workers", "site": "another site"}.get(network.device_word, "other devices")
    kinds: dict[str, tuple[ObserverKind, ...]] = {
        "the cloud": ("cloud",),
        "the public": ("public",),
        own: ("own-edge",),
        f"another {edge}": ("other-edge",),
        others: ("peer", "other-device"),
    }
    tiles = []
    for name, which in kinds.items():
        towards = [row for row in rows if row.relation.kind in which]
        untrusted = [row.epsilon for row in towards if not row.is_raw]
        some_raw = len(untrusted) < len(towards)
        parted = ("if trusted", "if not trusted") if name == own else ("of raw updates", "of noised updates")
        if some_raw:
            some = (f"{name}, {parted[0]}", "∞") if untrusted else (name, BY_TRUST)
            tiles.append(Tile(*some, "trusted"))
        if untrusted:
            most = max(untrusted)
            named = f"{name}, {parted[1]}" if some_raw else name
            tiles.append(Tile(named, text.epsilon(most), look_of_epsilon(most)))
    kind = kind_within_devices(guarantees)
    return [*tiles, Tile(f"its own {network.device_word}", "has it", "trusted")] if kind else tiles


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

    Args:
        one: the run.
        energy_j: its total energy, in J; by gains, in units of the squared signal.
    """
    spec = one.first.spec_dict
    if radio_model(spec) == "gains":
        uses, radio = one.total("channel_uses").value, spec.get("radio")
        std = float(radio.get("noise_std") or 1.0) if isinstance(radio, Mapping) else 1.0
        if energy_j > 0 and uses > 0:
            decibel = 10 * math.log10(energy_j / uses / std**2)
            return Tile(
                "Mean power of all devices on a subcarrier, over the receiver's noise",
                f"{decibel:.1f} dB".replace("-", "−"),
            )
        return Tile("Energy, relative to the receiver's noise", text.number(energy_j))
    return Tile("Energy", text.quantity(energy_j, text.JOULES))


def of_which_class(score: Headline, one: Series) -> str:
    """The words, with a space before, that name the class whose F1 ``score`` is; "" for other scores.

    It is the second of two classes: `` of ill``.
    """
    labels = list(one.test_labels or {})
    return f" of {labels[1]}" if score.column == "f1" and len(labels) == 2 else ""


def name_of_aggregator(network: Network) -> str:
    """What an aggregator of devices is called: "master" over groups, the lowest tier's name in a tree.

    "edge" in a star, and where the network is not known.
    """
    shape = network.shape
    if isinstance(shape, Tree):
        return shape.tiers[-1].name if shape.depth > 1 else "edge"
    return "master" if isinstance(shape, GroupNetwork) else "edge"
