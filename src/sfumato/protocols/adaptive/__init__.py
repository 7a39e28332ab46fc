"""Rounds of a tree under H2FDP's adaptive control.

Only `sfumato.protocols` imports this package.

    rounds        a round, and the settings of the next
    state         what is remembered between rounds
    settings      problem P, and noise that the privacy filter allows
    smoothness    the estimate of the smoothness
    seen_models   the released models that it is made from
    observations  what the parties received in a round
    diagnosis     columns of the metrics: dispersions and their bounds
"""
