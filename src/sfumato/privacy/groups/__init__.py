"""Overlapping groups: their releases, and what reaches whom through workers of several groups.

Only `sfumato.privacy`, the schedule, the claims of DP-OGL and the report of a run of groups import from here.

    facts           who is in which group when, what is sent, who adds which noise
    group_draw      how a group draws the workers of a step, and what that leaves of a sum
    releases        the releases of a grouped protocol, and what they answer
    received_sums   the releases that a charged sum amounts to for one coalition
    exposed_set     the cheapest set of releases to charge, between flow and cut
    exposure_problem  which releases may be charged, and what each choice is charged
    flow_over_time  what every exposed set costs at least
    prefix_search   all exposed sets, where they are few enough
    minimum_cut     the exposed set of a minimum cut
    symmetric_positions  pairs that symmetries of the groups map to each other
    vector_clocks   how models travel through groups, block by block
    automorphisms   which kinds of workers are in the same position
    pair_classes    pairs of a unit and an observer that are alike
    per_worker      the worst observer of every class of units over the rounds
"""
