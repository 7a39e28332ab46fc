"""The spec as a whole: what a user may write, with the checks that need more than one section."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.families import TREE, family_of, topologies_of
from sfumato.notebook import preformatted
from sfumato.spec.base import Count, Section, Whole, refuse, refuse_all
from sfumato.spec.control import Control
from sfumato.spec.data import Data
from sfumato.spec.example_level import check_example_level
from sfumato.spec.faults import Faults
from sfumato.spec.grouped_protocols import KIND_OF
from sfumato.spec.limits import MAX_WATCHED
from sfumato.spec.local_optimizer import check_local_optimizer
from sfumato.spec.model import Model
from sfumato.spec.privacy import Privacy
from sfumato.spec.radio import NoRadio, Radio
from sfumato.spec.renamed_keys import with_new_keys
from sfumato.spec.scalar_or_list import lists_of
from sfumato.spec.tasks import Metric, check_task
from sfumato.spec.topology import Star, Topology, Tree, Trust
from sfumato.spec.training import FixedParticipation, Training
from sfumato.spec.transport import Air, Compression, Hop
from sfumato.spec.used_keys import AIR_PROTOCOLS, unused_keys

Protocol = Literal[
    "h2fdp", "hfl", "hfl-dp", "pedpfl", "dp-fedavg", "hdp",
    "dp-ogl", "dp-ogl+", "dp-ogl-local", "ms-fedavg", "pfels", "wfl-p", "wfl-pdp",
]  # fmt: skip


def _variant_or_built_in(name: Any, built_in: ValidatorFunctionWrapHandler) -> Any:
    """A variant of a grouped protocol that was registered, else one of the names of `Protocol`."""
    return name if isinstance(name, str) and name in KIND_OF else built_in(name)


MAX_NAME = 100


def _folder_name(name: str) -> str:
    if len(name) > MAX_NAME or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name) is None:
        raise refuse(
            "", name, f"must be at most {MAX_NAME} letters, digits and . _ + -, the first a letter or digit"
        )
    return name


class Spec(Section):
    """An experiment: a federation, a protocol, and what is to be protected."""

    def __repr__(self) -> str:
        return f"<Spec {self.name}: {self.protocol}, {self.topology.kind}, seed {self.seed}>"

    def _repr_html_(self) -> str:
        from sfumato.spec.load import dump_spec  # which needs this module

        return preformatted(self.name, dump_spec(self))

    name: Annotated[str, AfterValidator(_folder_name)] = Field(description="also the run folder's name")
    protocol: Annotated[Protocol, WrapValidator(_variant_or_built_in), PlainSerializer(str)]
    seed: Whole = 0
    data: Data
    model: Model = Model()
    topology: Topology
    trust: Trust = Trust()
    training: Training
    privacy: Privacy = Privacy()
    transport: dict[str, Hop] = Field(default_factory=dict, description="hop name: how its messages travel")
    radio: Radio | None = None
    air: Air | None = Field(default=None, description="where a hop is air")
    compression: Compression | None = None
    faults: Faults | None = Field(default=None, description="who drops out or fails; nobody without")
    control: Control | None = Field(default=None, description="h2fdp: settings are chosen round by round")
    evaluate_every: Count = 1
    metrics: tuple[Metric, ...] = Field(
        default=(), description="measured on the test set beside accuracy and loss; depends on data.task"
    )
    versions: dict[str, str] = Field(
        default_factory=dict, description="written into run folders: what made them"
    )
    hashes: dict[str, str] = Field(
        default_factory=dict,
        description="written into run folders: SHA-256 of every input, and of this very spec",
    )
    watch: Annotated[tuple[str, ...], Field(max_length=MAX_WATCHED)] | None = Field(
        default=None, description="observers whose epsilon is shown while running"
    )

    @model_validator(mode="before")
    @classmethod
    def _with_new_keys(cls, document: Any) -> Any:
        """Other names of keys are read here as `load_spec` reads them (docs/spec.md)."""
        if not isinstance(document, dict):
            return document
        document = {
            key: deepcopy(value) if isinstance(value, dict) else value for key, value in document.items()
        }
        try:
            with_new_keys(document)
        except SpecError as error:
            raise refuse(error.place, error.value, error.allowed) from None
        return document

    @model_validator(mode="after")
    def _sections_fit(self) -> Spec:
        found = list(self.misfits())
        if found:
            raise found[0] if len(found) == 1 else refuse_all(found)
        return self

    def misfits(self, *, unless: tuple[type[Exception], ...] = ()) -> Iterator[PydanticCustomError]:
        """What does not fit, one error of every check that failed; ``unless`` it raises one of these."""
        try:
            self._kind_fits()
        except PydanticCustomError as error:
            yield error
            return  # the others are about topologies of the protocol
        except unless:
            pass
        checks: tuple[Callable[[], None], ...] = (
            self._noise_is_clipped,
            partial(check_example_level, self),
            partial(check_local_optimizer, self),
            self._zone_settings_fit,
            self._faults_fit,
            self._remove_fits,
            self._examples_fit,
            self._radio_fits,
            partial(check_task, self),
            self._topology_fits,
        )
        for check in checks:
            try:
                check()
            except PydanticCustomError as error:
                yield error
            except unless:
                continue
        with suppress(*unless):
            for unused in unused_keys(self):
                yield refuse(unused.key, unused.value, unused.allowed)

    def _kind_fits(self) -> None:
        kind, wanted = self.topology.kind, topologies_of(self.protocol)
        if kind not in wanted:
            raise refuse(
                "topology.kind", kind, f"must be {' or '.join(wanted)} with protocol {self.protocol}"
            )

    def _noise_is_clipped(self) -> None:
        if self.privacy.noise.kind != "none" and self.privacy.clip is None:
            needed = "{kind: update, step or example, norm: a number above 0}"
            raise refuse("privacy.clip", None, f"is required: noise needs a clip, {needed}")

    def _radio_fits(self) -> None:
        """Control and the air need links."""
        if self.counts_radio:
            return
        needs = {"control": self.control is not None, "the air": self.sends_over_the_air}
        for what, is_there in needs.items():
            if is_there:
                allowed = f"must be a radio with {what}, which depends on energy, time or gains of its links"
                raise refuse("radio", "none", allowed)

    def _examples_fit(self) -> None:
        examples = self.data.examples_per_device
        if self.data.source == "synthetic" and examples is None:
            raise refuse("data.examples_per_device", None, "is required with source: synthetic")
        if self.data.source != "synthetic" and examples is not None:
            raise refuse("data.examples_per_device", examples, "goes with source: synthetic only")

    def _topology_fits(self) -> None:
        if self.trust.from_ is not None and not isinstance(self.topology, Tree):
            raise refuse("trust.from", None, "goes with topology.kind: tree, with edges under the cloud")
        if not isinstance(self.topology, Star | Tree):
            return
        for key, listed in lists_of(self).items():
            raise refuse(key, list(listed), "must be one number: lists go with topology.kind: groups")
        if isinstance(self.topology, Star):
            self._star_fits()
        else:
            self._periods_fit(self.topology)
            if self.topology.zones is not None and hasattr(self.data.partition, "edge"):
                rule = self.topology.zones.kind
                raise refuse("topology.zones", rule, "or data.partition.edge says who is together: give one")
        self._cohort_fits(self.topology)

    @property
    def counts_radio(self) -> bool:
        """Whether energy and time of transmissions are counted."""
        return not isinstance(self.radio, NoRadio)

    @property
    def elects_supernodes(self) -> bool:
        """Whether every zone elects one of its devices as supernode."""
        return isinstance(self.topology, Tree) and self.topology.supernodes == "elected"

    @property
    def sends_over_the_air(self) -> bool:
        """Whether a hop is air."""
        return self.protocol in AIR_PROTOCOLS or "air" in self.transport.values()

    def _zone_settings_fit(self) -> None:
        """Weights, layers' norms, placement and elections go with trees, where their rules are derived."""
        training, clip, on_air = self.training, self.privacy.clip, self.protocol in AIR_PROTOCOLS
        if training.denominator.kind != "fixed" and self.protocol != "hdp":
            raise refuse("training.denominator", training.denominator.kind, "goes with protocol: hdp only")
        placement = getattr(self.privacy.requested_noise, "placement", None)
        settings = {
            "training.weights": training.weights.kind if training.weights.kind != "uniform" else None,
            "privacy.clip.per_layer": list(clip.per_layer) if clip and clip.per_layer else None,
            "privacy.noise.placement": placement and placement.model_dump(exclude_defaults=True),
            "topology.supernodes": "elected" if self.elects_supernodes else None,
        }
        given = {key: value for key, value in settings.items() if value is not None}
        for key, value in given.items():
            if family_of(self) is not TREE:
                raise refuse(key, value, f"goes with topology.kind: {' or '.join(TREE.topologies)} only")
            if self.control is not None:
                raise refuse(key, value, "must be left out with control")
            if self.protocol != "hdp" and (on_air or "air" in self.transport.values()):
                raise refuse(key, value, "must be left out over the air")
        if "training.weights" in given and self.protocol == "dp-fedavg":
            raise refuse(
                "training.weights", "capped", "must be uniform with dp-fedavg, which shares noise out"
            )
        if placement is not None and self.protocol == "hfl-dp":
            raise refuse("privacy.noise.placement", None, "must be left out: every device adds its own noise")
        if placement is not None and not isinstance(self.topology, Tree):
            raise refuse("privacy.noise.placement", None, "goes with topology.kind: tree: it is by zone")
        if self.elects_supernodes and training.global_update == "resend":
            raise refuse("topology.supernodes", "elected", "goes with training.global_update: increment")

    def _remove_fits(self) -> None:
        """A device can be missing unnoticed only where its participation is drawn and hidden."""
        place, participation = "privacy.neighbours", self.training.participation.kind
        if self.privacy.neighbours != "remove":
            return
        if participation != "poisson":
            raise refuse(
                place,
                "remove",
                f"goes with training.participation: poisson; with {participation} it is known who takes "
                "part, so a device that is gone is missed: use zero-out or replace",
            )
        if self.elects_supernodes:
            raise refuse(place, "remove", "goes with fixed supernodes: elections tell who is there")

    def _faults_fit(self) -> None:
        faults = self.faults
        if faults is None:
            return
        if self.sends_over_the_air:
            raise refuse("faults", None, "must be left out with air: see air.min_gain for silent devices")
        if faults.supernode_failure_rate and family_of(self) is not TREE:
            raise refuse(
                "faults.supernode_failure_rate",
                faults.supernode_failure_rate,
                "must be left out: groups have masters, not supernodes",
            )
        if faults.supernode_failure_rate and not self.elects_supernodes:
            raise refuse(
                "faults.supernode_failure_rate",
                faults.supernode_failure_rate,
                "goes with topology.supernodes: elected",
            )
        if faults.survival_threshold is not None and "secure-aggregation" not in self.transport.values():
            raise refuse(
                "faults.survival_threshold", faults.survival_threshold, "goes with secure aggregation"
            )

    def _star_fits(self) -> None:
        for key in ("edge_every", "aggregate_every"):
            value = getattr(self.training, key)
            if value is not None:
                raise refuse(f"training.{key}", value, "must be left out: a star has no edges")
        edges = self.trust.trusted_edges
        if edges not in (0.0, ()):
            raise refuse("trust.trusted_edges", edges, "a star has no edges; use trust.cloud")

    def _periods_fit(self, topology: Tree) -> None:
        periods = self.training.aggregate_every
        if periods is None or topology.file is not None:
            return
        by_name = 1 if topology.level_names is None else len(topology.level_names)
        wanted = by_name if topology.levels is None else len(topology.levels) - 1
        if len(periods) != wanted:
            raise refuse(
                "training.aggregate_every",
                list(periods),
                f"must list one period for each level below the cloud, top down: {wanted} here",
            )

    def _cohort_fits(self, topology: Star | Tree) -> None:
        if not isinstance(self.training.participation, FixedParticipation):
            return
        if isinstance(topology, Star):
            smallest, where = topology.devices, "the star"
        elif topology.levels is not None:
            smallest, where = topology.levels[-1], "an edge"
        elif isinstance(topology.devices_per_edge, tuple):
            smallest, where = min(topology.devices_per_edge), "the smallest edge"
        elif topology.devices_per_edge is not None:
            smallest, where = topology.devices_per_edge, "an edge"
        else:
            return
        count = self.training.participation.count
        if isinstance(count, int) and count > smallest:
            raise refuse(
                "training.participation.count", count, f"must be at most {smallest}, the devices of {where}"
            )


def require_spec(spec: object) -> None:
    """Refuse what is not a `Spec`, such as the name of a file."""
    if not isinstance(spec, Spec):
        how = f"sfumato.load_spec({spec!r})" if isinstance(spec, str) else "sfumato.load_spec"
        raise SpecError(Argument("spec"), spec, f"must be a Spec, as {how} gives it")


__all__ = ["Protocol", "Spec", "require_spec"]
