"""Results of runs as a report needs them: series, summaries, networks, names, and what may be compared.

Imported by ``report`` and what is above it; imports ``report`` and what ``report`` imports.

    attack_findings   results of attacks and audits in a run folder
    chance            whether a difference of two scores may be chance
    claim_pairs       names of the pairs that claims are about, and where claims hold
    claim_sentences   published claims on the first screen
    claim_words       what pages call a published claim, and whether it holds
    comparability     which figures of several runs cannot be compared
    cost_of_privacy   what privacy costs in accuracy, by a run without noise
    dp_ogl_plus       the verdict on DP-OGL+, and its rounds without a release
    effect_of_control  what adaptive control saves, by a run without it
    epsilon_words     what an ε means: how sure an observer may become, what is known after a run
    folders_beside    finished runs in folders beside that of a run
    grouped_run       a run over overlapping groups: ε of any two workers
    held              how many records or persons every party holds
    matrix            the matrix of guarantees: classes of units towards kinds of observers
    network           the network of a run folder: tree or groups, trust, noise
    observer_labels   names of classes of devices, and of observers relative to a device
    power_limit       over the air: messages that the power limit made weaker
    protection_words  who is protected how well, who trusts whom, and who has no guarantee and why
    run_findings      what is worth a warning about a run
    score_by_epsilon  what each step of ε brings in accuracy
    secure_sums       how many messages a sum under secure aggregation needs, and who may be missing
    series            one entry of a report: a run, or several seeds with mean and interval
    spec_sections     sections of a resolved spec, with defaults
    summary           the row of figures and the sentences of a run
    tree_labels       these names in trees, also where devices move
    watched_epsilons  ε towards watched observers on a terminal, and what control spent of its budget
"""
