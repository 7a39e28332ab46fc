"""Simulation of a training: from data and devices to the finished run folder.

    run.py              `run`: a spec, round by round, into a run folder
    plays.py            which runs one call makes: seeds, and twins without noise
    finished_run.py     what `run` returns and `load_run` reads
    trained_model.py    the model of a run, and what it predicts
    seed_runs.py        several seeds of a spec
    pilot.py            norms of messages without noise
    training_inputs.py  data, partition and initial model
    input_hashes.py     SHA-256 of the inputs, to detect changes
    training_loop.py    the state of a run in memory, from one round to the next
    after_run.py        what an account amounts to after a run
    watched_epsilons.py ε of the watched pairs over the rounds
    checkpoint.py       the checkpoint from which a run can be continued
    rank_start.py       ranks agree before the first round, and go on from one checkpoint
    resume.py           checks of a folder before a run is continued
    folder_writer.py    writes the run folder in an order that survives a kill
    run_progress.py     what the progress bar of a run says
    tensorboard.py      the metrics as TensorBoard scalars
    tracking.py         the metrics sent to experiment trackers, where that is asked for
    wandb_tracker.py    Weights & Biases
    mlflow_tracker.py   MLflow

May be imported by ``sfumato.attacks``, ``sfumato.sweeps``, ``sfumato.cli`` and ``sfumato``; imports
``sfumato.protocols``, ``sfumato.report`` and what lies below them.
"""
