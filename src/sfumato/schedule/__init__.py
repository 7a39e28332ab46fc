"""What a protocol will release, declared without training: from a spec to the plan that is accounted for.

A plan is frozen; nothing here imports torch. ``claims``, ``accounting``, ``planning``, ``protocols`` and what
is above them import from here; here ``data``, ``radio``, ``network``, ``run_folder``, ``spec``, ``privacy``
and parties of ``secure_aggregation`` and ``election`` are imported.

    base                  the interface of a plan
    resolve               the door: a spec's family resolves it
    resolve_tree          trees: choices made, noise sized, the result frozen
    resolve_groups        the same for overlapping groups
    single_cluster        pedpfl: all devices under one edge
    protocol_defaults     what the name of a protocol of trees settles
    tree, groups          the plan of each family
    tree_facts            a tree's releases as facts for the accountant
    aggregation_schedule  which tier aggregates after which local step
    per_edge              counts that differ from edge to edge, listed
    batches               how devices draw the batches of their local steps
    participation         who takes part in a round, and what sums are divided by
    noise                 who adds how much noise: placement by trust, sources by name
    noise_law             the law of the noise that parties add
    zone_placement        noise placed by zone and level, and weights of devices (HDP)
    calibration           from what ``privacy.noise`` asks for to a multiplier for every source
    group_calibration     one multiplier for all groups for a target
    group_assignments     which workers the groups sample
    group_compression     what compressing messages settles and refuses in groups
    least_noise           the least factor on all noise that an account judges to be enough
    moves                 devices that move, trust that changes: the trees of a run, and what is refused
    moving_calibration    one factor for all noise of such a run for a target
    integer_grid          the integers of secure aggregation
    air_settings          what sending over the air, and compression, settle and refuse
    air_power_control     how loud devices send, and the noise that is left
    adaptive              rounds chosen on the way, within a preset budget
    adaptive_clip         a clip norm that follows the lengths of updates: its account and refusals
    drift_correction      FedProx and SCAFFOLD: their account, and what they are refused with
    budget                what such rounds may spend on every pair, and what they have spent
    dropouts              who drops out or fails, and what noise is sure to be left
    lost_messages         whose messages get through in groups, where workers drop out
    elections             which devices are elected supernode
    learning_rate         the step size of a round, and how far steps with momentum go
    model_size            parameters of a model, by arithmetic
    observers             names of units and observers
    observed_units        a unit and who observes it, or the worst such pair of a class
    watch                 whose epsilon is followed during a run
    coalitions            HDP's worst coalitions of every size
    composed_terms        what was composed for an epsilon, in words
    explanations          one sentence on why a guarantee is what it is
    realised_dropouts     dropouts and elections as they were in a run
    realised_control      the rounds that control played in a finished run
    realised_air          channels as they were in a run
    ex_post               what guarantees amount to after a run
"""
