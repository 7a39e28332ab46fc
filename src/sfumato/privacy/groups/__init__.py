"""Overlapping groups: their releases, and what reaches whom through workers of several groups.

Only `sfumato.privacy`, the schedule, the claims of DP-OGL and the report of a run of groups import from here.

    facts            who is in which group when, how a step's workers are drawn, who adds which noise
    releases         the releases of a grouped protocol, and what they answer
    received_sums    the releases that a charged sum amounts to for one coalition
    exposure_problem which releases may be charged, and what each choice is charged
    exposed_set      the cheapest set of releases to charge, between flow and cut
    minimum_cut      the exposed set of a minimum cut, and what every set costs at least
    vector_clocks    how models travel through groups, block by block
    symmetries       which workers and groups are in the same position
    positions        which pairs are in the same position: one of them is searched for
    pair_classes     pairs of a unit and an observer that are alike
    folded_observers observers that see no more than another, which stands for them
    per_worker       the worst observer of every class of units over the rounds
"""
