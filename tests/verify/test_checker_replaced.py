"""Replaced units under a draw that nobody sees: what the accountant states passes, smaller claims do not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from certified_folders import STAR, certified_folder, forge
from test_checker_mixtures import drawn, problems, stated

import sfumato as sf
from sfumato.privacy.release import DrawnNoise
from sfumato.privacy.sampling import Sampling
from sfumato.verify.checker import check_run

REPLACED = ["privacy.neighbours=replace", "training.rounds=3"]


@pytest.mark.parametrize(
    "change",
    [
        {"apart": [0.4, 0.4]},
        {"shares_a_part": False, "apart": [1.0, 1.0]},  # the pair of a unit that is zeroed out
        {"apart": [0.5, 0.4]},
    ],
)
def test_a_unit_nearer_to_a_round_without_it_is_found(change, tmp_path):
    folder = certified_folder(tmp_path, sf.load_spec(STAR, REPLACED))
    assert check_run(folder).problems == []

    def forged(privacy: Any, ledger: Any) -> None:
        bounds = [bound for row in ledger["certificates"]["rows"] for bound in row["bounds"].values()]
        terms = [term for bound in bounds for term in bound["terms"] if term.get("sampling")]
        hidden = [term["sampling"] for term in terms if term["sampling"].get("hidden", True)]
        assert hidden
        for sampling in hidden:
            assert (sampling["shares_a_part"], sampling["apart"]) == (True, [0.5, 0.5])
            sampling.update(change)

    forge(folder, forged)
    assert any("does not follow from the releases" in problem for problem in check_run(folder).problems)


def test_a_mixture_is_of_pairs_that_are_as_far_apart_as_the_releases_say():
    draw = drawn((DrawnNoise(5, (0.2, 0.1)),))
    standing = tuple(replace(release, noise_is_draw_independent=True) for release in draw.releases)
    draw = replace(draw, sampling=Sampling.poisson(0.3), releases=standing)
    terms, failure = stated(draw, "replace")
    assert problems(draw, terms, failure, "replace") == []
    for change in ({"apart": [0.4, 0.4]}, {"shares_a_part": False}):
        forged = json.loads(json.dumps(terms))
        forged[0]["sampling"].update(change)
        assert any("terms: apart" in problem for problem in problems(draw, forged, failure, "replace"))
