"""A device computes by itself what is learnt of it, and refuses more than its owner's consent allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from deployed_parties import Stage, staged
from rehearsals import PURPOSE, STAR, TREE, rehearsed, spec_of, terms_of

from sfumato.accounting import account
from sfumato.deployment.consent import Consent, ConsentRefusedError, agree, proposed_consent, read_consent
from sfumato.deployment.duties import duties
from sfumato.deployment.ledger import OwnersLedger, RunCost
from sfumato.deployment.messages import RoundPosition
from sfumato.errors import RunError, SpecError
from sfumato.wire.errors import SessionMemoryError

LIMITS: dict[str, Any] = {"cloud": 100, "public": 100, "own-edge": "trusted", "other-edge": 100}
LIMITS |= {"peer": 100, "other-device": 100}
DOCUMENT: dict[str, Any] = {
    "purposes": ["another", PURPOSE],
    "delta": 1e-5,
    "neighbours": "zero-out",
    "ledger": "given",
    "epsilon": {"device": LIMITS},
    "total": {"epsilon": 500.0, "delta": 1e-2},
}


def consent(**changed: Any) -> Consent:
    return Consent.model_validate(DOCUMENT | changed)


def limits(**changed: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): limit for name, limit in changed.items()}
    return {"epsilon": {"device": LIMITS | named}}


def spent(path: Path, unit: str = "device", without: tuple[str, ...] = ()) -> tuple[float, float]:
    with closing(OwnersLedger(path)) as ledger:
        return ledger.spent(unit, without)


@pytest.fixture(name="tree")
def fixture_tree(tmp_path: Path) -> Iterator[Stage]:
    with staged(TREE, tmp_path) as stage:
        yield stage


def test_what_is_agreed_to_is_said_in_words(tree: Stage) -> None:
    words = agree(tree.terms, 0, consent(trusted=tree.pins()), tree.ledger(0)).words
    assert words[0] == "device:0 takes part in tree, for: a test."
    assert "that contributes what it has, or zeros (neighbours: zero-out)" in words[1]
    edge = f"edge:0 (key {tree.pins()['edge:0'][:32]}…)"
    assert words[2] == f"They rely on noise that is added by: other devices, {edge}."
    assert (
        f"own edge, edge:0 (key {tree.pins()['edge:0'][:32]}…): is trusted, and sees what device:0 sends raw."
        in words
    )
    assert any(sentence.startswith("cloud: learns of device:0 at most ε = ") for sentence in words)
    assert words[-2:] == duties(tree.terms, 0)
    rows = account(tree.terms.plan.spec, unit="device:0").guarantees
    assert len(words) == 5 + len({row.relation.words for row in rows})  # the largest of each kind
    assert len(set(words)) == len(words)


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
        agree(tree.terms, device, consent(trusted=tree.pins(), **changed), tree.ledger(device))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_epsilon_is_taken_at_the_delta_of_the_consent(tree: Stage) -> None:
    exact = account(tree.terms.plan.spec, unit="device:0", observer="cloud", delta=1e-7).guarantees[0].epsilon
    strict = {"delta": 1e-7, "trusted": tree.pins(), **limits(cloud=exact * (1 + 1e-9))}
    agree(tree.terms, 0, consent(**strict), tree.ledger(0))
    with pytest.raises(ConsentRefusedError):
        agree(tree.terms, 0, consent(**strict | limits(cloud=exact * (1 - 1e-9))), tree.ledger(0))


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
        agree(stage.terms, 0, consent(epsilon=epsilon), stage.ledger(0))


def test_a_total_is_not_dodged_by_another_unit(tmp_path: Path) -> None:
    """A run whose spec protects records counts for the device too: the next run goes beyond its total."""
    limits_of_both = {"epsilon": {"device": LIMITS, "record": LIMITS}}
    with staged(RECORDS, tmp_path) as stage:
        exact = account(stage.terms.plan.spec, unit="record:0", observer="cloud").guarantees[0].epsilon
        once = consent(**limits_of_both, total={"epsilon": exact + 1, "delta": 0.1})
        agree(stage.terms, 0, once, stage.ledger(0)).book()
        assert spent(stage.ledger(0), "record") > spent(stage.ledger(0)) > (0, 0)
        terms = terms_of(spec_of(STAR), stage.terms.parameters, stage.terms.keys, label="another")
        with pytest.raises(ConsentRefusedError, match="with this run"):
            agree(terms, 0, once, stage.ledger(0))


REPLACED = STAR | {"privacy": STAR["privacy"] | {"neighbours": "replace"}}


@pytest.mark.parametrize(
    ("document", "own", "other"), [(STAR, "zero-out", "replace"), (REPLACED, "replace", "zero-out")]
)
def test_an_epsilon_of_another_relation_is_refused(
    tmp_path: Path, document: dict[str, Any], own: str, other: str
) -> None:
    with staged(document, tmp_path) as stage:
        with pytest.raises(ConsentRefusedError, match=f"neighbours {other}; the spec's ε are about {own}"):
            agree(stage.terms, 0, consent(neighbours=other), stage.ledger(0))
        agree(stage.terms, 0, consent(neighbours=own), stage.ledger(0))


def test_a_run_counts_once_and_all_runs_count(tmp_path: Path) -> None:
    with staged(STAR, tmp_path) as stage:
        ledger = stage.ledger(0)
        exact = account(stage.terms.plan.spec, unit="device:0", observer="cloud").guarantees[0].epsilon
        twice = consent(total={"epsilon": 2.5 * exact, "delta": 1e-3})
        agree(stage.terms, 0, twice, ledger).book()
        agree(stage.terms, 0, twice, ledger).book()  # a restart
        assert spent(ledger) == (pytest.approx(exact), pytest.approx(1e-5))
        keys = stage.terms.keys
        for number, allowed in ((1, True), (2, False)):
            terms = terms_of(spec_of(STAR), stage.terms.parameters, keys, label=f"run {number}")
            assert terms.session != stage.terms.session
            if allowed:
                late = agree(terms, 0, twice, ledger)
                agree(terms, 0, twice, ledger).book()
                late.book()
                continue
            with pytest.raises(ConsentRefusedError, match="with this run"):
                agree(terms, 0, twice, ledger)


def test_runs_agreed_to_at_once_are_not_booked_beyond_the_total(tmp_path: Path) -> None:
    with staged(STAR, tmp_path) as stage:
        once, ledger = consent(total={"epsilon": 20.0, "delta": 0.1}), stage.ledger(0)
        other = terms_of(spec_of(STAR), stage.terms.parameters, stage.terms.keys, label="another")
        first, second = agree(stage.terms, 0, once, ledger), agree(other, 0, once, ledger)
        first.book()
        with pytest.raises(ConsentRefusedError, match="with this run"):
            second.book()
        assert spent(ledger)[0] < 20


def test_a_run_is_booked_with_its_first_answer_and_not_before(tmp_path: Path) -> None:
    with staged(STAR, tmp_path) as stage:
        device = stage.device(0)
        assert spent(stage.ledger(0)) == (0, 0)
        (question, *_) = stage.cloud().ask(0, np.zeros(stage.terms.parameters, np.float32))
        device.receive(question)
        assert spent(stage.ledger(0))[0] > 10


def test_a_run_under_way_is_booked_in_a_ledger_that_does_not_hold_it(tmp_path: Path) -> None:
    """Its owner names another ledger, or an older copy of it comes back: later answers are booked there."""
    with staged(STAR, tmp_path) as stage:
        stage.play(np.zeros(stage.terms.parameters, np.float32))
        (tmp_path / "ledger-0").unlink()
        stage.restart(0)
        assert spent(stage.ledger(0)) == (0, 0)
        stage.play(np.zeros(stage.terms.parameters, np.float32), 1)
        assert spent(stage.ledger(0))[0] > 10


def test_a_ledger_in_a_folder_where_others_can_write_is_refused(tmp_path: Path) -> None:
    """A sticky folder too: others could put a journal beside it, which the next opening would roll back."""
    OwnersLedger.create(tmp_path / "ledger")
    tmp_path.chmod(0o1777)
    try:
        with pytest.raises(RunError, match="may be changed by others"):
            OwnersLedger(tmp_path / "ledger")
    finally:
        tmp_path.chmod(0o700)


def test_a_ledger_adds_the_largest_of_each_run_over_kinds_of_observers(tmp_path: Path) -> None:
    """One party may be the cloud of one run and an edge of another."""
    OwnersLedger.create(tmp_path / "ledger")
    with closing(OwnersLedger(tmp_path / "ledger")) as ledger:
        for number, seen in enumerate(({"cloud": 3.0, "peer": 1.0}, {"cloud": 1.0, "own-edge": 4.0})):
            told = {("device", kind): epsilon for kind, epsilon in seen.items()}
            ledger.book(RunCost(bytes([number]), 0, "zero-out", 1e-5, told))
    assert spent(tmp_path / "ledger") == (7.0, pytest.approx(2e-5))
    assert spent(tmp_path / "ledger", without=("own-edge",)) == (4.0, pytest.approx(2e-5))
    assert spent(tmp_path / "ledger", "record") == (0, 0)


def test_a_device_that_lies_behind_its_ledger_answers_nothing(tmp_path: Path) -> None:
    """An older memory was put back: the ledger, which is outside, has a later answer."""
    OwnersLedger.create(tmp_path / "ledger")
    ledger, session = OwnersLedger(tmp_path / "ledger"), bytes(32)
    for _ in range(2):
        ledger.note(session, 0, RoundPosition(1, 0), b"an answer")
    for behind in (RoundPosition(0, 1), RoundPosition(0, 0)):
        with pytest.raises(SessionMemoryError, match="another copy of this device has answered"):
            ledger.note(session, 0, behind, b"an earlier one")
    ledger.note(session, 1, RoundPosition(0, 0), b"of another device")
    ledger.note(session, 0, RoundPosition(1, 1), b"the next")
    ledger.close()


def test_a_ledger_that_is_gone_or_of_another_relation_is_refused(tmp_path: Path) -> None:
    with staged(STAR, tmp_path) as stage:
        with pytest.raises(SessionMemoryError, match="no ledger of a data owner"):
            agree(stage.terms, 0, consent(), tmp_path / "gone")
        with closing(OwnersLedger(stage.ledger(0))) as ledger:
            ledger.book(RunCost(b"other", 0, "replace", 1e-5, {("device", "cloud"): 1.0}))
        with pytest.raises(ConsentRefusedError, match="holds runs with neighbours replace"):
            agree(stage.terms, 0, consent(), stage.ledger(0))


def test_raw_messages_go_only_to_a_key_that_the_consent_pins(tree: Stage) -> None:
    for pinned in ({}, {"edge:0": "00" * 32}, {"edge:1": tree.pins()["edge:0"]}):
        with pytest.raises(ConsentRefusedError, match="does not pin this key"):
            agree(tree.terms, 0, consent(trusted=pinned), tree.ledger(0))


def test_a_trusted_site_has_one_name(tmp_path: Path) -> None:
    """The one that the topology gives, in the words and in the consent."""
    sites = [{"name": "graz", "devices": 2}, {"name": "linz", "devices": 2}]
    named = {"kind": "tree", "level_names": ["hospital"], "sites": sites}
    with staged(TREE | {"topology": named, "trust": {"trusted": ["graz"]}}, tmp_path) as stage:
        proposed = proposed_consent(stage.terms, 0, stage.ledger(0))
        assert list(proposed.trusted) == ["graz"]
        words = " ".join(agree(stage.terms, 0, proposed, stage.ledger(0)).words)
        assert words.count("graz (key ") == 2


def test_what_is_proposed_never_says_any(tmp_path: Path) -> None:
    """Nobody adds noise towards the cloud of this spec, and nobody trusts it."""
    silent = STAR | {"privacy": STAR["privacy"] | {"noise": "none"}}
    with staged(silent, tmp_path) as stage:
        proposed = proposed_consent(stage.terms, 0, stage.ledger(0))
        assert "any" not in str(proposed.epsilon)
        with pytest.raises(ConsentRefusedError, match="its consent says nothing"):
            agree(stage.terms, 0, proposed, stage.ledger(0))


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
