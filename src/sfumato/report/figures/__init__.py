"""Figures and tables of runs, each with a title, a caption and a description.

Imported by ``report`` and what is above it; imports ``report`` and what ``report`` imports.

    after_run            the table of ε after the run where it differs from the guarantee
    attacks              audits drawn, figures and tables of attacks, images
    claims               the papers' claims beside the rigorous ε
    coalitions           the worst coalitions of devices of each size
    control              figures of what adaptive control chose
    costs                costs over rounds and against accuracy, and a table of those that grow evenly
    curves               curves over rounds: accuracy
    elections            elected supernodes
    epsilon_curves       the figure of ε over rounds
    figure               one figure: Plotly's JSON, caption and description; colours, axes, bars
    heatmap              ε of classes of devices towards observers
    per_worker_privacy   ε of workers over rounds
    plotted              figures of runs for Python
    score_against_epsilon  the final score of several runs against ε
    worker_heatmap       ε of every pair of workers
"""
