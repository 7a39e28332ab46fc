"""Sweeps: a grid of specs, accounted for or run in parallel processes; a sweep can be resumed.

    grid.py           the points of a sweep: values of keys, their combinations, and keys in words
    request.py        a sweep with every point read and checked
    runner.py         runs all points and collects the results
    sweep_progress.py the progress of every point, and its bars
    point_jobs.py     what a worker process does of one point and seed
    point_result.py   ε and metrics of one point and seed, in its folder
    pilot_scan.py     the cheapest point that is accurate enough, with planned noise
    results.py        the table and the report of a sweep

May be imported by ``sfumato.cli`` and ``sfumato``; imports ``sfumato.simulation`` and what lies below it:
processes come from ``sfumato.pool``.
"""
