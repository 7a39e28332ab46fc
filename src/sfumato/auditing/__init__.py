"""Attacks whose success bounds ε from below, set beside the accountant's upper bounds (docs/audit.md)."""

from sfumato.auditing.report import AuditReport, Finding, LowerBound
from sfumato.auditing.run import audit, audit_pair

__all__ = ["AuditReport", "Finding", "LowerBound", "audit", "audit_pair"]
