"""How large the data of a run are, as whoever deploys says: no device or edge opens the spec's table for it.

Sizes, rates and noise follow from these counts, and the session commits to what they come to for every
device (`terms`). A device compares the number of its own rows with its size; the cloud, which has the spec's
data set, compares all of them.
"""

from __future__ import annotations

from sfumato.data.builtin_datasets import DatasetFacts
from sfumato.spec.base import Count, Section, Whole
from sfumato.spec.refusals import Refusals


class DeclaredFacts(Section):
    """The counts in ``terms.yaml``; see `DatasetFacts` for each.

    Where persons are the unit they count persons: see `DatasetFacts.counted_in_persons`.
    """

    train_examples: Whole
    test_examples: Whole
    classes: Count
    input_shape: tuple[Count, ...]
    class_counts: tuple[Whole, ...] | None = None
    group_counts: tuple[Whole, ...] | None = None
    site_counts: tuple[tuple[str, Whole], ...] | None = None
    targets: Count | None = None

    def refusals(self) -> Refusals:
        """Refuse counts that do not add up to the number of training rows."""
        sites = None if self.site_counts is None else tuple(count for _, count in self.site_counts)
        counted = {"class_counts": self.class_counts, "group_counts": self.group_counts, "site_counts": sites}
        allowed = f"must add up to {self.train_examples:,}"
        for key, counts in counted.items():
            total = None if counts is None else sum(counts)
            yield total not in (None, self.train_examples), key, total, allowed

    @classmethod
    def of(cls, facts: DatasetFacts) -> DeclaredFacts:
        """The counts of a data set on which the terms of a run depend."""
        return cls.model_validate({key: getattr(facts, key) for key in cls.model_fields})

    def facts(self, name: str) -> DatasetFacts:
        """The facts of a data set called ``name``."""
        return DatasetFacts(name, **{key: getattr(self, key) for key in type(self).model_fields})
