"""What a page says of published claims: each reading of a source, before or after the draw, by name."""

from __future__ import annotations

import math

import pytest

from sfumato.network.tree import star
from sfumato.privacy.claim import Claim
from sfumato.report.figures.claims import claims_figure, claims_sentence
from sfumato.report.results.network import Network
from sfumato.report.results.observer_labels import labels_for

LABELS = labels_for(Network(star(4), {}))


def claim(source: str, claimed: float, rigorous: float, observer: str = "public", why: str = "") -> Claim:
    return Claim(source, "device:0", observer, claimed, rigorous, why)


def test_two_readings_of_one_source_are_not_one_range() -> None:
    """Theorem 1 of DP-OGL has a formula in its text and another in its figures."""
    place = "DP-OGL Thm. 1 (18), "
    by_rdp = [claim(f"{place}counts x RDP", value, 20.0) for value in (5.25, 8.182)]
    by_text = [claim(f"{place}2 pi^2 alpha/sigma^2", value, 20.0) for value in (10.59, 17.58)]
    (said,) = claims_sentence([*by_rdp, *by_text], LABELS)
    assert "claims ε = 5.25 to 8.182 (by counts × RDP) or 10.59 to 17.58 (by 2π²α/σ²);" in said
    assert "by each of these readings it is not proved. Provable: 20 towards the public." in said
    holding = [claim(f"{place}2 pi^2 alpha/sigma^2", 30.0, 20.0)]
    (said,) = claims_sentence([*by_rdp, *holding], LABELS)
    assert "; by counts × RDP it is not proved; by 2π²α/σ² it is proved. Provable" in said


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("mixture over Binomial(1, 0.1) participations", "7.8 towards the public before the draw and"),
        (
            "a device drawn in the unit's place is up to twice the sensitivity away (P4)",
            "7.8 towards the public before the draw, another device taking its place and",
        ),
        ("every device takes part", "7.8 towards the public and"),
    ],
)
def test_one_round_says_whether_the_draw_counts(why: str, said: str) -> None:
    source = "PFELS Thm. 3, one round"
    claims = [
        claim(source, 1.5, 7.8, why=why),
        claim(source, 1.5, 9.7, "cloud", "this observer sees who is drawn"),
        claim("PFELS Thm. 3, all 20 rounds", 1.5, 26.9, why=why),
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
