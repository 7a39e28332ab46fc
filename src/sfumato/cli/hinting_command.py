"""Options, arguments and commands that there are not are answered by what to write instead."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typer.core import TyperCommand

from sfumato.errors import SpecError, SpecProblemsError

OPTIONS = {
    "--gpu": "--device cuda",
    "--cuda": "--device cuda",
    "--cpu": "--device cpu",
    "--output": "--out",
    "--output-dir": "--out",
    "--outdir": "--out",
    "--output_dir": "--out",
    "-o": "--out",
    "--seed": "--set seed=",
    "--random-seed": "--set seed=",
    "--config": "the spec's file, without an option",
    "--spec": "the spec's file, without an option",
    "--obs": "--observer",
    "--overwrite": "--force",
    "--continue": "--resume",
    "-q": "--quiet",
    "--verbose": "nothing: without --quiet everything is printed",
    "-v": "nothing: without --quiet everything is printed",
}
"""What to write for an option that other programs have."""

OPTIONS_OF = {
    "init": {
        "--out": "the new spec's name first: sfumato init NAME",
        "--name": "the name first, without an option: sfumato init NAME",
        "--features": "--id COLUMN for every column of numbers that is no feature",
        "--unit": "--protect record, person or device",
        "--eps": "--epsilon",
        "--file": "--csv FILE",
        "--target": "--label COLUMN",
        "--patient": "--person COLUMN",
    },
}
"""What to write for an option that one command lacks."""

COMMANDS_OF_OTHERS = {
    "train": "run",
    "fit": "run",
    "start": "run",
    "check": "validate",
    "epsilon": "account",
    "privacy": "account",
    "budget": "account",
    "plot": "report",
    "ui": "explore",
    "dashboard": "explore",
    "grid": "sweep",
    "search": "sweep",
    "new": "init",
    "create": "init",
    "experiment": "study",
    "reproduce": "study",
}
"""The command to call for a word."""


@dataclass(frozen=True)
class _Words:
    """The words of a command line, by what they are.

    Attributes:
        unknown: options that there are not, each once.
        loose: words that belong to no option, in runs: the option with its value that stands directly before
            a run, or nothing, and the run.
    """

    unknown: tuple[str, ...]
    loose: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]

    @classmethod
    def of(cls, words: Sequence[str], options: dict[str, bool]) -> _Words:
        """Sort ``words``; ``options``: all that there are, with whether they take a value."""
        unknown: list[str] = []
        loose: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), ())]
        place = 0
        while place < len(words):
            word, place = words[place], place + 1
            name, equals, _ = word.partition("=")
            if name == "--":
                loose.append(((), tuple(words[place:])))
                break
            if not name.startswith("-"):
                before, run = loose[-1]
                loose[-1] = before, (*run, word)
            elif options.get(name) and not equals:
                place += 1
                loose.append((tuple(words[place - 2 : place]), ()))
            else:
                loose.append(((), ()))
                if name not in options and name not in unknown:
                    unknown.append(name)
        return cls(tuple(unknown), tuple((before, run) for before, run in loose if run))


class HintingCommand(TyperCommand):
    """A command whose message about an option or an argument that it does not have says what to write."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments as click does, but with an error that suggests what may have been meant.

        Returns the arguments that are left after parsing.

        Args:
            ctx: click's context of the call.
            args: words of the command line.

        Raises:
            SpecError: an unknown option that is like another or is a key of the spec, or several; a key
                without ``--set``, or a value without its key; a word too many of ``init``.
        """
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # click's, which typer may have copies of
            kind = type(error).__name__
            if kind == "BadParameter" and (refused := _refused_value(given, error)) is not None:
                raise refused from None
            option = meant = ""
            if kind == "NoSuchOption":
                refused = self._refused_options(ctx, given)
                if refused is None:
                    raise
                raise refused from None
            if kind == "UsageError" and self._sets_keys:
                option, meant = _set_meant(given)
            elif kind == "UsageError" and self.name == "init":
                option, meant = _init_meant(_Words.of(given, self._options(ctx)))
            if not meant:
                raise
            raise SpecError(option, None, f"cannot be read; write: {meant}") from None

    def _options(self, ctx: Any) -> dict[str, bool]:
        """Every spelling of every option, such as ``--set``, with whether a value follows it."""
        return {
            spelling: not (getattr(parameter, "is_flag", False) or getattr(parameter, "count", False))
            for parameter in self.get_params(ctx)
            for spelling in (*parameter.opts, *parameter.secondary_opts)
            if spelling.startswith("-")
        }

    def _refused_options(self, ctx: Any, arguments: list[str]) -> SpecError | None:
        """The error on the options that there are not; ``None`` where the only one is like no other."""
        from sfumato.spec.base import closest_hint  # slow to import

        options, problems = self._options(ctx), []
        unknown = _Words.of(arguments, options).unknown
        for option in unknown:
            meant = self._option_meant(option, _value(arguments, option))
            near = f"; write: {meant}" if meant else closest_hint(option, options)
            if near or len(unknown) > 1:
                problems.append(SpecError(option, None, f"is no option{near}"))
        return SpecProblemsError(problems) if len(problems) > 1 else problems[0] if problems else None

    def _option_meant(self, option: str, value: str) -> str:
        """What to write for the unknown ``option`` with its ``value``; "" if no option or key is like it."""
        from sfumato.spec.other_words import EITHER, key_meant  # slow to import

        meant = OPTIONS_OF.get(self.name or "", {}).get(option) or OPTIONS.get(option, "")
        if meant.startswith("--set"):
            return f"{meant}{value}" if self._sets_keys else ""
        if meant.startswith("--"):
            return meant if self._has(meant.partition(" ")[0]) else ""
        key = None if meant else key_meant(option.lstrip("-"))
        if key is None or " " in key:
            return meant
        if self.name == "init":
            return f"{key} in the spec, once it is written, or --set {key}={value} with sfumato run"
        if not self._sets_keys:
            return ""
        if self._has("--over") and "," in value:
            return f"--over {key}={value}"
        other = f" --set {EITHER[key]}=null" if key in EITHER else ""
        return f"--set {key}={value}{other}"

    @property
    def _sets_keys(self) -> bool:
        """Whether the command has ``--set``."""
        return self._has("--set")

    def _has(self, option: str) -> bool:
        """Whether the command has an option of that spelling, such as ``--set``."""
        return any(option in parameter.opts for parameter in self.params)


def _refused_value(arguments: list[str], error: Exception) -> SpecError | None:
    """The error of an option whose value is refused: the option, its value, and what is allowed.

    ``None`` for an argument, which has no name that a user writes. ``arguments``: words of the command line;
    ``error``: click's.
    """
    spellings = [name for name in getattr(getattr(error, "param", None), "opts", ()) if name.startswith("-")]
    written = [name for name in spellings if any(word.partition("=")[0] == name for word in arguments)]
    if not written:
        return None
    value, said = _value(arguments, written[0]), str(getattr(error, "message", "")).rstrip(".")
    for theirs, ours in (
        (f"Value error, {value!r} is not one of", "must be one of"),
        ("Input should be", "must be"),
        ("greater than or equal to", "at least"),
        ("less than or equal to", "at most"),
    ):
        said = said.replace(theirs, ours)
    return SpecError(written[0], value, said)


def _set_meant(arguments: list[str]) -> tuple[str, str]:
    """What is wrong in arguments of which one is too many, and how to set a key with it.

    Returns:
        The words that are wrong, and those to write instead: ``--set KEY=VALUE``; both "" where the arguments
        do not look like a key with its value.
    """
    for place, word in enumerate(arguments):
        before = arguments[place - 1] if place else ""
        if word == "--set" and len(arguments) > place + 2:
            key, value = arguments[place + 1 : place + 3]
            if "=" not in key and not value.startswith("-"):
                return f"--set {key} {value}", f"--set {key.rstrip(':')}={value}"
        if "=" in word and "." in word.partition("=")[0] and not before.startswith("-"):
            return word, f"--set {word}"
    return "", ""


def _init_meant(words: _Words) -> tuple[str, str]:
    """Which of the words of ``sfumato init`` is too many, and what to write instead of it.

    A table is meant for ``--csv``; words behind an option's value belong to that value; else the words are
    one name. ``words``: with at least one that belongs to no option.
    """
    every = [word for _, run in words.loose for word in run]
    tables = [word for word in every if word.lower().endswith((".csv", ".parquet"))]
    if tables:
        return tables[0], f"--csv {shlex.quote(tables[0])}"
    for before, run in words.loose:
        if before:
            return run[-1], f"{before[0]} {shlex.quote(' '.join((before[1], *run)))}"
    return every[-1], f"one name: sfumato init {shlex.quote('-'.join(every))}"


def _value(arguments: list[str], option: str) -> str:
    """What was written for ``option`` in ``arguments``: after an equals sign, or the next word.

    "VALUE" if nothing was.
    """
    for place, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == option:
            after = arguments[place + 1 :]
            return value if equals else after[0] if after and not after[0].startswith("-") else "VALUE"
    return "VALUE"
