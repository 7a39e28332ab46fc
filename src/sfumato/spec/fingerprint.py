"""One hash for what a spec says, so that files can say which spec they belong to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SPEC_HASH = "spec"
"""The key of ``hashes`` that holds the fingerprint of the spec itself."""


def fingerprint(document: Mapping[str, Any]) -> str:
    """SHA-256 of a spec as a mapping of plain values, but for ``versions`` and the fingerprint it may hold.

    Comments, the order of keys and the way numbers are written do not count; hashes of inputs do.
    """
    said = {key: value for key, value in document.items() if key not in ("versions", "hashes")}
    hashes = document.get("hashes") or {}
    said["hashes"] = {name: value for name, value in hashes.items() if name != SPEC_HASH}
    text = json.dumps(said, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
