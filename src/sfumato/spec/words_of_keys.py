"""Keys and values of a spec on pages, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato import rounding

WORDS: Mapping[str, str] = {
    "privacy.unit": "who is protected",
    "privacy.noise.epsilon": "target ε",
    "privacy.noise.multiplier": "noise multiplier",
    "privacy.noise.sources": "noise multipliers",
    "privacy.noise.kind": "how noise is stated",
    "privacy.clip.norm": "clip norm",
    "privacy.clip.kind": "what is clipped",
    "trust.trusted_edges": "trusted edges",
    "trust.trusted_aggregators": "trusted masters",
    "trust.cloud": "trusted cloud",
    "training.participation.rate": "share that takes part",
    "training.participation.count": "participants",
    "training.participation.kind": "who takes part",
    "training.server.learning_rate": "server's learning rate",
    "data.partition.alpha": "Dirichlet α",
    "data.partition.kind": "how data are divided",
    "data.source": "data",
    "model.kind": "model",
    "topology.kind": "network",
    "compression.ratio": "share that is sent",
    "compression.kind": "compression",
    "training.edge_every": "local steps between edge aggregations",
    "training.steps_per_round": "local steps of a round",
    "training.merge_every": "rounds between merges of groups",
    "training.learning_rate.kind": "learning rate",
    "training.learning_rate.initial": "first learning rate",
    "data.partition.labels_per_device": "labels of each device",
    "data.partition.size_sigma": "spread of the sizes of data (lognormal σ)",
    "privacy.noise.for": "towards whom ε is met",
    "privacy.noise.formula": "formula of the noise",
    "privacy.noise.c2": "constant c2 of the formula",
    "privacy.noise.calibrated_from.multiplier": "noise multiplier that is set",
    "privacy.noise.calibrated_from.at": "where noise is added",
    "privacy.noise.calibrated_from.placement.device": "edges whose devices add noise (share, or which)",
    "privacy.noise.calibrated_from.placement.edge": "edges that add noise (share, or which)",
    "privacy.noise.calibrated_from.placement.cloud": "cloud adds noise",
    "model.hidden": "hidden units of the model",
    "model.bias": "model with a bias",
    "topology.edges": "edges",
    "topology.devices_per_edge": "devices of each edge",
    "topology.devices": "devices",
    "topology.groups": "groups",
    "transport.devices_to_edge": "transport from devices to their edge",
    "transport.edge_to_cloud": "transport from edges to the cloud",
    "transport.devices_to_master": "transport from workers to their master",
    "transport.devices_to_cloud": "transport from devices to the cloud",
    "control.energy": "weight of energy in control",
    "control.delay": "weight of delay in control",
    "control.max_steps": "most local steps of a round in control",
}


_MOST_ITEMS = 6


def key_in_words(key: str) -> str:
    """A dotted key in words: its name in `WORDS`, else its last part without underscores, with its section.

    >>> key_in_words("training.batch_size")
    'batch size'
    >>> key_in_words("model.rank")
    'rank (model)'
    """
    found = WORDS.get(key) or WORDS.get(key.replace(".calibrated_from.", "."))  # noise was stated so
    if found is not None:
        return found
    section, _, name = key.rpartition(".")
    plain = name.replace("_", " ")
    clear = section in ("", "training", "privacy")
    return plain if clear else f"{plain} ({section.replace('_', ' ').replace('.', ', ')})"


def value_in_words(value: Any, most: int = 72) -> str:
    """A value of a spec as text of at most ``most`` characters, cut off with … where it is longer.

    Noise is given by the largest multiplier of each owner, a list of more than six values by its length.

    >>> value_in_words(8.0), value_in_words(None), value_in_words(["a", "b"]), value_in_words(True)
    ('8', 'not set', 'a, b', 'yes')
    """
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    shown = _list_in_words(value) if isinstance(value, list) else str(value)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def setting_in_words(key: str, value: Any, most: int = 72) -> str:
    """The value at a dotted key in words, as `value_in_words`; a float at ``trust.trusted...`` is a share.

    ``most``: characters of the text; a longer one is cut.

    >>> setting_in_words("trust.trusted_edges", 0.0), setting_in_words("trust.trusted_edges", 0.4)
    ('none', '40 % (rounded to whole edges)')
    """
    if key.startswith("trust.trusted") and isinstance(value, float):
        whole = "edges" if key.endswith("edges") else "masters"
        return (
            "none" if value == 0 else "all" if value == 1 else f"{100 * value:g} % (rounded to whole {whole})"
        )
    return value_in_words(value, most)


def _list_in_words(values: list[Any]) -> str:
    """A list of a spec as text: its values, or how many there are."""
    if not values:
        return "none"
    if all(isinstance(value, Mapping) and "owners" in value for value in values):  # of noise
        return "; ".join(
            f"{', '.join(value['owners'])}: {rounding.number(max(value['multipliers']))}" for value in values
        )
    if len(values) > _MOST_ITEMS or any(isinstance(value, Mapping | list) for value in values):
        return f"a list of {len(values)}"
    return ", ".join(map(str, values))
