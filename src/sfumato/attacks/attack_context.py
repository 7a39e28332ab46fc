"""One observer of one run: its observations, the devices it attacks, and the guaranteed ε."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from torch import Tensor

from sfumato.arguments import Argument
from sfumato.attacks.observations import AttackedRun, Observation
from sfumato.attacks.shadow_models import Attacker, Population
from sfumato.attacks.views import RecordedView, load_view_by_name
from sfumato.errors import SpecError
from sfumato.families import family_of
from sfumato.learning.parameters import ParameterLayout
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.privacy.privacy_filter import squared_mu_of_exposure
from sfumato.privacy.sampling import Neighbours
from sfumato.random import Stream, generator
from sfumato.run_folder.reader import SPEC_FILE, load_run_to_add
from sfumato.schedule.base import Plan
from sfumato.schedule.rows.explanations import is_covered_by_filter
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.spec.load import load_spec

MOST_TARGETS = 32
MOST_ROUNDS = 8
_TARGETS = 3


@dataclass(frozen=True, eq=False)
class AttackContext:
    """All inputs of a membership or property attack.

    Attributes:
        attacked: the run.
        observer: a party, or a coalition joined by commas.
        view: the vectors that it received.
        initial: the model that training started from ``[M]``.
        population: which device holds which examples; used to score the attack.
        attacker: what the observer can compute.
    """

    attacked: AttackedRun
    observer: str
    view: RecordedView
    initial: Tensor
    population: Population
    attacker: Attacker

    @classmethod
    def of_run(cls, run: Path, observer: str) -> AttackContext:
        """The context of attacks on the recorded view of ``observer`` in the run folder ``run``.

        Raises:
            SpecError: there is no such view, these attacks do not support the run's protocol, or the observer
                received nothing of any device.
            RunError: the run is damaged.
        """
        folder = load_run_to_add(run)
        attacked = family_of(load_spec(folder.path / SPEC_FILE)).attacked(folder)
        plan = attacked.plan
        view = load_view_by_name(plan, folder, observer)
        inputs = TrainingInputs.of(plan)
        model = inputs.model
        population = Population.of(inputs.data, inputs.partition, plan.spec.seed)
        initial = ParameterLayout.of(model).read(model)
        attacker = Attacker(plan.spec, model, population, attacked.spec_of)
        context = cls(attacked, view.observer, view, initial, population, attacker)
        if not context.targets:
            raise SpecError(Argument("observer"), observer, "received nothing that depends on any device")
        return context

    @property
    def plan(self) -> Plan:
        """The resolved plan of the attacked run."""
        return self.attacked.plan

    @cached_property
    def coalition(self) -> tuple[Party, ...]:
        """The parties whose names ``observer`` joins by commas."""
        return parse_coalition(self.observer, self.plan.parties)

    @cached_property
    def layout(self) -> ParameterLayout:
        """Where each parameter lies in the flat vector ``[M]`` of the model."""
        return ParameterLayout.of(self.attacker.model)

    @property
    def rounds(self) -> int:
        """The number of recorded rounds."""
        return len(self.view.rounds)

    @cached_property
    def _nearest_devices(self) -> tuple[int, ...]:
        """Devices nearest to the observer in the network, ascending: `MOST_TARGETS` at random, if more.

        Not its own members, nor devices without data.
        """
        near = self.attacked.nearby_devices(self.coalition)
        members = [party.index for party in self.coalition if party.kind == "device"]
        near[members] = False
        near &= self.population.partition.sizes > 0
        found = np.flatnonzero(near)
        rng = generator(self.plan.spec.seed, Stream.ATTACK, _TARGETS)
        return tuple(int(device) for device in np.sort(rng.permutation(found)[:MOST_TARGETS]))

    @cached_property
    def observations(self) -> dict[int, tuple[Observation, ...]]:
        """The observations of each device near the observer, by its number; () where it saw nothing of one.

        They are of at most `MOST_ROUNDS` evenly spaced rounds.
        """
        return self.attacked.observations(
            self.view, self.initial, self._nearest_devices, self.coalition, rounds=MOST_ROUNDS
        )

    @property
    def targets(self) -> tuple[int, ...]:
        """Indices of the attacked devices: those near the observer of which it observed something."""
        return tuple(target for target, observations in self.observations.items() if observations)

    def guaranteed_epsilon(self, neighbours: Neighbours) -> float:
        """The largest ε of a target towards the observer at the run's δ, under the relation ``neighbours``.

        ∞ where the observer is outside of what a privacy filter covers. A filter bounds the sum of μ² under
        the spec's relation; to replace a device is to zero it out twice, which makes μ² four times as large.
        """
        if not is_covered_by_filter(self.plan, self.coalition):
            return math.inf
        declared, privacy = self.plan.releases, self.plan.spec.privacy
        delta, different = (
            privacy.delta,
            {declared.exposures(target, self.coalition) for target in self.targets},
        )
        if self.plan.spec.control is not None:
            held = max(
                min(squared_mu_of_exposure(e, privacy.neighbours) for e in exposures)
                for exposures in different
            )
            twice = neighbours == "replace" != privacy.neighbours
            return gaussian.epsilon(delta=delta, mu=math.sqrt(held) * (2 if twice else 1))
        return max(
            min(declared.bound_epsilon(e, delta=delta, neighbours=neighbours).epsilon for e in exposures)
            for exposures in different
        )
