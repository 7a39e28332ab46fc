"""Reads a YAML file of a party's folder into a section; errors name the file, the key and the line."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from sfumato.errors import SpecError
from sfumato.spec.base import Section
from sfumato.spec.validation_messages import Problem, error_of_problems, problems_of
from sfumato.user_text import KeyLines, parse_yaml, plain, read_text

S = TypeVar("S", bound=Section)


def read_section(path: Path, kind: type[S]) -> S:
    """Read a YAML file as a section of class ``kind``.

    Raises:
        SpecError: it cannot be read, or does not fit the section; the message has the file, key and line.
    """
    text = read_text(path)
    try:
        return kind.model_validate(plain(parse_yaml(text, str(path)), str(path)))
    except ValidationError as error:
        problems, lines = problems_of(error), KeyLines(text)

    def located(problem: Problem) -> SpecError:
        where = f"{path}: {problem.place}" if problem.place else str(path)
        return SpecError(where, problem.value, problem.allowed + lines.of(problem.place))

    raise error_of_problems(problems, located, str(path))
