"""How messages name arguments on the command line: by their options."""

from __future__ import annotations

from sfumato.arguments import Argument, Call

_OPTIONS = {
    "observers": "--observer",
    "overrides": "--set",
    "targets": "--target",
}
"""Arguments whose options have other names; all others are ``--name``."""


class OptionSpelling:
    """``--resume``, ``--out runs/x``, ``sfumato run SPEC --resume``."""

    def argument(self, argument: Argument) -> str:
        """``--name``, ``--name VALUE`` or ``--name KEY``."""
        option = _OPTIONS.get(argument.name, "--" + argument.name.replace("_", "-"))
        if argument.value is True:
            return f"{option}: {argument.key}" if argument.key else option
        values = argument.value if isinstance(argument.value, list) else [argument.value]
        parts = [str(part) for part in (*values, argument.key) if part not in (None, "")]
        return " ".join([option, *parts])

    def call(self, call: Call) -> str:
        """``sfumato function subject --name VALUE``."""
        return " ".join(["sfumato", call.function, call.subject, *map(str, call.arguments)])
