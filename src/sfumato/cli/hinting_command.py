"""Options that there are not: a key of the spec, written as an option, is answered by how to set it."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from sfumato.errors import SpecError


class HintingCommand(TyperCommand):
    """A command whose message about an unknown option says what to write instead."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments that are left after parsing.

        Raises:
            SpecError: an option that there is not and that means a key of the spec.
        """
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # click's NoSuchOption, which typer may have a copy of
            if type(error).__name__ != "NoSuchOption" or not self._sets_keys:
                raise
            from sfumato.spec.other_words import key_meant  # slow to import

            option = str(getattr(error, "option_name", ""))
            key = key_meant(option.lstrip("-"))
            if key is None:
                raise
            raise SpecError(
                option, None, f"is no option; write: --set {key}={_value(given, option)}"
            ) from None

    @property
    def _sets_keys(self) -> bool:
        """Whether the command has ``--set``."""
        return any("--set" in parameter.opts for parameter in self.params)


def _value(arguments: list[str], option: str) -> str:
    """What was written for an option: after it or after an equals sign; VALUE if nothing was."""
    for place, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == option:
            after = arguments[place + 1 :]
            return value if equals else after[0] if after and not after[0].startswith("-") else "VALUE"
    return "VALUE"
