"""What keys of a spec are called on pages, in words."""

from __future__ import annotations

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "privacy.noise.epsilon": "target ε",
    "privacy.noise.calibrated_from.epsilon": "target ε",
    "privacy.noise.multiplier": "noise multiplier",
    "privacy.noise.sources": "noise multipliers",
    "privacy.noise.kind": "how noise is stated",
    "privacy.clip.norm": "clip norm",
    "privacy.clip.kind": "what is clipped",
    "privacy.unit": "who is protected",
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
}


def key_in_words(key: str) -> str:
    """The name of a dotted key: words, or its last part without underscores, with its section.

    >>> key_in_words("training.batch_size")
    'batch size'
    >>> key_in_words("model.hidden")
    'hidden (model)'
    """
    if key in WORDS:
        return WORDS[key]
    section, _, name = key.rpartition(".")
    plain = name.replace("_", " ")
    clear = section in ("", "training", "privacy")
    return plain if clear else f"{plain} ({section.replace('_', ' ').replace('.', ', ')})"
