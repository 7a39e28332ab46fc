"""The sheet of a party says the figures that are deployed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from deployed_parties import staged
from rehearsals import STAR, TREE

from sfumato.deployment.duties import duties
from sfumato.deployment.messages import RoundPosition
from sfumato.rounding import lower_bound

MASKED = STAR | {"transport": {"devices_to_cloud": "secure-aggregation"}}


def test_a_star(tmp_path: Path) -> None:
    with staged(STAR, tmp_path) as stage:
        grid = stage.terms.grid(RoundPosition(0, 0))
        std = float(stage.terms.plan.device_stds_of(0, np.array([0]))[0])
        steps = grid.device_rounding(0, 1.0, std).noise_std
        assert lower_bound(steps / grid.scale * 3) == "0.5773"  # the noise of all three has multiplier 1
        device, parent = duties(stage.terms, 0)
        assert device.startswith("device:0 clips its update to 1, rounds it to multiples of ")
        assert "adds discrete Gaussian noise of σ = 0.5773;" in device
        assert device.endswith("its message counts in the global average divided by 3.")
        assert parent == "It sends to cloud, which sees each message."
        assert duties(stage.terms, 3) == ("cloud adds up the messages of 3 below it and adds no noise.",)


def test_two_levels_and_masks(tmp_path: Path) -> None:
    with staged(TREE, tmp_path) as stage:
        assert (
            "adds no noise; its message counts in the global average divided by 4."
            in duties(stage.terms, 0)[0]
        )
        summed, average, parent = duties(stage.terms, 5)
        assert summed.startswith("edge:0 adds up the messages of 2 below it and adds discrete Gaussian noise")
        assert average == "Its average counts in the global one with weight 0.5."
        assert parent == "It sends to cloud, which sees each message."
    with staged(MASKED, tmp_path) as stage:
        hidden = "the sum of all below it, where at most 1 of them side with it"
        assert duties(stage.terms, 0)[1] == f"It sends to cloud, which learns only {hidden}."
        assert duties(stage.terms, 3)[0].startswith("cloud learns the sum of the messages of 3")


def test_lost_devices(tmp_path: Path) -> None:
    """Whoever consents reads among how many its message is hidden at least."""
    faults = {"faults": {"dropout_rate": 0.1}, "topology": {"kind": "star", "devices": 5}}
    with staged(MASKED | faults, tmp_path) as stage:
        among = "the sum of at least 4 of the 5 below it, where at most 2 of them side with it"
        assert duties(stage.terms, 0)[1] == f"It sends to cloud, which learns only {among}."
        without = "It goes on without devices that do not answer, with at least 4 of them."
        assert duties(stage.terms, 5)[1] == without
    (tmp_path / "plain").mkdir()
    with staged(STAR | faults, tmp_path / "plain") as stage:
        assert duties(stage.terms, 5)[1] == "It goes on without devices that do not answer."
