"""What is measured of a point of a study.

    registry.py       the measures by name, and what each is
    computing.py      computes a measure by its name
    base.py           a measurement, and the folder that it is read from
    finished_run.py   from the metrics of a finished run
    accounts.py       from its accounts: ε and claims
    workers.py        ε of every worker towards every other, and per-worker privacy over epochs
    formulas.py       formulas of the papers: Theorem 4.3 of H2FDP, HDP's Table III, the energy of PFELS
    timings.py        CPU seconds of secure aggregation and of elections

A name may have an argument behind a colon: ``energy_to:0.75``.
"""
