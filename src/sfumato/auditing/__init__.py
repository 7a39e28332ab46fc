"""Attacks whose success bounds ε from below, set beside the accountant's upper bounds (docs/audit.md)."""

from sfumato.auditing.audit import audit, audit_pair
from sfumato.auditing.report import AuditReport, Finding, LowerBound

__all__ = ["AuditReport", "Finding", "LowerBound", "audit", "audit_pair"]
