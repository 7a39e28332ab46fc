"""Privacy losses: Gaussian privacy in closed form, and distributions of losses with their composition.

Imported by ``privacy`` and what is above it; imports only ``privacy``.

    batch_draws       privacy loss distributions where devices draw their own batches
    composition       composition of such distributions, by one transform
    gaussian          Gaussian differential privacy in closed form
    gaussian_terms    Gaussian releases as they are composed
    grid              distributions of losses on a grid, from hockey-stick profiles
    hidden_draws      composition by privacy loss distributions
    public_scales     privacy loss distributions where a public draw says how much noise there is
    revealed_draws    composition where every draw is seen
    shared_part       privacy loss distributions of two worlds that share a part; a fixed number drawn
    tradeoff_region   false alarms and misses that an (ε, δ) allows
"""
