"""How messages on the page name what a person entered there: by the key of the spec."""

from __future__ import annotations

from sfumato.arguments import Argument, Call, PythonSpelling


class PageSpelling:
    """``training.rounds`` for ``overrides: training.rounds``."""

    def argument(self, argument: Argument) -> str:
        """The key, or where there is none the name."""
        return argument.key or PythonSpelling().argument(argument)

    def call(self, call: Call) -> str:
        """As in Python: the page has no calls of its own."""
        return PythonSpelling().call(call)
