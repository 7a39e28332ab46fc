"""Differentially private federated learning over real networks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.accounting import PrivacyReport, account
    from sfumato.attacks import attack
    from sfumato.auditing import AuditReport, audit
    from sfumato.errors import DataError, EnvelopeError, MissingExtraError, RunError, SfumatoError, SpecError
    from sfumato.planning import PlannedSpec, plan
    from sfumato.run_folder.reader import load_run
    from sfumato.simulation.run import run
    from sfumato.spec.document import Spec
    from sfumato.spec.load import dump_spec, load_spec
    from sfumato.sweeps.results import Sweep, load_sweep
    from sfumato.sweeps.runner import sweep

_HOMES = {
    "AuditReport": "sfumato.auditing",
    "DataError": "sfumato.errors",
    "EnvelopeError": "sfumato.errors",
    "MissingExtraError": "sfumato.errors",
    "PlannedSpec": "sfumato.planning",
    "PrivacyReport": "sfumato.accounting",
    "RunError": "sfumato.errors",
    "SfumatoError": "sfumato.errors",
    "Spec": "sfumato.spec.document",
    "SpecError": "sfumato.errors",
    "Sweep": "sfumato.sweeps.results",
    "account": "sfumato.accounting",
    "attack": "sfumato.attacks",
    "audit": "sfumato.auditing",
    "dump_spec": "sfumato.spec.load",
    "load_run": "sfumato.run_folder.reader",
    "load_spec": "sfumato.spec.load",
    "load_sweep": "sfumato.sweeps.results",
    "plan": "sfumato.planning",
    "run": "sfumato.simulation.run",
    "sweep": "sfumato.sweeps.runner",
}

__all__ = [
    "AuditReport",
    "DataError",
    "EnvelopeError",
    "MissingExtraError",
    "PlannedSpec",
    "PrivacyReport",
    "RunError",
    "SfumatoError",
    "Spec",
    "SpecError",
    "Sweep",
    "account",
    "attack",
    "audit",
    "dump_spec",
    "load_run",
    "load_spec",
    "load_sweep",
    "plan",
    "run",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is: ``import sfumato`` alone loads nothing heavy."""
    if name == "__version__":
        return import_module("importlib.metadata").version("sfumato")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
