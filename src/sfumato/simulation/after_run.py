"""What the rows of an account amount to after a run: ε of who took part as often as they did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.accounting import PrivacyReport
from sfumato.families import family_of


def with_participations(
    report: PrivacyReport, participations: npt.NDArray[np.int64], rounds: int, parameters: int
) -> PrivacyReport:
    """``report`` of all pairs, with the ε of each row after the run where it is known (docs/accounting.md).

    Unchanged where the unit is a record or person, or no such ε is known.

    Args:
        report: of `account`, without unit or observer.
        participations: rounds that each device took part in, ``[devices]``.
        rounds: number of rounds that were played.
        parameters: number of the model's parameters.
    """
    if report.plan.spec.privacy.unit_within_device:
        return report
    found = family_of(report.plan.spec).ex_post(report.plan, report.delta, participations, rounds, parameters)
    return replace(report, ex_post=found) if found else report


def with_realised(report: PrivacyReport, realised: Mapping[str, Any]) -> PrivacyReport:
    """``report`` of all pairs with the ε after the run, from its ledger: see `with_participations`.

    That of a deployed run is unchanged: who took part, and who was lost, does not follow from the seed.

    Args:
        report: of `account`, without unit or observer.
        realised: the section ``realised`` of the run's ``ledger.json``.
    """
    if "deployed" in realised:
        return report
    participations = np.array(realised["participations"])
    return with_participations(report, participations, realised["rounds"], realised["parameters"])
