"""Rows of an account: names of units and observers, which pairs are watched, and sentences on their ε.

Imported by ``schedule`` and what is above it; imports ``schedule`` and what ``schedule`` imports.

    coalitions       HDP's worst coalitions of every size
    composed_terms   what was composed for an epsilon, in words
    ex_post          what guarantees amount to after a run
    explanations     one sentence on why a guarantee is what it is
    observed_units   a unit and who observes it, or the worst such pair of a class
    observers        names of units and observers
    watch            whose epsilon is followed during a run
"""
