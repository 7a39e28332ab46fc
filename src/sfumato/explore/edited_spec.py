"""A setting of the page: a spec's document and what was changed in it, as one JSON value."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from sfumato.errors import SpecError
from sfumato.spec.document import MAX_NAME, SPEC_HASH, Spec
from sfumato.spec.load import dump_spec, load_spec
from sfumato.user_text import parse_json


@dataclass(frozen=True)
class EditedSpec:
    """A setting of the page, as the browser keeps it; the server keeps nothing of it.

    Attributes:
        source: the SPEC that the command was given; "" where a plan has replaced it.
        document: a spec as a mapping, with nothing left out.
        changes: dotted keys and their new values, in the order of the first change, as `--set` has them.
    """

    source: str
    document: Mapping[str, Any]
    changes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: Spec, source: str = "") -> EditedSpec:
        """The setting of ``spec`` without any changes.

        A resolved spec, as a run folder holds, loses versions and hashes and gets back the noise that was
        asked for in place of the calibrated one, so that it can be changed.

        Args:
            spec: a valid spec.
            source: the SPEC of a command line that names it; empty where there is none.
        """
        update: dict[str, Any] = {"versions": {}}
        if SPEC_HASH in spec.hashes:
            update |= {
                "hashes": {},
                "privacy": spec.privacy.model_copy(update={"noise": spec.privacy.requested_noise}),
            }
        fresh = spec.model_copy(update=update)
        return cls(source, fresh.model_dump(mode="json", by_alias=True, exclude_none=True))

    @classmethod
    def from_json(cls, text: str) -> EditedSpec:
        """The setting in JSON text, the inverse of `to_json`.

        Raises:
            SpecError: the text is no JSON object with these keys and kinds of values. The spec is not
                checked.
        """
        place = "the setting in the browser"
        found = parse_json(text, place)
        kinds = {"source": str, "document": dict, "changes": dict}
        if not isinstance(found, dict) or found.keys() != kinds.keys():
            raise SpecError(place, None, f"must have the keys {', '.join(kinds)}: load the page again")
        for key, kind in kinds.items():
            if not isinstance(found[key], kind):
                raise SpecError(f"{place}: {key}", found[key], "is of another kind: load the page again")
        return cls(**found)

    def to_json(self) -> str:
        """The setting as JSON text, for the browser to keep; `from_json` reads it."""
        return json.dumps(
            {"source": self.source, "document": self.document, "changes": self.changes}, ensure_ascii=False
        )

    def with_change(self, key: str, value: Any) -> EditedSpec:
        """A copy with ``value`` at the dotted ``key``; earlier changes of this key or inside it are dropped.

        Nothing is checked: `spec` does that.
        """
        kept = {k: v for k, v in self.changes.items() if k != key and not k.startswith(f"{key}.")}
        return EditedSpec(self.source, self.document, {**kept, key: value})

    def without_changes(self) -> EditedSpec:
        """The setting as it was loaded or planned, without later changes."""
        return EditedSpec(self.source, self.document)

    @property
    def overrides(self) -> tuple[str, ...]:
        """The changes as ``key=value`` texts for ``--set``; values are JSON, which is YAML; () for none."""
        return tuple(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in self.changes.items())

    def spec(self) -> Spec:
        """The spec with its changes.

        Raises:
            SpecError: a change is not allowed.
        """
        return load_spec(deepcopy(self.document), self.overrides)

    def yaml(self) -> str:
        """The spec with its changes as YAML.

        Raises:
            SpecError: a change is not allowed.
        """
        return dump_spec(self.spec())

    def command(self) -> str:
        """The shell command that prints the same figures; "" where the spec has no name to give.

        Such as ``sfumato account quickstart --set training.rounds=20``.
        """
        if not self.source:
            return ""
        sets = [part for override in self.overrides for part in ("--set", override)]
        return shlex.join(["sfumato", "account", self.source, *sets])


def with_name_suffix(spec: Spec, suffix: str) -> Spec:
    """The spec with ``suffix`` behind its name, so that a run of it gets a folder of its own.

    A long name is cut so that both fit into the longest name that a spec may have.
    """
    return spec.model_copy(update={"name": f"{spec.name[: MAX_NAME - len(suffix)]}{suffix}"})
