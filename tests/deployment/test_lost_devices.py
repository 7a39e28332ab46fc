"""Devices that are lost within the dropouts that the spec declares: the model of `run`, no sum too many."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from deployed_parties import Stage, staged
from losing_devices import (
    FIRST,
    MayFail,
    Silence,
    drawn,
    from_phase,
    kind_of,
    model_of,
    played,
    recorded,
    rehearsed_with,
    staying,
)
from rehearsals import STAR, TREE, model_bytes, on_the_grid, rehearsed, spec_of

from sfumato.deployment.masked_hops import masked_terms
from sfumato.deployment.messages import (
    RoundPosition,
)
from sfumato.deployment.subtree import Subtree
from sfumato.deployment.terms import DeploymentTerms
from sfumato.errors import RunError, SfumatoError
from sfumato.run_folder.metrics_table import METRICS_FILE, read_metrics
from sfumato.schedule.faults.dropouts import PHASES, Attendance
from sfumato.schedule.resolve import resolve
from sfumato.secure_aggregation.messages import MessageKind
from sfumato.secure_aggregation.server import Phase
from sfumato.simulation.finished_run import load_run
from sfumato.simulation.run import run
from sfumato.spec.document import Spec
from sfumato.verify.checker import check_run
from sfumato.wire import errors
from sfumato.wire.frames import parse_frame

pytestmark = pytest.mark.usefixtures("no_report")

RATES = {"advertise": 0.03, "share": 0.03, "mask": 0.06, "consent": 0.03, "unmask": 0.03}
PLAIN_STAR = STAR | {"faults": {"dropout_rate": 0.3}}
PLAIN_EDGES = TREE | {"faults": {"dropout_rate": 0.3}}
DRAWN_EDGES = PLAIN_EDGES | {
    "training": TREE["training"] | {"participation": {"kind": "poisson", "rate": 0.8}}
}
MASKED_STAR = STAR | {
    "topology": {"kind": "star", "devices": 5},
    "transport": {"devices_to_cloud": "secure-aggregation"},
    "faults": {"dropout_rate": RATES},
}
MASKED_EDGES = TREE | {
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 5},
    "transport": {"devices_to_edge": "secure-aggregation"},
    "faults": {"dropout_rate": RATES},
}
MASKED_TWICE = MASKED_STAR | {
    "protocol": "hdp",
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 5},
    "transport": {"devices_to_edge": "secure-aggregation", "edge_to_cloud": "secure-aggregation"},
    "privacy": STAR["privacy"] | {"noise": {"multiplier": 1.1, "placement": {"device": 0.5, "edge": 0.5}}},
}
"""Sessions of five devices have a sum of at least four."""


def test_as_many_are_needed_in_a_masked_sum_as_the_account_counts(tmp_path: Path) -> None:
    """Of devices two thirds, of edges all, though two thirds of six would be five."""
    six = MASKED_TWICE | {"topology": {"kind": "tree", "edges": 6, "devices_per_edge": 5}}
    with staged(six, tmp_path) as stage:
        terms = stage.terms
        assert [terms.fewest(node) for node in (terms.cloud, terms.edge(0))] == [6, 4]
        assert [terms.may_lose_children(node) for node in (terms.cloud, terms.edge(0))] == [False, True]


@pytest.mark.parametrize("children", range(2, 31))
def test_so_many_may_side_with_the_aggregator_and_no_more(children: int) -> None:
    """The most c with 2t > n + c and t - c >= 2: see `masked_hops`."""
    for fewest in range(children // 2 + 1, children + 1):
        said = SimpleNamespace(fewest=lambda node, t=fewest: t, children=lambda node: range(children))
        found = DeploymentTerms.colluders(cast(DeploymentTerms, said), 0)
        allowed = [c for c in range(children) if 2 * fewest > children + c and fewest - c >= 2]
        assert found == max(allowed)


def with_losses(document: dict[str, Any]) -> tuple[Spec, Silence]:
    """The spec with the first seed under which devices are lost, under masks in several phases, and every
    aggregation comes to a sum."""
    phases = 2 if "transport" in document else 1
    for seed in range(500):
        spec = spec_of(document, seed=seed)
        plan = resolve(spec)
        rounds, silent = spec.training.rounds, drawn(plan)
        seen = {
            silent(device, RoundPosition(number, index))
            for number in range(rounds)
            for index in range(len(plan.aggregations))
            for device in range(plan.parties.device_count)
        }
        came = Attendance.of(plan, rounds)
        if len(seen - {Phase.DONE}) >= phases and came is not None and came.survivors.all():
            return spec, silent
    raise AssertionError


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(PLAIN_STAR, id="star"),
        pytest.param(PLAIN_EDGES, id="two levels, several aggregations a round"),
        pytest.param(DRAWN_EDGES, id="two levels, drawn devices"),
        pytest.param(MASKED_STAR, id="star, masked"),
        pytest.param(MASKED_EDGES, id="two levels, masked, several aggregations a round"),
        pytest.param(MASKED_TWICE, id="two levels, both masked"),
    ],
)
def test_the_model_is_that_of_run_with_the_same_losses(document: dict[str, Any], tmp_path: Path) -> None:
    spec, silent = with_losses(document)
    with on_the_grid():
        expected = run(spec, out=tmp_path / "expected", device="cpu", progress=False)
    with rehearsed_with(silent):
        folder = rehearsed(spec, tmp_path)
    assert model_bytes(folder) == model_bytes(expected.folder)


@pytest.mark.parametrize("document", [PLAIN_STAR, MASKED_STAR, PLAIN_EDGES], ids=["star", "masked", "edges"])
def test_a_run_folder_says_nothing_of_losses_that_nobody_knows(
    document: dict[str, Any], tmp_path: Path
) -> None:
    """Those of the seed are those of `run`: real devices are lost otherwise, and edges do not tell who."""
    with rehearsed_with(from_phase(Phase.MASK, 0)):
        folder = rehearsed(spec_of(document), tmp_path, simulated=False)
    assert check_run(folder.path).problems == []
    guarantees = json.loads((folder.path / "privacy.json").read_text())["guarantees"]
    assert all(row.get("ex_post") is None for row in guarantees)
    assert not load_run(folder.path).privacy.ex_post
    table, _ = read_metrics(folder.path / METRICS_FILE)
    assert all(math.isnan(value) for value in table["noise_std"])


def test_a_run_that_stopped_below_the_threshold_goes_on_when_devices_are_back(tmp_path: Path) -> None:
    """The model is that of a run without losses: what was recorded before is what is sent."""
    spec = spec_of(MASKED_STAR)
    (tmp_path / "whole").mkdir()
    whole = rehearsed(spec, tmp_path / "whole")

    def second_round(device: int, position: RoundPosition) -> Phase:
        return Phase.UNMASK if device < 2 and position.round == 1 else Phase.DONE

    with rehearsed_with(second_round), pytest.raises(errors.BelowThresholdError, match="round 2"):
        rehearsed(spec, tmp_path)
    assert model_bytes(rehearsed(spec, tmp_path, resume=True)) == model_bytes(whole)


@pytest.fixture(name="star")
def fixture_star(tmp_path: Path) -> Iterator[Stage]:
    with staged(MASKED_STAR, tmp_path) as stage:
        yield stage


@pytest.fixture(name="plain")
def fixture_plain(tmp_path: Path) -> Iterator[Stage]:
    with staged(PLAIN_STAR, tmp_path) as stage:
        yield stage


@pytest.mark.parametrize("phase", PHASES)
def test_one_of_five_may_be_lost_in_any_phase(star: Stage, phase: Phase) -> None:
    """Whoever has sent its masked vector is in the sum."""
    released = played(star, model_of(star), silent=from_phase(phase, 3))
    there = (0, 1, 2, 3, 4) if phase > Phase.MASK else (0, 1, 2, 4)
    assert np.array_equal(released, recorded(star, *there))
    again = played(star, model_of(star), 1)  # it is back
    everybody = recorded(star, 0, 1, 2, 3, 4, position=RoundPosition(1, 0))
    assert np.array_equal(again, everybody)


@pytest.mark.parametrize("phase", PHASES)
def test_with_two_lost_there_is_no_sum_until_they_are_back(star: Stage, phase: Phase) -> None:
    """The list that was told, or is told when they are back, is that of all five."""
    with pytest.raises(errors.BelowThresholdError) as stopped:
        played(star, model_of(star), silent=from_phase(phase, 1, 3))
    assert "4 needed; nothing is revealed; lost: device:1 (has ended), device:3 (has ended)" in str(
        stopped.value
    )
    assert "\n" not in str(stopped.value)
    assert star.cloud().released is None
    before = [recorded(star, device) for device in (0, 2, 4)]
    star.restart(star.terms.cloud)
    released = played(star, model_of(star))
    assert np.array_equal(released, recorded(star, 0, 1, 2, 3, 4))
    for device, own in zip((0, 2, 4), before, strict=True):
        assert np.array_equal(recorded(star, device), own)


def told_of_survivors(stage: Stage, lost: int) -> None:
    """Play a first attempt without ``lost`` until all others have signed the list of survivors."""
    silent, waiting = from_phase(Phase.MASK, lost), stage.cloud().ask(0, model_of(stage))
    signed = 0
    while signed < 4:
        data = waiting.pop(0)
        recipient = parse_frame(data).recipient
        if recipient == stage.terms.cloud:
            waiting += stage.cloud().receive(data)
            continue
        try:
            waiting += MayFail(stage, recipient, silent).receive(data)
            signed += kind_of(data) == MessageKind.SURVIVORS
        except RunError as error:
            waiting += stage.cloud().lose(recipient, error)


@pytest.mark.parametrize("restarted", [[5], [0, 5], [0, 1, 2, 3, 4, 5]])
def test_an_attempt_after_the_list_was_told_comes_to_the_same_sum(star: Stage, restarted: list[int]) -> None:
    """Device 3 is back, and could be in the sum. With it, the difference of two sums were its message."""
    told_of_survivors(star, lost=3)
    expected = recorded(star, 0, 1, 2, 4)
    for number in restarted:
        star.restart(number)
    assert np.array_equal(played(star, model_of(star)), expected)


def test_who_is_on_the_list_that_was_told_is_needed(star: Stage) -> None:
    told_of_survivors(star, lost=3)
    star.restart(star.terms.cloud)
    with pytest.raises(errors.BelowThresholdError, match=r"device:0 \(has ended\) is needed"):
        played(star, model_of(star), silent=from_phase(Phase.SHARE, 0))
    assert star.cloud().released is None


@pytest.mark.parametrize("restarted", [[], [0, 1, 2, 3, 4]])
def test_no_second_list_of_survivors_is_signed(star: Stage, restarted: list[int]) -> None:
    """An aggregator that has forgotten its list, or lies, would learn the message of device 3."""
    told_of_survivors(star, lost=3)
    star.restart(star.terms.cloud)
    (star.folder / f"memory-{star.terms.cloud}").unlink()
    for number in restarted:
        star.restart(number)
    with pytest.raises(errors.BelowThresholdError, match="another list of survivors was signed before"):
        played(star, model_of(star))
    assert star.cloud().released is None


def test_no_share_is_revealed_of_a_list_that_was_not_signed(star: Stage) -> None:
    """Device 0 has signed another list: whatever signatures of others it is shown, it stays out."""
    told_of_survivors(star, lost=3)
    star.restart(star.terms.cloud)
    (star.folder / f"memory-{star.terms.cloud}").unlink()
    waiting, asked = star.cloud().ask(0, model_of(star)), None
    while waiting:
        data = waiting.pop(0)
        recipient = parse_frame(data).recipient
        if recipient == 0 and kind_of(data) == MessageKind.SURVIVORS:
            asked = data
            break
        waiting += star.party(recipient).receive(data)
    assert asked is not None
    with pytest.raises(errors.RevealRefusedError):
        star.device(0).receive(asked)
    with pytest.raises(errors.OutOfOrderMessageError, match="not under way"):
        star.device(0).receive(asked)  # nothing of this session is answered any more


@pytest.mark.parametrize("seed", range(3))
def test_an_aggregator_that_forgets_all_learns_one_sum_however_often_it_asks(star: Stage, seed: int) -> None:
    """Devices fall silent and are killed at random; the aggregator has a new memory in every attempt.

    A device would be known as soon as there were two sums.
    """
    rng, sums, stopped = np.random.default_rng(seed), [], 0
    for _ in range(20):
        phases = [Phase(rng.choice(PHASES)) if rng.random() < 0.2 else Phase.DONE for _ in range(5)]
        try:
            sums.append(played(star, model_of(star), silent=lambda device, _, now=phases: now[device]))
        except errors.BelowThresholdError:
            stopped += 1
        for number in np.flatnonzero(rng.random(5) < 0.3).tolist():
            star.restart(number)
        star.restart(star.terms.cloud)
        (star.folder / f"memory-{star.terms.cloud}").unlink()
    assert sums
    assert stopped
    assert all(np.array_equal(one, sums[0]) for one in sums)


def test_the_threshold_is_what_the_account_counts_on(tmp_path: Path) -> None:
    """And under it the session's guarantee holds for every number of devices."""
    with staged(MASKED_STAR, tmp_path) as stage:
        terms = stage.terms
        plan = terms.plan
        least = plan.releases.guaranteed_contributors
        assert least is not None
        for devices in range(2, 40):
            for share in (None, 0.51, 0.6, 0.9, 1.0):
                faults = {"dropout_rate": 0.1} | ({} if share is None else {"survival_threshold": share})
                other = resolve(
                    spec_of(MASKED_STAR, topology={"kind": "star", "devices": devices}, faults=faults)
                )
                keys = tuple(number.to_bytes(32, "big") for number in range(devices + 1))
                session = masked_terms(
                    replace(terms, plan=other, keys=keys), devices, FIRST, bytes(32), bytes(16)
                )
                counted = other.releases.guaranteed_contributors
                assert counted is not None
                assert session.threshold == session.share_threshold == counted[0] > devices / 2
                assert session.threshold <= min(other.releases.unmask_thresholds[0])


def test_plain_answers_are_added_up_without_those_that_are_lost(plain: Stage) -> None:
    released = played(plain, model_of(plain), silent=from_phase(Phase.MASK, 1))
    assert np.array_equal(released, recorded(plain, 0, 2))
    again = played(plain, model_of(plain), 1)  # device 1 answers its first question: it was lost before
    assert np.array_equal(again, recorded(plain, 0, 1, 2, position=RoundPosition(1, 0)))


def test_a_device_that_was_lost_does_not_go_back_or_beyond_the_run(plain: Stage) -> None:
    for position in (RoundPosition(3, 0), RoundPosition(1, 1)):
        with pytest.raises(errors.OutOfOrderMessageError):
            plain.terms.require_turn(position, FIRST, skips=True)
    plain.terms.require_turn(RoundPosition(2, 0), FIRST, skips=True)
    with pytest.raises(errors.OutOfOrderMessageError):
        plain.terms.require_turn(RoundPosition(2, 0), FIRST)


def test_an_answer_that_is_refused_counts_as_none(plain: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    device = plain.device(1)
    answer = device.receive
    monkeypatch.setattr(device, "receive", lambda data: [frame[:-1] + b"x" for frame in answer(data)])
    released = played(plain, model_of(plain))
    assert np.array_equal(released, recorded(plain, 0, 2))


def test_a_network_that_is_down_is_no_dropout(plain: Stage) -> None:
    with pytest.raises(
        RunError, match="cloud: round 1, aggregation 1: nobody answers; the last was device:2"
    ):
        played(plain, model_of(plain), silent=from_phase(Phase.MASK, 0, 1, 2))


@pytest.mark.parametrize("document", [STAR, MASKED_STAR | {"faults": {"dropout_rate": 0.0}}])
def test_without_declared_dropouts_nobody_may_be_lost(document: dict[str, Any], tmp_path: Path) -> None:
    with staged(document, tmp_path) as stage:
        for phase in (Phase.ADVERTISE, Phase.MASK):
            with pytest.raises(SfumatoError, match="has ended"):
                played(stage, model_of(stage), silent=from_phase(phase, 1))
            assert stage.cloud().released is None
            stage.restart(stage.terms.cloud)
        assert played(stage, model_of(stage), silent=staying) is not None


@pytest.mark.parametrize("document", [PLAIN_EDGES, MASKED_EDGES])
def test_an_edge_that_carries_frames_to_its_devices_goes_on(document: dict[str, Any], tmp_path: Path) -> None:
    """As in a process of its own: its parent is told of the sum only, and not who was lost."""
    with staged(document, tmp_path) as stage:
        terms = stage.terms
        silent = from_phase(Phase.MASK, 1)
        frames = stage.cloud().ask(0, model_of(stage))
        for data in frames:
            edge = parse_frame(data).recipient
            below = {device: MayFail(stage, device, silent) for device in terms.children(edge)}
            (answer,) = Subtree(stage.edge(edge), below).receive(data)
            assert parse_frame(answer).recipient == terms.cloud
            assert len(parse_frame(answer).payload) == 8 + 32 + 8 * terms.parameters
            stage.cloud().receive(answer)
        assert stage.cloud().released is not None


def test_an_edge_may_not_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account counts on its noise, and a masked hop above it on its message."""
    with staged(PLAIN_EDGES, tmp_path) as stage:

        def ended(data: bytes) -> list[bytes]:
            raise RunError("edge:1: has ended")

        monkeypatch.setattr(stage.edge(stage.terms.edge(1)), "receive", ended)
        with pytest.raises(RunError, match="edge:1: has ended"):
            played(stage, model_of(stage))
        assert stage.cloud().released is None


@pytest.mark.parametrize("restored", [[0, 1, 2, 4, 5], [0, 1, 2, 3, 4, 5]])
def test_folders_that_were_put_back_give_no_second_sum(star: Stage, restored: list[int]) -> None:
    """Memories do not notice; the owners' ledgers do. The difference of two sums were x3 − x0."""
    with pytest.raises(errors.BelowThresholdError):
        played(star, model_of(star), silent=from_phase(Phase.SHARE, 1, 3))
    for number in range(6):
        star.restart(number)
        shutil.copy(star.folder / f"memory-{number}", star.folder / f"backup-{number}")
    assert played(star, model_of(star), silent=from_phase(Phase.MASK, 3)) is not None
    for number in restored:
        star.restart(number)
        shutil.copy(star.folder / f"backup-{number}", star.folder / f"memory-{number}")
    with pytest.raises(errors.BelowThresholdError, match="another copy of this device has answered"):
        played(star, model_of(star), silent=from_phase(Phase.MASK, 0))
    assert star.cloud().released is None
