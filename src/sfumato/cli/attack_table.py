"""Tables of attack results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sfumato.cli.console import console, empty_table, with_noun
from sfumato.rounding import number, upper_bound

_WHAT = {
    "record": "Is an example in a device's data?",
    "device": "Did a device take part with its data?",
    "label": "Does a device hold a label?",
}
_SCORES = {"ssim": "SSIM", "psnr": "PSNR dB", "mse": "MSE", "lpips": "LPIPS"}


def print_attack(result: Mapping[str, Any], titled: Callable[[str], str]) -> None:
    """Print ``result``, the content of ``attacks/KIND-OBSERVER.json``, as tables.

    ``titled`` turns a party's name into its title.
    """
    result = {**result, "observer": titled(result["observer"])}
    if result["kind"] == "inversion":
        _print_reconstructions(result)
    else:
        _print_rates(result)
    for note in result["notes"]:
        console().print(f"note: {note}")


def _print_reconstructions(result: Mapping[str, Any]) -> None:
    """Print the mean scores of reconstructions, for each attack and for the class-mean baseline."""
    out, images = console(), result["images"]
    out.print(
        f"{result['spec']}, inversion as {result['observer']}: {with_noun(len(images), 'image')} from "
        f"{with_noun(len(result['targets']), 'target')}; the first target: {result['targets'][0]}"
    )
    out.print()
    measures = list(result["guess"])
    numbers = [*(_SCORES[name] for name in measures), "labels", "s a target"]
    shown = empty_table("attack", *numbers, right=tuple(numbers))
    for row in result["results"]:
        scores = [_format_mean(row["scores"][name]) for name in measures]
        shown.add_row(
            row["attack"], *scores, f"{row['label_accuracy']:.0%}", f"{row['seconds_a_target']:.1f}"
        )
    shown.add_row(
        "baseline: class mean", *(_format_mean(result["guess"][name]) for name in measures), "–", "–"
    )
    out.print(shown)
    beside = result["beside_guess"]
    out.print(
        f"SSIM of the best explanation against the baseline, paired by image: better with p = "
        f"{beside['p_better']:.2g}, worse with p = {beside['p_worse']:.2g} (Wilcoxon, one-sided)"
    )


def _format_mean(score: float | str) -> str:
    """A mean score with three digits, or ∞; ``score``: a number, or ``inf``, as which JSON has ∞."""
    return "∞" if score == "inf" else f"{float(score):.3f}"


def _print_rates(result: Mapping[str, Any]) -> None:
    """Print a table of true-positive rates of membership and property attacks."""
    out = console()
    out.print(
        f"{result['spec']}, {result['kind']} as {result['observer']}: "
        f"{with_noun(len(result['targets']), 'device')} attacked, "
        f"{with_noun(result['rounds'], 'round')} recorded"
    )
    levels: dict[str, list[Mapping[str, Any]]] = {}
    for row in result["results"]:
        levels.setdefault(row["level"], []).append(row)
    for level, rows in levels.items():
        bound = rows[0]["bound"]
        out.print()
        out.print(
            f"{_WHAT[level]} {rows[0]['members']:,} members, {rows[0]['others']:,} non-members; "
            f"guaranteed ε = {upper_bound(float(bound['epsilon']))} at δ = {number(bound['delta'])} "
            f"({bound['neighbours']})"
        )
        numbers = ("TPR at FPR 0.1 %", "at 1 %", "AUC")
        shown = empty_table("attack", *numbers, right=numbers)
        for row in rows:
            low, one = row["tpr_at"]["0.001"], row["tpr_at"]["0.01"]
            exceeds = "  EXCEEDS THE BOUND" if row["exceeds_bound"] else ""
            shown.add_row(
                row["attack"] + exceeds, _format_rate(low), _format_rate(one), _format_rate(row["auc"])
            )
        out.print(shown)


def _format_rate(estimate: Mapping[str, float]) -> str:
    """A rate with its 95 % interval as text; ``estimate`` has ``value``, ``low`` and ``high``, 0 to 1."""
    return f"{estimate['value']:.3f} [{estimate['low']:.3f}–{estimate['high']:.3f}]"
