"""Reports of runs: figures and tables in one self-contained HTML file. Needs no network and no torch.

    compare       runs in one table
    formatting    numbers, names and HTML tables as text
    results/      what runs and their folders say: series, summaries, networks, names
    figures/      figures and tables of runs
    drawings/     drawings of networks
    page/         the page: its sections, the first screen, HTML, styles and scripts
    pareto/       the page of a sweep
    statement/    the privacy statement

May be imported by ``sfumato.simulation``, ``sfumato.sweeps``, ``sfumato.cli`` and ``sfumato``; imports
``sfumato.findings``, ``sfumato.claims``, ``sfumato.run_folder`` and what lies below them.
"""

from sfumato.report.compare import Comparison, compare
from sfumato.report.page.sections import write_report

__all__ = ["Comparison", "compare", "write_report"]
