"""A record as the target of an audit: what its device sends, by the local steps that the record is in.

With Poisson mini-batches a record is in every local step by a draw of its own. What the rest of the device
does is the worst that the clip allows and that a training can do:

*whole updates clipped*: the other records push to one end of the bound, a record that is drawn to the other;
*steps clipped*: the same from the step on into which the record is first drawn, as the others follow it;
*examples clipped*: the record alone moves the message, in each step that it is drawn into. The others do not
answer.

In the other world the record is zeroed out, or replaced. A replaced record is drawn alike; where examples are
clipped it pushes the other way, and otherwise it is one that does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.data.dataset_sizes import known_examples
from sfumato.errors import DataError, SpecError
from sfumato.privacy.sampling import Neighbours
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.local_steps import momentum_gain
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec

FloatArray = npt.NDArray[np.float64]
_FROM_SAMPLES = 50_000
_MOST_LISTED = 128


@dataclass(frozen=True)
class ListedMessages:
    """The likeliest messages of a round in one world: what an attacker reckons with.

    Attributes:
        sent: a column for each, in units of the largest message allowed, ``[messages, c]``.
        chances: their probabilities, ``[c]``.
    """

    sent: FloatArray
    chances: FloatArray

    @classmethod
    def of(cls, samples: FloatArray) -> ListedMessages:
        """The most frequent columns, at most 128, of ``samples`` ``[messages, trials]``, and how often."""
        columns, counts = np.unique(samples, axis=1, return_counts=True)
        likely = np.argsort(-counts, kind="stable")[:_MOST_LISTED]
        return cls(columns[:, likely], counts[likely] / counts[likely].sum())


@dataclass(frozen=True)
class RecordCanary:
    """A record of one device, and the draws that decide what the device sends.

    Attributes:
        rate: probability that the record is in a local step.
        weights: for each message of a round, what each of its local steps weighs in it; they add up to 1.
        clip: what is clipped: ``update``, ``step`` or ``example``.
        neighbours: ``zero-out`` or ``replace``.
    """

    rate: float
    weights: tuple[tuple[float, ...], ...]
    clip: str
    neighbours: Neighbours

    @property
    def undrawn_message(self) -> float:
        """What the device sends if the record is in no step, in units of the largest message allowed."""
        return 0.0 if self.clip == "example" else -1.0

    def sample(self, rng: np.random.Generator, trials: int) -> tuple[FloatArray, FloatArray]:
        """Draw the device's messages of a round with the record, and without it, ``[messages, trials]`` each.

        In units of the largest message allowed. Under replace the second are with the replaced record.
        """
        present, other = (np.full((len(self.weights), trials), self.undrawn_message) for _ in range(2))
        for row, weights in enumerate(self.weights):
            drawn = rng.random((trials, len(weights))) < self.rate
            if self.clip == "example":
                present[row] = drawn @ np.array(weights)
                if self.neighbours == "replace":
                    other[row] = -present[row]
            else:
                left = np.cumsum(weights[::-1])[::-1] if self.clip == "step" else np.ones(len(weights))
                moved = np.where(drawn.any(axis=1), left[drawn.argmax(axis=1)], 0.0)
                present[row] += 2 * moved
        return present, other

    def likeliest_messages(
        self, rng: np.random.Generator, *, answers: bool
    ) -> tuple[ListedMessages, ListedMessages]:
        """The likeliest messages of a round in the two worlds: without the record, and with it.

        With ``answers`` the device recognises in the models that it receives that the record was drawn, and
        sends its largest message from then on.
        """
        present, other = self.sample(rng, _FROM_SAMPLES)
        if answers:
            drawn = np.maximum.accumulate(present > self.undrawn_message, axis=0)
            present[1:][drawn[:-1]] = 1.0
        return ListedMessages.of(other), ListedMessages.of(present)


def canary_of_tree(plan: TreePlan, unit: int, neighbours: Neighbours) -> RecordCanary | None:
    """A record of device ``unit`` as a canary; ``None`` where a record is taken to be in every message.

    The rate is computed from the spec and the sizes of the data, not from the declaration that is audited.

    Raises:
        SpecError: the plan cannot be audited.
    """
    spec, training = plan.spec, plan.spec.training
    _require_plain_steps(spec)
    rate, clip = _record_rate(spec, plan.tree.devices, unit), _clip_kind(spec)
    if rate is None:
        return None
    again = (one.releases.steps[-1].resends[one.tree.leaf_of(unit)] for one in plan.structures)
    if clip == "update" and any(again):
        allowed = (
            "cannot be audited for records with privacy.clip.kind: update: the sum of a round's updates is "
            "clipped as a whole, which makes its coordinates dependent"
        )
        raise SpecError("training.global_update", "resend", allowed)
    weights = tuple(_step_weights(a.local_steps, training.momentum) for a in plan.aggregations)
    return RecordCanary(rate, weights, clip, neighbours)


def canary_of_groups(plan: GroupPlan, unit: int, neighbours: Neighbours) -> RecordCanary | None:
    """A record of ``unit`` as a canary in its message to one group; it is drawn anew for each group.

    ``None`` where a record is taken to be in every message: in DP-OGL+ the models that a message is trained
    from hold earlier ones without noise.

    Raises:
        SpecError: the plan cannot be audited.
    """
    spec, training = plan.spec, plan.spec.training
    _require_plain_steps(spec)
    rate = _record_rate(spec, plan.devices_per_place, unit)
    if rate is None or plan.kind == "dp-ogl+":
        return None
    steps = (training.local_steps or 1) * (plan.merge_every if plan.by_interval else 1)
    return RecordCanary(rate, (_step_weights(steps, training.momentum),), _clip_kind(spec), neighbours)


def _require_plain_steps(spec: Spec) -> None:
    """Raise unless noise at local steps adds up, with momentum, to what a message holds.

    Raises:
        SpecError: it does not.
    """
    training = spec.training
    if not spec.privacy.step_noise or (
        training.takes_plain_steps and training.drift_correction.kind == "none"
    ):
        return
    allowed = (
        "cannot be audited with Adam, weight_decay or drift_correction: the audit reads a message as the sum "
        "of its noised steps"
    )
    raise SpecError("privacy.noise.at", "step", allowed)


def _clip_kind(spec: Spec) -> str:
    """``update``, ``step`` or ``example``: what the spec clips; ``update`` where nothing is clipped."""
    return "update" if spec.privacy.clip is None else spec.privacy.clip.kind


def _record_rate(spec: Spec, places: npt.NDArray[np.int64], unit: int) -> float | None:
    """Probability that a record of ``unit`` is in a local step; ``None`` where it is not drawn."""
    if spec.training.batches != "poisson":
        return None
    try:
        sizes = known_examples(spec, places)
    except DataError:
        return None
    if sizes is None:
        return None
    assert spec.training.batch_size != "all"  # the spec's own checks see to it
    return min(1.0, spec.training.batch_size / max(1, int(sizes[unit])))


def _step_weights(steps: int, momentum: float) -> tuple[float, ...]:
    """The weight of each of ``steps`` local steps in their sum, with this momentum; they add up to 1."""
    gains = [momentum_gain(left, momentum) for left in range(steps, -1, -1)]
    return tuple((gains[j] - gains[j + 1]) / gains[0] for j in range(steps))
