"""What every section of a spec shares: frozen, unknown keys refused, numbers that are numbers."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    StrictBool,
    Tag,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

TAG = "="
"""First character of union tags, which pydantic puts into error locations and users must not see."""


def refuse(key: str, value: object, allowed: str) -> PydanticCustomError:
    """The error a check raises; ``key`` is relative to the section checked, empty for the section itself."""
    return PydanticCustomError("refused", "{allowed}", {"key": key, "value": value, "allowed": allowed})


def closest(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing where no known word is near."""
    near = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


class Section(BaseModel):
    """One mapping of the spec. Frozen; unknown keys are refused; defaults are checked too.

    A plain string stands for ``{kind: that string}`` in sections that have kinds.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, populate_by_name=True, serialize_by_alias=True
    )

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """The keys of this section as a user writes them."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, value: Any) -> Any:
        keys = cls.keys()
        if isinstance(value, str) and "kind" in keys:
            return {"kind": value}
        if isinstance(value, Section):
            return value
        if not isinstance(value, dict):
            raise refuse("", value, f"must be a section with keys {', '.join(keys)}")
        for key in value:
            if key not in keys and key not in cls.model_fields:
                known = ", ".join(keys)
                allowed = f"there is no such key{closest(str(key), keys)}; keys here: {known}"
                raise PydanticCustomError(
                    "unknown_key", "{allowed}", {"key": str(key), "value": value[key], "allowed": allowed}
                )
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        kind = cls.model_fields.get("kind")
        needs_more = any(field.is_required() for field in cls.model_fields.values())
        if kind is None or needs_more:
            return schema
        return {"anyOf": [schema, {"const": kind.default}]}


def _number(allowed: str, holds: Callable[[float], bool], *, whole: bool = False) -> BeforeValidator:
    """A finite number for which ``holds`` is true; everything else is refused, saying what is ``allowed``.

    YAML 1.1 reads ``1e-5`` as a string, so a string that is a number counts as one; booleans do not.
    """

    def check(value: Any) -> float:
        number = value
        if isinstance(value, str):
            try:
                number = float(value)
            except ValueError:
                number = None
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise refuse("", value, allowed)
        finite = math.isfinite(number) if isinstance(number, float) else abs(number) < 10**300
        if not finite or not holds(number):
            raise refuse("", value, allowed)
        if whole:
            if number != int(number) or abs(number) > 2**53:
                raise refuse("", value, allowed)
            return int(number)
        return float(number)

    return BeforeValidator(check)


Flag = StrictBool
Real = Annotated[float, _number("must be a finite number", lambda x: True)]
Positive = Annotated[float, Field(gt=0), _number("must be a finite number above 0", lambda x: x > 0)]
NonNegative = Annotated[float, Field(ge=0), _number("must be a finite number, 0 or more", lambda x: x >= 0)]
Rate = Annotated[
    float, Field(gt=0, le=1), _number("must be a number above 0, at most 1", lambda x: 0 < x <= 1)
]
OpenUnit = Annotated[
    float, Field(gt=0, lt=1), _number("must be a number above 0 and below 1", lambda x: 0 < x < 1)
]
BelowOne = Annotated[
    float, Field(ge=0, lt=1), _number("must be a number from 0 to below 1", lambda x: 0 <= x < 1)
]
Whole = Annotated[
    int, Field(ge=0), _number("must be a whole number, 0 or more", lambda x: x >= 0, whole=True)
]
Count = Annotated[
    int, Field(ge=1), _number("must be a whole number, 1 or more", lambda x: x >= 1, whole=True)
]


def _all_or_one(value: Any) -> str:
    return TAG + ("all" if value == "all" else "one")


CountOrAll = Annotated[
    Annotated[
        int,
        Field(ge=1),
        _number("must be a whole number, 1 or more, or all", lambda x: x >= 1, whole=True),
        Tag("=one"),
    ]
    | Annotated[Literal["all"], Tag("=all")],
    Discriminator(_all_or_one),
]


def one_or_list() -> Discriminator:
    """Tells a union of ``Tag("=one")`` and ``Tag("=list")`` apart."""
    return Discriminator(lambda value: TAG + ("list" if isinstance(value, list | tuple) else "one"))


ShareOrList = Annotated[
    Annotated[
        float,
        Field(ge=0, le=1),
        _number("must be a share from 0 to 1, or a list of numbers like [0, 2]", lambda x: 0 <= x <= 1),
        Tag("=one"),
    ]
    | Annotated[tuple[Whole, ...], Tag("=list")],
    one_or_list(),
]
CountOrList = Annotated[
    Annotated[
        int,
        Field(ge=1),
        _number("must be a whole number, 1 or more, or a list of such numbers", lambda x: x >= 1, whole=True),
        Tag("=one"),
    ]
    | Annotated[tuple[Count, ...], Field(min_length=1), Tag("=list")],
    one_or_list(),
]


def by_kind(*kinds: str, default: str | None = None, **by_key: str) -> Discriminator:
    """Tells sections of several kinds apart: by ``kind`` where it is written, else by a tell-tale key.

    Args:
        kinds: every kind there is.
        default: the kind of a section that says neither; its own checks then say what is wrong with it.
        by_key: tell-tale key -> kind, in order of precedence.
    """

    def choose(value: Any) -> str | None:
        if isinstance(value, str):
            return TAG + value
        if isinstance(value, Section):
            return f"{TAG}{getattr(value, 'kind', '')}"
        if not isinstance(value, dict):
            return None
        if "kind" in value:
            return f"{TAG}{value['kind']}"
        kind = next((kind for key, kind in by_key.items() if key in value), default)
        return None if kind is None else TAG + kind

    hints = {kind: key.rstrip("_") for key, kind in reversed(by_key.items())}
    listed = ", ".join(f"{kind} (with {hints[kind]})" if kind in hints else kind for kind in kinds)
    return Discriminator(
        choose,
        custom_error_type="kind",
        custom_error_message=f"must be a section of one of the kinds {listed}",
    )
