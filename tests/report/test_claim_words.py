"""What a page says of published claims: each reading of a source, before or after the draw, by name."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from sfumato.network.tree import star
from sfumato.privacy.claim import Claim, ClaimedDraw
from sfumato.report.figures.claims import claims_figure, claims_table
from sfumato.report.results.claim_sentences import claims_by_reading, claims_sentence
from sfumato.report.results.network import Network
from sfumato.report.results.observer_labels import labels_for

LABELS = labels_for(Network(star(4), {}))


def claim(
    source: str, claimed: float, rigorous: float, observer: str = "public", why: str = "", **kinds: Any
) -> Claim:
    return Claim(source, "device:0", observer, claimed, rigorous, why, **kinds)


def test_two_readings_of_one_source_are_not_one_range() -> None:
    """Theorem 1 of DP-OGL has a formula in its text and another in its figures."""
    place = "DP-OGL Thm. 1 (18), "
    by_rdp = [claim(f"{place}counts x RDP", value, 20.0) for value in (5.25, 8.182)]
    by_text = [claim(f"{place}2 pi^2 alpha/sigma^2", value, 20.0) for value in (10.59, 17.58)]
    (said,) = claims_sentence([*by_rdp, *by_text], LABELS)
    assert "gives more than one ε, by counts × RDP (as the paper's figures are made) and 2π²α/σ² (by " in said
    assert said.endswith("the paper's text); none of them is proved.")
    cells = re.findall("<td[^>]*>(.*?)</td>", claims_by_reading([*by_rdp, *by_text], LABELS))
    assert cells == ["the public", "5.25 to 8.182: not proved", "10.59 to 17.58: not proved", "20"]
    holding = [claim(f"{place}2 pi^2 alpha/sigma^2", 30.0, 20.0)]
    (said,) = claims_sentence([*by_rdp, *holding], LABELS)
    assert said.endswith("; the table says where each is proved.")
    cells = re.findall("<td[^>]*>(.*?)</td>", claims_by_reading([*by_rdp, *holding], LABELS))
    assert cells[1:3] == ["5.25 to 8.182: not proved", "30: proved"]
    assert claims_by_reading(by_rdp, LABELS) == ""


def test_formulas_for_different_units_are_told_apart_by_unit() -> None:
    """HDP divides by the root of how many devices an edge has, which differs from edge to edge."""
    place = "HDP Sec. V, rule of Case 3, C1: ε/"
    both = [
        Claim(f"{place}√{count}", f"device:{unit}", "public", claimed, 2.0, "", stated=False)
        for unit, count, claimed in ((0, 30, 12.24), (1, 40, 10.6))
    ]
    assert claims_sentence(both, LABELS) == [
        "HDP Sec. V, rule of Case 3 would claim, towards the public, ε = 12.24 for device:0 (provable: 2) "
        "and 10.6 for device:1 (provable: 2); it holds. HDP divides the ε of one party's noise by the root "
        "of the number of parties that add noise."
    ]
    assert claims_by_reading(both, LABELS) == ""


def test_what_a_paper_states_of_the_cloud_is_told_apart_from_where_its_rule_is_applied() -> None:
    found = [
        claim("HDP Table I, C3: ε/√55", 3.781, 24.93, "cloud"),
        claim("HDP Table I, C3: ε/√55", 3.781, 2.21, stated=False),
    ]
    (said,) = claims_sentence(found, LABELS)
    assert said == (
        "HDP Table I gives ε = 3.781, towards the cloud: it does not hold there. Provable: 24.93 towards "
        "the cloud. Read towards the public, too, of whom it says nothing, it holds (2.21)."
    )
    (said,) = claims_sentence(found[1:], LABELS)
    assert said.startswith("HDP Table I would claim ε = 3.781; it holds.")


def test_pairs_with_the_same_reasons_share_a_line_and_own_reasons_have_their_formula() -> None:
    place = "DP-OGL Thm. 1 (17), "
    both = [
        claim(f"{place}counts x RDP", 1.0, 2.0, whom, "it counts 3; |N_m| must be public (O7)")
        for whom in ("device:1", "device:2")
    ]
    by_text = [
        claim(f"{place}2 pi^2 alpha/sigma^2", 1.0, 2.0, "device:1", "it counts 3; too small; |N_m| must be "
        "public (O7)")
    ]  # fmt: skip
    listed = re.findall("<li>(.*?)</li>", claims_table([*both, *by_text], LABELS))
    assert listed == [
        "It counts 3.",
        "|N_m| must be public (O7).",
        "Towards other devices (such as device 1): 2π²α/σ²: too small.",
    ]


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        ("unseen", "7.8 towards the public before the draw and"),
        ("replaced", "7.8 towards the public before the draw, another device taking its place and"),
        ("none", "7.8 towards the public and"),
    ],
)
def test_one_round_says_whether_the_draw_counts(draw: ClaimedDraw, said: str) -> None:
    source = "PFELS Thm. 3, one round"
    claims = [
        claim(source, 1.5, 7.8, one_round=True, draw=draw),
        claim(source, 1.5, 9.7, "cloud", one_round=True, draw="seen"),
        claim("PFELS Thm. 3, all 20 rounds", 1.5, 26.9, draw=draw),
    ]
    (sentence,) = claims_sentence(claims, LABELS)
    assert f"Provable for one round: {said} 9.7 towards the cloud for a device that is drawn;" in sentence


def test_an_endless_epsilon_stands_on_a_tick_of_its_own() -> None:
    source = "HDP Table I, C7: 28/√44"
    found = [claim(source, 4.0, 25.0), claim(source, 4.0, math.inf, "cloud")]
    figure = claims_figure(found, LABELS)
    assert figure is not None
    axis, marks = figure.layout["xaxis"], figure.data[-1]["x"]
    assert axis["ticktext"][-1] == "∞"
    assert axis["tickvals"][-1] == max(marks) > axis["tickvals"][-2]
    finite = claims_figure(found[:1], LABELS)
    assert finite is not None
    assert "∞" not in finite.layout["xaxis"]["ticktext"]
