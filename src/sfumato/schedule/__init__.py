"""What a protocol will release, declared without training: from a spec to the plan that is accounted for.

A plan is frozen; nothing here imports torch. ``claims``, ``accounting``, ``planning``, ``protocols`` and what
is above them import from here; here ``data``, ``radio``, ``network``, ``run_folder``, ``spec``, ``privacy``
and parties of ``secure_aggregation`` and ``election`` are imported.

    base                  the interface of a plan
    resolve/              from a spec to the plan: choices made, noise sized, the result frozen
    noise/                who adds noise, how much, under which law
    air/                  sending over the air
    faults/               dropouts, lost messages, failing and elected supernodes
    control/              rounds that are chosen on the way, within a preset budget
    rows/                 units and observers by name, what is watched, sentences on an ε
    tree, groups          the plan of each family
    tree_facts            a tree's releases as facts for the accountant
    aggregation_schedule  which tier aggregates after which local step
    per_edge              counts that differ from edge to edge, listed
    batches               how devices draw the batches of their local steps
    participation         who takes part in a round, and what sums are divided by
    group_assignments     which workers the groups sample
    moves                 devices that move, trust that changes: the trees of a run, and what is refused
    integer_grid          the integers of secure aggregation
    adaptive_clip         a clip norm that follows the lengths of updates: its account and refusals
    learning_rate         the step size of a round, and how far steps with momentum go
    model_size            parameters of a model, by arithmetic
"""
