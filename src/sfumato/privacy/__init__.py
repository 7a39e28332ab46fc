"""The accountant: from declared releases to an (ε, δ) of every unit towards every observer.

It imports nothing else of this project, and no torch, pandas or pydantic. Everything above may import it.

    release             a noised message as one coalition sees it: sensitivity, μ², whether it is unprotected
    declared_releases   what the releases of every protocol answer, whatever the topology
    ledger/             the general representation: each noised vector once, and the rules of accounting on it
    tree/, groups/      the facts of the two families, their fast computations, and their compilers to atoms
    relation            zero-out, remove, replace
    observers           names of parties; classes of pairs that are alike
    hops                what each way of sending shows to the aggregator and to other senders
    views               which vectors a coalition receives
    draws               when a draw of participants amplifies
    sampling            how participants are drawn, and whether an observer sees whom
    noise_law           the law of a mechanism's noise, and whether it can be composed
    batches             how devices draw the batches that their messages are trained on
    noise_outcomes      how much noise other drawn devices add, as a public draw
    round_outcomes      rounds that a public draw decides about, such as an election
    exposed_sets        what exposed sets cost, and how far one may be from the cheapest
    split_sums          a sum over a Poisson draw, charged message by message
    charges             how the releases of an exposure are charged
    records             one record of a device as the unit
    unit_classes        which units one row stands for, and which of them is the worst
    pair_charge         how a device, or a record of it, is charged towards one coalition
    accountant          composition of Gaussian releases
    batch_losses        privacy loss distributions where devices draw their own batches
    public_scales       privacy loss distributions where a public draw says how much noise there is
    shared_part         privacy loss distributions of two worlds that share a part; a fixed number drawn
    gaussian_terms      Gaussian releases as they are composed
    gaussian            Gaussian differential privacy in closed form
    hidden_draws        composition by privacy loss distributions
    grid_losses         distributions of losses on a grid, from hockey-stick profiles
    loss_composition    composition of such distributions, by one transform
    revealed_draws      composition where every draw is seen
    noise_scale         the factor on all noise that meets a target
    privacy_filter      budgets for rounds that are chosen from earlier releases
    guarantee           a bound with everything that has to be said of it
    certificate         what each ε follows from, as JSON for a checker (docs/verify.md)
    claim               a paper's claim beside the rigorous figure
    tradeoff_region     false alarms and misses that an (ε, δ) allows
"""
