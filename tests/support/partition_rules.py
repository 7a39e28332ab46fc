"""Rules of partitions, as a spec writes them."""

from typing import Any

from pydantic import TypeAdapter

from sfumato.spec.data import PartitionRule

_RULE: TypeAdapter[PartitionRule] = TypeAdapter(PartitionRule)


def partition_rule(kind: str = "iid", **options: Any) -> PartitionRule:
    """The rule that ``data.partition`` with these keys spells out."""
    return _RULE.validate_python({"kind": kind, **options})
