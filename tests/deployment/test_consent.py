"""A device computes by itself what is learnt of it, and refuses more than its owner's consent allows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from deployed_parties import Stage, staged
from rehearsals import PURPOSE, STAR, TREE, rehearsed, spec_of, terms_of

from sfumato.accounting import account
from sfumato.deployment.consent import Consent, ConsentRefusedError, agree, read_consent
from sfumato.errors import SpecError

LIMITS: dict[str, Any] = {"cloud": 100, "public": 100, "own-edge": "trusted", "other-edge": 100}
LIMITS |= {"peer": 100, "other-device": 100}
DOCUMENT: dict[str, Any] = {
    "purposes": ["another", PURPOSE],
    "delta": 1e-5,
    "neighbours": "zero-out",
    "epsilon": {"device": LIMITS},
    "total": {"epsilon": 500.0, "delta": 1e-2},
}


def consent(**changed: Any) -> Consent:
    return Consent.model_validate(DOCUMENT | changed)


def limits(**changed: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): limit for name, limit in changed.items()}
    return {"epsilon": {"device": LIMITS | named}}


@pytest.fixture(name="tree")
def fixture_tree(tmp_path: Path) -> Iterator[Stage]:
    with staged(TREE, tmp_path) as stage:
        yield stage


def test_what_is_agreed_to_is_said_in_words(tree: Stage) -> None:
    words = agree(tree.terms, 0, consent(), tree.memory(0)).words
    assert words[0] == "device:0 takes part in tree, for: a test."
    assert "whose data are there or all zero (neighbours: zero-out)" in words[1]
    assert "own edge, edge:0: is trusted, and sees what device:0 sends raw." in words
    assert any(sentence.startswith("cloud: learns of device:0 at most ε = ") for sentence in words)
    assert len(words) == 2 + len(account(tree.terms.plan.spec, unit="device:0").guarantees)


@pytest.mark.parametrize(
    ("device", "changed", "said"),
    [
        (0, {"purposes": ["another"]}, "consents to another, and not to 'a test'"),
        (0, limits(cloud=0.5), "its consent allows 0.5 at epsilon.device.cloud"),
        (0, limits(own_edge=50), "edge:0 would learn ε = ∞"),
        (2, {}, "its consent says trusted at epsilon.device.own-edge, and the spec does not"),
        (0, limits(cloud="trusted"), "and the spec does not"),
        (0, {"epsilon": {"record": LIMITS}}, "says nothing at epsilon.device"),
        (0, {"total": {"epsilon": 1.0, "delta": 0.1}}, "its consent allows 1 at 0.1"),
        (0, {"total": {"epsilon": 500.0, "delta": 5e-6}}, "in all"),
    ],
)
def test_a_device_refuses_more(tree: Stage, device: int, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConsentRefusedError, match="device:") as refused:
        agree(tree.terms, device, consent(**changed), tree.memory(device))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not tree.memory(device).agreed(tree.terms.session)


def test_epsilon_is_taken_at_the_delta_of_the_consent(tree: Stage) -> None:
    exact = account(tree.terms.plan.spec, unit="device:0", observer="cloud", delta=1e-7).guarantees[0].epsilon
    strict = {"delta": 1e-7, **limits(cloud=exact * (1 + 1e-9))}
    agree(tree.terms, 0, consent(**strict), tree.memory(0))
    with pytest.raises(ConsentRefusedError):
        agree(tree.terms, 0, consent(**strict | limits(cloud=exact * (1 - 1e-9))), tree.memory(0))


RECORDS = STAR | {"privacy": STAR["privacy"] | {"unit": "record"}}
STRICT = {"device": dict.fromkeys(LIMITS, 0.01), "record": dict.fromkeys(LIMITS, 100)}


@pytest.mark.parametrize(
    ("document", "epsilon", "place"),
    [
        (RECORDS, STRICT, "epsilon.device.public"),  # the owner's limit of a kind that the spec leaves out
        (STAR, {"device": STRICT["record"], "record": STRICT["device"]}, "epsilon.record.public"),
        (RECORDS, {"device": STRICT["record"]}, "epsilon.record.public"),  # the spec's kind has no limit
    ],
)
def test_the_spec_does_not_choose_which_limits_count(
    tmp_path: Path, document: dict[str, Any], epsilon: dict[str, Any], place: str
) -> None:
    with staged(document, tmp_path) as stage, pytest.raises(ConsentRefusedError, match=place):
        agree(stage.terms, 0, consent(epsilon=epsilon), stage.memory(0))


def test_a_total_is_not_dodged_by_another_unit(tmp_path: Path) -> None:
    """A run whose spec protects records counts for the device too: the next run goes beyond its total."""
    limits_of_both = {"epsilon": {"device": LIMITS, "record": LIMITS}}
    with staged(RECORDS, tmp_path) as stage:
        exact = account(stage.terms.plan.spec, unit="record:0", observer="cloud").guarantees[0].epsilon
        once = consent(**limits_of_both, total={"epsilon": exact + 1, "delta": 0.1})
        agree(stage.terms, 0, once, stage.memory(0))
        assert len({kind for kind in ("device", "record") if stage.memory(0).spent(kind, "cloud")[0]}) == 2
        terms = terms_of(spec_of(STAR), stage.terms.parameters, stage.terms.keys, label="another")
        with pytest.raises(ConsentRefusedError, match="with this run"):
            agree(terms, 0, once, stage.memory(0))


REPLACED = STAR | {"privacy": STAR["privacy"] | {"neighbours": "replace"}}


@pytest.mark.parametrize(
    ("document", "own", "other"), [(STAR, "zero-out", "replace"), (REPLACED, "replace", "zero-out")]
)
def test_an_epsilon_of_another_relation_is_refused(
    tmp_path: Path, document: dict[str, Any], own: str, other: str
) -> None:
    with staged(document, tmp_path) as stage:
        with pytest.raises(ConsentRefusedError, match=f"neighbours {other}; the spec's ε are about {own}"):
            agree(stage.terms, 0, consent(neighbours=other), stage.memory(0))
        agree(stage.terms, 0, consent(neighbours=own), stage.memory(0))


def test_a_run_counts_once_and_all_runs_count(tmp_path: Path) -> None:
    with staged(STAR, tmp_path) as stage:
        memory = stage.memory(0)
        exact = account(stage.terms.plan.spec, unit="device:0", observer="cloud").guarantees[0].epsilon
        twice = consent(total={"epsilon": 2.5 * exact, "delta": 1e-3})
        agree(stage.terms, 0, twice, memory)
        agree(stage.terms, 0, twice, memory)  # a restart
        assert memory.spent("device", "cloud") == (pytest.approx(exact), pytest.approx(1e-5))
        keys = stage.terms.keys
        for number, allowed in ((1, True), (2, False)):
            terms = terms_of(spec_of(STAR), stage.terms.parameters, keys, label=f"run {number}")
            assert terms.session != stage.terms.session
            if allowed:
                agree(terms, 0, twice, memory)
                continue
            with pytest.raises(ConsentRefusedError, match="with this run"):
                agree(terms, 0, twice, memory)


def test_a_refusal_stops_a_rehearsal_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(ConsentRefusedError):
        rehearsed(spec_of(STAR), tmp_path, simulated=False, consent=consent(**limits(cloud=0.5)))
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").glob("*.parquet"))


def test_a_consent_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "consent.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT))
    assert read_consent(path) == consent()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"epsilon": {"device": {"cloud": -1}}},
            "epsilon.device.cloud: got -1; must be a number of 0 or more",
        ),
        ({"epsilon": {"device": {"moon": 1}}}, "moon"),
        ({"purposes": []}, "purposes"),
        ({"delta": 2}, "delta"),
        ({"totals": 1}, "totals"),
    ],
)
def test_a_file_that_says_something_else_is_refused(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    path = tmp_path / "consent.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT | changed))
    with pytest.raises(SpecError, match=r"consent\.yaml") as refused:
        read_consent(path)
    assert said in str(refused.value)
