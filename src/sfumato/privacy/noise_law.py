"""What a noise mechanism says about itself to the accountant, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NoiseLaw:
    """The distribution of a mechanism's noise, and whether the accountant can compose it.

    The accountant composes Gaussian noise only. Noise of any other law is charged as none: epsilon is
    infinite, and the report says why.

    Attributes:
        name: of the distribution, for people.
        why_not_composed: why its releases cannot be charged as those of a Gaussian mechanism with the same
            standard deviation; empty where they can.
        composed_for_records: whether they can for a record as the unit all the same: what cannot be said is
            how far a whole device moves a message.
    """

    name: str
    why_not_composed: str = ""
    composed_for_records: bool = False


GAUSSIAN = NoiseLaw("Gaussian")
