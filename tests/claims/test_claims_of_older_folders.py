"""Claims in folders of earlier versions say in words alone whether they speak of one round, and of whom."""

from __future__ import annotations

import pytest
from places import ROOT

from sfumato.accounting import account
from sfumato.privacy.claim import Claim
from sfumato.spec.load import load_spec

EXAMPLES = ROOT / "examples"
FACTS = ("one_round", "draw", "stated")


def as_earlier(claim: Claim) -> dict[str, object]:
    """The row of a claim as earlier versions wrote it."""
    return {key: value for key, value in claim.to_dict().items() if key not in FACTS}


@pytest.mark.parametrize(
    ("example", "overrides", "seen"),
    [
        ("hdp/c3.yaml", [], {"stated": {True, False}, "one_round": {False}, "draw": {"none"}}),
        ("hdp/c7.yaml", [], {"stated": {True, False}, "one_round": {False}, "draw": {"none"}}),
        (
            "pfels/pfels.yaml",
            ["training.rounds=3"],
            {"stated": {True}, "one_round": {True, False}, "draw": {"seen", "unseen"}},
        ),
        (
            "pfels/pfels.yaml",
            ["training.rounds=3", "training.participation={kind: all}"],
            {"stated": {True}, "one_round": {True, False}, "draw": {"none"}},
        ),
        (
            "pfels/paper-constants.yaml",
            ["training.rounds=3"],
            {"stated": {True}, "one_round": {True, False}, "draw": {"seen", "replaced"}},
        ),
    ],
)
def test_what_claims_speak_of_is_read_from_their_words(
    example: str, overrides: list[str], seen: dict[str, set[object]]
) -> None:
    claims = account(load_spec(EXAMPLES / example, overrides)).claims
    assert {fact: {getattr(claim, fact) for claim in claims} for fact in FACTS} == seen
    for claim in claims:
        for row in (as_earlier(claim), claim.to_dict()):
            read = Claim.from_dict(row)
            assert {fact: getattr(read, fact) for fact in FACTS} == {
                fact: getattr(claim, fact) for fact in FACTS
            }
