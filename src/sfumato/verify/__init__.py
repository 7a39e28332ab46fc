"""Recomputes every ε of a run folder without the accountant (docs/verify.md).

    checker.py   all of it in one file, which also runs by itself: ``python checker.py RUN``

It imports nothing else of Sfumato, and of other packages NumPy, SciPy and PyYAML only, so that a mistake in
the accountant is not repeated in the check. Only the command line may import it.
"""
