"""The spec's JSON schema, for editors: ``python -m sfumato.spec.schema > docs/spec.schema.json``."""

from __future__ import annotations

import json
from typing import Any

from sfumato.spec.document import Spec, sections_at
from sfumato.spec.renamed_keys import ALIASES


def schema() -> dict[str, Any]:
    """The JSON schema of a spec file; aliases of keys are in it, marked as deprecated."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    document = {"$schema": dialect, **Spec.model_json_schema(by_alias=True)}
    for old, new in ALIASES.items():
        *path, name = new.split(".")
        for section in sections_at(path):
            variants = document["$defs"][section.__name__]
            properties = variants.get("anyOf", [variants])[0]["properties"]
            if name in properties:
                properties[old.rpartition(".")[2]] = {**properties[name], "deprecated": True}
    return document


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2, ensure_ascii=False))
