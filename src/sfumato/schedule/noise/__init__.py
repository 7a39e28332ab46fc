"""Noise of a plan: who adds it, how much for what the spec asks for, and under which law.

Imported by ``schedule`` and what is above it; imports ``schedule`` and what ``schedule`` imports.

    calibration          from what ``privacy.noise`` asks for to a multiplier for every source
    group_calibration    one multiplier for all groups for a target
    law                  the law of the noise that parties add
    least_noise          the least factor on all noise that an account judges to be enough
    moving_calibration   one factor for all noise of such a run for a target
    placement            who adds how much noise: placement by trust, sources by name
    zone_placement       noise placed by zone and level, and weights of devices (HDP)
"""
