"""H2FDP's adaptive control: what to set in the next round, from what has been released (docs/control.md).

Plain NumPy, no torch. ``protocols`` imports from here; here nothing of ours is imported.

    smoothness_interval  the smoothness, from the models of successive rounds
    estimates            dispersions, from noised messages
    bounds               the terms of Theorem 4.3
    problem              problem (P): the interval and participation that cost least
    per_edge_problem     problem (P) with participants of every edge on its own
"""
