"""The accountant: from declared releases to an (ε, δ) of every unit towards every observer.

It imports nothing else of this project, and no torch, pandas or pydantic. Everything above may import it.

    release             a noised message as one coalition sees it: sensitivity, μ², whether it is unprotected
    declared_releases   what the releases of every protocol answer, whatever the topology
    tree/, groups/      the facts of the two families, and what is charged for a unit towards a coalition
    losses/             privacy losses: Gaussians in closed form, distributions of losses, composition
    draws/              who and what is drawn, when that amplifies, and what public draws decide
    neighbours          zero-out, remove, replace
    observers           names of parties; classes of pairs that are alike
    hops                what each way of sending shows to the aggregator and to other senders
    views               which vectors a coalition receives
    noise_law           the law of a mechanism's noise, and whether it can be composed
    exposed_sets        what exposed sets cost, and how far one may be from the cheapest
    split_sums          a sum over a Poisson draw, charged message by message
    charges             how the releases of an exposure are charged
    records             one record of a device as the unit
    unit_classes        which units one row stands for, and which of them is the worst
    pair_charge         how a device, or a record of it, is charged towards one coalition
    accountant          composition of Gaussian releases
    noise_scale         the factor on all noise that meets a target
    privacy_filter      budgets for rounds that are chosen from earlier releases
    guarantee           a bound with everything that has to be said of it
    certificate         what each ε follows from, as JSON for a checker (docs/verify.md)
    claim               a paper's claim beside the rigorous figure
"""
