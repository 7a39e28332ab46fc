"""The files of a run folder: their names, formats, hashes and locks (docs/run-folder.md). Needs no torch.

    reader.py         `load_run` and the JSON and text files of a run
    contents.py       which files belong to a run, and which are removed when
    manifest.py       ``manifest.json``: hashes and sizes of all files
    metrics_table.py  ``metrics.parquet``
    recorded_privacy.py  ``privacy.json``: guarantees, claims, findings, and ε after the run
    label_counts.py   ``test_labels.json``: how many test examples have each label
    headline.py       the score that a run is judged by
    rounds_log.py     ``rounds.jsonl``: one line for each round, appended during the run
    seal.py           the seal of ``checkpoint.pt``
    view_files.py     names of the files with recorded views
    damage.py         checks all files of a folder
    lock.py           one writer for each folder
    beside.py         the folders beside it: the next free one, that of the twin without noise

May be imported by every package from ``sfumato.network`` upwards; imports ``sfumato.spec`` and what lies
below it.
"""
