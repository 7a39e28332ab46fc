"""Noise of a plan: who adds it, how much for what the spec asks for, and under which law.

Imported by ``schedule`` and what is above it; imports ``schedule`` and what ``schedule`` imports.

    placement        who adds how much noise: by trust, by a paper's formula, by source; the law of it
    zone_placement   noise placed by zone and level (HDP)
    calibration      noise for a target: of trees, of trees that change, of groups
    least_noise      the search for the least noise that an account judges to be enough
    shared_factors   one factor for pairs that need nearly the same, where there are many
    shared_multiplier   what one multiplier for all costs where devices move or trust changes
"""
