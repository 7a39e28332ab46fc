"""The families of topologies, and where the parts of each live: the only module that asks which one it is.

A *family* is a kind of topology with all that knows about it: trees (a star is one), overlapping groups.
Its record names every part as ``module:name``. A part is imported when it is first called, so that accounting
for a spec loads neither torch nor the parts that train, audit, print or draw. To add a family, write its
parts and one record here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sfumato.errors import SpecError


@dataclass(frozen=True)
class Part:
    """A function or class of some module, imported when it is first called.

    Attributes:
        home: ``module:name``.
    """

    home: str

    def load(self) -> Any:
        """The function or class itself."""
        module, _, name = self.home.partition(":")
        return getattr(import_module(module), name)

    def __call__(self, *arguments: Any) -> Any:
        """What the function or class makes of ``arguments``."""
        return self.load()(*arguments)


@dataclass(frozen=True)
class Family:
    """A kind of topology and the parts that know about it; ``None`` for a part that the family lacks.

    Attributes:
        name: ``tree`` or ``groups``.
        protocols: for every protocol, the kinds of topology it runs on (``topology.kind``), its own first.
        keys: keys of a spec that mean something to this family only.
        devices_observe: whether other devices are the observers that matter most, and so are summed up.
        resolve: ``(spec) -> Plan``: random choices made, noise sized (schedule/).
        claims: ``(plan, delta)``: what papers claim about a plan (claims/).
        planning: ``()``: its noise sources, and the search for their least noise (planning/).
        coalitions: ``(plan, delta)``: the worst coalition of every size that the threat model names.
        ex_post_facts: ``(plan, rounds, parameters)``: how the rounds of a run went, for its folder.
        ex_post: ``(plan, delta, participations, rounds, parameters)``: what an account's rows amount to then.
        round_costs: ``(plan, parameters)``: what its rounds cost, before any is played (planning/).
        protocol: ``(plan, engine, partition, parameters, listener)``: who plays a plan (protocols/).
        states: the protocol's states by the name that checkpoints give them.
        position: ``(plan, coalition)``: where a coalition stands, to record what it receives.
        attacked: ``(run folder)``: a run as attacks on recorded views see it (attacks/).
        audit: ``(plan, unit, coalition)``: rounds played again, for an audit of one pair (auditing/).
        audit_record: ``(plan, unit, coalition, neighbours, hidden, trials)``: the scores of an attack on a
            record that is drawn into batches; ``None`` for one that counts as being in every message.
        summary: ``(plan)``: what ``show`` prints (cli/).
        shape: ``(topology, trust, seed)``: who there is in a run folder's spec (report/).
        labels: ``(network, shape)``: what a report calls units and observers.
        figure: ``(network, shape)``: the network drawn.
        leakage: ``(run)``: a run's releases worker by worker, for figures of their own.
    """

    name: str
    protocols: dict[str, tuple[str, ...]]
    keys: tuple[str, ...]
    devices_observe: bool
    resolve: Part
    claims: Part
    planning: Part
    round_costs: Part
    protocol: Part
    states: Mapping[str, Part]
    position: Part
    attacked: Part
    audit: Part
    audit_record: Part
    summary: Part
    shape: Part
    labels: Part
    figure: Part
    coalitions: Part | None = None
    ex_post_facts: Part | None = None
    ex_post: Part | None = None
    leakage: Part | None = None

    @property
    def topologies(self) -> tuple[str, ...]:
        """Its kinds of topology (``topology.kind``)."""
        return tuple(sorted({kind for kinds in self.protocols.values() for kind in kinds}))


TREE = Family(
    name="tree",
    protocols={
        "h2fdp": ("tree",),
        "hfl": ("tree",),
        "hfl-dp": ("tree",),
        "hdp": ("tree",),
        "pedpfl": ("tree", "star"),
        "dp-fedavg": ("star",),
        "pfels": ("star", "tree"),
        "wfl-p": ("star", "tree"),
        "wfl-pdp": ("star", "tree"),
    },
    keys=("air", "control"),
    devices_observe=False,
    resolve=Part("sfumato.schedule.resolve.tree:resolve_tree"),
    claims=Part("sfumato.claims.of_plan:tree_claims"),
    planning=Part("sfumato.planning.tree_planning:TreePlanning"),
    round_costs=Part("sfumato.planning.round_costs:of_tree"),
    coalitions=Part("sfumato.schedule.rows.coalitions:tolerated_coalitions"),
    ex_post_facts=Part("sfumato.schedule.rows.ex_post:realised_facts"),
    ex_post=Part("sfumato.schedule.rows.ex_post:ex_post"),
    protocol=Part("sfumato.protocols.tree.choice:tree_protocol"),
    states={
        "tree": Part("sfumato.protocols.tree.state:TreeState"),
        "clip-adapted": Part("sfumato.protocols.tree.adaptive_clip:AdaptedState"),
        "controlled": Part("sfumato.protocols.adaptive.state:AdaptiveState"),
    },
    position=Part("sfumato.protocols.view_recorder:TreeObserverPosition"),
    attacked=Part("sfumato.attacks.observations:attacked_tree"),
    audit=Part("sfumato.auditing.tree:tree_harness"),
    audit_record=Part("sfumato.auditing.record_trials:tree_record_trials"),
    summary=Part("sfumato.cli.show_tree:TreeSummary"),
    shape=Part("sfumato.report.results.network:tree_shape"),
    labels=Part("sfumato.report.drawings.moving:tree_labels"),
    figure=Part("sfumato.report.drawings.topology_figure:tree_figure"),
)

GROUPS = Family(
    name="groups",
    protocols={
        "dp-ogl": ("groups",),
        "dp-ogl+": ("groups",),
        "dp-ogl-local": ("groups",),
        "ms-fedavg": ("groups",),
    },
    keys=("trust.trusted_aggregators", "training.merge_every"),
    devices_observe=True,
    resolve=Part("sfumato.schedule.resolve.groups:resolve_groups"),
    claims=Part("sfumato.claims.dp_ogl:ogl_claims"),
    planning=Part("sfumato.planning.group_planning:GroupPlanning"),
    round_costs=Part("sfumato.planning.round_costs:of_groups"),
    protocol=Part("sfumato.protocols.groups.base:GroupedProtocol"),
    states={"grouped": Part("sfumato.protocols.groups.state:GroupedState")},
    position=Part("sfumato.protocols.view_recorder:GroupObserverPosition"),
    attacked=Part("sfumato.attacks.group_observations:attacked_groups"),
    audit=Part("sfumato.auditing.groups:GroupHarness"),
    audit_record=Part("sfumato.auditing.record_trials:group_record_trials"),
    summary=Part("sfumato.cli.show_groups:GroupSummary"),
    shape=Part("sfumato.report.results.network:group_shape"),
    labels=Part("sfumato.report.results.observer_labels:group_labels"),
    figure=Part("sfumato.report.drawings.group_figure:group_figure"),
    leakage=Part("sfumato.report.results.grouped_run:grouped_run"),
)

FAMILIES = (TREE, GROUPS)
_OF_TOPOLOGY = {kind: family for family in FAMILIES for kind in family.topologies}


def family_of_topology(kind: object) -> Family | None:
    """The family of a ``topology.kind``; ``None`` where there is none of that kind."""
    return _OF_TOPOLOGY.get(kind) if isinstance(kind, str) else None


def family_of(spec: Any) -> Family:
    """The family of a spec."""
    return _OF_TOPOLOGY[spec.topology.kind]


def topologies_of(protocol: str) -> tuple[str, ...]:
    """The kinds of topology that ``protocol`` runs on, its own first."""
    return next(family.protocols[protocol] for family in FAMILIES if protocol in family.protocols)


def require_tree(spec: Any, allowed: str) -> None:
    """Refuse a spec of another family than trees.

    Raises:
        SpecError: it is of another; the message says what is ``allowed``.
    """
    if family_of(spec) is not TREE:
        raise SpecError("protocol", spec.protocol, allowed)
