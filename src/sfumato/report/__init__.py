"""Reports of runs: figures and tables in one self-contained HTML file. Needs no network and no torch.

    page.py                the report of runs: its sections in order
    compare.py             runs in one table
    series.py              one entry of a report: a run, or several seeds with mean and interval
    first_screen.py        the first screen: who learns what, at what cost, is it worth it
    summary.py             the figures and sentences of that screen
    privacy_words.py       ε in words, and what privacy costs in accuracy
    baseline.py            the run without noise beside a run
    html_page.py page.html page.css page.js theme.js    the HTML page and its figures
    figure.py              one figure: Plotly's JSON, caption and description; colours and axes
    formatting.py          numbers, names and HTML tables as text
    curves.py              figures over rounds: accuracy, costs
    epsilon_curves.py      the figure of ε over rounds
    accuracy_vs_cost.py    figures of accuracy over costs
    even_costs.py          a table of what grows in proportion to the rounds, or stays the same
    comparison.py          several runs: which is best at what, and where their specs differ
    comparability.py       which figures of several runs cannot be compared
    run_findings.py        the findings of a run
    control.py             figures of what adaptive control chose
    heatmap.py             ε of classes of devices towards observers
    matrix.py              the rows, columns and cells of that heatmap
    observer_labels.py     names of classes of devices, and of observers relative to a device
    network.py             the network of a run folder: tree or groups, trust, noise
    network_canvas.py      marks, links and words of a drawing of the network
    topology_figure.py     the drawing of the network
    group_figure.py        the same of overlapping groups
    moving.py              who was under which edge, where devices move; names of units there
    grouped_run.py         a run over overlapping groups: ε of any two workers
    worker_heatmap.py      ε of every pair of workers
    per_worker_privacy.py  ε of workers over rounds
    group_graph.py         the group graph, and when releases arrive in other groups
    claims.py              the papers' claims beside the rigorous ε
    after_run.py           ε after the run, where it differs from the guarantee
    elections.py           elected supernodes
    coalitions.py          the worst coalitions of devices of each size
    attack_findings.py     results of attacks and audits in a run folder
    audits.py              audits drawn: shown beside promised
    attacks.py             figures and tables of these results
    images.py              images as PNG inside of the page
    who_adds_noise.py      who adds how much noise, who takes part and what is clipped
    statement.py           what a privacy statement says, as JSON
    statement_page.py statement.html   the statement as a page for an auditor
    pareto_page.py         the report of a sweep
    pareto_points.py       its points, and the front among them
    pareto_headline.py     its first words
    pareto_axis.py         its axes
    pareto_knee.py         where a front bends

May be imported by ``sfumato.simulation``, ``sfumato.sweeps``, ``sfumato.cli`` and ``sfumato``; imports
``sfumato.findings``, ``sfumato.claims``, ``sfumato.run_folder`` and what lies below them.
"""

from sfumato.report.compare import Comparison, compare
from sfumato.report.page import write_report

__all__ = ["Comparison", "compare", "write_report"]
