import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from member_worlds import played, scenes
from scipy import stats

import sfumato as sf
from sfumato.accounting import pair_guarantee
from sfumato.attacks.attack_context import AttackContext
from sfumato.attacks.membership import lira_scores, measure_membership, split_members
from sfumato.attacks.results import AttackMeasurement
from sfumato.attacks.roc import ROC
from sfumato.errors import SpecError

ERROR = 1e-6
MULTIPLIER = 4.0


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> AttackContext:
    """An untrusted edge of devices that overfit and add no noise."""
    return scenes(tmp_path_factory.mktemp("bare") / "run", ("edge:0",), multiplier=None)["edge:0"]


@pytest.fixture(scope="module")
def noised(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, AttackContext]:
    """The edge and the cloud of such devices, with strong noise."""
    folder = tmp_path_factory.mktemp("noised") / "run"
    return scenes(folder, ("edge:0", "cloud"), multiplier=MULTIPLIER)


def by_name(found: tuple[AttackMeasurement, ...]) -> dict[tuple[str, str], AttackMeasurement]:
    return {(one.level, one.attack): one for one in found}


def test_members_and_others_are_balanced_and_disjoint(bare: AttackContext) -> None:
    everybody = bare.population
    held = {int(r) for d in range(everybody.partition.devices) for r in everybody.partition.indices(d)}
    assert not set(everybody.own) & set(everybody.candidates)
    for target in bare.targets:
        split = split_members(bare, target)
        assert len(split.members) == len(split.non_members) > 0
        assert set(split.members) <= set(everybody.partition.indices(target))
        assert not set(split.non_members) & held
        assert not set(split.non_members) & set(everybody.own)
        assert len(set(split.rows)) == len(split.rows)
        members, others = (np.sort(everybody.labels[part]) for part in (split.members, split.non_members))
        assert members.tolist() == others.tolist()


def test_bare_updates_of_overfitted_devices_give_members_away(bare: AttackContext) -> None:
    found = by_name(measure_membership(bare))
    for one in found.values():
        assert one.epsilon == float("inf")
        assert not one.exceeds
    # by Hoeffding, each of these chance gives with probability below 1e-6
    room = np.sqrt(np.log(1 / ERROR) / 2)
    for attack in ("loss threshold", "LiRA, offline", "LiRA, online"):
        roc = found["record", attack].roc
        assert roc.auc.value > 0.5 + room / np.sqrt(min(roc.members, roc.non_members))
    for attack in ("likelihood ratio", "inner product"):
        roc = found["device", attack].roc
        assert roc.auc.value > 0.95
    # telling apart by shadow models pays where it matters: with hardly a false alarm
    online, simple = (found["record", a].roc.tpr_at(0.01).value for a in ("LiRA, online", "loss threshold"))
    assert online > 2 * simple


def test_shadow_models_have_noise_of_their_own(noised: Mapping[str, AttackContext]) -> None:
    """As much as the observer meets; one vector in all of them would narrow their spread to nothing."""
    context = noised["edge:0"]
    observation = replace(next(iter(context.observations.values()))[0], other_devices=0.0)
    nothing = torch.zeros(4, len(observation.start))
    seen = context.attacker.models_with_others(observation, nothing, 99, 0)
    again = context.attacker.models_with_others(observation, nothing, 99, 1)
    noise = (torch.cat([seen, again]) - observation.start).double() / observation.noise_std
    # 650 coordinates: each statistic is wrong with probability below 1e-8
    assert ((noise.square().mean(dim=1) - 1).abs() < 0.4).all()
    products = noise @ noise.T / noise.norm(dim=1)
    assert (products - products.diag().diag()).abs().max() < 6
    assert torch.equal(seen, context.attacker.models_with_others(observation, nothing, 99, 0))


@pytest.mark.parametrize("observer", ["edge:0", "cloud"])
def test_noise_keeps_every_attack_within_its_bound(
    noised: Mapping[str, AttackContext], observer: str
) -> None:
    context = noised[observer]
    for one in measure_membership(context):
        # a device's double takes its place: that its data are left out is not what is looked for
        assert 0 < one.epsilon == context.guaranteed_epsilon("replace") < 4
        assert not one.roc.exceeds(epsilon=one.epsilon, delta=one.delta, error=ERROR)
        assert not one.exceeds


def test_what_is_promised_is_the_accountants_word(noised: Mapping[str, AttackContext]) -> None:
    for observer, context in noised.items():
        row = pair_guarantee(context.plan, f"device:{context.targets[0]}", observer, delta=1e-5)
        assert context.guaranteed_epsilon(context.plan.spec.privacy.neighbours) == pytest.approx(row.epsilon)
        assert context.guaranteed_epsilon("replace") > context.guaranteed_epsilon("zero-out")


def test_looks_tell_who_is_in_them_and_how_much_noise(noised: Mapping[str, AttackContext]) -> None:
    edge, cloud = noised["edge:0"], noised["cloud"]
    for observation in edge.observations[edge.targets[0]]:
        assert (
            observation.share,
            observation.other_devices,
            observation.first_step,
            observation.last_step,
        ) == (1.0, 0.0, 0, 60)
        assert observation.noise_std == pytest.approx(MULTIPLIER)
        rest = (observation.end - observation.start).double().numpy() / observation.noise_std
        # the update is at most 1 long: what is left is noise of this scale, and of no other
        square = float(rest @ rest)
        low, high = (stats.chi2.ppf(p, len(rest)) for p in (ERROR, 1 - ERROR))
        reach = np.sqrt(square) + np.array([-1, 1]) / observation.noise_std
        assert low < reach[1] ** 2
        assert reach[0] ** 2 < high
        for scale in (2 / 3, 3 / 2):
            assert not low < (square * scale**2) < high
    observation = cloud.observations[cloud.targets[0]][0]
    assert (observation.share, observation.other_devices) == (1 / 25, 24)
    assert observation.noise_std == pytest.approx(MULTIPLIER / 5)


def test_same_run_same_result(tmp_path: Path) -> None:
    small = {"topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3}, "training": {"rounds": 1}}
    run = played(tmp_path / "run", ("edge:0",), multiplier=1.0, **small)
    first, again = (
        sf.attack(run, observer="edge:0", kind="membership", progress=False),
        sf.attack(run, observer="edge:0", kind="membership", progress=False),
    )
    assert first == again
    assert json.loads((run / "attacks" / "membership-edge-0.json").read_text("utf-8")) == first
    assert first["targets"] == ["device:0", "device:1", "device:2"]
    promised = pair_guarantee(
        AttackContext.of_run(run, "edge:0").plan, "device:0", "edge:0", delta=1e-5
    ).epsilon
    assert first["promised"] == {"epsilon": promised, "delta": 1e-5, "neighbours": "zero-out"}
    assert first["results"][0]["bound"]["epsilon"] > promised
    with pytest.raises(SpecError, match=r"record_views=\['cloud'\]"):
        sf.attack(run, observer="cloud", kind="membership", progress=False)


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.0])
def test_the_likelihood_ratio_of_known_gaussians(shift: float) -> None:
    rng = np.random.default_rng(5)
    rows, shadows = 4000, 64
    inside = np.arange(shadows)[:, None] % 2 == np.arange(rows)[None] % 2
    hardness = rng.normal(0, 5, rows)  # what a threshold on confidences cannot see past
    seen_in = hardness + shift + rng.normal(size=rows)
    seen_out = hardness + rng.normal(size=rows)
    values = hardness + shift * inside + rng.normal(size=(shadows, rows))
    online_in, offline_in = lira_scores(seen_in, values, inside)
    online_out, offline_out = lira_scores(seen_out, values, inside)
    room = np.sqrt(np.log(2 / ERROR) / (2 * rows))
    for members, others in ((online_in, online_out), (offline_in, offline_out)):
        auc = ROC.of(members, others).auc.value
        # means fitted to 32 shadow models cost a little: never more than this
        expected = stats.norm.cdf(shift / np.sqrt(2))
        assert expected - room - 0.03 < auc < expected + room
