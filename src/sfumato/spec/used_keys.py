"""Which keys of a spec have an effect, and where: what has none is refused, never ignored.

A key without a condition has an effect wherever its section may stand; keys of one family of topologies only
are in ``families.py``. Tests try every key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from sfumato.families import FAMILIES, family_of
from sfumato.spec.base import Section
from sfumato.spec.refusals import Refused, tuple_as_list
from sfumato.spec.topology import StarTopology, TreeTopology

if TYPE_CHECKING:
    from sfumato.spec.document import Spec

AIR_PROTOCOLS = ("pfels", "wfl-p", "wfl-pdp")
WITHOUT_NOISE = ("hfl", "ms-fedavg")
"""Protocols that add no noise; they say so where a spec asks for some."""


@dataclass(frozen=True)
class Condition:
    """Where a key has an effect.

    Attributes:
        holds: whether it has one in a spec.
        allowed: what it goes with, for the refusal.
    """

    holds: Callable[[Spec], bool]
    allowed: str


def anybody_adds_noise(spec: Spec) -> bool:
    """Whether any party adds privacy noise: ``privacy.noise`` is not none and the protocol uses it."""
    return spec.privacy.noise.kind != "none" and spec.protocol not in WITHOUT_NOISE


def _aggregates_often(spec: Spec) -> bool:
    """Whether a round may have several aggregations; H2FDP's defaults, without local steps, have."""
    training = spec.training
    stated = training.local_steps is not None or training.local_epochs is not None
    return training.edge_every is not None or training.aggregate_every is not None or not stated


def _has_one_level(spec: Spec) -> bool:
    """Whether only edges are between the devices and the cloud, as far as the spec says by itself."""
    topology = spec.topology
    if not isinstance(topology, TreeTopology):
        return True  # refused with a reason of its own
    names = topology.level_names or ()
    return len(names) <= 1 and len(topology.levels or ()) <= 2


_WIRES = Condition(
    lambda spec: isinstance(spec.topology, TreeTopology),
    "goes with topology.kind: tree: only its edges have wires",
)
_BUDGET = Condition(anybody_adds_noise, "goes with noise: without, control has no budget to spend")
_ADAM = Condition(lambda spec: spec.training.server.optimizer == "adam", "goes with optimizer: adam")

CONDITIONS: dict[str, Condition] = {
    "air.csi.max_error_std": Condition(
        lambda spec: spec.air is not None and spec.air.csi.is_wrong,
        "goes with gain_error or phase_error_rad above 0: it limits these errors",
    ),
    "data.person_column": Condition(
        lambda spec: spec.privacy.unit == "person", "goes with privacy.unit: person, whose rows it tells"
    ),
    "data.row": Condition(
        lambda spec: spec.privacy.unit != "device",
        "goes with privacy.unit: record, person or both, of which it says what a row is",
    ),
    "control.budget_policy": _BUDGET,
    "control.estimates": _BUDGET,
    "control.per_edge": Condition(
        anybody_adds_noise, "goes with noise: without, the fewest devices are the cheapest at every edge"
    ),
    "faults.when_supernode_fails": Condition(
        lambda spec: spec.faults is not None and spec.faults.supernode_failure_rate > 0,
        "goes with supernode_failure_rate above 0",
    ),
    "model.bias": Condition(
        lambda spec: spec.model.kind == "softmax",
        "goes with kind: softmax: the layers of other models have their biases",
    ),
    "model.hidden": Condition(
        lambda spec: spec.model.kind == "mlp", "goes with kind: mlp, whose layers' widths it is"
    ),
    "model.norm": Condition(
        lambda spec: spec.model.kind == "vgg11",
        "goes with kind: vgg11: resnet18 is always normalised by groups, and other models never",
    ),
    "model.rank": Condition(
        lambda spec: spec.model.trained == "adapters", "goes with trained: adapters, whose rank it is"
    ),
    "privacy.clip.adapt": Condition(
        lambda spec: isinstance(spec.topology, StarTopology | TreeTopology),
        "goes with trees and stars: a group's norm would follow from models that other groups do not see",
    ),
    "privacy.mechanism": Condition(anybody_adds_noise, "goes with noise: here nobody adds any"),
    "privacy.noise.c2": Condition(
        lambda spec: getattr(spec.privacy.noise, "formula", None) == "h2fdp",
        "goes with formula: h2fdp, whose constant it is",
    ),
    "radio.access": Condition(
        lambda spec: not spec.sends_over_the_air,
        "must be left out over the air, where all devices send at once",
    ),
    "radio.radius_m": Condition(
        lambda spec: getattr(spec.radio, "distances_m", None) is None, "goes without distances_m: give one"
    ),
    "radio.wired_power_dbm": _WIRES,
    "radio.wired_rate_bps": _WIRES,
    "training.edge_every": Condition(
        _has_one_level,
        "goes with edges under the cloud; in a deeper tree aggregate_every has a period for each level",
    ),
    "training.global_update": Condition(
        _aggregates_often, "goes with trees whose edges aggregate several times a round (edge_every)"
    ),
    "training.momentum": Condition(
        lambda spec: spec.training.optimizer.kind == "sgd", "goes with optimizer: sgd; adam has beta1"
    ),
    "training.server.beta1": _ADAM,
    "training.server.beta2": _ADAM,
    "training.server.epsilon": _ADAM,
    "training.server.momentum": Condition(
        lambda spec: spec.training.server.optimizer == "sgd", "goes with optimizer: sgd; adam has beta1"
    ),
}  # fmt: skip

WHOLE = frozenset({"data.partition", "privacy.noise.calibrated_from", "radio.gain", "training.learning_rate"})
"""Sections whose ``kind`` says which keys there are, each of which it uses."""


def unused_keys(spec: Spec) -> Iterator[Refused]:
    """The keys of ``spec`` that are no default and have no effect, each with what it would go with.

    Nothing for the spec of a run folder, whose run was made already.
    """
    if spec.is_of_a_run:
        return
    for key, value in _keys_of_other_families(spec):
        kinds = " or ".join(next(f for f in FAMILIES if key in f.keys).topologies)
        yield Refused(key, value, f"goes with topology.kind: {kinds} only")
    for key, value in _keys_that_differ_from_defaults(spec):
        condition = CONDITIONS.get(key)
        if condition is not None and not condition.holds(spec):
            yield Refused(key, value, condition.allowed)


def _keys_of_other_families(spec: Spec) -> Iterator[tuple[str, Any]]:
    """Dotted keys that ``spec`` sets though only another family of topologies reads them, with values."""
    mine = family_of(spec)
    for family in FAMILIES:
        for key in family.keys if family is not mine else ():
            value = reduce(getattr, key.split("."), spec)
            if value is not None:
                yield key, None if isinstance(value, Section) else value


def _keys_that_differ_from_defaults(section: Section, place: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys below ``place`` whose values are not the defaults, with these values.

    A section comes before its own keys, with ``None`` as its value.
    """
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        default = (
            field.default if field.default_factory is None else field.get_default(call_default_factory=True)
        )
        if value == default:  # a required field has no default, which equals nothing
            continue
        key = f"{place}.{field.alias or name}".lstrip(".")
        is_section = isinstance(value, Section)
        yield key, None if is_section else tuple_as_list(value)
        if is_section and key not in WHOLE:
            yield from _keys_that_differ_from_defaults(value, key)
