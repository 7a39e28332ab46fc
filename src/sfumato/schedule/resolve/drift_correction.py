"""What keeps the local steps of unlike devices together, and why it costs no privacy, or where it would.

**FedProx** (Li et al. 2020, *Federated Optimization in Heterogeneous Networks*, equation 2). A device
minimises its loss plus ``mu/2 |w - w_0|^2``, w_0 the model it starts from. Sfumato follows each step, which
leads to v, by the proximal step ``w_0 + (v - w_0) / (1 + rate mu)``. With d = w - w_0 that is
``d <- (d - rate s) / (1 + rate mu)``, where s is the step of SGD, momentum included. The factor is below 1,
so whatever clipped steps bound without it they bound with it: the length of an update, and the distance of
two updates whose steps differ in some places. Every sensitivity of the ledger therefore stays. Noise at local
steps shrinks on its way into the message as well, which no rule counts on: each noised sum of gradients is a
release by itself, and the proximal step follows from it.

**SCAFFOLD** (Karimireddy et al. 2020, *SCAFFOLD: Stochastic Controlled Averaging for Federated Learning*,
Algorithm 1, option II). A device keeps a control variate c_i and adds ``c - c_i`` to every gradient, where c
is the server's. After K steps that moved its model by x_i, it sets ``c_i <- c_i - c - x_i / (rate K)``.
The paper sends this change too. Nothing has to be sent: the change is a function of c, which is public,
and of x_i, which the message is. So the server takes the mean change of those who take part from the noised
average X of the messages: ``c <- c + f (-c - X / (rate K))``, f their share among all. Devices use the
clipped x_i, so that both sides speak of the same. What is released is the average of messages, as in FedAvg,
and the ledger is the same, with two exceptions that follow from c_i, which remembers earlier rounds:

* A device's message depends on rounds in which it took part before. A draw that nobody sees is therefore
  charged as seen, as with error feedback.
* A record's effect stays in c_i where it is not drawn into later batches, so draws of mini-batches amplify
  nothing.

Where edges aggregate between, c_j of another device would depend on hidden averages of earlier rounds,
against which the cut bound does not charge; so SCAFFOLD goes with one aggregation a round.
"""

from __future__ import annotations

from collections.abc import Callable

from sfumato.families import family_of
from sfumato.spec.document import Spec
from sfumato.spec.refusals import Refusal


def _without(reason: str, applies: Callable[[Spec], object]) -> Refusal[Spec]:
    return Refusal(
        applies,
        "training.drift_correction",
        lambda spec: spec.training.drift_correction.kind,
        f"must be none here: {reason}",
    )


def _scaffold_without(reason: str, applies: Callable[[Spec], object]) -> Refusal[Spec]:
    return _without(reason, lambda spec: spec.training.drift_correction.kind == "scaffold" and applies(spec))


DRIFT_CORRECTION: tuple[Refusal[Spec], ...] = (
    _without("control sets the step size by a theorem on plain steps", lambda spec: spec.control is not None),
    _scaffold_without(
        "workers of several groups would need control variates for each",
        lambda spec: family_of(spec).name != "tree",
    ),
    _scaffold_without(
        "it needs local_steps: how many steps an epoch has is each device's own secret",
        lambda spec: spec.training.local_steps is None,
    ),
    _scaffold_without(
        "momentum makes an update more than the sum of its gradients",
        lambda spec: spec.training.momentum > 0,
    ),
    _scaffold_without(
        "a clip of steps or examples does not bound the correction; use clip kind update",
        lambda spec: spec.privacy.clip is not None and spec.privacy.clip.kind != "update",
    ),
    _scaffold_without(
        "its mean counts all devices alike, and weights do not",
        lambda spec: spec.training.weights.kind != "uniform",
    ),
    _scaffold_without(
        "devices whose message is lost would remember it", lambda spec: spec.faults is not None
    ),
    _scaffold_without(
        "compression leaves coordinates out of the mean", lambda spec: spec.compression is not None
    ),
    _scaffold_without("over the air it is not derived", lambda spec: spec.sends_over_the_air),
)
"""What a correction does not go with: what is not derived above."""
