"""Empirical lower bounds on ε from worst-case attacks, beside the accountant's upper bounds (docs/audit.md).

    audit.py              `audit`, `audit_pair`: the lower bounds of a spec
    report.py             the findings of an audit, also as JSON
    harness.py            `AuditHarness`: the interface of a protocol that is replayed with a target
    tree.py groups.py     harnesses of trees and of overlapping groups
    air.py                rounds over the air whose coordinates are independent
    tree_observer.py      the vectors that a coalition receives in a tree
    group_observer.py     the vectors that a coalition receives in groups
    linking_workers.py    a whole training of groups in which workers pass on what they learn
    elections.py          the offices that members of a coalition may hold, with probabilities
    worst_case_engine.py  an engine whose devices send given updates
    trials.py             thousands of trials with and without the target's message
    likelihood_ratio.py   the log-likelihood ratio of what is received in a round
    record_canary.py      a record of the target, and what its device sends by the steps that it is drawn into
    record_trials.py      thousands of trials with and without a record
    mixture_ratio.py      the log-likelihood ratio of a round where hidden draws decide what is sent
    tradeoff.py           lower bounds on ε and μ from the scores of trials
    canaries.py           one run with many canaries: a bound and an estimate

May be imported by ``sfumato.attacks``, ``sfumato.cli`` and ``sfumato``; imports ``sfumato.protocols`` and
what lies below it.
"""

from sfumato.auditing.audit import audit, audit_pair
from sfumato.auditing.report import AuditedPair, AuditReport, LowerBound

__all__ = ["AuditReport", "AuditedPair", "LowerBound", "audit", "audit_pair"]
