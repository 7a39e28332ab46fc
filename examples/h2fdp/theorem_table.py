"""Theorem 4.3 as printed and corrected, for H2FDP's default experiment at the largest step it allows.

python examples/h2fdp/theorem_table.py
"""

from __future__ import annotations

from pathlib import Path

from beside_the_paper import markdown

from sfumato.adaptive_control.bounds import BoundInputs, Constants
from sfumato.adaptive_control.problem import Gap
from sfumato.schedule.control.adaptive import local_aggregations, strength
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.spec.load import load_spec

LOSS = Constants(smoothness=48.0, gradient_noise=1.0, between=2.0, within=2.0, gradient=1.0)


def main() -> None:
    """Print the table."""
    plan = resolve_tree(load_spec(str(Path(__file__).parent / "control.yaml")))
    gap = Gap(7840, 1.0, strength(plan), 5, 5, local_aggregations(plan))
    inputs = BoundInputs(LOSS, 1 / (200 * LOSS.smoothness), 20, 200, 5, 5, gap)
    columns = [
        (inputs.printed_dispersions(), inputs.printed_terms(2.3)),
        (inputs.corrected_dispersions(), inputs.corrected_terms(2.3)),
    ]
    rows = [
        ["B₁²", *(f"{found.b1**2:.4g}" for found, _ in columns)],
        ["B₂²", *(f"{found.b2**2:.4g}" for found, _ in columns)],
        ["start", *(f"{terms.start:.3g}" for _, terms in columns)],
        ["drift (a₂)", *(f"{terms.drift:.3g}" for _, terms in columns)],
        ["noise (b)", *(f"{terms.noise:.3g}" for _, terms in columns)],
    ]
    print(markdown(["", "as printed", "corrected"], rows))


if __name__ == "__main__":
    main()
