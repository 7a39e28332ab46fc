"""Trees of any depth, a star among them: their releases, and who receives which sums.

Only `sfumato.privacy`, the network, the schedule and the audits import from here.

    shape            who is under whom, as arrays for each tier
    facts            what is sent and who adds which noise
    device_classes   devices of a leaf that are alike
    releases         the releases of a tree, and what they answer
    exposures        the flow and the cut bound, and sets between the two
    exposed_averages the cheapest set, and what every set costs at least
    noise            how much noise in a sum a coalition does not know
    elections        elected supernodes
    election_outcomes  the exact law of who holds which office
    pair_classes     pairs of a unit and an observer that are alike
    round_kinds      pairs that are alike in one round of edges under a cloud
    moving           the releases where devices move, or trust changes
    moving_pairs     pairs that one row stands for there
"""
