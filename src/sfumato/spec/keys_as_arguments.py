"""Keys of a spec that were given as arguments of a function, as ``sf.run(spec, rounds=5)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.spec.other_words import key_meant

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def refusing_keys(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """``function``, but an argument that it does not have and that means a key of the spec is a `SpecError`.

    The message says how the key is set. Other wrong arguments are Python's ``TypeError``, as ever.
    """
    known = inspect.signature(function).parameters

    @wraps(function)
    def called(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        for name, value in kwargs.items():
            key = None if name in known else key_meant(name)
            if key is not None and " " not in key:
                how = f"sf.load_spec(SOURCE, [{f'{key}={value}'!r}])"
                allowed = f"is no argument of {function.__name__}; it is a key of the spec: {how}"
                raise SpecError(Argument(name), value, allowed)
        return function(*args, **kwargs)

    return called
