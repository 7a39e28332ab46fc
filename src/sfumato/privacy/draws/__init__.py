"""Draws: who takes part, which batches a device draws, when that amplifies, and what public draws decide.

Imported by ``privacy`` and what is above it; imports only ``privacy``.

    amplification    when a draw of participants amplifies
    batches          how devices draw the batches that their messages are trained on
    noise_outcomes   how much noise other drawn devices add, as a public draw
    round_outcomes   rounds that a public draw decides about, such as an election
    sampling         how participants are drawn, and whether an observer sees whom
"""
