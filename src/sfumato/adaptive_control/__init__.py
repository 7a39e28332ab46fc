"""H2FDP's adaptive control: what to set in the next round, from what has been released (docs/control.md).

Plain NumPy, no torch. ``protocols`` imports from here; here nothing of ours is imported.

    estimates  smoothness and dispersions, from noised models and aggregates
    bounds     the terms of Theorem 4.3
    problem    problem (P): the interval and participation that cost least
"""
