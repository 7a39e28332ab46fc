"""Checks of Adam and of weight decay at local steps: which bounds hold with them, and which do not.

Four rules bound what a device sends (docs/accounting.md, *Local optimizers*). λ is the weight decay, η the
step size, w₀ the model that a message starts from.

* **A whole update is clipped** (``clip: update``). The bound is that of the clip, whatever led to the update.
  Moments start at zero with every message, so one in which a record was not drawn has the same law in both
  worlds.
* **Noise at every local step** (``noise: {at: step}``). Each noised sum of gradients counts as a release by
  itself, and no rule adds their noise up. Moments, decay and all later models follow from these sums.
* **Steps are clipped** (``clip: step``). A message is bounded as a sum of steps of at most η C. A step of
  Adam is as long as its moments make it, and with decay a message also contains ``((1 - ηλ)^m - 1) w₀``,
  whose length no clip bounds. Neither is charged.
* **Examples are clipped, messages noised** (``clip: example``). Two messages are compared: by how much one
  gradient moves them. That of Adam may move by any step it takes. Decay takes ``(1 - ηλ)^m w₀`` from both
  alike where w₀ is the same in both worlds, as it is in trees for what is charged by draws of records, and
  differences of steps shrink with 0 <= ηλ <= 1. In groups w₀ may be the mean of models that nobody outside
  sees, and may differ. Masked sums in trees need messages that are bounded: there is no room for w₀.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sfumato.families import TREE, family_of
from sfumato.spec.base import refuse
from sfumato.spec.privacy import NoNoise

if TYPE_CHECKING:  # the document imports this module
    from sfumato.spec.document import Spec


def check_local_optimizer(spec: Spec) -> None:
    """Refuse Adam and weight decay where the account rests on plain steps.

    Raises:
        PydanticCustomError: with the place of the key that does not fit.
    """
    training = spec.training
    if training.optimizer.kind == "adam":
        for reason in _against_adam(spec):
            raise refuse("training.optimizer", "adam", f"must be sgd here: {reason}")
    if training.weight_decay:
        for reason in _against_decay(spec):
            raise refuse("training.weight_decay", training.weight_decay, f"must be 0 here: {reason}")


def _against_adam(spec: Spec) -> Iterator[str]:
    clip, noises_messages = spec.privacy.clip, _noises_messages(spec)
    if clip is not None and clip.kind == "step":
        yield (
            "a clip of steps bounds gradients, and steps of Adam may be longer; use privacy.clip.kind: update"
        )
    if clip is not None and clip.kind == "example" and noises_messages:
        yield (
            "one clipped example may turn a whole step of Adam; use privacy.noise.at: step, or "
            "privacy.clip.kind: update"
        )
    yield from _against_either(spec)


def _against_decay(spec: Spec) -> Iterator[str]:
    clip, noises_messages = spec.privacy.clip, _noises_messages(spec)
    if clip is not None and clip.kind == "step":
        yield (
            "a message would contain a part of the model that it starts from, which a clip of steps does not "
            "bound; use privacy.clip.kind: update"
        )
    if clip is not None and clip.kind == "example" and noises_messages and family_of(spec) is not TREE:
        yield (
            "workers of several groups start from models that nobody sees, and a message would contain a "
            "part of these; use privacy.noise.at: step, or privacy.clip.kind: update"
        )
    yield from _against_either(spec)


def _against_either(spec: Spec) -> Iterator[str]:
    secure = "secure-aggregation" in spec.transport.values() and family_of(spec) is TREE
    if spec.privacy.clips_examples and secure:
        yield (
            "under secure aggregation messages are bounded by their gradients; use privacy.clip.kind: update"
        )
    if spec.training.keeps_variates:
        yield "control variates of scaffold follow from plain steps"
    if spec.control is not None:
        yield "control sets the step size by a theorem on plain steps"


def _noises_messages(spec: Spec) -> bool:
    """Whether anybody adds noise to messages, or to what they add up to."""
    return not (isinstance(spec.privacy.noise, NoNoise) or spec.privacy.step_noise)
