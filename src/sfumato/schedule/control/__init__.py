"""Adaptive control: the rounds that may be chosen on the way, their budget, and those of a finished run.

Imported by ``schedule`` and what is above it; imports ``schedule`` and what ``schedule`` imports.

    adaptive         rounds chosen on the way, within a preset budget
    budget           what such rounds may spend on every pair, and what they have spent
    realised_rounds  the rounds that control played in a finished run
"""
