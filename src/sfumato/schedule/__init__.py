"""What a protocol will release, declared without training: from a spec to the plan that is accounted for.

A plan is frozen; nothing here imports torch. ``claims``, ``accounting``, ``planning``, ``protocols`` and what
is above them import from here; here ``data``, ``radio``, ``network``, ``run_folder``, ``spec``, ``privacy``
and parties of ``secure_aggregation`` and ``election`` are imported.

    base                  the interface of a plan
    resolve/              from a spec to the plan: choices made, noise sized, the result frozen
    noise/                who adds noise, how much, under which law
    air/                  sending over the air
    faults/               dropouts, failing and elected supernodes
    control/              rounds that are chosen on the way, within a preset budget
    rows/                 units and observers by name, what is watched, sentences on an ε
    tree, groups          the plan of each family
    tree_facts            a tree's releases as facts for the accountant
    local_steps           step sizes, how far steps go together, and who aggregates after which
    batches               how devices draw the batches of their local steps
    participation         who takes part in a round of a tree, and who is sure to be there
    group_participation   whom the groups sample in a round, and whose messages get through
    moves                 devices that move, trust that changes: the trees of a run, and what is refused
    message_grid          the grid of whole steps on which messages are added up; that of messages in the open
    integer_grid          the integers of secure aggregation
    adaptive_clip         a clip norm that follows the lengths of updates: its account and refusals
    model_size            parameters of a model, by arithmetic
"""
