"""The findings of a run: those of its account, and those that its metrics show."""

from __future__ import annotations

import math

from sfumato.findings import findings_after
from sfumato.report.results.network import read_network
from sfumato.run_folder.reader import RunFolder, read_ledger


def findings_of_run(run: RunFolder) -> list[str]:
    """What is worth a warning, in sentences without a full stop."""
    before = [str(finding["text"]) for finding in run.privacy.get("findings", ())]
    data = run.spec_dict.get("data")
    source = str(data.get("source")) if isinstance(data, dict) else ""
    measured = [value for value in run.metrics["accuracy"].tolist() if not math.isnan(value)]
    accuracy = float(measured[-1]) if measured else math.nan
    clips = run.metrics["clip_fraction"].tolist()
    network = read_network(run.spec_dict)
    noisy = bool(network.noise) or network.over_air
    with_faults = run.finished and run.spec_dict.get("faults")
    lost = read_ledger(run.path)["realised"].get("lost_sums") if with_faults else None
    after = findings_after(source, clips, accuracy, adds_noise=noisy, lost_sums=lost)
    return before + [network.titled(finding.text) for finding in after]
