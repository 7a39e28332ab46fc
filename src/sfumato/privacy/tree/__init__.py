"""Trees of any depth, a star among them: their releases, and who receives which sums.

Only `sfumato.privacy`, the network, the schedule and the audits import from here.

    shape            who is under whom, as arrays for each tier; devices of a leaf that are alike
    facts            what is sent, who adds which noise, and how much of it a coalition does not know
    views            what a coalition receives at an aggregation
    ledger           the facts as JSON
    releases         the releases of a tree, and what they answer
    exposures        the flow and the cut bound of a pair, and sets between the two
    exposed_averages the cheapest set, and what every set costs at least
    elections        elected supernodes: the exact law of who holds which office, and bounds
    pair_classes     pairs of a unit and an observer that are alike
    folded_pairs     one pair for several kinds of pairs that it dominates, where there are many
    moving_releases  the releases where devices move, or trust changes
    moving_pairs     pairs that are alike in one round there, and in all
"""
