"""The spec as a run folder keeps it: resolved, with versions, hashes of the inputs, and a hash of its own."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from sfumato.errors import SpecError
from sfumato.spec.document import SPEC_HASH, Spec, fingerprint
from sfumato.spec.load import dump_spec
from sfumato.user_text import MAX_BYTES, MAX_VALUES


@dataclass(frozen=True)
class FrozenSpec:
    """What ``spec.yaml`` holds.

    Attributes:
        text: of the file.
        fingerprint: of the spec.
        hashes: of the inputs by name, and the fingerprint as ``spec``.
    """

    text: str
    fingerprint: str
    hashes: Mapping[str, str]

    @classmethod
    def of(cls, spec: Spec, inputs: Mapping[str, str], versions: Mapping[str, str]) -> FrozenSpec:
        """The text, fingerprint and hashes that a run folder keeps of ``spec`` in ``spec.yaml``.

        Args:
            spec: resolved.
            inputs: SHA-256 of every input, by its name.
            versions: of packages, by name.

        Raises:
            SpecError: the text is longer than a spec that can be read.
        """
        kept = spec.model_copy(update={"versions": dict(versions), "hashes": dict(inputs)})
        found = fingerprint(kept.model_dump(mode="json", by_alias=True, exclude_none=True))
        hashes = {**inputs, SPEC_HASH: found}
        text = dump_spec(kept.model_copy(update={"hashes": hashes}))
        if len(text.encode()) > MAX_BYTES or text.count("\n") > MAX_VALUES // 2:
            longest = max(("topology", "radio", "privacy"), key=lambda name: len(str(getattr(spec, name))))
            raise SpecError(
                longest,
                None,
                f"is too long for a run folder's spec.yaml: at most {MAX_BYTES // 2**20} MiB in all",
            )
        return cls(text, found, hashes)


@cache
def versions() -> Mapping[str, str]:
    """Name to installed version of Python and of the packages on which the results of a run depend."""
    found = {"python": platform.python_version()}
    for name in ("sfumato", "torch", "numpy", "scipy", "dp-accounting", "scikit-learn"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
