"""The spec's JSON schema, for editors: ``python -m sfumato.spec.schema > docs/spec.schema.json``."""

from __future__ import annotations

import json
from typing import Any

from sfumato.spec.document import Spec


def schema() -> dict[str, Any]:
    """JSON schema of a spec file."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **Spec.model_json_schema(by_alias=True)}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2, ensure_ascii=False))
