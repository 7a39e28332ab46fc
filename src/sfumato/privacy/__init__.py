"""The accountant: from declared releases to an (ε, δ) of every unit towards every observer.

It imports nothing else of this project, and no torch, pandas or pydantic. Everything above may import it.

    release             a noised message as one coalition sees it: sensitivity, μ², whether it is unprotected
    received            what a coalition receives, by itself or summed up, and whether it learns of a draw
    sampling            neighbouring relations, draws and Gaussian terms: what the accountant composes
    declared_releases   what the releases of every protocol answer; how a pair is charged from them
    records             one record of a device as the unit, and how its device draws batches
    tree/, groups/      the facts of the two families, and what is charged for a unit towards a coalition
    observers           names of parties; units and pairs that are alike, and the worst unit of a class
    charges             how the releases of an exposure are charged
    dominance           which charge is at most another, without composing either
    public_draws        rounds that a public draw decides about: who else adds noise, who is elected
    divergence          what exposed sets cost, and whether a sum is charged message by message
    accountant          composition of Gaussian releases; every ε composed is kept
    losses/             privacy losses: Gaussians in closed form, distributions of losses, composition
    noise_scale         the factor on all noise that meets a target
    privacy_filter      budgets for rounds that are chosen from earlier releases
    kept_results        results by key, the latest ones
    guarantee           a bound with everything that has to be said of it
    certificate         what each ε follows from, as JSON for a checker (docs/certificates.md)
    claim               a paper's claim beside the rigorous figure
"""
