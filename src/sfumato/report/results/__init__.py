"""Results of runs as a report needs them: series, summaries, networks, names, and what may be compared.

Imported by ``report`` and what is above it; imports ``report`` and what ``report`` imports.

    attack_findings   results of attacks and audits in a run folder
    baseline          the run without noise beside a run
    comparability     which figures of several runs cannot be compared
    grouped_run       a run over overlapping groups: ε of any two workers
    matrix            the rows, columns and cells of that heatmap
    network           the network of a run folder: tree or groups, trust, noise
    observer_labels   names of classes of devices, and of observers relative to a device
    privacy_words     ε in words, and what privacy costs in accuracy
    run_findings      the findings of a run
    series            one entry of a report: a run, or several seeds with mean and interval
    summary           the figures and sentences of that screen
    who_adds_noise    who adds how much noise, who takes part and what is clipped
"""
