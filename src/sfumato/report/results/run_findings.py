"""What is worth a warning about a run: by its account, and by what it measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from sfumato.findings.found import findings_after
from sfumato.report.results.network import Network
from sfumato.report.results.spec_sections import clip_kind_of, clip_of, source_of
from sfumato.run_folder.metrics_table import last_measured
from sfumato.run_folder.reader import RunFolder

_LEARNED = "accuracy"  # the kind of a finding


class RunFindings(NamedTuple):
    """What is worth a warning about a run, as sentences without a full stop.

    Attributes:
        nothing_learned: one sentence where its accuracy is that of guessing; else [].
        others: by its account, then by its metrics.
    """

    nothing_learned: list[str]
    others: list[str]

    @property
    def all(self) -> list[str]:
        """Every finding, that nothing was learned first."""
        return [*self.nothing_learned, *self.others]

    @classmethod
    def of(cls, run: RunFolder, network: Network, test_labels: Mapping[str, int] | None) -> RunFindings:
        """The warnings about ``run``, by its account, clipping, lost sums and final accuracy.

        Args:
            run: a folder.
            network: of the run.
            test_labels: label to number of test examples; ``None`` where they are not known.
        """
        with_faults = run.finished and run.spec_dict.get("faults")
        after = findings_after(
            source_of(run.spec_dict),
            run.metrics["clip_fraction"].tolist(),
            last_measured(run.metrics["accuracy"]),
            adds_noise=network.has_noise or network.over_air,
            clip_kind=clip_kind_of(run.spec_dict),
            clip_norm=clip_of(run.spec_dict).get("norm"),
            lost_sums=run.ledger["realised"].get("lost_sums") if with_faults else None,
            test_labels=test_labels,
            auc=last_measured(run.metrics["auc"]) if "auc" in run.metrics else math.nan,
        )
        told = [(finding.kind == _LEARNED, network.titled(finding.text)) for finding in after]
        return cls(
            [said for of_learning, said in told if of_learning],
            [*run.privacy.findings, *(said for of_learning, said in told if not of_learning)],
        )
