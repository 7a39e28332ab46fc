"""Secure aggregation over real parties: the model of `run`, sums only, and attempts that may be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed_parties import Stage, staged
from rehearsals import STAR, TREE, model_bytes, rehearsed, spec_of

from sfumato.deployment.messages import FrameKind, RoundPosition, decode_masking, encode_masking
from sfumato.simulation.run import run
from sfumato.wire import errors
from sfumato.wire.frames import Frame, parse_frame, seal_frame

pytestmark = pytest.mark.usefixtures("no_report")

MASKED_STAR = STAR | {"transport": {"devices_to_cloud": "secure-aggregation"}}
MASKED_EDGES = TREE | {
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
    "transport": {"devices_to_edge": "secure-aggregation"},
}
BOTH_HOPS = {"transport": {"devices_to_edge": "secure-aggregation", "edge_to_cloud": "secure-aggregation"}}
HDP = (
    STAR
    | {
        "name": "hdp",
        "protocol": "hdp",
        "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 3},
    }
    | BOTH_HOPS
)


def placed(**placement: Any) -> dict[str, Any]:
    """HDP with noise where ``placement`` says."""
    return HDP | {"privacy": HDP["privacy"] | {"noise": {"multiplier": 1.1, "placement": placement}}}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(MASKED_STAR, id="star"),
        pytest.param(MASKED_EDGES, id="two levels, several aggregations a round"),
        pytest.param(placed(device=0.5, edge=0.5), id="HDP, C3"),
        pytest.param(placed(device_fraction=0.67, cloud=True), id="HDP, C5"),
    ],
)
def test_the_model_is_that_of_run(document: dict[str, Any], tmp_path: Path) -> None:
    """Nothing of `run` is replaced: under masks it sends whole numbers too."""
    spec = spec_of(document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.engine.local._TILE_BYTES", 1)
        expected = run(spec, out=tmp_path / "expected", device="cpu", progress=False)
    assert model_bytes(rehearsed(spec, tmp_path)) == model_bytes(expected.folder)
