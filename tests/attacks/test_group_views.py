"""Attacks on what observers among groups received."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sfumato as sf
from sfumato.accounting import pair_guarantee
from sfumato.attacks.attack_context import AttackContext
from sfumato.attacks.group_observations import AttackedGroups
from sfumato.attacks.membership import measure_membership
from sfumato.attacks.property import measure_properties
from sfumato.errors import SpecError
from sfumato.schedule.group_participation import draw_assignments
from sfumato.simulation.run import run
from sfumato.spec.load import load_spec

pytestmark = pytest.mark.usefixtures("no_report_in_module")

ERROR = 1e-6


def played(folder: Path, observers: tuple[str, ...], multiplier: float, **changes: Any) -> Path:
    """Workers in groups that share one with the next; each overfits a few digits."""
    document: dict[str, Any] = {
        "name": "groups",
        "protocol": "dp-ogl",
        "data": {"source": "digits", "partition": {"kind": "labels", "labels_per_device": 3}},
        "model": {"kind": "softmax"},
        "topology": {
            "kind": "groups",
            "structure": "list",
            "groups": [list(range(16)), list(range(15, 30)), list(range(29, 100))],
        },
        "training": {"rounds": 3, "merge_every": 2, "local_steps": 40, "batch_size": "all"}
        | {"learning_rate": 0.5}
        | dict(changes.pop("training", {})),
        "privacy": {"delta": 1e-5, "clip": {"kind": "update", "norm": 1.0}}
        | {"noise": {"multiplier": multiplier}},
    }
    run(load_spec(document | changes), out=folder, device="cpu", record_views=observers)
    return folder


def groups_of(context: AttackContext) -> AttackedGroups:
    assert isinstance(context.attacked, AttackedGroups)
    return context.attacked


@pytest.fixture(scope="module")
def noised(no_report_in_module: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(
        tmp_path_factory.mktemp("noised") / "run", ("master:0", "device:3", "device:3,device:20"), 4.0
    )


def test_raw_messages_to_a_trusted_master_give_everything_away(noised: Path) -> None:
    context = AttackContext.of_run(noised, "master:0")
    found = {
        (one.level, one.attack): one for one in (*measure_membership(context), *measure_properties(context))
    }
    assert all(one.epsilon == np.inf for one in found.values())
    # by Hoeffding, chance gives this with probability below 1e-6
    room = np.sqrt(np.log(1 / ERROR) / 2)
    online = found["record", "LiRA, online"].roc
    assert online.auc.value > 0.5 + room / np.sqrt(min(online.members, online.non_members))
    assert found["device", "likelihood ratio"].roc.auc.value > 0.95
    assert found["label", "shadow devices"].roc.auc.value > 0.95


def test_noised_models_keep_their_promise(noised: Path) -> None:
    context = AttackContext.of_run(noised, "device:3")
    assert set(context.targets) == set(range(16)) - {3}
    own = max(
        pair_guarantee(context.plan, f"device:{target}", "device:3", delta=1e-5).epsilon
        for target in context.targets
    )
    assert context.guaranteed_epsilon("zero-out") == pytest.approx(own)
    for one in (*measure_membership(context), *measure_properties(context)):
        assert not one.exceeds, one


@pytest.mark.parametrize("observer", ["master:0", "device:3", "device:3,device:20"])
def test_observations_are_what_was_recorded(noised: Path, observer: str) -> None:
    context = AttackContext.of_run(noised, observer)
    for target in (0, 15):
        rows = context.observations[target]
        groups = [0, 1] if target == 15 and "20" in observer else [0]
        assert [row.round for row in rows] == [n for n in range(3) for _ in groups]
        models = dict.fromkeys(groups, context.initial)
        for number in range(3):
            vectors = context.view.vectors(number)
            of_round = [row for row in rows if row.round == number]
            merged = torch.stack(list(models.values())).mean(dim=0)
            for group, row in zip(groups, of_round, strict=True):
                start = merged if number % 2 == 0 else models[group]
                assert torch.equal(row.start, start)
                assert (row.first_step, row.last_step) == (0, 40)
                size = len(groups_of(context).plan.groups.members_of(group))
                if observer == "master:0":
                    moved = vectors[0, "sent", 2, target]
                    assert (row.share, row.other_devices, row.noise_std) == (1, 0, 0)
                else:
                    moved = vectors[0, "broadcast", 1, group] - models[group]
                    assert (row.share, row.other_devices) == (1 / size, size - 1)
                    assert row.noise_std == pytest.approx(4.0 / size)
                torch.testing.assert_close(row.end - row.start, moved, rtol=1e-4, atol=1e-6)
            models = {group: vectors[0, "broadcast", 1, group] for group in groups}


def test_sums_and_draws_are_used_where_they_are_seen(tmp_path: Path) -> None:
    """A master of secure sums knows who is drawn, and adds nothing itself."""
    more = {"training": {"participation": {"kind": "poisson", "rate": 0.5}, "rounds": 4}}
    folder = played(
        tmp_path / "run", ("master:0", "device:3"), 2.0, trust={"trusted_aggregators": []},
        transport={"devices_to_master": "secure-aggregation"}, **more,
    )  # fmt: skip
    context = AttackContext.of_run(folder, "master:0")
    plan = groups_of(context).plan
    drawn = [draw_assignments(plan, number) for number in range(4)]
    for target in (0, 1, 2):
        rows = context.observations[target]
        there = [n for n, seats in enumerate(drawn) if target in seats.workers[seats.groups == 0]]
        assert [row.round for row in rows] == there
        for row in rows:
            vectors = context.view.vectors(row.round)
            assert row.share == 1 / 8
            assert row.noise_std == pytest.approx(2.0 * np.sqrt(8) / 8)
            torch.testing.assert_close(
                row.end - row.start, vectors[0, "received", 1, 0] / 8, rtol=1e-4, atol=1e-5
            )


def test_intervals_are_attacked_as_one_message(tmp_path: Path) -> None:
    more = {"protocol": "dp-ogl-local", "training": {"rounds": 4}}
    context = AttackContext.of_run(played(tmp_path / "run", ("master:0",), 4.0, **more), "master:0")
    rows = context.observations[0]
    assert [(row.round, row.last_step) for row in rows] == [(0, 80), (2, 80)]
    clip = groups_of(context).spec_of(0).privacy.clip
    assert clip is not None
    assert clip.norm == pytest.approx(np.sqrt(2))
    updates = context.attacker.updates(rows[0], [context.population.partition.indices(0)], 1)
    torch.testing.assert_close(updates[0], rows[0].end - rows[0].start, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"protocol": "dp-ogl+"}, "protocol"),
        ({"training": {"server": {"momentum": 0.5}}}, "training.server"),
        ({"compression": {"kind": "rand-k", "ratio": 0.5}}, "compression"),
    ],
)
def test_what_is_not_attacked_is_said(tmp_path: Path, changes: dict[str, Any], place: str) -> None:
    folder = played(tmp_path / "run", ("master:0",), 4.0, **changes)
    with pytest.raises(SpecError, match=place):
        sf.attack(folder, observer="master:0", kind="membership", progress=False)
