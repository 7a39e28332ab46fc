"""Rows of an account: names of units and observers, which pairs are watched, and sentences on their ε.

Imported by ``schedule`` and what is above it; imports ``schedule`` and what ``schedule`` imports.

    observers      units and observers: their names, and how one is charged towards the other
    watch          whose epsilon is followed during a run
    explanations   one sentence on why a guarantee is what it is
    coalitions     HDP's worst coalitions of every size
    ex_post        what guarantees amount to after a run
"""
