"""Small specs of every kind of run that is stopped and resumed."""

from __future__ import annotations

from typing import Any

from sfumato.spec.document import Spec

ROUNDS = 9
MULTIPLIER = {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 0.5}}
# Of hidden draws: the less noise there is, the longer its account takes.
LOUD = {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 4.0}}
TRAINING = {"rounds": ROUNDS, "steps_per_round": 4, "edge_every": 2, "batch_size": 5, "learning_rate": 0.2}

OVERLAPPING = {"kind": "groups", "structure": "list", "groups": [[0, 1, 2, 3], [2, 3, 4, 5], [5, 6, 0]]}


def spec_of(**sections: Any) -> Spec:
    document: dict[str, Any] = {
        "name": "tiny",
        "protocol": "h2fdp",
        "seed": 2,
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
        "trust": {"trusted_edges": [1]},
        "training": TRAINING,
        "privacy": MULTIPLIER,
    }
    return Spec.model_validate(document | sections)


def groups_of(protocol: str, merge_every: int, **sections: Any) -> Spec:
    return spec_of(
        protocol=protocol,
        topology=sections.pop("topology", OVERLAPPING),
        trust=sections.pop("trust", {"trusted_aggregators": 1.0}),
        training={
            "rounds": ROUNDS,
            "local_steps": 2,
            "batch_size": 5,
            "learning_rate": 0.2,
            "merge_every": merge_every,
            "participation": {"rate": 0.6},
        },
        **{"privacy": LOUD} | sections,
    )


def _with_server(protocol: str, **server: Any) -> Spec:
    spec = groups_of(protocol, 3)
    return Spec.model_validate(
        spec.model_dump() | {"training": spec.training.model_dump() | {"server": server}}
    )


def _with_cohorts(protocol: str, count: int | list[int]) -> Spec:
    spec = groups_of(protocol, 3)
    drawn = {"participation": {"kind": "fixed", "count": count}}
    return Spec.model_validate(spec.model_dump() | {"training": spec.training.model_dump() | drawn})


POISSON = TRAINING | {"batches": "poisson"}

VARIANTS = {
    "edges with schedules of their own": spec_of(
        training=TRAINING
        | {
            "edge_every": [1, 3],
            "edge_at_global": True,
            "momentum": 0.5,
            "participation": {"count": [1, 2]},
            "global_update": "resend",
        }
    ),
    "Poisson mini-batches": spec_of(
        training=POISSON, privacy=MULTIPLIER | {"clip": {"kind": "step", "norm": 1.0}}
    ),
    "Adam, weight decay": spec_of(training=TRAINING | {"optimizer": "adam", "weight_decay": 0.1}),
    "server momentum": spec_of(training=TRAINING | {"server": {"momentum": 0.9}}),
    "server Adam, resend, every third round": spec_of(
        training=TRAINING
        | {"server": {"optimizer": "adam", "learning_rate": 0.05}, "global_step": "resend", "momentum": 0.5},
        evaluate_every=4,
    ),
    "devices that move, trust that changes": spec_of(
        topology={"kind": "tree", "edges": 3, "devices_per_edge": [3, 2, 3], "moves": {"rate": 0.3}},
        trust={"from": {0: [0], 3: [1, 2], 6: []}},
        training=TRAINING | {"momentum": 0.5, "participation": {"kind": "fixed", "count": 2}},
        evaluate_every=4,  # what was spent is computed then, and takes seconds
    ),
    "devices that move, edges with schedules of their own": spec_of(
        topology={"kind": "tree", "edges": 3, "devices_per_edge": [3, 2, 3], "moves": {"rate": 0.3}},
        trust={"from": {0: [0], 6: [1]}},
        training=TRAINING
        | {
            "edge_every": [1, 2, 3],
            "edge_at_global": True,
            "global_update": "resend",
        },
    ),
    "devices that move, records drawn one by one": spec_of(
        topology={"kind": "tree", "edges": 3, "devices_per_edge": [3, 2, 3], "moves": {"rate": 0.3}},
        trust={"from": {0: [0], 6: [1]}},
        training=TRAINING | {"batches": "poisson", "edge_every": [1, 2, 3]},
    ),
    "secure aggregation, elections and faults": spec_of(
        protocol="hdp",
        topology={"kind": "tree", "edges": 3, "devices_per_edge": [4, 3, 5], "supernodes": "elected"},
        trust={},
        training={"rounds": ROUNDS, "local_epochs": 1, "batch_size": "all", "learning_rate": 0.2},
        privacy={
            "clip": {"kind": "update", "norm": 0.5},
            "noise": {"multiplier": 0.5, "placement": {"device": [0, 2], "edge": [1]}},
        },
        transport={"devices_to_edge": "secure-aggregation", "edge_to_cloud": "secure-aggregation"},
        faults={"dropout_rate": 0.2, "supernode_failure_rate": 0.2},
    ),
    "Poisson participation in a star": spec_of(
        protocol="dp-fedavg",
        topology={"kind": "star", "devices": 8},
        trust={},
        training={
            "rounds": ROUNDS,
            "local_epochs": 1,
            "batch_size": 5,
            "learning_rate": 0.2,
            "participation": {"rate": 0.4},
        },
        evaluate_every=2,
    ),
    "an adapted clip norm": spec_of(
        privacy=MULTIPLIER | {"clip": {"kind": "update", "norm": 0.5, "adapt": {"quantile": 0.7}}}
    ),
    "FedProx": spec_of(training=TRAINING | {"drift_correction": {"kind": "fedprox", "mu": 0.3}}),
    "SCAFFOLD": spec_of(
        training={
            "rounds": ROUNDS,
            "local_steps": 3,
            "batch_size": 5,
            "learning_rate": 0.2,
            "participation": {"count": 2},
            "drift_correction": "scaffold",
        }
    ),
    "low-rank adapters": spec_of(model={"kind": "mlp", "hidden": 6, "trained": "adapters", "rank": 2}),
    "no noise": spec_of(protocol="hfl", privacy={}, trust={}),
}
EXAMPLES = {"clip": {"kind": "example", "norm": 0.5}, "noise": {"multiplier": 0.5, "at": "step"}}
VARIANTS |= {
    "noise at every step": spec_of(training=POISSON | {"momentum": 0.5}, privacy=EXAMPLES),
    "clips of examples": spec_of(training=POISSON, privacy=EXAMPLES | {"noise": {"multiplier": 0.5}}),
}
_OF_GROUPS = groups_of("dp-ogl-local", 3, evaluate_every=2)
GROUPED = {
    "dp-ogl-local, noise at every step": Spec.model_validate(
        _OF_GROUPS.model_dump()
        | {"privacy": EXAMPLES, "training": _OF_GROUPS.training.model_dump() | {"batches": "poisson"}}
    ),
    "dp-ogl": groups_of("dp-ogl", 3),
    "dp-ogl, untrusted masters": groups_of("dp-ogl", 2, trust={"trusted_aggregators": []}, evaluate_every=4),
    "dp-ogl, some trusted masters": groups_of("dp-ogl", 2, trust={"trusted_aggregators": [1]}),
    "dp-ogl, groups that change": groups_of(
        "dp-ogl",
        3,
        topology=OVERLAPPING
        | {"eras": [{"from_round": 5, "groups": [[0, 1, 2, 6], [3, 4, 5], [1, 5, 6, 0]]}]},
    ),
    "dp-ogl+, stopped inside intervals": groups_of("dp-ogl+", 5),
    "dp-ogl-local": groups_of("dp-ogl-local", 3, evaluate_every=2),
    "dp-ogl, fixed cohorts": _with_cohorts("dp-ogl", 2),
    "dp-ogl-local, fixed cohorts": _with_cohorts("dp-ogl-local", [3, 1, 2]),
    "dp-ogl, dropouts": groups_of(
        "dp-ogl",
        2,
        trust={"trusted_aggregators": [1]},
        transport={"devices_to_master": "secure-aggregation"},
        faults={"dropout_rate": 0.2},
    ),
    "dp-ogl+, dropouts, stopped inside intervals": groups_of("dp-ogl+", 5, faults={"dropout_rate": 0.2}),
    "dp-ogl, Adam": _with_server("dp-ogl", optimizer="adam", learning_rate=0.05),
    "dp-ogl+, server momentum, stopped inside intervals": _with_server("dp-ogl+", momentum=0.9),
    "ms-fedavg": groups_of("ms-fedavg", 1, privacy={}),
}
CONTROLLED = spec_of(
    topology={"kind": "tree", "edges": 4, "devices_per_edge": 4},
    trust={"trusted_edges": [0, 2]},
    privacy={"delta": 1e-5, "clip": {"kind": "step", "norm": 1.0}, "noise": {"multiplier": 3.0}},
    training=TRAINING | {"steps_per_round": 8},
    control={
        "energy": 1.0,
        "delay": 1.0,
        "optimality_gap_weight": 1.0,
        "optimality_gap_scale": 1.0,
        "max_steps": 12,
        "smoothness": 0.5,
    },
)
PFELS = spec_of(
    protocol="pfels",
    topology={"kind": "star", "devices": 20},
    trust={},
    training={
        "rounds": 4,
        "local_steps": 2,
        "batch_size": 5,
        "learning_rate": 0.1,
        "participation": {"kind": "fixed", "count": 5},
    },
    radio={"preset": "pfels"},
    compression={"kind": "rand-k", "ratio": 0.3, "error_feedback": True},
    privacy={
        "delta": 1e-3,
        "clip": {"kind": "update", "norm": 1.0},
        "noise": {"formula": "pfels", "epsilon": 1.5},
    },
)
