"""The spec as a whole: its sections, the names of protocols, its hash, and which sections may stand where."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.fields import FieldInfo

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.families import GROUPS
from sfumato.notebook import preformatted
from sfumato.spec.base import TAG, Count, Section, Whole, refused_error, refused_errors
from sfumato.spec.conflicts import TABLES, protocol_refusals
from sfumato.spec.control import Control
from sfumato.spec.data import Data
from sfumato.spec.faults import Faults
from sfumato.spec.limits import MAX_WATCHED
from sfumato.spec.model import Metric, Model
from sfumato.spec.privacy import Privacy
from sfumato.spec.radio import NoRadio, Radio
from sfumato.spec.refusals import Refused, first_refused
from sfumato.spec.renamed_keys import with_new_keys
from sfumato.spec.topology import Topology, TreeTopology, Trust
from sfumato.spec.training import Training
from sfumato.spec.transport import Air, Compression, Hop
from sfumato.spec.used_keys import AIR_PROTOCOLS, unused_keys

if TYPE_CHECKING:
    from sfumato.privacy.groups.facts import GroupedKind

Protocol = Literal[
    "h2fdp", "hfl", "hfl-dp", "pedpfl", "dp-fedavg", "hdp",
    "dp-ogl", "dp-ogl+", "dp-ogl-local", "ms-fedavg", "pfels", "wfl-p", "wfl-pdp",
]  # fmt: skip


KIND_OF = {name: cast("GroupedKind", name) for name in GROUPS.protocols}
"""Whose releases a grouped protocol makes: its own, or as a variant those of one of these protocols."""


def add_variant(name: str, releases_of: GroupedKind) -> None:
    """Register a variant of a grouped protocol, so that specs may name it.

    Args:
        name: of the variant, as in ``protocol: NAME``.
        releases_of: the protocol whose releases it makes.

    Raises:
        SpecError: the name is taken, or there is no such protocol.
    """
    if releases_of not in KIND_OF:
        raise SpecError("releases_of", releases_of, f"must be one of {', '.join(KIND_OF)}")
    if KIND_OF.get(name, releases_of) != releases_of or name in set(KIND_OF.values()):
        raise SpecError("protocol", name, "is taken: a variant needs a name of its own")
    KIND_OF[name] = releases_of
    GROUPS.protocols[name] = GROUPS.protocols[releases_of]


def _variant_or_built_in(name: Any, built_in: ValidatorFunctionWrapHandler) -> Any:
    """``name``, if it is a registered variant or, by the validator ``built_in``, one of `Protocol`."""
    return name if isinstance(name, str) and name in KIND_OF else built_in(name)


MAX_NAME = 100
SPEC_HASH = "spec"
"""The key of ``hashes`` that holds the fingerprint of the spec itself."""


def _folder_name(name: str) -> str:
    """``name``, refused where it cannot be the name of a folder."""
    if len(name) > MAX_NAME or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name) is None:
        raise refused_error(
            "", name, f"must be at most {MAX_NAME} letters, digits and . _ + -, the first a letter or digit"
        )
    return name


class Spec(Section):
    """An experiment: a federation, a protocol, and what is to be protected."""

    def __repr__(self) -> str:
        return f"<Spec {self.name}: {self.protocol}, {self.topology.kind}, seed {self.seed}>"

    def _repr_html_(self) -> str:
        """The spec as YAML in HTML, for notebooks."""
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
        default=(), description="measured beside accuracy and loss on the test set; depends on data.task"
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
        """The document with other names of keys replaced, as `load_spec` reads them (docs/spec.md)."""
        if not isinstance(document, dict):
            return document
        document = {
            key: deepcopy(value) if isinstance(value, dict) else value for key, value in document.items()
        }
        try:
            with_new_keys(document)
        except SpecError as error:
            raise refused_error(error.place, error.value, error.allowed) from None
        return document

    @model_validator(mode="after")
    def _sections_fit(self) -> Spec:
        """This spec, if it has no `section_conflicts`; otherwise one error for all of them is raised."""
        found = list(self.section_conflicts())
        if found:
            raise refused_error(*found[0]) if len(found) == 1 else refused_errors(found)
        return self

    def section_conflicts(self, *, unless: tuple[type[Exception], ...] = ()) -> Iterator[Refused]:
        """What the sections refuse in each other: the first refusal of each table, then keys without effect.

        A topology that the protocol does not run on ends the tables.

        ``unless``: exceptions that end one table silently, as where a section is missing.
        """
        for table in (protocol_refusals, *TABLES):
            with suppress(*unless):
                if (refused := first_refused(table(self))) is not None:
                    yield refused
                    if table is protocol_refusals:
                        return  # the others are about topologies of the protocol
        with suppress(*unless):
            yield from unused_keys(self)

    @property
    def is_of_a_run(self) -> bool:
        """Whether the spec was read from a run folder: its hashes hold its own fingerprint."""
        return SPEC_HASH in self.hashes

    @property
    def counts_radio(self) -> bool:
        """Whether energy and time of transmissions are computed: ``radio.kind`` is not none."""
        return not isinstance(self.radio, NoRadio)

    @property
    def elects_supernodes(self) -> bool:
        """Whether every zone of the tree elects one of its devices as supernode."""
        return isinstance(self.topology, TreeTopology) and self.topology.supernodes == "elected"

    @property
    def sends_over_the_air(self) -> bool:
        """Whether messages of some hop are added in the air, by the protocol or by ``transport``."""
        return self.protocol in AIR_PROTOCOLS or "air" in self.transport.values()


def fingerprint(document: Mapping[str, Any]) -> str:
    """SHA-256, 64 hexadecimal digits, of ``document``, a spec as a mapping of plain values.

    Left out are ``versions`` and the fingerprint that it may hold. Comments, the order of keys and the way
    numbers are written do not count; hashes of inputs do.
    """
    said = {key: value for key, value in document.items() if key not in ("versions", "hashes")}
    hashes = document.get("hashes") or {}
    said["hashes"] = {name: value for name, value in hashes.items() if name != SPEC_HASH}
    text = json.dumps(said, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def require_spec(spec: object) -> None:
    """Refuse anything that is no `Spec`, for example the name of a file.

    Raises:
        SpecError: it is none.
    """
    if not isinstance(spec, Spec):
        how = f"sfumato.load_spec({spec!r})" if isinstance(spec, str) else "sfumato.load_spec"
        raise SpecError(Argument("spec"), spec, f"must be a Spec, as {how} gives it")


def sections_at(location: Iterable[str | int]) -> list[type[Section]]:
    """The classes of sections that may stand at ``location``, a path of keys; [] where a value stands.

    Several where a section has kinds. A ``location`` may hold union tags (see ``base.TAG``), which narrow the
    choice, and list positions, which are skipped.
    """
    found: list[type[Section]] = [Spec]
    for part in location:
        if isinstance(part, int):
            continue
        if part.startswith(TAG):
            found = [section for section in found if kind_of(section) == part[len(TAG) :]] or found
        else:
            fields = [field for section in found if (field := field_of(section, part)) is not None]
            found = list(dict.fromkeys(inner for field in fields for inner in _sections_in(field.annotation)))
    return found


def field_of(section: type[Section], key: str) -> FieldInfo | None:
    """The field of ``section`` that a user writes as ``key``; ``None`` where there is none."""
    for name, field in section.model_fields.items():
        if key == (field.alias or name):
            return field
    return None


def kind_of(section: type[Section]) -> str | None:
    """The value of ``kind`` that this class of section stands for; ``None`` if it has none of its own."""
    field = section.model_fields.get("kind")
    return None if field is None or field.is_required() else str(field.default)


def _sections_in(annotation: Any) -> list[type[Section]]:
    """The classes of sections in a type annotation, unions and lists included."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [section for inner in get_args(annotation) for section in _sections_in(inner)]
