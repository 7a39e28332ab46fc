"""Figures and tables of runs, each with a title, a caption and a description.

Imported by ``report`` and what is above it; imports ``report`` and what ``report`` imports.

    accuracy_vs_cost     figures of accuracy over costs
    attacks              figures and tables of these results
    audits               audits drawn: shown beside promised
    claims               the papers' claims beside the rigorous ε
    coalitions           the worst coalitions of devices of each size
    control              figures of what adaptive control chose
    curves               figures over rounds: accuracy, costs
    elections            elected supernodes
    epsilon_curves       the figure of ε over rounds
    even_costs           a table of what grows in proportion to the rounds, or stays the same
    figure               one figure: Plotly's JSON, caption and description; colours and axes
    heatmap              ε of classes of devices towards observers
    images               images as PNG inside of the page
    per_worker_privacy   ε of workers over rounds
    worker_heatmap       ε of every pair of workers
"""
