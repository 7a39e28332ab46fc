"""The most that a spec may ask for, each with its reason (docs/spec.md, *Limits*).

Nobody who means it meets them: they stand between a slip of the keyboard and a machine without memory.
"""

from __future__ import annotations

LEAST, MOST = 1e-12, 1e12
"""Of a number that is not zero: squares and products of several stay within a 64-bit number."""
LEAST_SHARE = 1e-9
LEAST_DELTA = 1e-30
MOST_DECIBELS = 300.0
MOST_METRES = 1e9
MOST_PATHLOSS = 10.0
MOST_SHADOWING_DB = 100.0
MOST_SIGMA = 10.0
LEAST_SOURCE, MOST_SOURCE = 1e-30, 1e30
"""Of a multiplier that calibration wrote: it may lie far from what a person would write."""

MAX_NUMBER = 10**9
"""Of any other count."""
MAX_SEED = 2**53
MAX_ROUNDS = 1_000_000
MAX_STEPS = 100_000
MAX_AGGREGATIONS = 1_000
MAX_STATED = 5_000_000
"""Aggregations of a round, times the nodes of the tree: each has a noise of its own."""
MAX_DEVICES = 10_000_000
MAX_WORKERS = 1_000_000
MAX_MEMBERSHIPS = 500_000
MAX_GROUPS = 1_000
MAX_MOVES = 200_000
"""Each is written into the resolved spec, and accounted for."""
MAX_AGGREGATORS = 100_000
MAX_LEVELS = 12
MAX_EXAMPLES = 10**11
MAX_ROWS = 2**31 - 1
MAX_DATA_VALUES = 10**10
"""Numbers of a data set out of a file, or given in Python: rows times features."""
MAX_LAYERS = 100
MAX_VOCABULARY = 2**24
"""Token ids are read as 32-bit floating-point numbers, which are exact up to here."""
MAX_PARAMETERS = 10**10
MAX_WATCHED = 100
MAX_COALITION = 1_000
MAX_SEEDS = 10_000
