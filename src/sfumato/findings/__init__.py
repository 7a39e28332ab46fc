"""Findings: facts about a spec or a run that are worth a warning, each in one sentence that says why.

A finding refuses nothing. Each is a function of its own that returns a sentence, or ``None``:

    found           all findings before a run, and all after it
    guessing        what accuracy guessing would have, and an accuracy that is not above it
    large_epsilons  an ε that hardly protects: of whom, and towards whom
    tables          columns of a table of one's own, and whose rows they are
    training        step sizes, transmit power, clipping, and sums that were not formed
    units           δ beside the number of units, and batches that hold all of them
    without_effect  moves, changes and watched kinds of observers that change nothing
"""
