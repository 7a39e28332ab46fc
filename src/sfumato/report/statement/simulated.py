"""What follows for the figures of a run from the seed that a simulation draws everything from.

All noise and every draw of a simulation are computed from its seed (`sfumato.random`). To whoever has the
seed, what an observer receives is a function of the data alone: the noise can be subtracted, nobody is drawn
unseen, and no ε below ∞ holds. A seed is a whole number of at most 53 bits (`sfumato.spec.limits.MAX_SEED`),
and the initial model, or the noise of a round, shows which one it is; so every seed can be tried.
"""

from __future__ import annotations

_GUESSED_BELOW = 2**32
"""Small numbers, dates and those that other programs allow are tried first."""
_WHAT_FOR = (
    "none of the figures below holds for this run: they are about a training with these settings whose noise "
    "comes from a secret source, as in a deployment."
)


def about_simulation(seed: int) -> str:
    """Sentences on whom the figures of a simulation with ``seed`` hold against; the seed is not told."""
    if seed < _GUESSED_BELOW:
        return (
            "This was a simulation, and its seed is so small that others would guess it. All its noise "
            "follows from the seed, and whoever has that can subtract the noise. So against anybody who "
            f"tries small numbers {_WHAT_FOR}"
        )
    return (
        "This was a simulation: all its noise follows from its seed, a number of at most 53 bits. Whoever "
        "finds it, in spec.yaml or by trying all, can subtract the noise, and against them "
        f"{_WHAT_FOR}"
    )
