import json

from places import ROOT

from sfumato.spec.schema import schema

DOCS = ROOT / "docs"


def test_the_published_schema_is_up_to_date():
    published = json.loads((DOCS / "spec.schema.json").read_text("utf-8"))
    assert published == schema(), "run: python -m sfumato.spec.schema > docs/spec.schema.json"


def test_every_key_of_the_spec_is_documented():
    guide = (DOCS / "spec.md").read_text("utf-8")
    models = [schema(), *schema()["$defs"].values()]
    models += [variant for model in models for variant in model.get("anyOf", ())]
    keys = {key for model in models for key in model.get("properties", {})}
    assert [key for key in sorted(keys) if f"`{key}`" not in guide] == []
