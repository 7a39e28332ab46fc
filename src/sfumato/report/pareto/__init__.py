"""The page of a sweep: points, Pareto fronts, axes, and the first words.

Imported by ``report`` and what is above it; imports ``report`` and what ``report`` imports.

    axis       its axes
    headline   its first words
    knee       where a front bends
    page       the report of a sweep
    points     its points, and the front among them
"""
