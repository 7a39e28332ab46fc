"""Small federations to audit."""

from __future__ import annotations

from typing import Any

from sfumato.schedule.base import Plan
from sfumato.schedule.resolve import resolve
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec


def tree_plan(**sections: Any) -> Plan:
    """Three edges of four devices, the first trusted; edges aggregate twice a round, then the cloud."""
    document: dict[str, Any] = {
        "name": "audited",
        "protocol": "h2fdp",
        "seed": 3,
        "data": {"source": "synthetic", "examples_per_device": 4},
        "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 4},
        "trust": {"trusted_edges": [0]},
        "training": {
            "rounds": 3,
            "local_steps": 6,
            "edge_every": 2,
            "batch_size": 2,
            "learning_rate": 0.1,
        },
        "privacy": {"clip": {"kind": "update", "norm": 0.7}, "noise": {"multiplier": 2.0}},
    }
    return resolve(Spec.model_validate(_merged(document, sections)))


def star_plan(**sections: Any) -> Plan:
    """Twelve devices, each drawn with probability 0.1, that noise their messages to an untrusted cloud."""
    document: dict[str, Any] = {
        "name": "audited",
        "protocol": "pedpfl",
        "seed": 3,
        "data": {"source": "synthetic", "examples_per_device": 4},
        "topology": {"kind": "star", "devices": 12},
        "training": {
            "rounds": 12,
            "local_steps": 1,
            "batch_size": 2,
            "learning_rate": 0.1,
            "participation": {"kind": "poisson", "rate": 0.1},
        },
        "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 0.8}},
    }
    return resolve(Spec.model_validate(_merged(document, sections)))


def air_plan(**sections: Any) -> Plan:
    """Twelve devices that send to an untrusted cloud at once, at an amplitude agreed on beforehand."""
    document: dict[str, Any] = {
        "name": "audited",
        "protocol": "pfels",
        "seed": 3,
        "data": {"source": "synthetic", "examples_per_device": 4},
        "topology": {"kind": "star", "devices": 12},
        "training": {"rounds": 4, "local_steps": 1, "batch_size": 2, "learning_rate": 0.1},
        "radio": {
            "gain": {"kind": "exponential", "mean": 0.2, "min": 0.1, "max": 1.0},
            "noise_std": 1.7,
            "snr_db": [2, 15],
        },
        "privacy": {"clip": {"kind": "update", "norm": 0.8}},
    }
    sections = {"air": {"power_control": "fixed", "beta": 1.7}} | sections
    return resolve(Spec.model_validate(_merged(document, sections)))


def groups_plan(**sections: Any) -> Plan:
    """A ring of four groups of twelve workers, neighbours sharing workers."""
    document: dict[str, Any] = {
        "name": "audited",
        "protocol": "dp-ogl",
        "seed": 3,
        "data": {"source": "synthetic", "examples_per_device": 4},
        "topology": {"kind": "groups", "structure": "ring", "devices": 12, "groups": 4},
        "trust": {"trusted_aggregators": 1.0},
        "training": {
            "rounds": 4,
            "local_steps": 1,
            "merge_every": 2,
            "batch_size": 2,
            "learning_rate": 0.1,
            "participation": {"kind": "poisson", "rate": 0.7},
        },
        "privacy": {"clip": {"kind": "update", "norm": 0.05}, "noise": {"multiplier": 2.0}},
    }
    return resolve(Spec.model_validate(_merged(document, sections)))


def _merged(document: dict[str, Any], sections: dict[str, Any]) -> dict[str, Any]:
    """Mappings are merged one level deep, but for those that say their kind; all else is replaced."""
    merged = dict(document)
    for key, value in sections.items():
        more = isinstance(value, dict) and isinstance(document.get(key), dict) and "kind" not in value
        merged[key] = document[key] | value if more else value
    return merged


HDP_CASES: dict[str, dict[str, Any]] = {
    "C1": {"device": 1.0},
    "C2": {"edge": 1.0},
    "C3": {"device": [0], "edge": [1, 2]},
    "C4": {"cloud": True},
    "C5": {"clients": 0.5, "cloud": True},
    "C6": {"edge": [0], "cloud": True},
    "C7": {"device": [0], "edge": [1], "cloud": True},
}


def records_plan(clip: str = "update", **sections: Any) -> Plan:
    """`tree_plan` for records: twenty a device, of which a local step draws one in expectation."""
    document: dict[str, Any] = {
        "data": {"source": "synthetic", "examples_per_device": 20},
        "training": {"rounds": 3, "local_steps": 6, "edge_every": 2, "batch_size": 1}
        | {"learning_rate": 0.1, "batches": "poisson"},
        "privacy": {"unit": "record", "clip": {"kind": clip, "norm": 0.7}, "noise": {"multiplier": 1.0}},
    }
    return tree_plan(**_merged(document, sections))


def hospitals_plan(**sections: Any) -> Plan:
    """Five devices under an untrusted cloud, gradients of single examples clipped."""
    document: dict[str, Any] = {
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "star", "devices": 5},
        "training": {"rounds": 10, "local_steps": 1, "batches": "poisson", "participation": {"kind": "all"}},
        "privacy": {"unit": "record", "clip": {"kind": "example", "norm": 1.0}}
        | {"noise": {"multiplier": 0.8}},
    }
    return star_plan(**_merged(document, sections))


def hidden_edges_plan() -> Plan:
    """Edges of one device that aggregate after every step without noise, unseen by the cloud above them."""
    return tree_plan(
        topology={"kind": "tree", "edges": 2, "devices_per_edge": [1, 1]},
        trust={"trusted_edges": [0, 1]},
        data={"source": "synthetic", "examples_per_device": 40},
        training={"rounds": 4, "local_steps": 8, "edge_every": 1, "batch_size": 1, "batches": "poisson"},
        privacy={
            "unit": "record",
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"sources": [{"owners": ["edge:0", "edge:1"], "multipliers": [7.0, 0.0]}]},
        },
    )


def hdp_plan(case: str, **sections: Any) -> Plan:
    """Three zones of four clients, noise placed as in one of the paper's seven cases."""
    return tree_plan(
        protocol="hdp",
        trust={},
        training={"rounds": 3, "local_steps": 2, "edge_every": None},
        privacy={"noise": {"multiplier": 0.6, "placement": HDP_CASES[case]}},
        **sections,
    )


def two_zones(**sections: Any) -> TreePlan:
    """Two untrusted edges of five devices."""
    two_edges: dict[str, Any] = {"topology": {"kind": "tree", "edges": 2, "devices_per_edge": [5, 5]}}
    two_edges["trust"] = {"trusted_edges": []}
    found = tree_plan(**_merged(two_edges, sections))
    assert isinstance(found, TreePlan)
    return found


def unequal_zones(**training: Any) -> TreePlan:
    """A zone of two beside a zone of a hundred, both with a least denominator of 2."""
    return two_zones(
        protocol="hdp",
        topology={"kind": "tree", "edges": 2, "devices_per_edge": [2, 100]},
        training={"rounds": 4, "local_steps": 2, "edge_every": None}
        | {"denominator": {"kind": "clipped", "min_weight": 2}}
        | training,
        privacy={"noise": {"multiplier": 1.0, "placement": {"device": 1}}},
    )


MISSING_NOISE = {
    "zones": {
        "trust": {"trusted_edges": [0, 1]},
        "transport": {"devices_to_edge": "secure-aggregation"},
        "sources": [{"owners": ["edge:0", "edge:1"], "multipliers": [60.0, 0.0]}],
    },
    "devices": {"sources": [{"owners": ["edge:0/devices", "edge:1/devices"], "multipliers": [60.0, 0.05]}]},
}


def noise_missing_at_the_last_step(of: str) -> TreePlan:
    """Loud noise at the last of two aggregations, (almost) none at the first; who drops out adds none."""
    sections = dict(MISSING_NOISE[of])
    return two_zones(
        seed=7 if of == "devices" else 3,  # with which all five devices of a zone are missing once
        training={"rounds": 10, "local_steps": 2, "edge_every": 1},
        privacy={"clip": {"kind": "update", "norm": 1.0}, "noise": {"sources": sections.pop("sources")}},
        faults={"dropout_rate": 0.4},
        **sections,
    )
