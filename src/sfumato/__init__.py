"""Differentially private federated learning over real networks."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.account import PrivacyReport, account
    from sfumato.errors import DataError, EnvelopeError, MissingExtraError, RunError, SfumatoError, SpecError
    from sfumato.run_folder import load_run
    from sfumato.simulate import run
    from sfumato.spec.document import Spec
    from sfumato.spec.load import dump_spec, load_spec

_HOMES = {
    "DataError": "sfumato.errors",
    "EnvelopeError": "sfumato.errors",
    "MissingExtraError": "sfumato.errors",
    "PrivacyReport": "sfumato.account",
    "RunError": "sfumato.errors",
    "SfumatoError": "sfumato.errors",
    "Spec": "sfumato.spec.document",
    "SpecError": "sfumato.errors",
    "account": "sfumato.account",
    "dump_spec": "sfumato.spec.load",
    "load_run": "sfumato.run_folder",
    "load_spec": "sfumato.spec.load",
    "run": "sfumato.simulate",
}

__all__ = [
    "DataError",
    "EnvelopeError",
    "MissingExtraError",
    "PrivacyReport",
    "RunError",
    "SfumatoError",
    "Spec",
    "SpecError",
    "account",
    "dump_spec",
    "load_run",
    "load_spec",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is: ``import sfumato`` alone loads nothing heavy."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """This package: importing the module ``sfumato.account`` must not hide the function of that name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name == "account" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
