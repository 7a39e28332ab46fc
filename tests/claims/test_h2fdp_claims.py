"""Prop. 3.1 of H2FDP: beside its claim stands the condition that it is stated for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfumato import account, load_spec
from sfumato.claims import tree_claims
from sfumato.schedule.resolve import resolve


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ((), "with q = 0.008333 and L = 200 global aggregations this is met if c₁ > 0.6; "),
        ((), "if c₁ > 72 (H2)"),
        (
            ("privacy.noise.epsilon=2", "training.rounds=50"),
            "L = 50 global aggregations this is met if c₁ > 4.8; ",
        ),
        (
            ("training.batch_size=all",),
            "with q = 1 and L = 200 global aggregations this is met if c₁ > 0.005; ",
        ),
    ],
)
def test_the_condition_of_the_proposition_is_said(changes: tuple[str, ...], says: str) -> None:
    claims = account(load_spec("h2fdp-fmnist", changes), observer="cloud").claims
    assert claims
    assert all(says in claim.why and claim.why.endswith("(H2).") for claim in claims)


def test_a_claim_that_holds_says_it_too() -> None:
    report = account(load_spec("h2fdp-fmnist", ["privacy.noise.c2=1000"]), observer="cloud")
    (claim, *_) = [claim for claim in report.claims if claim.holds]
    assert claim.why.startswith("the noise that stays in what this observer sees suffices for the claimed ε;")
    assert "ε < c₁qL only and leaves c₁ open" in claim.why


@pytest.mark.needs("hub")
def test_noise_that_was_sized_for_another_partition_keeps_its_claim() -> None:
    changes = ["data.source=digits", "data.partition={kind: iid}"]
    resolved = resolve(load_spec("h2fdp-fmnist", changes)).spec
    shards = "{kind: flwr, partitioner: IidPartitioner}"
    written = resolved.model_dump(mode="json", by_alias=True, exclude_none=True)
    report = account(load_spec(written, [f"data.partition={shards}"]), observer="cloud")
    assert "q is not known before the data are divided (H2)." in report.claims[0].why


def test_a_protocol_that_no_claim_is_registered_for_has_none() -> None:
    plan = resolve(load_spec("h2fdp-fmnist"))
    assert tree_claims(plan, 1e-5)
    unknown = replace(plan, spec=plan.spec.model_copy(update={"protocol": "of-tomorrow"}))
    assert tree_claims(unknown, 1e-5) == ()
