"""Keys of a spec with values that differ from the default, and what a small federation does with them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

from sfumato.accounting import account
from sfumato.engine.base import EngineSettings
from sfumato.schedule.resolve import resolve
from sfumato.simulation.training_loop import Session
from sfumato.spec.base import Section
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec
from sfumato.spec.used_keys import WHOLE

ROUNDS = 3
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "star": {"kind": "star", "devices": 6},
    "tree": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
    "deep": {"kind": "tree", "levels": [2, 2, 3], "level_names": ["region", "edge"]},
    "groups": {"kind": "groups", "structure": "ring", "groups": 3, "devices": 6},
}
MULTIPLIER = {"privacy.noise": {"multiplier": 1.0}}
H2FDP, PFELS = {"formula": "h2fdp", "epsilon": 3.0}, {"formula": "pfels", "epsilon": 0.3}
LINKS, GAINS = (
    {"preset": "h2fdp"},
    {"gain": {"kind": "rayleigh", "mean": 0.2, "min": 0.01}, "snr_db": [2, 15]},
)
TO_EDGE, TO_CLOUD, TO_MASTER = "devices_to_edge", "devices_to_cloud", "devices_to_master"
DISTANCES = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
QUIET = {"privacy.noise": "none"}
TIGHT = {
    "privacy.noise": {"formula": "pfels", "epsilon": 1e-4},
    "compression": {"kind": "rand-k", "ratio": 0.5},
}
ADAM = {"training.server.optimizer": "adam"}
ADAPTED = {"privacy.clip": {"kind": "update", "norm": 0.5, "adapt": {}}}
POISSON, FIXED = {"kind": "poisson", "rate": 0.5}, {"kind": "fixed", "count": 2}
ELECTED = {"topology.supernodes": "elected"}
CONTROL = {
    "data.examples_per_device": 40,
    "training": {"rounds": 10, "local_steps": 20, "edge_every": 5, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "step", "norm": 1.0}, "noise": {"formula": "h2fdp", "epsilon": 1.0}},
    "control": {"smoothness": 0.1},
}
FAR_EDGE = {
    **CONTROL,
    "control": {"smoothness": 0.1, "energy": 0, "delay": 1.0},
    "radio.distances_m": [10.0, 10.0, 10.0, 2000.0, 2000.0, 2000.0],
}


@dataclass(frozen=True)
class Probe:
    """A value of a key, beside other settings that it may need."""

    key: str
    value: Any
    beside: dict[str, Any] = field(default_factory=dict)


def _all(section: str, beside: dict[str, Any], **values: Any) -> list[Probe]:
    return [Probe(f"{section}.{key}", value, beside) for key, value in values.items()]


def _on_air(*probes: Probe) -> list[Probe]:
    hops = [{}, {"transport": {TO_EDGE: "air"}}, {"transport": {TO_CLOUD: "air"}}]
    noises = [{}, QUIET, {"privacy.noise": PFELS}]
    return [Probe(p.key, p.value, {**hop, **n, **p.beside}) for p in probes for hop in hops for n in noises]


def _with_faults(*probes: Probe) -> list[Probe]:
    hops = [
        {},
        {"transport": {TO_EDGE: "secure-aggregation"}},
        {"transport": {TO_CLOUD: "secure-aggregation"}},
    ]
    return [Probe(p.key, p.value, {**hop, **p.beside}) for p in probes for hop in (*hops, ELECTED)]


PROBES: list[Probe] = [
    Probe("data.person_column", "whose"),
    Probe("data.person_column", "whose", {"privacy.unit": "person", "training.batches": "poisson"}),
    Probe("data.row", "a patient"),
    Probe("data.row", "a patient", {"privacy.unit": "record", "training.batches": "poisson"}),
    *_all("topology", {}, supernodes="elected", zones="random"),
    Probe("topology.device_names", list("abcdef")),
    *_all("topology", {}, group_names=["north", "south", "east"], worker_names=list("abcdef")),
    *_all("trust", {}, cloud=True, trusted_edges=[0], trusted_aggregators=[], trusted=["edge:0"]),
    Probe("trust.cloud", True, {"trust.trusted_edges": 1.0}),
    Probe("trust.trusted", ["region:0", "edge:0", "edge:1"]),
    Probe("trust.trusted", ["master:0", "master:1", "master:2"], {"trust.trusted_aggregators": []}),
    Probe("training.local_epochs", 2, {"training.local_steps": None}),
    *_all(
        "training",
        {},
        edge_every=2,
        aggregate_every=[2, 1],
        merge_every=2,
        momentum=0.5,
        weight_decay=0.5,
        optimizer="adam",
        rounds=5,
        batch_size=3,
    ),
    *_all("training", {}, learning_rate=0.1, participation=POISSON, local_steps=3),
    Probe("training.weights", {"examples": 8}, {"data.partition": {"size_sigma": 0.5}}),
    Probe("training.aggregate_every", [2]),
    Probe("training.participation", FIXED),
    Probe("training.participation.rates", [0.5, 0.6, 0.7], {"training.participation": POISSON}),
    *_all("training.optimizer", {"training.optimizer": "adam"}, beta1=0.5, beta2=0.5, epsilon=0.5),
    Probe("training.momentum", 0.5, {"training.optimizer": "adam"}),
    *_all("training", {}, drift_correction={"kind": "fedprox", "mu": 2.0}),
    Probe("training.drift_correction", "scaffold"),
    Probe("training.global_update", "resend"),
    Probe("training.global_update", "resend", {"training.edge_every": 2, "trust.trusted_edges": 1.0}),
    Probe("training.denominator", {"kind": "clipped", "min_weight": 100}),
    *_all(
        "training.server",
        {},
        optimizer="adam",
        learning_rate=0.5,
        momentum=0.5,
        beta1=0.5,
        beta2=0.5,
        epsilon=0.5,
    ),
    *_all("training.server", ADAM, momentum=0.5, beta1=0.5, beta2=0.5, epsilon=0.5),
    *_all("privacy", {}, delta=1e-6, neighbours="replace", clip={"kind": "update", "norm": 0.1}),
    Probe("privacy.neighbours", "remove", {"training.participation": POISSON}),
    Probe("privacy.mechanism", {"kind": "sfumato.mechanisms.gaussian:GaussianNoise"}, QUIET),
    Probe("privacy.clip.norms", [0.1, 0.2, 0.3]),
    Probe("privacy.clip", {"kind": "update", "per_layer": [0.3, 0.4]}, {"model": {"kind": "mlp"}}),
    Probe("model.norm", "none", {"model": {"kind": "vgg11"}}),
    Probe("model.trained", "head", {"model": {"kind": "mlp", "hidden": 4}}),
    Probe("model.rank", 2, {"model": {"kind": "mlp", "hidden": 4, "trained": "adapters"}}),
    Probe("model.rank", 2),
    *_all("privacy.clip.adapt", ADAPTED, quantile=0.8, rate=0.5, share=0.1),
    Probe("privacy.clip.adapt", {"quantile": 0.7}),
    Probe("privacy.noise", {"multiplier": 2.0}),
    Probe("privacy.noise", {"multiplier": 2.0}, QUIET),
    Probe("privacy.noise", {"epsilon": 3.0, "for": "cloud"}),
    Probe("privacy.noise", {"epsilon": 3.0, "for": "device"}),
    Probe("privacy.noise.multipliers", [1.0, 2.0, 3.0], MULTIPLIER),
    *_all("privacy.noise", MULTIPLIER, placement={"edge": 1.0}),
    *(Probe("privacy.noise.c2", 2.0, {"privacy.noise": noise}) for noise in (H2FDP, PFELS)),
    *(Probe("transport", {hop: "secure-aggregation"}) for hop in (TO_EDGE, TO_CLOUD, TO_MASTER, "x_to_y")),
    *(Probe("transport", {hop: "air"}) for hop in (TO_EDGE, TO_CLOUD, TO_MASTER, "edge_to_cloud")),
    Probe("radio", {**LINKS, "power_dbm": 10}),
    *_all(
        "radio",
        {"radio": LINKS},
        access="ofdma",
        bits_per_parameter=16,
        wired_power_dbm=10,
        wired_rate_bps=1e6,
    ),
    *_all("radio", {"radio": LINKS, **QUIET}, power_dbm=10, bandwidth_hz=2e6, noise_density_dbm_hz=-100),
    *_all(
        "radio",
        {"radio": LINKS},
        reference_gain_db=-10,
        pathloss_exponent=2.5,
        fading="none",
        shadowing_db=3.0,
    ),
    *_all("radio", {"radio": LINKS}, radius_m=50.0, broadcast_power_dbm=10, distances_m=DISTANCES),
    Probe("radio.distances_m", DISTANCES + DISTANCES, {"radio": LINKS}),
    Probe("radio.distances_m", DISTANCES + DISTANCES[:3], {"radio": LINKS}),
    Probe("radio.radius_m", 50.0, {"radio": {**LINKS, "distances_m": DISTANCES}}),
    Probe("radio.k_factor_db", 3, {"radio": {**LINKS, "fading": "rician"}}),
    *_all(
        "radio",
        {"radio": GAINS},
        access="tdma",
        bits_per_parameter=16,
        wired_power_dbm=10,
        wired_rate_bps=1e6,
    ),
    *_all("radio", {"radio": GAINS, **QUIET}, noise_std=2.0, snr_db=[3, 16], subcarriers=10, slot_s=0.02),
    *_on_air(*_all("air", {}, power_control="wfl-p", min_gain=0.05)),
    *_on_air(*(Probe("air.power_control", rule, TIGHT) for rule in ("pfels", "wfl-pdp"))),
    *_on_air(Probe("air", {"power_control": "fixed", "beta": 1e-3})),
    *_on_air(*_all("air.csi", {}, gain_error=0.1, phase_error_rad=0.1, max_error_std=3.0)),
    *_on_air(Probe("air.csi.max_error_std", 0.5, {"air": {"csi": {"gain_error": 0.3}}})),
    *_all("compression", {"compression": {"kind": "rand-k", "ratio": 0.5}}, kind="top-k", ratio=0.2),
    *_all("compression", {"compression": {"kind": "rand-k", "ratio": 0.5}}, error_feedback=True, bits=4),
    *_with_faults(
        *_all("faults", {}, dropout_rate=0.5, supernode_failure_rate=0.3, when_supernode_fails="skip")
    ),
    *_with_faults(Probe("faults.survival_threshold", 0.55, {"faults": {"dropout_rate": 0.5}})),
    *_with_faults(
        Probe("faults.when_supernode_fails", "skip", {**ELECTED, "faults": {"supernode_failure_rate": 0.9}})
    ),
    *_with_faults(
        *_all("faults.dropout_rate", {}, advertise=0.5, share=0.5, mask=0.5, consent=0.5, unmask=0.5)
    ),
    Probe("control", {}, {}),
    *_all("control", CONTROL, energy=1e4, delay=1e6, optimality_gap_weight=1e-9, optimality_gap_scale=1e12),
    *_all("control", CONTROL, max_steps=10, max_devices=2, smoothness=0.5, budget_policy="stop"),
    *_all("control", FAR_EDGE, per_edge=True),
    *_all("control", FAR_EDGE, draw="poisson"),
    *_all("control", CONTROL, estimates={"multiplier": 2.0, "bound": 3.0}),
    Probe("evaluate_every", 2),
    Probe("metrics", ["auc"]),
    Probe("seed", 1),
    *_all("model", {}, bias=False, hidden=30, norm="none", kind="mlp"),
    *_all("model", {"model": {"kind": "mlp"}}, bias=False, hidden=30, norm="none"),
    *_all("model", {"model": {"kind": "mypackage.nets:make"}}, bias=False, hidden=30, norm="none"),
]
"""Keys that a protocol or a topology may not use; those of data are refused by their readers."""


def base_of(protocol: str, topology: str) -> dict[str, Any]:
    """A small federation that plays ``protocol``."""
    noise: Any = {"multiplier": 1.0}
    training: dict[str, Any] = {"rounds": ROUNDS, "local_steps": 4, "batch_size": 2, "learning_rate": 0.5}
    if protocol in ("pfels", "wfl-pdp"):
        noise, training["participation"] = {"formula": "pfels", "epsilon": 0.4}, FIXED
    elif protocol in ("hfl", "ms-fedavg", "wfl-p"):
        noise = "none"
    clip = {} if protocol == "ms-fedavg" else {"clip": {"kind": "update", "norm": 0.5}}
    return {
        "name": "probe",
        "protocol": protocol,
        "data": {"source": "synthetic", "examples_per_device": 8},
        "topology": TOPOLOGIES[topology],
        "training": training,
        "privacy": {**clip, "noise": noise},
    }


def changed(document: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of ``document`` with ``key`` set; ``None`` takes it out."""
    found = copy.deepcopy(document)
    *sections, last = key.split(".")
    at = found
    for section in sections:
        if not isinstance(at.get(section), dict):
            at[section] = {}
        at = at[section]
    if value is None:
        at.pop(last, None)
    else:
        at[last] = copy.deepcopy(value)
    return found


@dataclass(frozen=True)
class Behaviour:
    """What a spec does: guarantees and claims, metrics and costs of its first rounds; and what it says."""

    done: tuple[str, ...]
    notes: tuple[str, ...]


def behaviour_of(document: dict[str, Any]) -> Behaviour:
    """Account for a spec and play its first rounds.

    Raises:
        SpecError: it is refused.
    """
    spec = load_spec(document)
    plan = resolve(spec)
    said = account(spec).to_dict()
    notes = tuple(said.pop("notes"))
    said.pop("findings", None)
    session = Session.prepare(plan, EngineSettings("cpu", 1, 2**26))
    position, rows = session.initial_position(), []
    for _ in range(min(ROUNDS, session.rounds(position.state))):
        position, row = session.next(position)
        rows.append(repr({name: value for name, value in row.items() if name != "wall_time_s"}))
    return Behaviour((repr(said), *rows), notes)


_KEYS = {
    "": "name protocol seed data model topology trust training privacy transport radio air compression "
    "faults "
    "control evaluate_every metrics versions hashes watch",
    "data": "source partition examples_per_device image_column feature_columns label_column group_column "
    "site_column person_column row scale separator decimal test_fraction test_within test_file test_column "
    "task vocabulary",
    "model": "kind bias norm hidden trained rank",
    "topology": "kind devices device_names edges devices_per_edge levels level_names sites file "
    "supernodes zones structure groups group_names worker_names stated eras moves",
    "topology.eras": "from_round groups",
    "topology.zones": "kind members",
    "topology.moves": "rate trace file drawn_at",
    "trust": "cloud trusted_edges trusted_aggregators trusted from",
    "training": "rounds local_steps local_epochs edge_every edge_at_global aggregate_every merge_every "
    "batch_size learning_rate "
    "momentum loss optimizer weight_decay participation global_update weights denominator server batches "
    "drift_correction",
    "training.optimizer": "kind beta1 beta2 epsilon",
    "training.drift_correction": "kind mu",
    "training.participation": "kind rate rates count",
    "training.weights": "kind examples",
    "training.denominator": "kind min_weight",
    "training.server": "optimizer learning_rate momentum beta1 beta2 epsilon",
    "privacy": "delta clip noise mechanism neighbours unit",
    "privacy.clip": "kind norm norms per_layer adapt",
    "privacy.clip.adapt": "quantile rate share",
    "privacy.noise": "kind multiplier multipliers placement epsilon for formula c2 sources calibrated_from "
    "at",
    "privacy.noise.placement": "device edge device_fraction levels cloud",
    "privacy.mechanism": "kind law",
    "radio": "preset access bits_per_parameter wired_power_dbm wired_rate_bps power_dbm bandwidth_hz "
    "noise_density_dbm_hz reference_gain_db pathloss_exponent fading k_factor_db shadowing_db radius_m "
    "distances_m "
    "broadcast_power_dbm gain noise_std snr_db subcarriers slot_s spacing_hz",
    "air": "power_control beta min_gain csi",
    "air.csi": "gain_error phase_error_rad max_error_std",
    "compression": "kind ratio error_feedback bits",
    "faults": "dropout_rate supernode_failure_rate survival_threshold when_supernode_fails",
    "faults.dropout_rate": "advertise share mask consent unmask",
    "control": "energy delay optimality_gap_weight optimality_gap_scale max_steps max_devices per_edge "
    "draw smoothness estimates step_size bounds budget_policy",
    "control.bounds": "smoothness gradient",
    "control.estimates": "multiplier bound",
}
DECLARED = frozenset(
    f"{section}.{key}".lstrip(".") for section, keys in _KEYS.items() for key in keys.split()
)
"""Every key that has an effect somewhere, as the tests show: a new one is written here, and tried."""


def keys_of_models() -> set[str]:
    """Every key that a user may write, dotted, off the models; not those inside a whole section."""
    return set(_keys(Spec, ""))


def _keys(section: type[Section], place: str) -> Iterator[str]:
    for name, info in section.model_fields.items():
        key = f"{place}.{info.alias or name}".lstrip(".")
        yield key
        if key not in WHOLE:
            for inner in _sections(info.annotation):
                if name not in ("sites", "sources"):  # lists
                    yield from _keys(inner, key)


def _sections(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [one for inner in get_args(annotation) for one in _sections(inner)]
