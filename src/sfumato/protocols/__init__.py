"""Protocols: the rounds of training that a plan declares, from state to state.

Simulation, audits and attacks may import this package. It imports engines, mechanisms, learning and the
schedule, and never the accountant: a protocol says what it did, and the session asks for epsilon.

    base                     the interface of protocols and of their states
    registry                 the protocol of a plan; how to add a variant of a grouped one
    tree/                    rounds of a tree
    adaptive/                rounds of a tree whose settings are chosen on the way
    groups/                  rounds of overlapping groups
    device_vectors           what devices remember: a vector each, on the rank that trained them
    sums                     sums of messages, as whole numbers on a grid
    message_hooks            the interface of whoever records messages
    view_recorder            records what an observer receives
    evaluator                the test set, and scores of models
    over_devices             measures over devices: training loss, worst decile, spread
    personalised_evaluation  scores of models on each worker's own distribution
"""
