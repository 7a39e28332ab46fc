"""The families of topologies, and the parts of each: the only module that asks which one it is.

A *family* is a kind of topology: trees (a star is one), overlapping groups. Its class has a method for every
part that knows about it. A method imports the part when it is called, so that accounting for a spec loads
neither torch nor what trains, audits, prints or draws. To add a family, write its parts and a class here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from sfumato.errors import SpecError

if TYPE_CHECKING:
    from sfumato.attacks.observations import AttackedRun
    from sfumato.auditing.harness import AuditHarness
    from sfumato.auditing.tradeoff import TrialScores
    from sfumato.cli.plan_summary import PlanSummary
    from sfumato.data.partition import Partition
    from sfumato.engine.base import Engine
    from sfumato.network.tree import Tree
    from sfumato.planning.costs import RoundCosts
    from sfumato.planning.family import PlannedFamily
    from sfumato.privacy.claim import Claim
    from sfumato.privacy.observers import Party
    from sfumato.privacy.sampling import Neighbours
    from sfumato.protocols.base import FederatedProtocol
    from sfumato.protocols.message_hooks import Listener
    from sfumato.protocols.view_recorder import ObserverPosition
    from sfumato.report.figures.figure import Figure
    from sfumato.report.results.network import GroupNetwork, Network
    from sfumato.report.results.observer_labels import ObserverLabels
    from sfumato.run_folder.reader import RunFolder
    from sfumato.schedule.base import Plan
    from sfumato.schedule.groups import GroupPlan
    from sfumato.schedule.rows.coalitions import Coalition
    from sfumato.schedule.rows.ex_post import ExPost
    from sfumato.schedule.tree import IntArray, TreePlan
    from sfumato.spec.document import Spec
    from sfumato.spec.topology import Topology, Trust


class _Family:
    """A family of topologies: what its specs may say, and where its own code for plans, reports and so on is.

    Attributes:
        name: ``tree`` or ``groups``.
        protocols: for every protocol, the kinds of topology it runs on (``topology.kind``), its own first.
        keys: keys of a spec that mean something to this family only.
        devices_observe: whether other devices are the observers that matter most, and so are summed up.
        one_model: whether all devices train one model together.
    """

    name: ClassVar[str]
    protocols: ClassVar[dict[str, tuple[str, ...]]]
    keys: ClassVar[tuple[str, ...]]
    devices_observe: ClassVar[bool]
    one_model: ClassVar[bool]

    @property
    def topologies(self) -> tuple[str, ...]:
        """A sorted tuple of the kinds of topology (``topology.kind``) of this family."""
        return tuple(sorted({kind for kinds in self.protocols.values() for kind in kinds}))


class _TreeFamily(_Family):
    """Trees, and stars, which are trees of one level; the other families have the same methods.

    The plans, networks and topologies that they receive are those of specs of their family.
    """

    name = "tree"
    protocols: ClassVar[dict[str, tuple[str, ...]]] = {
        "h2fdp": ("tree",),
        "hfl": ("tree",),
        "hfl-dp": ("tree",),
        "hdp": ("tree",),
        "pedpfl": ("tree", "star"),
        "dp-fedavg": ("star",),
        "pfels": ("star", "tree"),
        "wfl-p": ("star", "tree"),
        "wfl-pdp": ("star", "tree"),
    }
    keys = ("air", "control")
    devices_observe = False
    one_model = True

    def resolve(self, spec: Spec) -> Plan:
        """The plan of a spec: every random choice made, every noise source sized."""
        from sfumato.schedule.resolve.tree import resolve_tree

        return resolve_tree(spec)

    def claims(self, plan: Plan, delta: float) -> tuple[Claim, ...]:
        """What papers claim about ``plan``, a tuple of claims, each beside the rigorous ε at ``delta``."""
        from sfumato.claims import tree_claims

        return tree_claims(_tree_plan(plan), delta)

    def coalitions(self, plan: Plan, delta: float) -> tuple[Coalition, ...]:
        """Of HDP: for every class of units the worst coalition of each tolerated size; ε is at ``delta``."""
        from sfumato.schedule.rows.coalitions import tolerated_coalitions

        return tolerated_coalitions(_tree_plan(plan), delta)

    def ex_post_facts(self, plan: Plan, rounds: int, parameters: int) -> dict[str, object]:
        """The channels of the first ``rounds`` rounds, a JSON object; {} if not over the air."""
        from sfumato.schedule.rows.ex_post import realised_facts

        return realised_facts(_tree_plan(plan), rounds, parameters)

    def sum_steps(self, plan: Plan, parameters: int) -> list[float | None]:
        """The step of the grid on which the messages of each aggregation are added up; ``None``: no grid.

        ``parameters``: M, of the model.
        """
        from sfumato.schedule.message_grid import steps_in_tree

        return steps_in_tree(_tree_plan(plan), parameters)

    def ex_post(
        self, plan: Plan, delta: float, participations: IntArray, rounds: int, parameters: int
    ) -> tuple[ExPost | None, ...]:
        """ε at ``delta`` of each row after a run, or ``None``; empty if nothing was left to chance.

        ``participations``: rounds that each device took part in, ``[devices]``; ``rounds``: that were played;
        ``parameters``: M.
        """
        from sfumato.schedule.rows.ex_post import ex_post

        return ex_post(_tree_plan(plan), delta, participations, rounds, parameters)

    def planning(self) -> PlannedFamily:
        """What a plan of least noise needs to know of this family."""
        from sfumato.planning.tree_planning import TreePlanning

        return TreePlanning()

    def round_costs(self, plan: Plan, parameters: int) -> RoundCosts:
        """What a plan's rounds cost over the radio, before any is played; ``parameters``: of the model."""
        from sfumato.planning.costs import tree_round_costs

        return tree_round_costs(_tree_plan(plan), parameters)

    def protocol(
        self, plan: Plan, engine: Engine, partition: Partition, parameters: int, listener: Listener | None
    ) -> FederatedProtocol[Any]:
        """The protocol that trains ``plan``, round by round, on ``engine`` with the data of ``partition``.

        ``parameters``: M, of the model; ``listener``: is told of every message.
        """
        from sfumato.protocols.tree.choice import tree_protocol

        return tree_protocol(_tree_plan(plan), engine, partition, parameters, listener)

    def position(self, plan: Plan, coalition: tuple[Party, ...]) -> ObserverPosition:
        """Where a coalition is in the network, so that what it receives can be recorded."""
        from sfumato.protocols.view_recorder import TreeObserverPosition

        return TreeObserverPosition(_tree_plan(plan), coalition)

    def attacked(self, run: RunFolder) -> AttackedRun:
        """What attacks on recorded views need to know of a run."""
        from sfumato.attacks.observations import AttackedTree
        from sfumato.attacks.views import plan_of_run

        return AttackedTree(plan_of_run(run))

    def audit(self, plan: Plan, unit: int, coalition: Sequence[Party]) -> AuditHarness:
        """A harness that plays rounds again to audit ``unit`` towards ``coalition``."""
        from sfumato.auditing.tree import tree_harness

        return tree_harness(_tree_plan(plan), unit, coalition)

    def audit_record(
        self,
        plan: Plan,
        unit: int,
        coalition: Sequence[Party],
        neighbours: Neighbours,
        hidden: bool,
        trials: int,
    ) -> TrialScores | None:
        """Scores of an attack on a record of ``unit`` that is drawn into batches, seen by ``coalition``.

        ``None`` for a record that is in every message. ``hidden`` and ``trials``: see
        `sfumato.auditing.record_trials`.
        """
        from sfumato.auditing.record_trials import tree_record_trials

        return tree_record_trials(_tree_plan(plan), unit, coalition, neighbours, hidden, trials)

    def summary(self, plan: Plan) -> PlanSummary:
        """What ``sfumato show`` prints of a plan."""
        from sfumato.cli.show_tree import TreeSummary

        return TreeSummary(_tree_plan(plan))

    def shape(self, topology: Topology, trust: Trust, seed: int) -> Tree | GroupNetwork:
        """The network of a run folder's spec, with trust marked; ``seed``: of the spec, for random trust."""
        from sfumato.report.results.network import tree_of_resolved_spec
        from sfumato.spec.topology import GroupTopology

        assert not isinstance(topology, GroupTopology)
        return tree_of_resolved_spec(topology, trust, seed)

    def labels(self, network: Network) -> ObserverLabels:
        """The names that a report has for units and observers."""
        from sfumato.network.tree import Tree
        from sfumato.report.results.tree_labels import tree_labels

        assert isinstance(network.shape, Tree)
        return tree_labels(network, network.shape)

    def figure(self, network: Network) -> Figure:
        """A drawing of the network."""
        from sfumato.network.tree import Tree
        from sfumato.report.drawings.topology_figure import tree_figure

        assert isinstance(network.shape, Tree)
        return tree_figure(network, network.shape)


class _GroupFamily(_Family):
    """Overlapping groups; the methods are explained at the family of trees."""

    name = "groups"
    protocols: ClassVar[dict[str, tuple[str, ...]]] = {
        "dp-ogl": ("groups",),
        "dp-ogl+": ("groups",),
        "dp-ogl-local": ("groups",),
        "ms-fedavg": ("groups",),
    }
    keys = ("trust.trusted_aggregators", "training.merge_every")
    devices_observe = True
    one_model = False

    def resolve(self, spec: Spec) -> Plan:
        """The plan of a spec: every random choice made, every noise source sized."""
        from sfumato.schedule.resolve.groups import resolve_groups

        return resolve_groups(spec)

    def claims(self, plan: Plan, delta: float) -> tuple[Claim, ...]:
        """What DP-OGL claims about ``plan``, a tuple of claims, each beside the rigorous ε at ``delta``."""
        from sfumato.claims.dp_ogl import ogl_claims

        return ogl_claims(_group_plan(plan), delta)

    def coalitions(self, plan: Plan, delta: float) -> tuple[Coalition, ...]:
        """Always an empty tuple: no threat model of groups names coalitions, at any ``delta``."""
        return ()  # no paper here names any

    def ex_post_facts(self, plan: Plan, rounds: int, parameters: int) -> dict[str, object]:
        """Always an empty dict: nothing of how rounds went is kept besides what protocols record."""
        return {}

    def sum_steps(self, plan: Plan, parameters: int) -> list[float | None]:
        """A list with the step of the grid on which a release's messages are added up; ``None``: no grid."""
        from sfumato.schedule.message_grid import steps_in_groups

        return steps_in_groups(_group_plan(plan), parameters)

    def ex_post(
        self, plan: Plan, delta: float, participations: IntArray, rounds: int, parameters: int
    ) -> tuple[ExPost | None, ...]:
        """Always an empty tuple: after a run the rows of groups say what they said before it."""
        return ()  # nobody who sees a draw is protected by less than the row says

    def planning(self) -> PlannedFamily:
        """What a plan of least noise needs to know of this family."""
        from sfumato.planning.group_planning import GroupPlanning

        return GroupPlanning()

    def round_costs(self, plan: Plan, parameters: int) -> RoundCosts:
        """What a plan's rounds cost over the radio, before any is played; ``parameters``: of a model."""
        from sfumato.planning.costs import group_round_costs

        return group_round_costs(_group_plan(plan), parameters)

    def protocol(
        self, plan: Plan, engine: Engine, partition: Partition, parameters: int, listener: Listener | None
    ) -> FederatedProtocol[Any]:
        """The protocol that trains ``plan`` on ``engine``; ``listener``, if any, hears every message."""
        from sfumato.protocols.groups.base import GroupedProtocol

        return GroupedProtocol(_group_plan(plan), engine, partition, parameters, listener)

    def position(self, plan: Plan, coalition: tuple[Party, ...]) -> ObserverPosition:
        """Where a coalition is in the network, so that what it receives can be recorded."""
        from sfumato.protocols.view_recorder import GroupObserverPosition

        return GroupObserverPosition(_group_plan(plan), coalition)

    def attacked(self, run: RunFolder) -> AttackedRun:
        """What attacks on recorded views need to know of a run."""
        from sfumato.attacks.group_observations import load_attacked_groups

        return load_attacked_groups(run)

    def audit(self, plan: Plan, unit: int, coalition: Sequence[Party]) -> AuditHarness:
        """A harness that plays rounds again to audit ``unit`` towards ``coalition``."""
        from sfumato.auditing.groups import GroupHarness

        return GroupHarness(_group_plan(plan), unit, coalition)

    def audit_record(
        self,
        plan: Plan,
        unit: int,
        coalition: Sequence[Party],
        neighbours: Neighbours,
        hidden: bool,
        trials: int,
    ) -> TrialScores | None:
        """Scores of an attack on a record of ``unit``, as for trees; ``hidden`` makes no difference here."""
        from sfumato.auditing.record_trials import group_record_trials

        return group_record_trials(_group_plan(plan), unit, coalition, neighbours, trials)

    def summary(self, plan: Plan) -> PlanSummary:
        """What ``sfumato show`` prints of a plan: properties, a table of the groups, and what signs mean."""
        from sfumato.cli.show_groups import GroupSummary

        return GroupSummary(_group_plan(plan))

    def shape(self, topology: Topology, trust: Trust, seed: int) -> Tree | GroupNetwork:
        """The network of a run folder's spec, with trust marked; ``seed``: of the spec, for random trust."""
        from sfumato.report.results.network import group_shape
        from sfumato.spec.topology import GroupTopology

        assert isinstance(topology, GroupTopology)
        return group_shape(topology, trust, seed)

    def labels(self, network: Network) -> ObserverLabels:
        """The names that a report has for units and observers."""
        from sfumato.report.results.network import GroupNetwork
        from sfumato.report.results.observer_labels import group_labels

        assert isinstance(network.shape, GroupNetwork)
        return group_labels(network, network.shape)

    def figure(self, network: Network) -> Figure:
        """A drawing of the network."""
        from sfumato.report.drawings.group_figure import group_figure
        from sfumato.report.results.network import GroupNetwork

        assert isinstance(network.shape, GroupNetwork)
        return group_figure(network, network.shape)


def _tree_plan(plan: Plan) -> TreePlan:
    """``plan``, asserted to be that of a tree."""
    from sfumato.schedule.tree import TreePlan

    assert isinstance(plan, TreePlan)
    return plan


def _group_plan(plan: Plan) -> GroupPlan:
    """``plan``, asserted to be that of groups."""
    from sfumato.schedule.groups import GroupPlan

    assert isinstance(plan, GroupPlan)
    return plan


Family: TypeAlias = _TreeFamily | _GroupFamily
"""One of the families: where a method is called, mypy checks that each of them has it."""
TREE, GROUPS = _TreeFamily(), _GroupFamily()
FAMILIES: tuple[Family, ...] = (TREE, GROUPS)
_OF_TOPOLOGY = {kind: family for family in FAMILIES for kind in family.topologies}


def family_of_topology(kind: object) -> Family | None:
    """The family of topologies with this ``topology.kind``; ``None`` where there is no such kind."""
    return _OF_TOPOLOGY.get(kind) if isinstance(kind, str) else None


def family_of(spec: Spec) -> Family:
    """The family that the topology of ``spec`` belongs to."""
    return _OF_TOPOLOGY[spec.topology.kind]


def topologies_of(protocol: str) -> tuple[str, ...]:
    """A tuple of the kinds of topology that ``protocol``, which must exist, runs on, its own first."""
    return next(family.protocols[protocol] for family in FAMILIES if protocol in family.protocols)


def require_tree(spec: Spec, allowed: str) -> None:
    """Check that the topology of ``spec`` is a tree or a star.

    Raises:
        SpecError: it is of another family; ``allowed`` is the message.
    """
    if family_of(spec) is not TREE:
        raise SpecError("protocol", spec.protocol, allowed)
