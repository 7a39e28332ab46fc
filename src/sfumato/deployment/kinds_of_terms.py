"""Which terms a spec has: those of a tree, or of groups."""

from __future__ import annotations

from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.group_terms import GroupTerms
from sfumato.deployment.terms import DeploymentTerms
from sfumato.families import GROUPS, family_of
from sfumato.spec.document import Spec


def kind_of_terms(spec: Spec) -> type[CommonTerms]:
    """The class of the terms of a run of ``spec``."""
    return GroupTerms if family_of(spec) is GROUPS else DeploymentTerms
