"""Jobs done by worker processes: of this machine, or of the machines of a Ray cluster.

    location.py where jobs are done: ``local``, ``ray`` or ``ray://ADDRESS``
    jobs.py     a list of jobs is worked through; the job of a worker that is lost is tried again
    worker.py   what a worker does, wherever it is: one job after another
    on_loky.py  workers of this machine, by joblib's loky
    on_ray.py   workers of a Ray cluster (extra ``ray``)

May be imported by whatever trains many runs: ``sfumato.sweeps``. Knows run folders by their log of rounds
alone, which is the progress of a job; what a job does is a function that the caller names.
"""
