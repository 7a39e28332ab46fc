"""Words of other libraries, and what a spec says instead: hints for keys, values and options.

Nothing here is read as another name: a word is refused, and the message says what to write.
"""

from __future__ import annotations

_DEVICES = "topology.devices of a star, topology.devices_per_edge of a tree"
KEYS = {
    "lr": "training.learning_rate",
    "learningrate": "training.learning_rate",
    "step_size": "training.learning_rate",
    "epochs": "training.local_epochs",
    "num_epochs": "training.local_epochs",
    "local_iterations": "training.local_steps",
    "steps": "training.local_steps",
    "num_rounds": "training.rounds",
    "iterations": "training.rounds",
    "rounds": "training.rounds",
    "batch": "training.batch_size",
    "batch_size": "training.batch_size",
    "minibatch_size": "training.batch_size",
    "learning_rate": "training.learning_rate",
    "optimizer": "training.optimizer",
    "local_steps": "training.local_steps",
    "local_epochs": "training.local_epochs",
    "sampling_rate": "training.participation",
    "fraction_fit": "training.participation",
    "client_fraction": "training.participation",
    "participation": "training.participation",
    "epsilon": "privacy.noise.epsilon",
    "eps": "privacy.noise.epsilon",
    "target_epsilon": "privacy.noise.epsilon",
    "sigma": "privacy.noise.multiplier",
    "noise_multiplier": "privacy.noise.multiplier",
    "multiplier": "privacy.noise.multiplier",
    "delta": "privacy.delta",
    "target_delta": "privacy.delta",
    "max_grad_norm": "privacy.clip.norm",
    "clip_norm": "privacy.clip.norm",
    "clipping": "privacy.clip",
    "clipping_norm": "privacy.clip.norm",
    "l2_norm_clip": "privacy.clip.norm",
    "unit": "privacy.unit",
    "clients": _DEVICES,
    "num_clients": _DEVICES,
    "n_clients": _DEVICES,
    "users": _DEVICES,
    "workers": _DEVICES,
    "devices": "topology.devices",
    "sites": "topology.sites",
    "dataset": "data.source",
    "file": "data.source",
    "path": "data.source",
    "csv": "data.source",
    "label": "data.label_column",
    "target": "data.label_column",
    "features": "data.feature_columns",
    "columns": "data.feature_columns",
    "site": "data.site_column",
    "person": "data.person_column",
    "person_id": "data.person_column",
    "patient_id": "data.person_column",
    "subject_id": "data.person_column",
    "ranges": "data.scale",
    "normalize": "data.scale",
    "standardize": "data.scale",
    "sep": "data.separator",
    "delimiter": "data.separator",
    "test_size": "data.test_fraction",
    "architecture": "model.kind",
    "net": "model.kind",
    "hidden_size": "model.hidden",
    "random_state": "seed",
    "random_seed": "seed",
    "strategy": "protocol",
    "algorithm": "protocol",
    "aggregation": "protocol",
}
"""The key to write for a word."""

VALUES = {
    "patient": "person: all rows of one, with data.person_column",
    "individual": "person: all rows of one, with data.person_column",
    "subject": "person: all rows of one, with data.person_column",
    "row": "record: one row",
    "example": "record: one row",
    "sample": "record: one row",
    "user": "device: all data of a device",
    "client": "device: all data of a device",
    "site": "device: all data of a device",
    "hospital": "device: all data of a device",
    "fedavg": "dp-fedavg",
    "dpsgd": "dp-fedavg with privacy.unit: record and clip: {kind: example}",
    "dp-sgd": "dp-fedavg with privacy.unit: record and clip: {kind: example}",
    "logistic": "softmax",
    "logistic-regression": "softmax",
    "linear": "softmax",
    "mse": "squared-error",
    "l1": "absolute-error",
    "mae": "absolute-error",
    "bce": "binary-cross-entropy",
    "binary": "classification",
    "gradient": "step or example",
    "per-example": "example",
    "per-sample": "example",
    "flat": "update",
}
"""What a value of that name means here."""


SECTIONS = {
    "privacy.clip": "{{kind: update, norm: {value}}}",
    "privacy.noise": "{{multiplier: {value}}}, or {{epsilon: {value}, for: cloud}}",
    "training.participation": "{{kind: poisson, rate: {value}}}",
    "data.partition": "{{alpha: {value}}}",
    "topology": "{{kind: star, devices: {value}}}",
    "compression": "{{kind: rand-k, ratio: {value}}}",
}
"""How a section is written that somebody wrote as a number."""


def key_meant(word: str) -> str | None:
    """The key to write instead of ``word``; ``None`` where the word says nothing."""
    return KEYS.get(word.lower().replace("-", "_"))


def value_hint(word: str, known: list[str]) -> str:
    """The hint `` (for a 'row' write record: one row)``; empty where the word says nothing here.

    Args:
        word: that was written.
        known: what may stand there: a hint to something else would be wrong.
    """
    meant = VALUES.get(word.lower().replace("_", "-"))
    if meant is None or meant.split(":")[0].split()[0] not in known:
        return ""
    return f" (for {word!r} write {meant})"


def section_of_number(place: str, value: object) -> str:
    """The hint `` (write {multiplier: 1.0}...)`` where a number stands in a section's place; else empty."""
    if place not in SECTIONS or isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return f" (write {SECTIONS[place].format(value=value)})"
