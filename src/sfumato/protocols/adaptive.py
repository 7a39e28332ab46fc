"""The tiered protocol under H2FDP's adaptive control: settings chosen each round from released quantities.

Algorithm 1 of h2fdp.txt: after each round estimate the smoothness, set the step size
eta_k = gamma_k / sqrt(k + 1) with gamma_k = min(1/tau_(k-1), 1/K_g) / beta (section 5.1), and solve problem P
for the interval and the participation (section 5.2). A round is then an ordinary round of the tiered
protocol under a plan of its own (schedule/controlled.py). The run ends when its local steps are done, when
fewer are left than a round needs, or when the privacy filter allows no further round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.adaptive_control.bounds import Constants, dispersions, terms
from sfumato.adaptive_control.estimates import NoisySquaredNorm, SmoothnessEstimate, spread
from sfumato.adaptive_control.problem import Costs, Gap, Weights, minimise
from sfumato.data.partition import Partition
from sfumato.engine.base import Engine
from sfumato.engine.local import LocalTask
from sfumato.learning.batches import plan_steps
from sfumato.learning.local_training import LocalSGD
from sfumato.mechanisms.noise import add_gaussian_
from sfumato.privacy import gaussian
from sfumato.privacy.observers import Party
from sfumato.privacy.privacy_filter import GaussianFilter
from sfumato.protocols.base import PilotNorms, RoundFacts, need_tensors
from sfumato.protocols.evaluator import Examination
from sfumato.protocols.message_hooks import Listener, Together
from sfumato.protocols.tree.rounds import TieredProtocol, TieredState
from sfumato.radio.costs import TreeCosts
from sfumato.random import Stream, generator, key_at
from sfumato.schedule.adaptive import Budget, Setting, local_aggregations, participants, round_plan, strength
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_MEASUREMENT = 1 << 20  # beside any key that a tier or a device has in the same stream
DONE = "all local steps are done"


@dataclass(frozen=True)
class ControlledState:
    """What the protocol remembers between rounds.

    Attributes:
        inner: of the tiered protocol.
        steps: local steps done.
        setting: of the next round.
        smoothness: beta as the next round's step size was set from.
        ended: why there is no next round; empty as long as there is one.
        spent: mu squared, of every device and observer, ``[devices, observers]``.
        secants: sums for the smoothness.
        gradient: of the last round as released, ``[M]``; ``None`` before the first.
        before: the model that it was taken at, ``[M]``.
        gradient_variance: of the noise of a coordinate of ``gradient``.
        history: the settings of the rounds done.
    """

    kind: ClassVar[str] = "controlled"

    inner: TieredState
    steps: int
    setting: Setting
    smoothness: float
    ended: str
    spent: FloatArray
    secants: SmoothnessEstimate
    gradient: Tensor | None
    before: Tensor | None
    gradient_variance: float
    history: tuple[Setting, ...]

    @property
    def round(self) -> int:
        """How many rounds are done."""
        return self.inner.round

    def pack(self) -> dict[str, Any]:
        """All of it as numbers, and tensors on the CPU, for a checkpoint."""
        return {
            "inner": self.inner.pack(),
            "steps": self.steps,
            "setting": _packed(self.setting),
            "smoothness": self.smoothness,
            "ended": self.ended,
            "spent": torch.from_numpy(self.spent),
            "moved": self.secants.moved,
            "turned": [self.secants.turned.total, self.secants.turned.noise, self.secants.turned.variance],
            "gradient": None if self.gradient is None else self.gradient.cpu(),
            "before": None if self.before is None else self.before.cpu(),
            "gradient_variance": self.gradient_variance,
            "history": [_packed(setting) for setting in self.history],
        }

    @classmethod
    def unpack(cls, packed: Mapping[str, Any], device: str) -> Self:
        """The state that ``packed`` tells, on ``device``; any error at all where it is not one."""
        need_tensors(packed["spent"], packed["gradient"], packed["before"])
        there = [None if packed[k] is None else packed[k].to(device) for k in ("gradient", "before")]
        return cls(
            TieredState.unpack(packed["inner"], device),
            int(packed["steps"]),
            Setting(*packed["setting"]),
            float(packed["smoothness"]),
            str(packed["ended"]),
            packed["spent"].numpy(),
            SmoothnessEstimate(float(packed["moved"]), NoisySquaredNorm(*packed["turned"])),
            there[0],
            there[1],
            float(packed["gradient_variance"]),
            tuple(Setting(*setting) for setting in packed["history"]),
        )


def _packed(setting: Setting) -> list[float]:
    return [setting.steps, setting.trusted, setting.untrusted, setting.rate, setting.noise]


@dataclass
class _Heard:
    """What the parties received in a round, for the estimates: post-processing of released vectors.

    Attributes:
        within: squared deviations of devices' messages from their edge's average at the global step, by edge.
        edges: what the cloud received from each edge at the global step, ``[edges, M]``.
        starts: the models that the last local steps started from, ``[edges, M]``; ``None``: the global one.
    """

    last: int
    depth: int
    leaf_of: IntArray
    squares: FloatArray
    sums: Tensor | None = None
    edges: Tensor | None = None
    starts: Tensor | None = None
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        if index != self.last:
            return
        if tier == self.depth:
            leaves = self.leaf_of[senders]
            if self.sums is None:
                self.sums = torch.zeros(len(self.squares), vectors.shape[1], device=vectors.device)
                self.counts = np.zeros(len(self.squares), dtype=np.int64)
            self.sums.index_add_(0, torch.from_numpy(leaves).to(vectors.device), vectors)
            np.add.at(self.squares, leaves, vectors.square().sum(dim=1).double().cpu().numpy())
            np.add.at(self.counts, leaves, 1)
        elif tier == self.depth - 1:
            self.edges = vectors.clone()

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Averages are worked out from what was sent."""

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        if tier == self.depth - 1:
            self.starts = values.clone()


class ControlledProtocol:
    """Plays a plan whose spec has a ``control`` section.

    Args:
        plan: resolved and calibrated, without control.
        engine: trains devices.
        partition: who holds which rows.
        parameters: M.
        listener: hears every message, average and model.
    """

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "loss")

    def __init__(
        self,
        plan: TreePlan,
        engine: Engine,
        partition: Partition,
        parameters: int,
        listener: Listener | None = None,
    ) -> None:
        self._listener = listener
        assert plan.spec.control is not None  # or it would not be played here
        self._plan, self._control = plan, plan.spec.control
        self._engine, self._partition, self._parameters = engine, partition, parameters
        self._budget = Budget.of(plan)
        self._costs = TreeCosts.of(plan.spec, plan.tree, parameters)
        self._local = local_aggregations(plan)
        self._total = plan.spec.training.rounds * plan.aggregations[-1].step
        trusted = plan.tree.tiers[-1].trusted
        clip = plan.spec.privacy.clip
        self._gap = Gap(
            parameters=parameters,
            clip=clip.norm if clip is not None else 1.0,
            strength=strength(plan),
            trusted=int(trusted.sum()),
            untrusted=int((~trusted).sum()),
            local_aggregations=self._local,
        )

    def initial(self, model: Tensor) -> ControlledState:
        """The state before the first round, from the initial model ``[M]``; tau_0 is drawn at random."""
        least, most = self._local + 1, min(self._control.max_steps, self._total)
        rng = generator(self._plan.spec.seed, Stream.SCHEDULE, 0)
        steps = int(rng.integers(least, most + 1))
        beta = self._control.smoothness
        s_t, s_u = (int(candidates[-1]) for candidates in self._candidates())
        setting = Setting(steps, s_t, s_u, self._rate(0, steps, beta), 1.0)
        inner = self._inner(self._plan).initial(model)
        fresh = self._budget.fresh()
        setting, ended = self._armed(setting, 0, 0, fresh)
        return ControlledState(
            inner, 0, setting, beta, ended, fresh.spent, SmoothnessEstimate(), None, None, 0.0, ()
        )

    def rounds_expected(self, state: ControlledState) -> int:
        """As many as the local steps that are left make at the next round's interval."""
        if state.ended:
            return state.round
        return state.round + max(1, (self._total - state.steps) // state.setting.steps)

    def play(self, state: ControlledState) -> tuple[ControlledState, RoundFacts]:
        """Play round ``state.round`` and set the next."""
        number, setting = state.round, state.setting
        played = round_plan(self._plan, setting)
        leaf_of = np.repeat(np.arange(played.tree.leaf_count), played.tree.devices)
        heard = _Heard(self._local, played.tree.depth, leaf_of, np.zeros(played.tree.leaf_count))
        ears = heard if self._listener is None else Together((heard, self._listener))
        inner, facts = self._inner(played, ears).play(state.inner)
        account = replace(self._budget.fresh(), spent=state.spent)
        charge = self._budget.charge(played, facts.participants) + self._of_estimates
        account = account.after(charge, facts.participants)
        done = state.steps + setting.steps
        learnt = self._learn(state, inner.model, facts.noise_std)
        beta = self._smoothness(learnt, inner.model, facts.participants)
        following, ended = self._next(number + 1, done, setting, beta, account)
        extra = self._diagnosis(state, heard, played) | {
            "interval": float(setting.steps),
            "participants_trusted": float(setting.trusted) if self._gap.trusted else math.nan,
            "participants_untrusted": float(setting.untrusted) if self._gap.untrusted else math.nan,
            "step_size": setting.rate,
            "noise_factor": setting.noise,
            "smoothness": state.smoothness,
        }
        after = replace(
            learnt,
            inner=inner,
            steps=done,
            setting=following,
            smoothness=beta,
            ended=ended,
            spent=account.spent,
            history=(*state.history, setting),
        )
        return after, replace(facts, extra={**facts.extra, **extra})

    def epsilon(self, state: ControlledState, device: int, coalition: Sequence[Party]) -> float:
        """Epsilon of what was spent on one pair so far; infinite towards whom no filter holds."""
        account = replace(self._budget.fresh(), spent=state.spent)
        square = self._budget.spent(account, device, coalition)
        return gaussian.epsilon(delta=self._plan.spec.privacy.delta, mu=math.sqrt(square))

    def model(self, state: ControlledState) -> Tensor:
        """The global model."""
        return state.inner.model

    def keepsakes(self, state: ControlledState) -> dict[str, Tensor]:
        """Nothing: the global model is all there is."""
        return {}

    def realised(self, state: ControlledState) -> dict[str, Any]:
        """Why there was no further round, and the settings of every round."""
        return {"ended": state.ended, "settings": [asdict(setting) for setting in state.history]}

    def is_finite(self, state: ControlledState) -> bool:
        """Whether the global model has not blown up."""
        return bool(torch.isfinite(state.inner.model).all())

    def scores(self, state: ControlledState, examination: Examination) -> dict[str, float]:
        """Accuracy and loss of the global model on the test set."""
        score = examination.score(state.inner.model)
        return {"accuracy": score.accuracy, "loss": score.loss}

    def pilot(self, model: Tensor, rounds: int) -> PilotNorms:
        """Norms of un-noised, unclipped messages, as without control."""
        return self._inner(self._plan).pilot(model, rounds)

    def _inner(self, plan: TreePlan, heard: Listener | None = None) -> TieredProtocol:
        return TieredProtocol(plan, self._engine, self._partition, self._parameters, heard)

    def _candidates(self) -> tuple[IntArray, IntArray]:
        """What s_T and s_U may be; 1 where there are no such edges."""
        trusted, devices = self._plan.tree.tiers[-1].trusted, self._plan.tree.devices
        most = self._control.max_devices or int(devices.max())
        return tuple(
            np.arange(1, min(most, int(devices[kind].max())) + 1)
            if kind.any()
            else np.ones(1, dtype=np.int64)
            for kind in (trusted, ~trusted)
        )  # type: ignore[return-value]

    def _rate(self, number: int, last_steps: int, beta: float) -> float:
        """eta_k of section 5.1."""
        gamma = min(1 / last_steps, 1 / self._plan.spec.training.rounds) / beta
        return gamma / math.sqrt(number + 1)

    def _next(
        self, number: int, done: int, last: Setting, beta: float, account: GaussianFilter
    ) -> tuple[Setting, str]:
        """Problem P for round ``number``, with noise that the filter allows; or why there is none."""
        left = self._total - done
        if left < self._local + 1:
            return last, DONE
        s_t, s_u = self._candidates()
        counts = np.stack(
            [[participants(self._plan, Setting(1, int(a), int(b), 1.0, 1.0)) for b in s_u] for a in s_t]
        )
        predicted = self._costs.round(number).predicted(counts)
        costs = Costs(
            predicted.global_energy_j,
            predicted.local_energy_j.sum(axis=-1),
            predicted.global_delay_s,
            predicted.local_delay_s.sum(axis=-1),
        )
        control = self._control
        choice = minimise(
            remaining=left,
            steps=np.arange(self._local + 1, max(self._local + 1, min(control.max_steps, left)) + 1),
            s_trusted=s_t,
            s_untrusted=s_u,
            costs=costs,
            gap=self._gap,
            weights=Weights(
                control.energy, control.delay, control.optimality_gap_weight, control.optimality_gap_scale
            ),
        )
        rate = self._rate(number, last.steps, beta)
        setting = Setting(choice.steps, choice.trusted, choice.untrusted, rate, 1.0)
        return self._armed(setting, number, done, account)

    def _armed(
        self, setting: Setting, number: int, done: int, account: GaussianFilter
    ) -> tuple[Setting, str]:
        """``setting`` with the round's noise; or why the round may not be."""
        played = round_plan(self._plan, setting)
        chosen = draw_participants(played, number)
        charge = self._budget.charge(played, chosen)
        if self._control.budget_policy == "spread":
            share = (participants(self._plan, setting) / self._plan.tree.devices).repeat(
                self._plan.tree.devices
            )
            further = (self._total - done) / setting.steps - 1
            times = 1 + max(0.0, further) * share[chosen]
            left = account.setting_aside(times * self._of_estimates, chosen)
            factor = math.inf if left is None else left.noise_factor(charge, chosen, times)
            if factor == 0 or math.isfinite(factor):
                # a hair more, so that rounding never makes it too little
                return replace(setting, noise=factor * (1 + 1e-9) if factor else 1.0), ""
            return setting, self._spent(account, charge, chosen)
        charge = charge + self._of_estimates
        return setting, "" if account.allows(charge, chosen) else self._spent(account, charge, chosen)

    def _spent(self, account: GaussianFilter, charge: FloatArray, chosen: IntArray) -> str:
        pair = self._budget.pair(*account.tightest(charge, chosen))
        return f"the privacy budget is spent, first that of {pair}"

    @property
    def _of_estimates(self) -> float:
        """What a device's noised estimate costs it towards everybody, mu squared; 0 where there is none."""
        estimates = self._control.estimates
        return 0.0 if estimates == "released" else estimates.multiplier**-2

    def _smoothness(self, learnt: ControlledState, after: Tensor, devices: IntArray) -> float:
        """beta for the next step size: from released vectors, or what devices measured, noised."""
        estimates, prior = self._control.estimates, self._control.smoothness
        if estimates == "released":
            return learnt.secants.smoothness or prior
        assert learnt.before is not None  # `_learn` has set it
        found = self._measured(learnt.before, after, devices, learnt.round)
        clipped = np.minimum(found, estimates.bound)
        std, noise = estimates.multiplier * estimates.bound, torch.zeros(len(devices), 1)
        seed, address = self._plan.spec.seed, (learnt.round, _MEASUREMENT)
        stds = np.full(len(devices), std)
        add_gaussian_(noise, stds, lambda row: key_at(seed, Stream.NOISE, *address, devices[row]))
        noised = clipped + noise[:, 0].double().numpy()
        # below its own noise the mean says no more than that beta is small
        return max(float(noised.mean()), std / math.sqrt(len(devices)))

    def _measured(self, before: Tensor, after: Tensor, devices: IntArray, number: int) -> FloatArray:
        """How far each gradient turns from ``before`` to ``after``, per distance; private ``[P]``."""
        rng = generator(self._plan.spec.seed, Stream.BATCHES, number, _MEASUREMENT)
        rows = [self._partition.indices(int(device)) for device in devices]
        batches = plan_steps(rows, steps=1, batch_size=self._plan.spec.training.batch_size, rng=rng)
        ends = []
        for which in (0, 1):
            start, place = torch.stack([before, after]), torch.full((len(devices),), which)
            chunks = self._engine.train(LocalTask(LocalSGD(1.0)), start, place, batches)
            ends.append(torch.cat([chunk.updates.cpu() for chunk in chunks]))
        turned = (ends[0] - ends[1]).double().norm(dim=1).numpy()
        moved = float((after - before).double().norm())
        found: FloatArray = turned / moved if moved > 0 else np.zeros(len(devices))
        return np.nan_to_num(found, nan=np.inf)

    def _learn(self, state: ControlledState, model: Tensor, noise_std: float) -> ControlledState:
        """With the round's gradient, as the models before and after it show it."""
        start, setting = state.inner.model, state.setting
        length = setting.rate * setting.steps
        gradient, variance = (start - model) / length, (noise_std / length) ** 2
        secants = state.secants
        if state.gradient is not None and state.before is not None:
            secants = secants.plus(
                moved=float((start - state.before).double().square().sum()),
                turned=float((gradient - state.gradient).double().square().sum()),
                variance=variance + state.gradient_variance,
                coordinates=self._parameters,
            )
        return replace(state, secants=secants, gradient=gradient, before=start, gradient_variance=variance)

    def _diagnosis(self, state: ControlledState, heard: _Heard, played: TreePlan) -> dict[str, float]:
        """Dispersions (28), (29), the bounds on them, the terms of (33), the first for F_0 - F* = 1.

        Of noised messages, averages and models only, unless nothing at all is noised.
        """
        setting, gap, steps = state.setting, self._gap, played.ledger.steps[-1]
        unit = played.message_scale(state.round)
        counts = heard.counts.astype(np.float64)
        assert heard.sums is not None
        assert heard.edges is not None
        own = heard.squares - heard.sums.double().square().sum(dim=1).cpu().numpy() / counts
        noise = (steps.device_std * unit) ** 2
        # raw messages stay at their trusted edge: they are in no figure
        told = (noise > 0) | (self._plan.spec.privacy.noise.kind == "none")
        m = self._parameters
        within = [
            NoisySquaredNorm(float(s), float((n - 1) * m * v), float(2 * (n - 1) * m * v**2))
            for s, n, v in zip(own, counts, noise, strict=True)
        ]
        in_edges = noise / counts + (steps.node_std[-1] * unit) ** 2
        away = (heard.edges - heard.edges.mean(dim=0)).double().square().sum(dim=1).cpu().numpy()
        edges = len(counts)
        expected = in_edges * (1 - 2 / edges) + in_edges.mean() / edges
        between = [
            NoisySquaredNorm().plus(float(s), float(v), m) for s, v in zip(away, expected, strict=True)
        ]
        if not ((in_edges > 0) | told).all():
            between = []
        length = setting.rate * played.aggregations[-1].local_steps
        devices = [
            NoisySquaredNorm(e.total / (n - 1), e.noise / (n - 1), e.variance / (n - 1) ** 2)
            for e, n, public in zip(within, counts, told, strict=True)
            if n > 1 and public
        ]
        found_within, found_between = spread(devices), spread(between)
        constants = Constants(
            smoothness=state.smoothness,
            gradient_noise=gap.clip,
            between=2 * gap.clip if found_between is None else found_between / length,
            within=2 * gap.clip if found_within is None else found_within / length,
        )
        first = state.history[0].rate if state.history else setting.rate
        cohorts = {"trusted": setting.trusted, "untrusted": setting.untrusted}
        bounds = dispersions(constants, first_step=first, steps=setting.steps, gap=gap, **cohorts)
        three = terms(
            constants,
            bounds,
            loss=1.0,
            rate=setting.rate * math.sqrt(state.round + 1),
            steps=setting.steps,
            rounds=self._plan.spec.training.rounds,
            gap=gap,
            **cohorts,
        )
        dispersed = [max(0.0, e.total - e.noise) / n for e, n in zip(within, counts, strict=True)]
        return {
            "z1": float(np.mean(np.array(dispersed)[told])) if told.any() else math.nan,
            "z2": self._between_models(heard, played),
            "b1": bounds.b1,
            "b2": bounds.b2,
            "phi": bounds.phi,
            "gap_start": three.start,
            "gap_drift": three.drift,
            "gap_noise": three.noise,
        }

    def _between_models(self, heard: _Heard, played: TreePlan) -> float:
        """Z2 of the models that the last local steps started from; NaN where one of them is un-noised."""
        if heard.starts is None:
            return 0.0
        before = played.ledger.steps[-2]
        noised = (before.device_std + before.node_std[-1] > 0).all()
        if not noised and self._plan.spec.privacy.noise.kind != "none":
            return math.nan
        away = heard.starts - heard.starts.mean(dim=0)
        return float(away.square().sum(dim=1).mean())
