"""Privacy losses: Gaussian privacy in closed form, and distributions of losses with their composition.

Imported by ``privacy`` and what is above it; imports only ``privacy``.

    gaussian          Gaussian differential privacy in closed form; what (ε, δ) says of tests
    one_release       privacy loss distributions of one release, by the draw that decides how far it moves
    grid_losses       distributions of losses on a grid
    moments           bounds of their moments
    composition       their composition by one transform
    hidden_draws      composition by privacy loss distributions
    revealed_draws    composition where every draw is seen
"""
