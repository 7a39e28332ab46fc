"""Attacks on what an observer received in a run, and measures of their success (docs/attacks.md).

    views.py                the vectors that a run recorded of an observer
    observations.py         what an observer saw of one device, as models before and after its work
    group_observations.py   the same of a worker in groups
    attack_context.py       the run, the observer, its observations, and the guaranteed ε
    shadow_models.py        what an attacker computes: shadow devices, likelihood ratios
    membership.py           attacks: is an example, or a device, in the training?
    property.py             attacks: does a device hold a label?
    roc.py                  ROC curves with exact confidence bounds
    results.py              measurements beside the guaranteed ε, and their file
    inversion.py            attacks: reconstruct images
    inversion_targets.py    the sums of updates that an inversion starts from
    inversion_problem.py    one inversion: unknown images, labels, simulated training
    gradient_matching.py    inversion by gradient matching (DLG, iDLG, cosine)
    closed_form.py          inversion in closed form, for a linear first layer
    label_recovery.py       labels from gradients
    image_metrics.py        MSE, PSNR, SSIM, LPIPS, matching of images, and the baseline of class means

May be imported by ``sfumato.cli`` and ``sfumato``; imports ``sfumato.simulation`` and ``sfumato.auditing``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.progress_bars import progress_bars

AttackKind = Literal["inversion", "membership", "property"]
KINDS: tuple[AttackKind, ...] = get_args(AttackKind)


def attack(run: str | Path, *, observer: str, kind: AttackKind, progress: bool = True) -> dict[str, Any]:
    """Attack what an observer received in a run; the result is also written to the run folder.

    Args:
        run: a run folder with the observer's view, see ``record_views`` of `sfumato.run`.
        observer: a party, or a coalition joined by commas.
        kind: ``inversion`` reconstructs images; ``membership`` decides which examples and devices the
            training used; ``property`` decides which labels a device holds.
        progress: whether a bar is drawn, on a terminal and in a notebook.

    Returns:
        ``attacks/KIND-OBSERVER.json`` (docs/attacks.md).

    Raises:
        SpecError: there is no such run, view or kind, or nothing in the view that this attack can use.
        RunError: the run is damaged.
    """
    if kind not in KINDS:
        raise SpecError(Argument("kind"), kind, ", ".join(KINDS))
    with progress_bars(wanted=progress) as bars:
        done = bars.counter(f"{kind} as {observer}")
        if kind == "inversion":
            from sfumato.attacks.inversion import attack_by_inversion

            return attack_by_inversion(Path(run), observer, done)
        from sfumato.attacks.attack_context import AttackContext
        from sfumato.attacks.membership import measure_membership
        from sfumato.attacks.property import measure_properties
        from sfumato.attacks.results import write_result

        context = AttackContext.of_run(Path(run), observer)
        measure = measure_membership if kind == "membership" else measure_properties
        return write_result(Path(run), kind, context, measure(context, done))


__all__ = ["KINDS", "attack"]
