"""The numbers and choices of a spec that the page can change: those that it has and its protocol uses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sfumato.data.builtin_datasets import BUILT_IN
from sfumato.explore.edited_spec import EditedSpec
from sfumato.report.results.network import towards_in_words
from sfumato.spec.document import Spec
from sfumato.spec.topology import StarTopology, TreeTopology
from sfumato.spec.used_keys import WITHOUT_NOISE

STEPS = 1000  # positions of a slider


@dataclass(frozen=True)
class InputControl:
    """A number of the spec that the page can change.

    Attributes:
        name: of the control on the page.
        key: of the spec, dotted.
        label: in words.
        value: what the spec says.
        low: the left end of the slider; numbers beyond it may be typed.
        high: its right end.
        whole: whether it is a whole number.
    """

    name: str
    key: str
    label: str
    value: float
    low: float
    high: float
    whole: bool = False

    @property
    def position(self) -> int:
        """The place on the slider, a whole number from 0 to `STEPS`, of the value on a logarithmic scale.

        A value beyond an end is shown at that end.
        """
        inside = min(max(self.value, self.low), self.high)
        return round(STEPS * math.log(inside / self.low) / math.log(self.high / self.low))

    def at(self, position: float) -> float:
        """The value at a ``position`` of the slider, from 0 to `STEPS`: whole, or rounded to three digits."""
        value = self.low * (self.high / self.low) ** (position / STEPS)
        return round(value) if self.whole else float(f"{value:.3g}")


PARTICIPATION = {
    "all": "everybody, in every round",
    "poisson": "each by chance, independently (with probability ½ until you set it)",
    "fixed": "a fixed number, without replacement (half of the fewest to draw from, until you set it)",
}
NAMES = ("noise", "edges", "devices", "rounds", "rate", "count", "batch")
CHOICES = ("placement", "data")
_PLACEMENTS: Mapping[str, Any] = {
    "every device": {"device": 1.0},
    "the edges": {"edge": 1.0},
    "the cloud": {"cloud": True},
    "every device and the cloud": {"device": 1.0, "cloud": True},
    "the edges and the cloud": {"edge": 1.0, "cloud": True},
}


@dataclass(frozen=True)
class ChoiceControl:
    """A key of the spec with a few values to choose from.

    Attributes:
        name: of the control on the page.
        key: of the spec, dotted.
        label: in words.
        options: words to values of the key.
        chosen: words of the spec's own value; empty where it is none of these.
    """

    name: str
    key: str
    label: str
    options: Mapping[str, Any]
    chosen: str


def controls_of(spec: Spec) -> dict[str, InputControl]:
    """The controls, by name, for the numbers of ``spec`` that the page can change.

    Names are among `NAMES`.
    """
    found = (*_noise_control(spec), *_network_controls(spec), *_training_controls(spec))
    return {control.name: control for control in found}


def choice_controls_of(spec: Spec) -> dict[str, ChoiceControl]:
    """The controls, by name, for keys of ``spec`` with a few values to choose from.

    Names are among `CHOICES`.
    """
    return {control.name: control for control in (*_placement_control(spec), *_data_control(spec))}


def _placement_control(spec: Spec) -> Iterator[ChoiceControl]:
    """Yield the control for who adds noise, where it does not follow from trust."""
    noise = spec.privacy.noise
    if noise.kind != "multiplier" or noise.multipliers is not None or spec.protocol != "hdp":
        return
    stated = None if noise.placement is None else noise.placement.model_dump(exclude_defaults=True)
    chosen = next((words for words, value in _PLACEMENTS.items() if value == stated), "")
    yield ChoiceControl("placement", "privacy.noise.placement", "Noise is added by", _PLACEMENTS, chosen)


def _data_control(spec: Spec) -> Iterator[ChoiceControl]:
    """Yield the control for the data set, where the spec names one that comes with Sfumato."""
    if spec.data.source in BUILT_IN:
        names = {name: name for name in BUILT_IN}
        yield ChoiceControl("data", "data.source", "Data", names, spec.data.source)


def _network_controls(spec: Spec) -> Iterator[InputControl]:
    """Yield the controls for how many edges, groups and devices there are, where numbers say it."""
    topology = spec.topology
    if isinstance(topology, TreeTopology):
        if topology.edges is not None and isinstance(topology.devices_per_edge, int):
            each = topology.devices_per_edge
            yield _count("edges", "topology.edges", "edges", topology.edges)
            yield _count("devices", "topology.devices_per_edge", "devices under every edge", each)
    elif isinstance(topology, StarTopology):
        if not topology.device_names:
            yield _count("devices", "topology.devices", "devices", topology.devices)
    elif isinstance(topology.groups, int) and topology.devices is not None and not topology.worker_names:
        yield _count("edges", "topology.groups", "groups", topology.groups)
        yield _count("devices", "topology.devices", "workers", topology.devices)


def _count(name: str, key: str, label: str, value: int) -> InputControl:
    """The control of a number of parties, whose slider begins at 1.

    It ends at the first power of ten that is at least 10 and at least 4 times ``value``. ``name``, ``key``
    and ``label`` are attributes of the control.
    """
    high = max(10.0, 10.0 ** math.ceil(math.log10(4 * value)))
    return InputControl(name, key, label, value, 1, high, whole=True)


def _noise_control(spec: Spec) -> Iterator[InputControl]:
    """Yield the control of the noise: a target of ε, a formula's ε, or a multiplier; none without noise."""
    noise = spec.privacy.noise
    if spec.protocol in WITHOUT_NOISE:
        return
    if noise.kind == "target":
        label = f"ε target {towards_in_words(noise.towards)}"
        yield InputControl("noise", "privacy.noise.epsilon", label, noise.epsilon, 0.1, 100.0)
    elif noise.kind == "formula":
        label = f"ε in the formula of {noise.formula}"
        yield InputControl("noise", "privacy.noise.epsilon", label, noise.epsilon, 0.1, 100.0)
    elif noise.kind == "multiplier" and noise.multipliers is None:
        where = " at every local step" if noise.at == "step" else ""
        label = f"noise multiplier{where}"
        yield InputControl("noise", "privacy.noise.multiplier", label, noise.multiplier, 0.05, 50.0)


def _training_controls(spec: Spec) -> Iterator[InputControl]:
    """Yield the controls for rounds and batch size.

    Also for the probability, or the number, of participants, where one number gives it.
    """
    training = spec.training
    high = max(100.0, 10.0 ** math.ceil(math.log10(4 * training.rounds)))
    yield InputControl("rounds", "training.rounds", "rounds", training.rounds, 1, high, whole=True)
    part = training.participation
    if part.kind == "poisson" and part.rates is None:
        label = "probability that a device takes part in a round"
        yield InputControl("rate", "training.participation.rate", label, part.rate, 0.001, 1.0)
    elif part.kind == "fixed" and isinstance(part.count, int):
        label = "devices that take part in a round, of every edge, group or star"
        most = max(2.0, 10.0 ** math.ceil(math.log10(max(part.count, 2))))
        yield InputControl("count", "training.participation.count", label, part.count, 1, most, whole=True)
    if isinstance(training.batch_size, int):
        what = "persons" if spec.privacy.unit == "person" else "examples"
        label, size = f"{what} in a batch", training.batch_size
        yield InputControl("batch", "training.batch_size", label, size, 1, 1000, whole=True)


def participation_of(spec: Spec) -> str:
    """The spec's kind of participation (all, poisson or fixed); "" where lists or ranges give it."""
    part = spec.training.participation
    if getattr(part, "rates", None) is not None or isinstance(getattr(part, "count", 0), tuple | Mapping):
        return ""
    return part.kind


def with_value(setting: EditedSpec, control: InputControl, value: float) -> EditedSpec:
    """``setting`` with ``value`` for the control's number; unchanged if it has that value.

    Nothing is checked.
    """
    if value == control.value:
        return setting
    return setting.with_change(control.key, int(value) if control.whole and value == int(value) else value)


def with_participation(setting: EditedSpec, spec: Spec, kind: str, smallest: int) -> EditedSpec:
    """A setting with another kind of participation: with probability 1/2, or half of the smallest place.

    Args:
        setting: to be changed; returned as it is if it has that kind.
        spec: of the setting.
        kind: all, poisson or fixed.
        smallest: number of devices of the smallest edge, group or star, the most that can be drawn.
    """
    if kind == participation_of(spec):
        return setting
    half = max(1, smallest // 2)
    more: dict[str, dict[str, Any]] = {"poisson": {"rate": 0.5}, "fixed": {"count": half}}
    return setting.with_change("training.participation", {"kind": kind} | more.get(kind, {}))
