"""Rounds of a tree: devices under aggregators of any number of tiers, with a cloud at the top.

Only `sfumato.protocols`, audits and attacks import this package.

    choice           the protocol that runs the plan of a tree
    adaptive_clip    rounds whose clip norm follows the lengths of updates
    aggregates       averages on their way up, as floats beside the model or as integers
    control_variates the memory of SCAFFOLD
    gathering        what ranks exchange: sums, or every update
    indicators       the coordinate that tells whether an update was clipped
    moving           rounds where devices move, or trust changes
    resent_rounds    rounds that devices send again at their end
    rounds           a round: training, messages, averages, noise
    state            what is remembered between rounds
    local_work       batches, steps, clipping and length of messages of devices, and the server's optimizer
    uplinks/         how messages reach the lowest aggregators
"""
