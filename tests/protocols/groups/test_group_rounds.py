import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from sfumato.data.partition import Partition
from sfumato.engine.base import EngineSettings
from sfumato.engine.local import LocalEngine
from sfumato.errors import EnvelopeError
from sfumato.learning.batches import plan_epochs, plan_steps
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.clipping import FlatClip
from sfumato.mechanisms.gaussian import add_gaussian_
from sfumato.protocols.groups.base import GroupedProtocol
from sfumato.protocols.personalised_evaluation import evaluate_personalised, label_shares
from sfumato.random import Stream, generator, key_at
from sfumato.schedule.group_participation import draw_assignments
from sfumato.schedule.local_steps import learning_rate
from sfumato.schedule.resolve.groups import resolve_groups
from sfumato.spec.load import load_spec

FEATURES, CLASSES = 5, 3
PROTOCOLS = ["dp-ogl", "dp-ogl+", "dp-ogl-local", "ms-fedavg"]
OVERLAPPING = [[0, 1, 2, 3], [2, 3, 4, 5], [0, 5, 6, 2]]


def plan_of(protocol="dp-ogl", *, merge_every=2, groups=OVERLAPPING, training=None, **privacy):
    noise = {"clip": {"kind": "update", "norm": 0.3}, "noise": {"multiplier": 0.5}} | privacy
    spec = {
        "name": "test", "protocol": protocol, "seed": 11,
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "groups", "structure": "list", "groups": groups},
        "training": {
            "rounds": 7, "local_steps": 3, "batch_size": 4, "learning_rate": 0.2,
            "merge_every": 1 if protocol == "ms-fedavg" else merge_every,
            "participation": {"kind": "poisson", "rate": 0.7},
        } | (training or {}),
        "privacy": noise,
    }  # fmt: skip
    trust = spec["privacy"].pop("trust", None)
    return resolve_groups(load_spec(spec if trust is None else spec | {"trust": trust}))


class World:
    """Seven workers with data of unequal size, and a model."""

    def __init__(self, workers=7, features=FEATURES):
        rng = np.random.default_rng(5)
        sizes = rng.integers(2, 20, workers)
        self.partition = Partition(
            rng.permutation(sizes.sum()), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        )
        self.x = torch.from_numpy(rng.normal(size=(sizes.sum(), features))).float()
        self.y = torch.from_numpy(rng.integers(0, CLASSES, sizes.sum()))
        torch.manual_seed(3)
        self.model = nn.Linear(features, CLASSES)
        self.layout = ParameterLayout.of(self.model)
        self.start = self.layout.read(self.model)

    def protocol(self, plan, memory=64 << 20):
        engine = LocalEngine(self.model, self.x, self.y, EngineSettings("cpu", 1, memory))
        return GroupedProtocol(plan, engine, self.partition, self.layout.total)

    def models(self, plan, rounds, memory=64 << 20):
        """Group models after every round."""
        protocol = self.protocol(plan, memory)
        state, found = protocol.initial(self.start), []
        for _ in range(rounds):
            state, _ = protocol.run_round(state)
            found.append(state.models.clone())
        return found


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small are not worth sharing; the cores may be busy with other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def world():
    return World()


class Reference:
    """Algorithms 1 and 2 as the paper writes them: one worker after the other, in float64."""

    def __init__(self, world, plan):
        self.world, self.plan = world, plan
        self.training, self.seed = plan.spec.training, plan.spec.seed
        self.theta = [world.start.double().clone() for _ in range(plan.groups.count)]
        self.members = plan.groups.as_lists()
        self.moments = {}

    def sampled(self, number):
        seats = []
        for group, members in enumerate(self.members):
            draws = generator(self.seed, Stream.PARTICIPATION, number, group).random(len(members))
            seats += [
                (group, n) for n, draw in zip(members, draws, strict=True) if draw < self.plan.rates[group]
            ]
        return seats

    def batches(self, seats, number, rounds):
        rows = [self.world.partition.indices(worker) for _, worker in seats]
        rng = generator(self.seed, Stream.BATCHES, number)
        size = self.training.batch_size
        if self.training.local_epochs is not None:
            return plan_epochs(rows, epochs=rounds * self.training.local_epochs, batch_size=size, rng=rng)
        return plan_steps(rows, steps=rounds * self.training.local_steps, batch_size=size, rng=rng)

    def train(self, start, batches, position, number):
        """phi^L - phi^0 of one worker, by autograd."""
        phi, velocity = start.clone(), torch.zeros_like(start)
        if self.training.optimizer.kind == "adam":
            return self.train_by_adamw(start, batches, position, number)
        rate = learning_rate(self.training, number)
        for step in range(int(batches.steps[position])):
            rows = batches.rows[position, step, : int(batches.counts[position, step])].long()
            at = phi.clone().requires_grad_()
            named = self.world.layout.unflatten(at)
            logits = self.world.x[rows].double() @ named["weight"].T + named["bias"]
            loss = nn.functional.cross_entropy(logits, self.world.y[rows])
            velocity = self.training.momentum * velocity + torch.autograd.grad(loss, at)[0]
            phi = phi - rate * velocity
        return phi - start

    def train_by_adamw(self, start, batches, position, number):
        adam, phi = self.training.optimizer, start.clone().double().requires_grad_()
        optimizer = torch.optim.AdamW(
            [phi],
            learning_rate(self.training, number),
            (adam.beta1, adam.beta2),
            adam.epsilon,
            self.training.weight_decay,
        )
        for step in range(int(batches.steps[position])):
            rows = batches.rows[position, step, : int(batches.counts[position, step])].long()
            named = self.world.layout.unflatten(phi)
            logits = self.world.x[rows].double() @ named["weight"].T + named["bias"]
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits, self.world.y[rows]).backward()
            optimizer.step()
        return phi.detach() - start

    def phi(self, worker):
        own = [group for group, members in enumerate(self.members) if worker in members]
        return sum(self.theta[group] for group in own) / len(own)

    def noise(self, std, *key):
        noise = torch.zeros(1, self.world.layout.total)
        add_gaussian_(noise, np.ones(1), lambda _: key_at(self.seed, Stream.NOISE, *key))
        return noise[0].double() * std

    def noised(self, group, updates, clip, number):
        """Sum of clipped updates (by worker) plus noise, over pi |N|."""
        sigma = self.plan.multipliers[group]
        total = torch.zeros(self.world.layout.total).double()
        for worker, update in updates.items():
            total += update / max(1.0, float(update.norm()) / clip)
            if not self.plan.trusted[group]:
                total += self.noise(clip * sigma, number, group, worker)
        if self.plan.trusted[group]:
            total += self.noise(clip * sigma, number, group)
        return total / (self.plan.rates[group] * len(self.members[group]))

    def stepped(self, group, base, average):
        """What the master of a group makes of its noised average, by the textbook."""
        server = self.training.server
        first, second, count = self.moments.get(group, (0.0, 0.0, 0))
        if server.optimizer == "sgd":
            first = server.momentum * first + average
            self.moments[group] = (first, second, count + 1)
            return base + server.learning_rate * first
        first = server.beta1 * first + (1 - server.beta1) * average
        second = server.beta2 * second + (1 - server.beta2) * average**2
        self.moments[group] = (first, second, count + 1)
        unbiased, square = (
            first / (1 - server.beta1 ** (count + 1)),
            second / (1 - server.beta2 ** (count + 1)),
        )
        return base + server.learning_rate * unbiased / (square.sqrt() + server.epsilon)

    def play(self, rounds):
        found = []
        every = self.plan.merge_every
        for t in range(1, rounds + 1):
            first = (t - 1) % every == 0
            getattr(self, "epoch_" + self.plan.kind.replace("-", "_").replace("+", "_plus"))(
                t, first, t % every == 0
            )
            found.append(torch.stack(self.theta))
        return found

    def updates(self, seats, number, starts, rounds=1):
        batches = self.batches(seats, number, rounds)
        return {seat: self.train(starts[seat], batches, k, number) for k, seat in enumerate(seats)}

    def of(self, updates, group):
        return {worker: update for (m, worker), update in updates.items() if m == group}

    def starts(self, seats, first):
        return {(m, n): self.phi(n) if first else self.theta[m] for m, n in seats}

    def epoch_dp_ogl(self, t, first, last):
        seats = self.sampled(t - 1)
        deltas = self.updates(seats, t - 1, self.starts(seats, first))
        for m in range(len(self.theta)):
            step = self.noised(m, self.of(deltas, m), self.plan.clips[m], t - 1)
            self.theta[m] = self.stepped(m, self.theta[m], step)

    def epoch_dp_ogl_plus(self, t, first, last):
        if first:
            self.seats = self.sampled(t - 1)
            self.base = list(self.theta)
            self.total = dict.fromkeys(self.seats, 0.0)
        deltas = self.updates(self.seats, t - 1, self.starts(self.seats, first))
        self.total = {seat: self.total[seat] + deltas[seat] for seat in self.seats}
        for m in range(len(self.theta)):
            if last:
                clip = math.sqrt(self.plan.merge_every) * self.plan.clips[m]
                step = self.noised(m, self.of(self.total, m), clip, t - 1)
                self.theta[m] = self.stepped(m, self.base[m], step)
            else:
                share = self.plan.rates[m] * len(self.members[m])
                self.theta[m] = self.theta[m] + sum(self.of(deltas, m).values()) / share

    def epoch_dp_ogl_local(self, t, first, last):
        if not last:
            return
        every = self.plan.merge_every
        seats = self.sampled(t - every)
        deltas = self.updates(seats, t - every, self.starts(seats, True), rounds=every)
        for m in range(len(self.theta)):
            clip = math.sqrt(every) * self.plan.clips[m]
            self.theta[m] = self.stepped(m, self.theta[m], self.noised(m, self.of(deltas, m), clip, t - 1))

    def epoch_ms_fedavg(self, t, first, last):
        seats = self.sampled(t - 1)
        starts = self.starts(seats, True)
        deltas = self.updates(seats, t - 1, starts)
        new = list(self.theta)
        for m in range(len(self.theta)):
            ends = [starts[m, worker] + delta for worker, delta in self.of(deltas, m).items()]
            if ends:
                new[m] = sum(ends) / len(ends)
        self.theta = new


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("merge_every", [1, 2, 3])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_equal_to_one_worker_after_the_other(world, protocol, merge_every, momentum):
    plan = plan_of(protocol, merge_every=merge_every, training={"momentum": momentum})
    expected = Reference(world, plan).play(7)
    for number, models in enumerate(world.models(plan, 7)):
        torch.testing.assert_close(models.double(), expected[number], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_workers_train_by_adamw(world, protocol):
    adam = {"beta1": 0.7, "beta2": 0.9, "epsilon": 0.1}
    plan = plan_of(protocol, merge_every=2, training={"optimizer": adam, "weight_decay": 0.4})
    expected = Reference(world, plan).play(7)
    for number, models in enumerate(world.models(plan, 7)):
        torch.testing.assert_close(models.double(), expected[number], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    "server",
    [
        {"momentum": 0.9, "learning_rate": 0.5},
        {"optimizer": "adam", "learning_rate": 0.1, "beta1": 0.8, "beta2": 0.95, "epsilon": 0.1},
    ],
    ids=["momentum", "adam"],
)
@pytest.mark.parametrize("protocol", PROTOCOLS[:3])
def test_every_master_has_an_optimizer_of_its_own(world, protocol, server):
    """It steps once a release, from the model that the interval began with."""
    plan = plan_of(protocol, training={"server": server})
    expected = Reference(world, plan).play(7)
    for number, models in enumerate(world.models(plan, 7)):
        torch.testing.assert_close(models.double(), expected[number], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("protocol", PROTOCOLS[:3])
def test_equal_with_groups_that_differ_in_everything(world, protocol):
    trust = None if protocol == "dp-ogl+" else {"trusted_aggregators": []}
    plan = plan_of(
        protocol,
        merge_every=3,
        training={
            "participation": {"kind": "poisson", "rate": [0.4, 1, 0.8]},
            "learning_rate": {"kind": "inverse-sqrt", "initial": 0.3},
            "local_steps": None,
            "local_epochs": 1,
        },
        clip={"kind": "update", "norm": [0.1, 0.4, 0.2]},
        noise={"multiplier": [0.3, 0.6, 0]},
        **({} if trust is None else {"trust": trust}),
    )
    expected = Reference(world, plan).play(6)
    for number, models in enumerate(world.models(plan, 6)):
        torch.testing.assert_close(models.double(), expected[number], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("protocol", ["dp-ogl+", "dp-ogl-local"])
def test_intervals_of_one_round_are_dp_ogl(world, protocol):
    for mine, plain in zip(
        world.models(plan_of(protocol, merge_every=1), 4),
        world.models(plan_of("dp-ogl", merge_every=1), 4),
        strict=True,
    ):
        torch.testing.assert_close(mine, plain)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_round_in_which_nobody_is_drawn_is_played(world, protocol):
    plan = plan_of(protocol, merge_every=2, training={"participation": {"kind": "poisson", "rate": 1e-9}})
    models = world.models(plan, 2)[-1]
    if protocol == "ms-fedavg":  # nobody adds noise
        torch.testing.assert_close(models, world.start.repeat(len(models), 1))
    else:
        assert ((models - world.start).std(dim=1) > 0).all()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_bytes_again_and_when_taken_up_midway(world, protocol):
    plan = plan_of(protocol, merge_every=3)
    first = world.models(plan, 7)
    for mine, other in zip(first, world.models(plan, 7), strict=True):
        assert torch.equal(mine, other)
    one, other = world.protocol(plan), world.protocol(plan)
    state = one.initial(world.start)
    for number in range(7):
        state, _ = (one if number < 4 else other).run_round(replace(state))
    assert torch.equal(state.models, first[-1])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_chunks_change_nothing_but_rounding(world, protocol):
    plan = plan_of(protocol, merge_every=3)
    whole, chunked = world.models(plan, 6), world.models(plan, 6, memory=300)
    torch.testing.assert_close(whole[-1], chunked[-1], rtol=1e-4, atol=1e-5)


def test_rounds_in_which_nobody_is_sampled_add_noise_only(world):
    plan = plan_of("dp-ogl", training={"participation": {"kind": "poisson", "rate": 1e-9}})
    protocol = world.protocol(plan)
    state, facts = protocol.run_round(protocol.initial(world.start))
    assert len(facts.participants) == 0
    assert math.isnan(facts.clip_fraction)
    assert bool((state.models != world.start).all())
    plan = plan_of("ms-fedavg", training={"participation": {"kind": "poisson", "rate": 1e-9}})
    assert torch.equal(world.models(plan, 1)[0], world.start.repeat(3, 1))


def test_seats_are_drawn_by_every_group_for_itself():
    plan = plan_of(training={"participation": {"kind": "poisson", "rate": [0.3, 0.6, 1]}})
    counts = np.zeros((3, 7))
    rounds = 3000
    for number in range(rounds):
        seats = draw_assignments(plan, number)
        assert (np.diff(seats.groups) >= 0).all()
        np.add.at(counts, (seats.groups, seats.workers), 1)
    for group, rate in enumerate([0.3, 0.6, 1.0]):
        members = list(OVERLAPPING[group])
        assert counts[group].sum() == counts[group, members].sum()
        tests = [stats.binomtest(int(k), rounds, rate).pvalue for k in counts[group, members]]
        assert min(tests) > 1e-6
    both = sum(
        {0, 1}
        <= set(draw_assignments(plan, number).groups[draw_assignments(plan, number).workers == 2].tolist())
        for number in range(rounds)
    )
    assert stats.binomtest(both, rounds, 0.18).pvalue > 1e-6, "independent from group to group"


def looks_gaussian(values, std):
    """Accepts the right scale with probability 1 - 1e-7."""
    n = len(values)
    low, high = stats.chi2(n).ppf([5e-8, 1 - 5e-8])
    return low <= float((values.double() ** 2).sum()) / std**2 <= high


@pytest.mark.parametrize(
    ("protocol", "owner"),
    [
        ("dp-ogl", "master"),
        ("dp-ogl", "device"),
        ("dp-ogl", "some masters"),
        ("dp-ogl+", "master"),
        ("dp-ogl-local", "master"),
        ("dp-ogl-local", "device"),
        ("dp-ogl-local", "some masters"),
    ],
)
def test_noise_has_the_declared_scale(protocol, owner):
    merge_every = 3
    wide = World(features=4000)
    trusted = {"master": [0, 1, 2], "device": [], "some masters": [1]}[owner]
    trust = {"trust": {"trusted_aggregators": trusted}}
    plan = plan_of(
        protocol, merge_every=merge_every, training={"learning_rate": 1e-9},
        clip={"kind": "update", "norm": [0.2, 0.4, 0.8]}, noise={"multiplier": [1, 2, 0.5]}, **trust,
    )  # fmt: skip
    released = wide.models(plan, merge_every)[-1 if protocol != "dp-ogl" else 0]
    sampled = np.bincount(draw_assignments(plan, 0).groups, minlength=3)
    for group, (clip, sigma) in enumerate([(0.2, 1), (0.4, 2), (0.8, 0.5)]):
        per_noiser = clip * sigma * (1 if protocol == "dp-ogl" else math.sqrt(3))
        noisers = 1 if group in trusted else sampled[group]
        std = per_noiser * math.sqrt(noisers) / (0.7 * 4)
        values = released[group] - wide.start
        assert looks_gaussian(values, std)
        assert not looks_gaussian(values, std * 2 / 3)
        assert not looks_gaussian(values, std * 3 / 2)


def test_noise_is_independent_from_group_to_group_and_round_to_round():
    wide = World(features=4000)
    plan = plan_of(training={"learning_rate": 1e-9}, clip={"kind": "update", "norm": 1e-3})
    models = [wide.start.repeat(3, 1), *wide.models(plan, 3)]
    steps = torch.stack([(b - a)[group] for a, b in pairwise(models) for group in range(3)])
    correlations = torch.corrcoef(steps.double()) - torch.eye(len(steps))
    assert float(correlations.abs().max()) < 6 / math.sqrt(steps.shape[1])


def test_facts_of_a_round(world):
    plan = plan_of("dp-ogl", clip={"kind": "update", "norm": 1e-6}, noise={"multiplier": [1, 2, 3]})
    protocol = world.protocol(plan)
    _, facts = protocol.run_round(protocol.initial(world.start))
    seats = draw_assignments(plan, 0)
    assert facts.participants.tolist() == sorted(set(seats.workers.tolist()))
    assert facts.clip_fraction == 1.0
    message = 4 * world.layout.total
    assert (facts.bytes_up, facts.bytes_down) == (len(seats.workers) * message, 12 * message)
    expected = np.sqrt(np.mean((1e-6 * np.array([1, 2, 3]) / 2.8) ** 2))
    assert facts.noise_std == pytest.approx(expected)


def test_rounds_inside_an_interval_release_nothing(world):
    protocol = world.protocol(plan_of("dp-ogl-local", merge_every=2))
    start = protocol.initial(world.start)
    state, facts = protocol.run_round(start)
    assert torch.equal(state.models, start.models)
    assert (facts.noise_std, facts.bytes_up, facts.bytes_down) == (0.0, 0, 0)
    assert math.isnan(facts.clip_fraction)
    state, facts = protocol.run_round(state)
    assert facts.bytes_up > 0
    assert facts.noise_std > 0


def test_a_worker_that_diverges_sends_nothing(world):
    for protocol in PROTOCOLS:
        plan = plan_of(protocol, merge_every=2)
        far = plan.spec.training.model_copy(update={"learning_rate": 1e38})  # beyond what a spec may say
        plan = replace(plan, spec=plan.spec.model_copy(update={"training": far}))
        assert bool(torch.isfinite(world.models(plan, 2)[-1]).all())


def test_a_message_beyond_the_declared_bound_stops_the_run(world, monkeypatch):
    monkeypatch.setattr("sfumato.protocols.groups.operations.FlatClip", lambda norm: FlatClip(2 * norm))
    with pytest.raises(EnvelopeError, match="declared at most"):
        world.models(plan_of("dp-ogl", clip={"kind": "update", "norm": 1e-4}), 1)


def test_personalised_models_and_their_scores(world):
    plan = plan_of("dp-ogl")
    protocol = world.protocol(plan)
    state = protocol.initial(world.start)
    for _ in range(3):
        state, _ = protocol.run_round(state)
    own, classes = protocol.personalised(state), plan.groups.classes
    shares = label_shares(world.partition, world.y.numpy(), CLASSES)
    scores = evaluate_personalised(world.model, own, classes, shares, world.x, world.y)
    accuracies, personal, mean = [], [], torch.zeros_like(world.start)
    for worker in range(7):
        theta = state.models[[m for m, members in enumerate(OVERLAPPING) if worker in members]].mean(dim=0)
        torch.testing.assert_close(own[classes.class_of[worker]], theta)
        mean += theta / 7
        world.layout.write(theta, world.model)
        right = (world.model(world.x).argmax(dim=1) == world.y).double()
        accuracies.append(float(right.mean()))
        held = world.y[torch.from_numpy(world.partition.indices(worker))]
        by_label = [float(right[world.y == label].mean()) for label in range(CLASSES)]
        personal.append(
            sum(float((held == label).double().mean()) * by_label[label] for label in range(CLASSES))
        )
    world.layout.write(world.start, world.model)
    torch.testing.assert_close(protocol.model(state), mean)
    assert scores.accuracy == pytest.approx(np.mean(accuracies))
    np.testing.assert_allclose(scores.personal_accuracy, personal)
    assert scores.mean_personal_accuracy == pytest.approx(np.mean(personal))


def test_workers_without_testable_data_have_no_personal_score(world):
    plan = plan_of("dp-ogl")
    protocol = world.protocol(plan)
    own = protocol.personalised(protocol.initial(world.start))
    shares = np.zeros((7, CLASSES))
    shares[:6, 1], shares[6, 2] = 1.0, 1.0
    shares[0] = 0.0
    tested = world.y == 1
    scores = evaluate_personalised(
        world.model, own, plan.groups.classes, shares, world.x[tested], world.y[tested]
    )
    assert np.isnan(scores.personal_accuracy[[0, 6]]).all()
    assert scores.mean_personal_accuracy == pytest.approx(scores.accuracy)
