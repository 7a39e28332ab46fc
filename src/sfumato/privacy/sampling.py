"""How the participants of a round are drawn, and whether an observer sees whom the draw chose.

One type serves the releases, which say how their contributors were drawn, and the accountant, which composes
them.

================  =====================  =========================================================
drawn             the observer sees it   charged
================  =====================  =========================================================
all               either                 as it is: every release uses the unit
poisson, fixed    yes                    the Binomial mixture of participations, at rate ``rate``
poisson           no                     amplified by Poisson sampling
fixed             no                     amplified by sampling without replacement, replace-one
================  =====================  =========================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Sampling:
    """One draw of participants, as one observer meets it.

    Attributes:
        kind: ``all``; ``poisson``: each independently with probability ``rate``; ``fixed``: ``sample``
            of ``population`` uniformly without replacement.
        rate: expected share of draws that choose a device.
        hidden: whether the observer never learns whom the draw chose.
        population: devices drawn from, as far as the observer knows (``fixed`` only). Towards a coalition
            that knows its own ``k`` members were not drawn it is N - k.
        sample: devices drawn (``fixed`` only).

    Raises:
        ValueError: a rate outside [0, 1], no population, or a sample larger than it.
    """

    kind: Literal["all", "poisson", "fixed"] = "all"
    rate: float = 1.0
    hidden: bool = True
    population: int = 0
    sample: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate: got {self.rate}; must be in [0, 1]")
        if self.kind == "fixed" and self.population < 1:
            raise ValueError(f"population: got {self.population}; must be at least 1")
        if self.kind == "fixed" and not 0 <= self.sample <= self.population:
            raise ValueError(f"sample: got {self.sample}; must be in 0..{self.population} (the population)")

    @classmethod
    def poisson(cls, rate: float, *, hidden: bool = True) -> Sampling:
        """Each device independently with probability ``rate``: everybody, where that is 1."""
        return cls("poisson", rate, hidden)

    @classmethod
    def revealed(cls, rate: float) -> Sampling:
        """Each release uses the unit with probability ``rate``, independently, and the observer learns when.

        A term of count T is the Binomial(T, rate) mixture of its participations: the figure of before
        training. A draw of a fixed number that is seen is one of these too, at rate sample / population.
        """
        return cls("poisson", rate, hidden=False)

    @classmethod
    def without_replacement(cls, population: int, sample: int) -> Sampling:
        """``sample`` of ``population`` devices, unseen."""
        return cls("fixed", min(1.0, max(0.0, sample / max(population, 1))), True, population, sample)

    @property
    def amplifies(self) -> bool:
        """Whether it may amplify: somebody may be left out, and the observer does not learn whom."""
        return self.kind != "all" and self.hidden

    def shown(self) -> Sampling:
        """The same draw towards an observer that sees it."""
        return self if self.kind == "all" else Sampling.revealed(self.rate)
