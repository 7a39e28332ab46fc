"""A clip norm that follows the lengths of updates, at no more than the privacy loss of a fixed one.

*Protocol* (Andrew, Thakkar, McMahan and Ramaswamy 2021, *Differentially Private Learning with Adaptive
Clipping*). In a round with clip norm C every device clips its update u to C. Its message has one coordinate
more than the model, the *indicator*: ``+i`` where u was not longer than C, ``-i`` where it was. Messages are
weighted, averaged and noised with this coordinate in them, wherever the spec places noise. From the average
indicator of the global average, divided by i, follows b, the noised share of messages that were not clipped,
and the next round's norm ``C * exp(-rate * (b - quantile))``.

*Accounting.* The unit U of a round's bounds and noise is the longest message: with ``i = sqrt(s) U``, where
s is ``share``, and ``C = sqrt(1 - s) U``, a message is never longer than ``sqrt(C^2 + i^2) = U``. A device
that is zeroed out sends zeros, in the indicator too, so it moves the sum by at most U, and by at most 2 U
where it is replaced. Averages are linear in messages, and noise of multiplier z has standard deviation z U in
every coordinate. So a round with the indicator is a round of a message of bound U under noise z U: the ledger
of a fixed clip norm, whose figures are multiples of U, is that of an adapted one.

U changes with the round. It follows from the global averages of rounds before, which everybody receives with
the model (`model` and indicator are coordinates of one release), so towards every observer it is the same in
both worlds, given what it saw; composition is adaptive. A hidden average of an edge is followed by a global
one before U changes. In groups that is not so: another group's average may be unseen for rounds, and the
standard deviation of the noise would tell of it. They refuse the key.

*Cost.* The update's noise is ``z U = z C / sqrt(1 - s)``. In the paper's terms, where the sum of indicators
of -1/2 and 1/2 has noise sigma_b and the sum of updates z_Delta C, ``s = (z / (2 sigma_b))^2`` and
``z_Delta = (z^-2 - (2 sigma_b)^-2)^(-1/2)``, which is (its) Theorem 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sfumato.errors import SpecError
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec
from sfumato.spec.privacy import AdaptiveNorm, Clip
from sfumato.spec.refusals import Refusal

PLACE = "privacy.clip.adapt"


def adaptive_clip_of(spec: Spec) -> tuple[Clip, AdaptiveNorm] | None:
    """The clip whose norm is adapted, and how; ``None`` where none is."""
    clip = spec.privacy.clip
    return None if clip is None or clip.adapt is None else (clip, clip.adapt)


def adaptive_clip_notes(spec: Spec) -> tuple[str, ...]:
    """What the user should hear of an adapted norm."""
    found = adaptive_clip_of(spec)
    if found is None:
        return ()
    clip, adapt = found
    return (
        f"clip.adapt: norm {clip.norm:g} is that of round 1; every message also tells, under the same noise, "
        f"whether it was clipped, which takes {adapt.share:.3g} of its squared bound and costs no ε",
    )


def _without(reason: str, applies: Callable[[Spec], object]) -> Refusal[Spec]:
    return Refusal(applies, PLACE, None, f"must be left out here: {reason}")


ADAPTIVE_CLIP: tuple[Refusal[Spec], ...] = (
    _without("control plans its rounds for one clip norm", lambda spec: spec.control is not None),
    _without("compression would have to keep the indicator apart", lambda spec: spec.compression is not None),
    _without("the power of the air is set for one clip norm", lambda spec: spec.sends_over_the_air),
    _without(
        "a round that is sent again is clipped twice, and would have two indicators",
        lambda spec: spec.training.global_update == "resend",
    ),
    _without(
        "a mechanism of one's own may depend on the length of what it is given",
        lambda spec: spec.privacy.mechanism is not None,
    ),
)
"""What needs a fixed norm."""


def require_fixed_clip(spec: Spec, reason: str) -> None:
    """Refuse an adapted norm.

    Raises:
        SpecError: the norm is adapted; the message ends in ``reason``.
    """
    if adaptive_clip_of(spec) is not None:
        raise SpecError(PLACE, None, f"must be left out here: {reason}")


def with_clip_norm(plan: TreePlan, norm: float) -> TreePlan:
    """``plan`` with another clip norm for updates, and nothing else changed.

    Args:
        plan: with a clip of whole updates.
        norm: positive.
    """
    privacy = plan.spec.privacy
    assert privacy.clip is not None
    clip = privacy.clip.model_copy(update={"norm": norm})
    privacy = privacy.model_copy(update={"clip": clip})
    return replace(plan, spec=plan.spec.model_copy(update={"privacy": privacy}))
