"""A clip norm that follows the lengths of updates, at no more than the privacy loss of a fixed one.

In a round with clip norm C a message has one coordinate more than the model, the *indicator*: ``+i`` where
the update was not longer than C, ``-i`` where it was. The unit U of a round's bounds and noise is the longest
message: with ``i = sqrt(s) U``, where s is ``share``, and ``C = sqrt(1 - s) U``, a message is never longer
than ``sqrt(C^2 + i^2) = U``. So a round with the indicator is one of a message of bound U under noise z U,
and the facts of a fixed clip norm, whose figures are multiples of U, are those of an adapted one. From b, the
noised share of messages that were not clipped, follows the next norm ``C * exp(-rate * (b - quantile))``.
Why U may change from round to round, and what it costs: docs/accounting.md, "Adapted clip norms".
"""

from __future__ import annotations

from dataclasses import replace

from sfumato.errors import SpecError
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec
from sfumato.spec.privacy import AdaptiveNorm, ClipSettings
from sfumato.spec.refusals import Refusals

PLACE = "privacy.clip.adapt"


def adaptive_clip_of(spec: Spec) -> tuple[ClipSettings, AdaptiveNorm] | None:
    """The section ``privacy.clip`` and its part ``adapt``; ``None`` unless the clip norm adapts."""
    clip = spec.privacy.clip
    return None if clip is None or clip.adapt is None else (clip, clip.adapt)


def adaptive_clip_notes(spec: Spec) -> tuple[str, ...]:
    """A tuple with one note to the user about an adapted clip norm; empty where the norm is fixed."""
    found = adaptive_clip_of(spec)
    if found is None:
        return ()
    clip, adapt = found
    return (
        f"clip.adapt: norm {clip.norm:g} is that of round 1; every message also tells, under the same noise, "
        f"whether it was clipped, which takes {adapt.share:.3g} of its squared bound and costs no ε",
    )


def adaptive_clip_refusals(spec: Spec) -> Refusals:
    """The settings that cannot be combined with an adapted clip norm, as rows (applies, key, value, allowed).

    If ``applies`` of a row is true, the spec is refused with an error about ``key``.
    """
    for applies, reason in (
        (spec.control is not None, "control plans its rounds for one clip norm"),
        (spec.compression is not None, "compression would have to keep the indicator apart"),
        (spec.sends_over_the_air, "the power of the air is set for one clip norm"),
        (spec.training.global_update == "resend",
         "a round that is sent again is clipped twice, and would have two indicators"),
        (spec.privacy.mechanism is not None,
         "a mechanism of one's own may depend on the length of what it is given"),
    ):  # fmt: skip
        yield applies, PLACE, None, f"must be left out here: {reason}"


def require_fixed_clip(spec: Spec, reason: str) -> None:
    """Refuse a spec whose clip norm is adapted.

    Raises:
        SpecError: the norm is adapted; the message ends in ``reason``.
    """
    if adaptive_clip_of(spec) is not None:
        raise SpecError(PLACE, None, f"must be left out here: {reason}")


def with_clip_norm(plan: TreePlan, norm: float) -> TreePlan:
    """A copy of ``plan`` whose spec has the l2 clip norm ``norm``; nothing else changes.

    Args:
        plan: with a clip of whole updates.
        norm: the new ``privacy.clip.norm``, positive.
    """
    privacy = plan.spec.privacy
    assert privacy.clip is not None
    clip = privacy.clip.model_copy(update={"norm": norm})
    privacy = privacy.model_copy(update={"clip": clip})
    return replace(plan, spec=plan.spec.model_copy(update={"privacy": privacy}))
