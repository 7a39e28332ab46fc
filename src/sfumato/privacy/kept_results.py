"""Results that are kept, by key, on the object that they are computed for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

_Result = TypeVar("_Result")


class Kept(Generic[_Result]):
    """Results by key, the latest ones.

    `functools.lru_cache` of a method, kept on the object of the method, makes a reference cycle: whatever was
    computed then stays in memory until the garbage collector finds it. This refers to keys and results only.
    Several threads may use it; two that ask for one key at once may both compute it.

    Args:
        most: how many results are kept, at least 1.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[Hashable, _Result] = OrderedDict()

    def once(self, key: Hashable, compute: Callable[[], _Result]) -> _Result:
        """The result for ``key``: a kept one, or that of ``compute()``, in whose place the oldest may go.

        ``compute`` gives anything but ``None``.
        """
        found = self._found.get(key)
        if found is None:
            found = compute()
            if len(self._found) >= self._most:
                with suppress(KeyError):  # other threads have taken all of them
                    self._found.popitem(last=False)
            self._found[key] = found
        return found
