"""Swept keys in words, for a page that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfumato.sweeps.grid import short_names

_WORDS: Mapping[str, str] = {
    "privacy.noise.epsilon": "target ε",
    "privacy.noise.multiplier": "noise multiplier",
    "privacy.clip.norm": "clip norm",
    "trust.trusted_edges": "trusted edges",
    "trust.trusted_aggregators": "trusted masters",
    "training.participation.rate": "share that takes part",
    "training.participation.count": "participants",
    "training.server.learning_rate": "server's learning rate",
    "data.partition.alpha": "Dirichlet α",
    "compression.ratio": "share that is sent",
}


def key_words(keys: Sequence[str]) -> tuple[str, ...]:
    """The names of ``keys`` on a page: in words, else the shortest unique ends without underscores."""
    plain = [name.replace("_", " ") for name in short_names(keys)]
    return tuple(_WORDS.get(key, name) for key, name in zip(keys, plain, strict=True))
