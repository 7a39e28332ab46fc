"""Studies: tables and figures of the papers, computed again from one declarative file each.

    study.py        what a study file may say
    load.py         reads study files: built-in names and files of one's own; one-line errors
    references.py   refuses grids, axes, values and measures that a study names but does not have
    grids.py        a study in one form: its sweeps, and what its points are called
    cost.py         device steps of a study, and multiples of the quickstart
    measures/       what is measured of a point: from its run, its accounts, or computed
    observations.py the tidy table of everything measured
    result.py       a study that was run
    best_point.py   the best of several points, by which a system is tuned before it is compared
    verdicts.py     whether the paper's statements agree
    runner.py       runs studies: resumed, in parallel, with progress
    catalogue.py    the list of studies, and what of them is done
    page/           the page of a study
    builtin/        the studies that come with the package, a folder for each paper

May be imported by ``sfumato.cli`` and ``sfumato``; runs are done by ``sfumato.sweeps``.
"""
