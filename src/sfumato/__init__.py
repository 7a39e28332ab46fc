"""Differentially private federated learning over real networks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.accounting import PrivacyReport, account
    from sfumato.attacks import attack
    from sfumato.auditing.audit import audit
    from sfumato.auditing.report import AuditReport
    from sfumato.checked import statement, verify_run
    from sfumato.errors import DataError, EnvelopeError, MissingExtraError, RunError, SfumatoError, SpecError
    from sfumato.planning import PlannedSpec, plan
    from sfumato.report.compare import compare
    from sfumato.simulation.finished_run import load_run
    from sfumato.simulation.run import run
    from sfumato.spec.document import Spec
    from sfumato.spec.load import dump_spec, load_spec
    from sfumato.sweeps.pilot_scan import PilotPlan, plan_by_pilot
    from sfumato.sweeps.results import Sweep, load_sweep
    from sfumato.sweeps.runner import sweep

_HOMES = {
    "sfumato.accounting": ("PrivacyReport", "account"),
    "sfumato.attacks": ("attack",),
    "sfumato.auditing": ("AuditReport", "audit"),
    "sfumato.checked": ("statement", "verify_run"),
    "sfumato.errors": (
        "DataError",
        "EnvelopeError",
        "MissingExtraError",
        "RunError",
        "SfumatoError",
        "SpecError",
    ),
    "sfumato.planning": ("PlannedSpec", "plan"),
    "sfumato.report.compare": ("compare",),
    "sfumato.simulation.finished_run": ("load_run",),
    "sfumato.simulation.run": ("run",),
    "sfumato.spec.document": ("Spec",),
    "sfumato.spec.load": ("dump_spec", "load_spec"),
    "sfumato.sweeps.pilot_scan": ("PilotPlan", "plan_by_pilot"),
    "sfumato.sweeps.results": ("Sweep", "load_sweep"),
    "sfumato.sweeps.runner": ("sweep",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AuditReport",
    "DataError",
    "EnvelopeError",
    "MissingExtraError",
    "PilotPlan",
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
    "compare",
    "dump_spec",
    "load_run",
    "load_spec",
    "load_sweep",
    "plan",
    "plan_by_pilot",
    "run",
    "statement",
    "sweep",
    "verify_run",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is: ``import sfumato`` alone loads nothing heavy."""
    if name == "__version__":
        return import_module("importlib.metadata").version("sfumato")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
