"""What a resolved spec, as parsed from ``spec.yaml``, says, and what holds where it leaves a section out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sfumato.report.formatting import how_many, number
from sfumato.spec.radio import Radio
from sfumato.spec.used_keys import AIR_PROTOCOLS, WITHOUT_NOISE

_RADIO: TypeAdapter[Any] = TypeAdapter(Radio)


def section_of(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The section ``name`` of a spec, or a section of a section; {} where it is none, or is not there."""
    found = spec.get(name)
    return found if isinstance(found, Mapping) else {}


def source_of(spec: Mapping[str, Any]) -> str:
    """``data.source`` of a spec; "" without."""
    return str(section_of(spec, "data").get("source", ""))


def clip_of(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """``privacy.clip`` of a spec; {} where nothing is clipped."""
    return section_of(section_of(spec, "privacy"), "clip")


def clip_kind_of(spec: Mapping[str, Any]) -> str:
    """``privacy.clip.kind`` of a spec: what a clip bounds, or would bound; ``update`` without a clip."""
    return str(clip_of(spec).get("kind", "update"))


def noise_section_of(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """``privacy.noise`` of a spec; {} without."""
    return section_of(section_of(spec, "privacy"), "noise")


def adds_noise(spec: Mapping[str, Any]) -> bool:
    """Whether any party adds noise in a training of ``spec``; the noise of a receiver is not meant."""
    noise = spec.get("privacy", {}).get("noise") or {}
    kind = noise.get("kind") if isinstance(noise, Mapping) else noise
    return spec["protocol"] not in WITHOUT_NOISE and kind not in (None, "none")


def sends_over_the_air(spec: Mapping[str, Any]) -> bool:
    """Whether messages of some hop of the resolved ``spec`` are added in the air.

    Their receiver has noise of its own.
    """
    return spec.get("protocol") in AIR_PROTOCOLS or "air" in section_of(spec, "transport").values()


def radio_in_use(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ``radio`` that a run of a spec is computed with, all keys written out.

    The default of its protocol where it names none. A section of an earlier version, which is not valid any
    more, is returned as it is.
    """
    default = {"preset": "pfels" if spec.get("protocol") in AIR_PROTOCOLS else "h2fdp"}
    written = spec.get("radio") or default
    try:
        found: Mapping[str, Any] = _RADIO.validate_python(written).model_dump(mode="json", exclude_none=True)
    except ValidationError:  # of an earlier version
        return section_of(spec, "radio")
    return found


def has_noise(spec: Mapping[str, Any]) -> bool:
    """Whether any average in a training of ``spec`` has noise: of a party, or of a receiver over the air."""
    return adds_noise(spec) or sends_over_the_air(spec)


def partition_in_words(spec: Mapping[str, Any]) -> str:
    """How the examples are divided over devices, by ``data.partition``: ``divided at random``.

    "" where a column of the data says whose they are, or nothing is said.
    """
    data = section_of(spec, "data")
    return "" if data.get("site_column") else _rule_in_words(section_of(data, "partition"))


def _rule_in_words(rule: Mapping[str, Any]) -> str:
    """A rule that divides examples, in words, such as ``2 labels each``; "" for a kind without words."""
    kind = rule.get("kind")
    if kind == "iid":
        return f"divided at random{' into unequal shares' if rule.get('size_sigma') else ''}"
    if kind == "labels":
        return f"{how_many(rule['labels_per_device'], 'label')} each"
    if kind == "dirichlet":
        shards = (
            f" into {how_many(rule['shards'], 'shard')}, the first ones used" if rule.get("shards") else ""
        )
        return f"labels divided by Dirichlet({number(rule['alpha'])}){shards}"
    if kind == "natural":
        return f"divided by {rule.get('column') or 'its own groups'}"
    if kind == "two-level":
        first, then = (_rule_in_words(section_of(rule, level)) for level in ("edge", "device"))
        return f"over edges: {first}; inside each: {then}" if first and then else ""
    return ""


def row_in_words(spec: Mapping[str, Any]) -> str:
    """What a resolved spec says that one row is, such as "a patient"; "" where it does not say."""
    return str(section_of(spec, "data").get("row") or "")


def stated_participation(training: Mapping[str, Any]) -> Mapping[str, Any]:
    """Who takes part in a round, by the section ``training``: a ``kind`` and what belongs to it.

    ``{"kind": "poisson", "rate": 0.1}``, for example; ``{"kind": "all"}`` where it says nothing.
    """
    return section_of(training, "participation") or {"kind": "all"}


def steps_of_everybody(training: Mapping[str, Any]) -> int:
    """How many local steps every device has in all rounds, by the section ``training``.

    0 where that differs from device to device, or is not known: who takes part is drawn, or an epoch is as
    long as the data.
    """
    if stated_participation(training)["kind"] != "all":
        return 0
    return int(training["rounds"] * (training.get("local_steps") or 0))
