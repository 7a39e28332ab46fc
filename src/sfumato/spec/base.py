"""What every section of a spec shares: frozen, unknown keys refused, numbers that are numbers."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

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

from sfumato.errors import SpecError
from sfumato.spec.limits import LEAST, LEAST_SHARE, MAX_NUMBER, MAX_SEED, MOST, MOST_DECIBELS
from sfumato.spec.other_words import key_meant
from sfumato.spec.refusals import Refusals, Refused, first_refused

TAG = "="
"""First character of union tags, which pydantic puts into error locations and users must not see."""


def refused_error(key: str, value: object, allowed: str) -> PydanticCustomError:
    """The pydantic error that a validator raises to refuse ``value`` at ``key``.

    ``key`` is relative to the section that is checked, "" for the section itself; ``allowed`` says what may
    stand there, as "must be …".
    """
    return PydanticCustomError("refused", "{allowed}", {"key": key, "value": value, "allowed": allowed})


def refused_errors(problems: Sequence[Refused]) -> PydanticCustomError:
    """One pydantic error for all of ``problems``; of several at one key only the first counts."""
    first: dict[str, dict[str, Any]] = {}
    for problem in problems:
        first.setdefault(problem.key, problem._asdict())
    return PydanticCustomError("refused_several", "several", {"problems": list(first.values())})


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The word of ``known`` most similar to ``word`` in lower case; ``None`` if none is similar enough."""
    near = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return near[0] if near else None


def closest_hint(word: str, known: Iterable[str]) -> str:
    """The hint `` (did you mean 'x'?)`` with the word of ``known`` most similar to ``word``, or ""."""
    near = nearest(word, known)
    return "" if near is None else f" (did you mean {near!r}?)"


class Section(BaseModel):
    """One mapping of the spec. Frozen; unknown keys are refused; defaults are checked too.

    A plain string stands for ``{kind: that string}`` in sections that have kinds.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, populate_by_name=True, serialize_by_alias=True
    )

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to change a key: a spec stays what was checked.

        Raises:
            SpecError: ``name`` is a key; other attributes are set.
        """
        if name in type(self).model_fields:
            again = f"sf.load_spec(SOURCE, ['SECTION.{name}={value}'])"
            raise SpecError(name, value, f"a spec is not changed by assignment; load it again: {again}")
        super().__setattr__(name, value)

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """The keys of this section as they are written in a spec file."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    def refusals(self) -> Refusals:
        """The rules that tie keys of this section to each other, one row (applies, key, value, allowed) each.

        ``applies`` is true if the rule is broken; then ``value`` at ``key`` is refused, and the message says
        what is ``allowed``. ``key`` is relative to this section, empty for the section itself. The base has
        no rules.
        """
        yield from ()

    @model_validator(mode="after")
    def _nothing_is_refused(self) -> Self:
        """This section, if no row of `refusals` applies; otherwise the first that does is raised."""
        if type(self).refusals is Section.refusals:
            return self
        if (refused := first_refused(self.refusals())) is not None:
            raise refused_error(*refused)
        return self

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, value: Any) -> Any:
        """The section as a mapping, from ``value`` as it was written; a text stands for its ``kind``.

        Raises a pydantic error where it is no section, or has an unknown key; the error hints at the key that
        was meant.
        """
        keys = cls.keys()
        if isinstance(value, str) and "kind" in keys:
            return {"kind": value}
        if isinstance(value, Section):
            return value
        if not isinstance(value, dict):
            raise refused_error("", value, f"must be a section with keys {', '.join(keys)}")
        for key in value:
            if key not in keys and key not in cls.model_fields:
                known = ", ".join(keys)
                closest, meant = nearest(str(key), keys), key_meant(str(key))
                hint = closest_hint(str(key), keys)
                if meant is not None and meant.rpartition(".")[2] != closest:
                    hint, closest = f" (write {meant})", meant.rpartition(".")[2]
                if value[key] is None and str(key).isdecimal():
                    hint = " (of a number with a comma? write a point, as 0.5)"
                allowed = f"there is no such key{hint}; keys here: {known}"
                context = {"key": str(key), "value": value[key], "allowed": allowed}
                raise PydanticCustomError(
                    "unknown_key", "{allowed}", context | {"near": closest if closest in keys else None}
                )
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The JSON schema of the section.

        Where all keys but ``kind`` have defaults, the kind as a text is allowed too.
        """
        schema = handler(core_schema)
        kind = cls.model_fields.get("kind")
        needs_more = any(field.is_required() for field in cls.model_fields.values())
        if kind is None or needs_more:
            return schema
        return {"anyOf": [schema, {"const": kind.default}]}


class GroupwiseSection(Section):
    """A section with a number that may differ from group to group.

    A user writes a list in the number's place. The section keeps both: the number that every protocol reads
    (the largest, where a list was written), and the list. A resolved spec spells out the two.
    """

    number_and_list: ClassVar[tuple[str, str]]
    """The keys of both."""

    @model_validator(mode="before")
    @classmethod
    def _list_apart(cls, value: Any) -> Any:
        """The section as written, ``value``, with a list in the number's place moved to the list's own key.

        The number becomes the largest entry of the list, unless it is written beside it.
        """
        number_key, list_key = cls.number_and_list
        if not isinstance(value, dict):
            return value
        listed = value[number_key] if isinstance(value.get(number_key), list | tuple) else value.get(list_key)
        if not isinstance(listed, list | tuple) or not listed:
            return value
        section = {key: entry for key, entry in value.items() if key != number_key} | {list_key: list(listed)}
        try:
            largest = max(listed, key=float)
        except (TypeError, ValueError, OverflowError):
            largest = listed[0]  # the checks of ``many`` say which entry is wrong
        scalar = value.get(number_key)
        return section | {number_key: largest if scalar is None or scalar is listed else scalar}

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`; they refuse a number that is not its list's largest entry."""
        one, many = self.number_and_list
        number, listed = getattr(self, one), getattr(self, many)
        if listed is not None:
            allowed = f"must be left out beside {many}, or be its largest entry, {max(listed):g}"
            yield number != max(listed), one, number, allowed


def _number_check(allowed: str, holds: Callable[[float], bool], *, whole: bool) -> BeforeValidator:
    """A validator of finite numbers for which ``holds`` is true; ``allowed`` says so, in its errors.

    YAML 1.1 reads ``1e-5`` as a string, so a string that is a number counts as one; booleans do not.
    ``whole``: whether the number must be an integer.
    """

    def check(value: Any) -> float:
        number = value
        if isinstance(value, str):
            try:
                number = float(value)
            except ValueError:
                number = None
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise refused_error("", value, allowed + _percent_hint(value, holds, whole=whole))
        finite = not isinstance(number, float) or math.isfinite(number)
        if not finite or not holds(number) or (whole and number != int(number)):
            raise refused_error("", value, allowed + _percent_hint(number, holds, whole=whole))
        return int(number) if whole else float(number)

    return BeforeValidator(check)


def _percent_hint(value: Any, holds: Callable[[float], bool], *, whole: bool) -> str:
    """The hint `` (50 % is 0.5)`` where ``value`` may mean percent.

    So it may if it is written with %, or is above 1 in place of a share.

    "" where it is not, or its hundredth is not allowed; ``holds`` and ``whole`` are as of `_number_check`.
    """
    said = isinstance(value, str) and value.strip().endswith("%")
    try:
        percent = float(str(value).strip().removesuffix("%"))
    except ValueError:
        return ""
    is_share = holds(1.0) and not holds(1.001)
    if whole or not (said or is_share) or not 1 < percent <= 100 or not holds(percent / 100):
        return ""
    return f" ({percent:g} % is {percent / 100:g})"


def in_range(least: float, most: float, *, or_zero: bool = False) -> BeforeValidator:
    """A pydantic validator of numbers from ``least`` to ``most``, both included; with ``or_zero`` also 0."""
    zero = "0, or " if or_zero else ""
    allowed = f"must be {zero}a number from {least:.10g} to {most:.10g}"
    return _number_check(allowed, lambda x: least <= x <= most or (or_zero and x == 0), whole=False)


def count_limit(most: int, why: str = "", *, least: int = 1, instead: str = "") -> BeforeValidator:
    """A pydantic validator of whole numbers from ``least`` to ``most``, both included.

    Args:
        most: largest number that is allowed.
        why: why no larger one is, a phrase for the message; left out where it is obvious.
        least: smallest number that is allowed.
        instead: what else may stand there, text that follows the range in the message.
    """
    reason = f": {why}" if why else ""
    allowed = f"must be a whole number from {least} to {most:,}{instead}{reason}"
    return _number_check(allowed, lambda x: least <= x <= most, whole=True)


Flag = StrictBool
Positive = Annotated[float, Field(ge=LEAST, le=MOST), in_range(LEAST, MOST)]
NonNegative = Annotated[float, Field(ge=0, le=MOST), in_range(LEAST, MOST, or_zero=True)]
Decibels = Annotated[
    float, Field(ge=-MOST_DECIBELS, le=MOST_DECIBELS), in_range(-MOST_DECIBELS, MOST_DECIBELS)
]
Rate = Annotated[float, Field(ge=LEAST_SHARE, le=1), in_range(LEAST_SHARE, 1)]
OpenUnit = Annotated[float, Field(ge=LEAST_SHARE, le=1 - LEAST_SHARE), in_range(LEAST_SHARE, 1 - LEAST_SHARE)]
BelowOne = Annotated[
    float, Field(ge=0, le=1 - LEAST_SHARE), in_range(LEAST_SHARE, 1 - LEAST_SHARE, or_zero=True)
]
Whole = Annotated[int, Field(ge=0, le=MAX_SEED), count_limit(MAX_SEED, least=0)]
Count = Annotated[int, Field(ge=1, le=MAX_NUMBER), count_limit(MAX_NUMBER)]


def _tag_of_all_or_one(value: Any) -> str:
    """The tag of the union's member that ``value`` is for: ``=all``, or ``=one`` for a number."""
    return TAG + ("all" if value == "all" else "one")


CountOrAll = Annotated[
    Annotated[
        int,
        Field(ge=1, le=MAX_NUMBER),
        count_limit(MAX_NUMBER, instead=", or all"),
        Tag("=one"),
    ]
    | Annotated[Literal["all"], Tag("=all")],
    Discriminator(_tag_of_all_or_one),
]


def one_or_list() -> Discriminator:
    """The pydantic discriminator of a union whose members are tagged ``"=one"`` (a value) and ``"=list"``."""
    return Discriminator(lambda value: TAG + ("list" if isinstance(value, list | tuple) else "one"))


ShareOrList = Annotated[
    Annotated[
        float,
        Field(ge=0, le=1),
        _number_check(
            "must be a share from 0 to 1, or a list of numbers like [0, 2]",
            lambda x: 0 <= x <= 1,
            whole=False,
        ),
        Tag("=one"),
    ]
    | Annotated[tuple[Whole, ...], Tag("=list")],
    one_or_list(),
]
CountOrList = Annotated[
    Annotated[
        int,
        Field(ge=1, le=MAX_NUMBER),
        count_limit(MAX_NUMBER, instead=", or a list of such numbers"),
        Tag("=one"),
    ]
    | Annotated[tuple[Count, ...], Field(min_length=1), Tag("=list")],
    one_or_list(),
]
CountPerEdge = Annotated[
    Annotated[
        int,
        Field(ge=1, le=MAX_NUMBER),
        count_limit(MAX_NUMBER, instead=", a list with one for each edge, or a mapping by edge"),
        Tag("=one"),
    ]
    | Annotated[tuple[Count, ...], Field(min_length=1), Tag("=list")]
    | Annotated[dict[str, Count], Field(min_length=1), Tag("=by name")],
    Discriminator(
        lambda value: (
            TAG
            + ("by name" if isinstance(value, dict) else "list" if isinstance(value, list | tuple) else "one")
        )
    ),
]
WrittenPerEdge: TypeAlias = int | tuple[int, ...] | Mapping[str, int]
"""What a user wrote: one number, one for each edge, or some by name."""


BY_TRUST = frozenset({"trusted", "untrusted"})
"""The keys of a mapping that tells trusted edges from untrusted ones."""


def numbers_in(value: WrittenPerEdge) -> tuple[int, ...]:
    """The numbers in ``value``: itself, the entries of a list, or the values of a mapping."""
    if isinstance(value, int):
        return (value,)
    return tuple(value.values() if isinstance(value, Mapping) else value)


def by_kind(*kinds: str, default: str | None = None, **by_key: str) -> Discriminator:
    """The pydantic discriminator of a union of sections that tells them apart by ``kind``, or by another key.

    Args:
        kinds: every kind there is.
        default: the kind of a section with none of these keys; its own checks then say what is missing.
        by_key: key that only one kind has -> that kind, in order of precedence.
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
