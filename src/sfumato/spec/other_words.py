"""Words of other libraries, and what a spec says instead: hints for keys, values, options and arguments.

Nothing here is read as another name: a word is refused, and the message says what to write.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from functools import wraps
from typing import ParamSpec, TypeVar

from sfumato.arguments import Argument
from sfumato.errors import SpecError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

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
    "server": "trust.cloud",
}
"""The key to write for a word."""

EITHER = {
    "training.local_epochs": "training.local_steps",
    "training.local_steps": "training.local_epochs",
}
"""Of two keys one must be left out: to set the first, the second becomes null."""

REMARKS = {
    "layers": "model.hidden, with kind: mlp",
    "n_layers": "model.hidden, with kind: mlp",
    "dropout": "layers torch.nn.Dropout in a model of your own, FILE.py:NAME",
    "gpu": "cuda as the option device of the command run",
    "device": "cuda as the option device of the command run",
    "cuda": "cuda as the option device of the command run",
    "out": "the folder as the option out of the command",
    "output": "the folder as the option out of the command",
}
"""What to write for a word that no key is meant by."""

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
    "fed-avg": "dp-fedavg",
    "fedavg-dp": "dp-fedavg",
    "dp-fed-avg": "dp-fedavg",
    "fedavgdp": "dp-fedavg",
    "fl": "dp-fedavg",
    "dp-fl": "dp-fedavg",
    "federated": "dp-fedavg",
    "federated-averaging": "dp-fedavg",
    "user-level-dp": "dp-fedavg",
    "central-dp": "dp-fedavg with trust.cloud: true",
    "cdp": "dp-fedavg with trust.cloud: true",
    "local-dp": "dp-fedavg: devices add the noise unless trust.cloud is true",
    "ldp": "dp-fedavg: devices add the noise unless trust.cloud is true",
    "fedsgd": "dp-fedavg with training.local_steps: 1",
    "fedprox": "dp-fedavg with training.drift_correction: {kind: fedprox, mu: 0.01}",
    "scaffold": "dp-fedavg with training.drift_correction: scaffold",
    "fedadam": "dp-fedavg with training.server: {optimizer: adam}",
    "fedopt": "dp-fedavg with training.server: {optimizer: adam}",
    "dp-hfl": "hfl-dp",
    "hierfavg": "hfl-dp",
    "hierarchical": "hfl-dp",
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
    "secagg": "secure-aggregation",
    "secagg+": "secure-aggregation",
    "secure-aggregate": "secure-aggregation",
    "masked": "secure-aggregation",
    "ota": "air",
    "over-the-air": "air",
}
"""What a value of that name means here."""


OBSERVERS = {
    "server": "cloud",
    "aggregator": "cloud",
    "central": "cloud",
    "coordinator": "cloud",
    "everyone": "public",
    "everybody": "public",
    "world": "public",
    "release": "public",
    "client": "device:0",
    "hospital": "device:0",
    "router": "edge:0",
}
"""The observer that a word means."""

WORDS_AT = {
    ("data.partition", "non-iid"): "{kind: labels, labels_per_device: 2}, or {kind: dirichlet, alpha: 0.5}",
    ("data.partition", "noniid"): "{kind: labels, labels_per_device: 2}, or {kind: dirichlet, alpha: 0.5}",
    ("data.partition", "heterogeneous"): "{kind: dirichlet, alpha: 0.5}",
    ("data.partition", "random"): "iid",
    ("data.partition", "uniform"): "iid",
    ("trust.trusted_edges", "all"): "1.0",
    ("trust.trusted_edges", "none"): "0.0",
    ("trust", "none"): "{trusted_edges: 0.0}",
    ("trust", "all"): "{trusted_edges: 1.0}",
    ("transport", "secagg"): "{devices_to_edge: secure-aggregation}; in a star {devices_to_cloud: ...}",
    ("transport", "secure-aggregation"): (
        "{devices_to_edge: secure-aggregation}; in a star {devices_to_cloud: ...}"
    ),
    ("privacy.noise", "gaussian"): "{multiplier: 1.0}, or {epsilon: 8, for: cloud}: noise is Gaussian",
    ("privacy.noise", "laplace"): "{multiplier: 1.0}, or {epsilon: 8, for: cloud}: noise is Gaussian",
}
"""What to write at a key for a word that stands there."""

LOSSES_OF_REGRESSION = {
    "mse": "data.task: regression, whose loss is the squared error",
    "mae": "data.task: regression and loss: absolute-error",
}
"""What to write for a loss that goes with another task."""


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
    """The dotted key to write instead of ``word``, a term of other libraries, or a remark on it in words.

    ``None`` if the word is not known. Case does not count, nor whether words are joined by ``-`` or ``_``.
    """
    plain = word.lower().replace("-", "_")
    return KEYS.get(plain) or REMARKS.get(plain)


def refusing_keys(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """``function``, but an argument that it does not have and that means a key of the spec is a `SpecError`.

    So is ``rounds`` in ``sf.run(spec, rounds=5)``. The message says how the key is set. Other wrong
    arguments are Python's ``TypeError``, as ever.
    """
    known = inspect.signature(function).parameters

    @wraps(function)
    def called(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        for name, value in kwargs.items():
            key = None if name in known else key_meant(name)
            if key is not None and " " not in key:
                how = f"sf.load_spec(SOURCE, [{f'{key}={value}'!r}])"
                allowed = f"is no argument of {function.__name__}; it is a key of the spec: {how}"
                raise SpecError(Argument(name), value, allowed)
        return function(*args, **kwargs)

    return called


def value_hint(word: str, known: list[str]) -> str:
    """The hint `` (for 'row' write record: one row)`` on a value from other libraries; "" if there is none.

    Args:
        word: that was written.
        known: the values that are allowed here; a hint to any other would be wrong.
    """
    meant = VALUES.get(word.lower().replace("_", "-"))
    if meant is None or meant.split(":")[0].split()[0] not in known:
        return ""
    return f" (for {word!r} write {meant})"


def loss_hint(word: str, known: list[str]) -> str:
    """The hint on a ``word`` written as the loss, with a leading space; "" if there is none.

    Args:
        word: that was written.
        known: the losses that go with the task; for the loss of another task the hint names that task.
    """
    meant = LOSSES_OF_REGRESSION.get(word.strip().lower())
    return value_hint(word, known) or ("" if meant is None else f" (write {meant})")


def observer_hint(word: str, kinds: Collection[str]) -> str:
    """The hint `` (for 'server' write cloud)`` on a ``word`` written as an observer; "" if there is none.

    ``kinds``: the kinds of parties that the spec has, such as "edge".
    """
    plain = word.lower().strip()
    meant = OBSERVERS.get(plain)
    if meant is not None and ":" in meant and meant.partition(":")[0] not in kinds:
        return ""
    if meant is None and (found := _PARTY.fullmatch(plain)) and found[1] in kinds:
        meant = f"{found[1]}:{found[2]}"
    return "" if meant is None else f" (for {word!r} write {meant})"


_PARTY = re.compile(r"([a-z]+?)[ _-]?(\d+)")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_POWER = re.compile(r"10(?:\^|\*\*)-(\d{1,3})")
_FRACTION = re.compile(r"1 ?/ ?(\d{1,15})")
_NAMED_EDGES = re.compile(r"edge:(\d+)(?:, ?edge:(\d+))*")


def word_hint(place: str, value: object) -> str:
    """The hint `` (write 0.1)`` on ``value``, a word written at the dotted key ``place``; else ""."""
    if not isinstance(value, str):
        return ""
    word = value.strip()
    if (meant := WORDS_AT.get((place, word.lower()))) is not None:
        return f" (write {meant})"
    if place == "data":
        return f" (write {{source: {word}}})"
    if place in ("watch", "metrics"):
        meant = OBSERVERS.get(word.lower(), word) if place == "watch" else word
        return f" (write [{meant}])"
    if place.startswith("trust.trusted_edges") and _NAMED_EDGES.fullmatch(word):
        return f" (write [{', '.join(re.findall(r'[0-9]+', word))}])"
    if power := _POWER.fullmatch(word):
        return f" (write 1e-{power[1]})"
    if (fraction := _FRACTION.fullmatch(word)) and int(fraction[1]):
        return f" (write {1 / int(fraction[1]):.6g})"
    return f" (write {word.replace(',', '.')})" if _DECIMAL_COMMA.fullmatch(word) else ""


def unit_hint(word: str) -> str:
    """The hint `` (for 'patient:0' write person:0)`` on a privacy unit; "" if ``word`` does not mean one."""
    kind, _, number = word.partition(":")
    meant = VALUES.get(kind.lower(), "").partition(":")[0]
    is_unit = meant in ("record", "person", "device") and number.isdecimal()
    return f" (for {word!r} write {meant}:{number})" if is_unit else ""


def section_hint(place: str, value: object) -> str:
    """The hint `` (write {multiplier: 1.0}...)`` where a number stands at the key of a section; else "".

    Args:
        place: dotted key.
        value: what was written there.
    """
    if place not in SECTIONS or isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return f" (write {SECTIONS[place].format(value=value)})"
