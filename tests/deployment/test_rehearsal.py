"""A spec whose parties are real trains the model that `run` trains on the same grid, to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rehearsals import STAR, TREE, model_bytes, on_the_grid, rehearsed, spec_of

from sfumato.simulation.run import run

pytestmark = pytest.mark.usefixtures("no_report")

QUIET = {"privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": "none"}}
RECORDS = {
    "training": STAR["training"] | {"local_steps": 1, "batches": "poisson"},
    "privacy": {"unit": "record", "clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 1.0}},
}
DRAWN = {"training": STAR["training"] | {"rounds": 5, "participation": {"kind": "poisson", "rate": 0.4}}}
EDGES_DRAWN = {"training": TREE["training"] | DRAWN["training"] | {"local_steps": 4}}
RECORDS_DRAWN = {"training": RECORDS["training"] | {"participation": {"kind": "poisson", "rate": 0.4}}}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(STAR, id="star, noise of devices"),
        pytest.param(STAR | {"trust": {"cloud": True}}, id="star, noise of the cloud"),
        pytest.param(STAR | RECORDS, id="star, records"),
        pytest.param(TREE, id="two levels, one edge trusted"),
        pytest.param(TREE | QUIET, id="two levels, no noise"),
        pytest.param(STAR | DRAWN, id="star, drawn devices, noise of devices"),
        pytest.param(STAR | DRAWN | {"trust": {"cloud": True}}, id="star, drawn devices, noise of the cloud"),
        pytest.param(STAR | RECORDS | RECORDS_DRAWN, id="star, drawn devices, records"),
        pytest.param(TREE | EDGES_DRAWN, id="two levels, drawn devices"),
    ],
)
def test_the_model_is_that_of_run_on_the_same_grid(document: dict[str, Any], tmp_path: Path) -> None:
    """Equal: rounding, noise, sums, offsets of the edges, the server's step.

    `run` does the same where its uplink is the integer one, and every device trains in a tile of its own: a
    product of matrices of another shape may round otherwise. With several aggregations in a round `run` adds
    floats of two edges where the cloud adds whole numbers: the bytes of these models are the same too.
    """
    spec = spec_of(document)
    with on_the_grid():
        expected = run(spec, out=tmp_path / "expected", device="cpu", progress=False)
    assert model_bytes(rehearsed(spec, tmp_path)) == model_bytes(expected.folder)
