"""Views are data: what is recorded is what the ledger says a coalition receives, all of it and no more."""

from __future__ import annotations

import math
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from view_worlds import OBSERVERS, PLACES, WORLDS, Heard, Played, play, receives, zones

from sfumato.attacks.views import RecordedView, load_view
from sfumato.errors import RunError, SpecError
from sfumato.privacy.observers import Party
from sfumato.protocols.view_recorder import Recorder
from sfumato.run_folder.damage import check_folder
from sfumato.run_folder.reader import load_run
from sfumato.run_folder.rounds_log import RoundsLog
from sfumato.run_folder.view_files import round_file, slug
from sfumato.schedule.base import Plan
from sfumato.schedule.faults.dropouts import Attendance
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.schedule.tree import TreePlan
from sfumato.simulation import run as simulate
from sfumato.spec.document import Spec

KINDS = ("sent", "received", "broadcast")


def without_noise(spec: Spec) -> Spec:
    document = spec.model_dump()
    # groups are refused without any: so little is none in float32
    document["privacy"]["noise"] = {"multiplier": 1e-9} if "ogl" in spec.protocol else "none"
    return Spec.model_validate(document)


def heard(played: Played, observer: str, folder: Path) -> Heard:
    """What the observer has of the only round played, by way of the file."""
    sha256 = played.recorders[observer].write(folder, 0)
    return dict(RecordedView(folder, observer, (sha256,)).vectors(0))


@pytest.mark.parametrize(("world", "observer"), PLACES)
def test_a_view_holds_what_its_coalition_receives_and_nothing_else(
    world: str, observer: str, tmp_path: Path
) -> None:
    played = play(WORLDS[world], (observer,), 1)
    kept = heard(played, observer, tmp_path)
    everything = played.tap.rounds[0]
    assert set(kept) == {key for key in everything if receives(played.plan, observer, key)}
    assert kept, "nobody is blind: the last model reaches everybody"
    for key, vector in kept.items():
        assert torch.equal(vector, everything[key])
    assert len(kept) < len(everything)


@pytest.mark.parametrize("world", ["edges", "global only", "tiers", "secure", "secure twice", "star"])
def test_what_is_recorded_is_as_noisy_as_the_ledger_charges(world: str, tmp_path: Path) -> None:
    """Of every device, the finest vector with its message holds the noise that its release declares."""
    spec = WORLDS[world]
    observers = tuple(name for name in OBSERVERS[world] if "device" not in name)
    noisy = play(spec, observers, 1)
    plan = noisy.plan
    assert isinstance(plan, TreePlan)
    quiet = play(without_noise(spec), (), 1).tap.rounds[0]
    looked_at = 0
    for observer in observers:
        coalition = parse_coalition(observer, plan.parties)
        kept = heard(noisy, observer, tmp_path)
        for unit in range(plan.tree.device_count):
            release = plan.releases.exposures(unit, coalition)[0].releases[0]
            key = finest(plan, kept, unit)
            if key is None or not took_part(quiet, plan, unit):
                continue
            gap = (kept[key] - quiet[key]).double()
            std = math.sqrt(release.variance) * plan.message_scale(0)
            if std == 0:
                assert float(gap.abs().max()) < 1e-6
                continue
            found = float(gap.square().mean().sqrt())
            # 650 coordinates: a chi-square this far out has probability below 1e-6
            assert found > 0.85 * std, (observer, unit, key)
            # models broadcast, and what a partner adds to, also hold noise that the observer knows
            if key[1] != "broadcast" and len(coalition) == 1:
                assert found < 1.15 * std, (observer, unit, key)
            looked_at += 1
    assert looked_at > 1


def finest(plan: TreePlan, kept: Heard, unit: int) -> tuple[int, str, int, int] | None:
    """The vector of the first aggregation with the fewest messages beside the unit's."""
    path = [*plan.tree.paths[plan.tree.leaf_of(unit)].tolist(), unit]
    for tier in range(plan.tree.depth, -1, -1):
        for kind in ("received", "sent", "broadcast"):
            if (0, kind, tier, path[tier]) in kept:
                return 0, kind, tier, path[tier]
    return None


def took_part(quiet: Heard, plan: TreePlan, unit: int) -> bool:
    return (0, "sent", plan.tree.depth, unit) in quiet


@pytest.mark.parametrize("world", list(WORLDS))
def test_no_vector_without_noise_is_in_a_view_with_finite_epsilon(world: str, tmp_path: Path) -> None:
    """Whatever is recorded and holds a protected device's message differs from its un-noised counterpart."""
    spec, met = WORLDS[world], 0
    noisy = play(spec, OBSERVERS[world], 1)
    quiet = play(without_noise(spec), (), 1).tap.rounds[0]
    for observer in OBSERVERS[world]:
        coalition = parse_coalition(observer, noisy.plan.parties)
        kept = heard(noisy, observer, tmp_path)
        for unit in range(noisy.plan.parties.device_count):
            if Party("device", 0, unit) in coalition or math.isinf(epsilon(noisy.plan, unit, coalition)):
                continue
            for key in kept.keys() & holding(noisy.plan, unit) & quiet.keys():
                gap = (kept[key] - quiet[key]).abs()
                assert float(gap.median()) > 1e-4, (observer, unit, key)
                met += 1
    assert met


def epsilon(plan: Plan, unit: int, coalition: tuple[Party, ...]) -> float:
    found = plan.releases.exposures(unit, coalition)
    return min(plan.releases.bound_epsilon(e, delta=1e-5, neighbours="zero-out").epsilon for e in found)


def holding(plan: Plan, unit: int) -> set[tuple[int, str, int, int]]:
    """All vectors of the first aggregation that the unit's message may be in."""
    if isinstance(plan, GroupPlan):
        own = plan.groups.groups_of(unit).tolist()
        return {(g, "sent", 2, unit) for g in own} | {(0, k, 1, g) for k in KINDS[1:] for g in own}
    assert isinstance(plan, TreePlan)
    path = [*plan.tree.paths[plan.tree.leaf_of(unit)].tolist(), unit]
    return {(0, kind, tier, party) for tier, party in enumerate(path) for kind in KINDS}


def test_an_elected_device_receives_as_supernode_in_the_rounds_it_serves(tmp_path: Path) -> None:
    spec = zones(
        topology={"kind": "tree", "edges": 3, "devices_per_edge": [3, 4, 5], "supernodes": "elected"}
    )
    rounds = 6
    played = play(spec, ("device:4",), rounds)
    attendance = Attendance.of(played.plan, rounds)
    assert attendance is not None
    served = [4 in terms[0][1] for terms in attendance.supernodes]
    recorder = played.recorders["device:4"]
    recorder.write(tmp_path, 0)  # all rounds in one file: keys repeat, so they are counted
    with np.load(tmp_path / round_file("device-4", 0)) as file:
        from_zone = np.sum((file["kind"] == "sent") & (file["tier"] == 2) & (file["party"] != 4))
    assert 0 < sum(served) < rounds
    assert from_zone == 3 * sum(served)  # the other three of zone 1, each by itself


@pytest.mark.usefixtures("no_report")
def test_a_killed_run_resumed_records_the_same_to_the_bit(tmp_path: Path) -> None:
    spec, observers = WORLDS["edges"], ("edge:0", "device:3,device:4")
    spec = spec.model_copy(update={"training": spec.training.model_copy(update={"rounds": 5})})
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    simulate.run(spec, out=whole, device="cpu", record_views=observers)
    playing = simulate.run_rounds(spec, out=parts, device="cpu", record_views=observers)
    next(playing)
    next(playing)
    playing.close()  # what an interrupt does
    (parts / round_file("edge-0", 2)).write_bytes(b"a round begun and never finished")
    simulate.run(spec, out=parts, device="cpu", resume=True)
    for observer in observers:
        first, second = (load_view(load_run(folder), observer) for folder in (whole, parts))
        assert first.rounds == second.rounds == (0, 1, 2, 3, 4)
        assert first.hashes == second.hashes
        for number in first.rounds:
            a, b = first.vectors(number), second.vectors(number)
            assert list(a) == list(b)
            assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.usefixtures("no_report")
def test_recording_changes_nothing_of_the_run(tmp_path: Path) -> None:
    for name in ("edges", "secure", "groups"):
        spec = WORLDS[name]
        silent = simulate.run(spec, out=tmp_path / name / "silent", device="cpu").model
        heard = simulate.run(
            spec, out=tmp_path / name / "heard", device="cpu", record_views=OBSERVERS[name]
        ).model
        for a, b in zip(silent.parameters(), heard.parameters(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.usefixtures("no_report")
def test_what_cannot_be_recorded_or_read_is_said(tmp_path: Path) -> None:
    spec = WORLDS["edges"]
    with pytest.raises(SpecError, match=r"record_views.*edge:9"):
        simulate.run(spec, out=tmp_path / "none", device="cpu", record_views=("edge:9",))
    playing = simulate.run_rounds(spec, out=tmp_path / "run", device="cpu", record_views=(" edge:0",))
    next(playing)
    playing.close()
    with pytest.raises(SpecError, match="has recorded edge:0; leave this option out"):
        simulate.run(spec, out=tmp_path / "run", device="cpu", resume=True, record_views=("cloud",))
    simulate.run(spec, out=tmp_path / "run", device="cpu", resume=True, record_views=("edge:0",))
    run = load_run(tmp_path / "run")
    assert load_view(run, "edge:0").rounds == (0, 1)
    with pytest.raises(SpecError, match="recorded: edge:0"):
        load_view(run, "cloud")


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("finished", [True, False])
def test_views_that_changed_or_are_gone_are_refused(finished: bool, tmp_path: Path) -> None:
    """A round left out, and every model after it would be another: an attack must not go on."""
    spec = WORLDS["edges"]
    spec = spec.model_copy(update={"training": spec.training.model_copy(update={"rounds": 4})})
    playing = simulate.run_rounds(spec, out=tmp_path, device="cpu", record_views=("edge:0", "cloud"))
    for _ in range(4 if finished else 3):
        next(playing)
    playing.close()
    if finished:
        simulate.run(spec, out=tmp_path, device="cpu", resume=True)
    path = tmp_path / round_file("edge-0", 1)
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:90] + bytes([whole[90] ^ 1]) + whole[91:], whole + b"x"):
        path.write_bytes(damaged)
        assert [one.name for one in check_folder(tmp_path)] == ["views/edge-0/round-000002.npz"]
        with pytest.raises(
            RunError, match=r"round-000002\.npz: cannot be read: its content differs from what the run wrote"
        ):
            load_view(load_run(tmp_path), "edge:0").vectors(1)
        with pytest.raises(RunError, match=r"round-000002\.npz: has SHA-256 .* it cannot be restored"):
            list(simulate.run_rounds(spec, out=tmp_path, device="cpu", resume=True))
    path.write_bytes((tmp_path / round_file("cloud", 1)).read_bytes())
    with pytest.raises(RunError, match="differs from what the run wrote"):
        load_view(load_run(tmp_path), "edge:0").vectors(1)
    path.unlink()
    with pytest.raises(RunError, match=r"views/edge-0: round 2 of [34] is missing"):
        load_view(load_run(tmp_path), "edge:0")
    with pytest.raises(RunError, match=r"round-000002\.npz: is missing; it cannot be restored"):
        list(simulate.run_rounds(spec, out=tmp_path, device="cpu", resume=True))
    path.write_bytes(whole)
    assert check_folder(tmp_path) == []
    assert len(load_view(load_run(tmp_path), "edge:0").vectors(1)) > 0


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("moment", ["view", "log", "round"])
def test_an_interrupt_loses_no_round_of_the_views(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in round 3 it comes: what counts as done has been recorded."""
    spec = WORLDS["edges"]
    spec = spec.model_copy(update={"training": spec.training.model_copy(update={"rounds": 4})})
    simulate.run(spec, out=tmp_path / "whole", device="cpu", record_views=("edge:0", "cloud"))
    place, name = {
        "view": (Recorder, "write"),
        "log": (RoundsLog, "add"),
        "round": (simulate.Session, "next"),
    }[moment]
    real, calls = getattr(place, name), 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == (6 if moment == "view" else 3):  # the second observer's, of two
            raise KeyboardInterrupt
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(place, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            simulate.run(spec, out=tmp_path / "cut", device="cpu", record_views=("edge:0", "cloud"))
    stopped = load_run(tmp_path / "cut")
    assert len(stopped.metrics) == 2
    assert load_view(stopped, "cloud").rounds == (0, 1)
    simulate.run(spec, out=tmp_path / "cut", device="cpu", resume=True)
    for observer in ("edge:0", "cloud"):
        whole, cut = (load_view(load_run(tmp_path / name), observer) for name in ("whole", "cut"))
        assert whole.hashes == cut.hashes
        assert len(whole.hashes) == 4


def test_views_are_for_the_owner_only(tmp_path: Path) -> None:
    """A trusted edge receives raw updates."""
    recorder = play(WORLDS["edges"], ("edge:1",), 1).recorders["edge:1"]
    recorder.write(tmp_path, 0)
    assert stat.S_IMODE((tmp_path / round_file("edge-1", 0)).stat().st_mode) == 0o600


def test_a_large_coalition_has_a_name_that_fits() -> None:
    crowd = ",".join(f"device:{n}" for n in range(200))
    assert len(slug(crowd)) == 120
    assert slug(crowd) != slug(f"{crowd},device:200")
    assert slug("edge:1,device:3") == "edge-1+device-3"


def test_views_of_a_coalition_are_more_than_those_of_its_members(tmp_path: Path) -> None:
    """Together members know what each knows, whoever is named first."""
    played = play(WORLDS["tiers"], ("cabinet:0", "device:11", "cabinet:0,device:11"), 1)
    parts = [heard(played, name, tmp_path) for name in ("cabinet:0", "device:11")]
    assert set(heard(played, "cabinet:0,device:11", tmp_path)) == parts[0].keys() | parts[1].keys()
