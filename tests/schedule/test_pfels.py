"""PFELS and its baselines accounted: the claim beside the rigorous figures, before training and after it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from air_specs import CONSTANT, air_spec
from places import ROOT

from sfumato.accounting import PrivacyReport, account
from sfumato.errors import SpecError
from sfumato.privacy.losses import gaussian
from sfumato.privacy.noise_scale import calibrate_scale
from sfumato.privacy.observers import Party
from sfumato.privacy.sampling import GaussianTerm, Sampling
from sfumato.schedule.air.realised_channels import RealisedChannels
from sfumato.schedule.model_size import parameter_count
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.schedule.rows.ex_post import epsilons_after_run
from sfumato.schedule.tree import TreePlan
from sfumato.simulation.after_run import with_participations
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec

pytestmark = pytest.mark.usefixtures("coarse_losses")

EXAMPLES = ROOT / "examples" / "pfels"
UPDATE = {"kind": "update", "norm": 1.0}


@cache
def _paper() -> tuple[Spec, PrivacyReport]:
    spec = load_spec(EXAMPLES / "paper-constants.yaml")
    return spec, account(spec)


def _plan(**sections: Any) -> TreePlan:
    return resolve_tree(air_spec(**sections))


def _epsilon(spec: Spec, observer: str) -> float:
    return account(spec).epsilon(0, observer)


# --- the paper's constants (errata P1, P2) -------------------------------------------------------


@pytest.mark.parametrize(
    ("observer", "what", "rigorous", "surrogate"),
    [
        ("cloud", "one round", 63.0, None),
        ("cloud", "all 2,000 rounds", 3365, None),
        ("public", "one round", 52.4, 49),
        ("public", "all 2,000 rounds", 3365, 2999),
    ],
)
def test_claims_of_the_papers_constants(
    observer: str, what: str, rigorous: float, surrogate: float | None
) -> None:
    _, report = _paper()
    (claim,) = [c for c in report.claims if c.observer == observer and c.source == f"PFELS Thm. 3, {what}"]
    assert claim.claimed_epsilon == 1.5
    assert not claim.holds
    assert claim.rigorous_epsilon == pytest.approx(rigorous, rel=0.01)
    assert claim.method == "gdp"
    assert claim.surrogate_epsilon == (None if surrogate is None else pytest.approx(surrogate, rel=0.01))
    assert "(P1)" in claim.why
    assert ("surrogate and no guarantee" in claim.why) == (surrogate is not None)
    assert claim.to_dict().get("surrogate_epsilon") == claim.surrogate_epsilon


def test_one_round_of_the_public_is_the_mixture_written_out() -> None:
    # a draw that amplifies nothing: delta = q delta_gauss(epsilon)
    _, report = _paper()
    claim = next(c for c in report.claims if c.observer == "public")
    mu = 1.5 * 1000 / (2 * math.sqrt(2) * 32 * math.sqrt(math.log(40)))
    assert 0.032 * gaussian.delta(epsilon=claim.rigorous_epsilon, mu=mu) == pytest.approx(1e-3, rel=1e-6)


def test_under_poisson_participation_the_surrogate_is_the_guarantee() -> None:
    spec, _ = _paper()
    drawn = spec.training.model_copy(update={"participation": _poisson(0.032)})
    report = account(spec.model_copy(update={"training": drawn}))
    found = {(c.observer, c.source.split(", ")[1]): c for c in report.claims}
    assert found["public", "one round"].rigorous_epsilon == pytest.approx(49, rel=0.01)
    total = found["public", "all 2,000 rounds"]
    assert total.rigorous_epsilon == pytest.approx(2999, rel=0.01)
    assert total.method == "pld"
    assert "grid of 0.051 nats" in total.why
    assert found["cloud", "all 2,000 rounds"].rigorous_epsilon == pytest.approx(3365, rel=0.01)


def _poisson(rate: float) -> Any:
    return air_spec(training={"participation": {"kind": "poisson", "rate": rate}}).training.participation


def test_ex_post_at_exactly_64_participations() -> None:
    _, report = _paper()
    plan = report.plan
    assert isinstance(plan, TreePlan)
    realised = RealisedChannels.of(plan, 200, 28_938)
    assert realised is not None
    took_part = np.zeros((200, 1000), dtype=np.bool_)
    took_part[:63] = True
    took_part[63, 7] = True
    realised = replace(realised, took_part=took_part)
    after = epsilons_after_run(plan, report.delta, took_part.sum(axis=0), realised, None)
    rows = {row.observer: found for row, found in zip(report.guarantees, after, strict=True)}
    assert rows["cloud"] is not None
    assert rows["cloud"].participations == 64
    assert rows["cloud"].epsilon == pytest.approx(2595, rel=0.01)
    assert rows["public"] is None  # it does not see the draw


def test_needed_multiplier_for_the_papers_epsilon() -> None:
    needed = calibrate_scale(
        [GaussianTerm(1.0, 2000, Sampling.poisson(0.032))],
        target_epsilon=1.5,
        delta=1e-3,
        neighbours="zero-out",
    )
    assert needed == pytest.approx(2.74, abs=0.005)
    _, report = _paper()
    total = next(c for c in report.claims if c.observer == "cloud" and "all" in c.source)
    seen = float(total.why.split("would need noise multiplier ")[1].split(":")[0])
    # towards who sees the draw: all participations that may come together count
    assert _mixture_epsilon(seen * 0.999, 2000, 0.032) > 1.5 > _mixture_epsilon(seen * 1.001, 2000, 0.032)


def _mixture_epsilon(multiplier: float, rounds: int, rate: float) -> float:
    from scipy import optimize, stats

    times = np.arange(rounds + 1)
    weights = stats.binom(rounds, rate).pmf(times)

    def excess(epsilon: float) -> float:
        return float(weights @ gaussian.delta(epsilon=epsilon, mu=np.sqrt(times) / multiplier)) - 1e-3

    return float(optimize.brentq(excess, 0, 100))


# --- what the realised channel amounts to --------------------------------------------------------


@pytest.mark.parametrize(
    "topology", [{"kind": "star", "devices": 20}, {"kind": "tree", "edges": 2, "devices_per_edge": 10}]
)
def test_ex_post_adds_up_the_rounds_there_were(topology: dict[str, Any]) -> None:
    plan = _plan(topology=topology)
    realised = RealisedChannels.of(plan, 4, _length(plan))
    assert realised is not None
    assert plan.air is not None
    worst = 0.0
    for device in range(20):
        leaf = plan.tree.leaf_of(device)
        worst = max(
            worst, sum(realised.alignment[t, 0, leaf] ** 2 for t in range(4) if realised.took_part[t, device])
        )
    receiver = "cloud" if topology["kind"] == "star" else "edge:0"
    report = with_participations(account(plan.spec), realised.took_part.sum(axis=0), 4, _length(plan))
    found = next(e for g, e in zip(report.guarantees, report.ex_post, strict=True) if g.observer == receiver)
    assert found is not None
    assert found.epsilon == pytest.approx(gaussian.epsilon(delta=1e-3, mu=math.sqrt(worst)), rel=1e-9)
    declared = next(g for g in report.guarantees if g.observer == receiver)
    assert np.all(realised.alignment <= plan.air.envelope * (1 + 1e-9))
    assert found.epsilon <= declared.epsilon * 1.5  # more participations than expected, quieter rounds


def test_ex_post_counts_what_devices_did_not_know_of_their_channels() -> None:
    squares = []
    for csi in ({}, {"gain_error": 0.1, "max_error_std": 2.0}):
        plan = _plan(air={"csi": csi})
        realised = RealisedChannels.of(plan, 4, _length(plan))
        assert realised is not None
        exposure = plan.releases.exposures(0, (Party("node", 0, 0),))[0]
        squares.append(realised.largest_square(exposure, 0, "zero-out")[0])
    assert squares[1] == pytest.approx(squares[0] * 1.2**2)


def _length(plan: TreePlan) -> int:
    length = parameter_count(plan.spec)
    assert length is not None
    return length


def test_realised_betas_go_into_the_ledger() -> None:
    plan = _plan()
    realised = RealisedChannels.of(plan, 4, _length(plan))
    assert realised is not None
    kept = realised.to_dict()
    assert np.shape(kept["beta"]) == np.shape(kept["channel_noise_std"]) == (4, 1, 1)
    for beta, std in zip(np.ravel(kept["beta"]), np.ravel(kept["channel_noise_std"]), strict=True):
        assert std == pytest.approx(1 / (5 * beta))


# --- what amplifies ------------------------------------------------------------------------------


def test_hidden_draws_amplify_only_while_the_noise_does_not_tell_them() -> None:
    poisson = {"participation": {"kind": "poisson", "rate": 0.25}}
    small = {"noise": {"formula": "pfels", "epsilon": 0.1}}
    steady = air_spec(training=poisson, radio=CONSTANT, privacy=small)
    fading = air_spec(training=poisson, privacy=small)
    assert _epsilon(steady, "public") < 0.8 * _epsilon(steady, "cloud")
    assert _epsilon(fading, "public") == _epsilon(fading, "cloud")
    remembering = air_spec(
        training=poisson,
        radio=CONSTANT,
        privacy=small,
        compression={"kind": "rand-k", "ratio": 0.3, "error_feedback": True},
    )
    assert _epsilon(remembering, "public") == _epsilon(remembering, "cloud")


def test_compression_does_not_change_the_guarantee() -> None:
    formula = air_spec()
    assert _epsilon(formula, "cloud") == _epsilon(air_spec(compression=None), "cloud")


def test_wfl_p_is_bounded_by_power_alone() -> None:
    plan = _plan(protocol="wfl-p")
    assert plan.air is not None
    d = _length(plan)
    loudest = 1.0 * math.sqrt(10**1.5 * d)  # largest gain, largest SNR: (37)
    assert plan.air.envelope[0] == pytest.approx(loudest)
    assert any("ignored" in note for note in plan.notes)
    assert plan.spec.compression is None
    assert plan.spec.privacy.noise.kind == "none"
    assert not account(plan.spec).claims


def test_wfl_pdp_keeps_the_formula_and_sends_everything() -> None:
    plan = _plan(protocol="wfl-pdp")
    assert plan.air is not None
    assert plan.spec.compression is None
    assert plan.air.max_alignment[0] == _plan().air.max_alignment[0]  # type: ignore[union-attr]
    assert account(plan.spec).claims


def test_unknown_errors_of_the_channel_leave_no_guarantee() -> None:
    csi = {"gain_error": 0.1}
    assert _epsilon(air_spec(air={"csi": csi}), "cloud") == math.inf
    assert _epsilon(air_spec(air={"csi": csi | {"max_error_std": 3}}), "cloud") > _epsilon(
        air_spec(), "cloud"
    )


def test_the_receiver_meets_the_sum_and_no_single_message() -> None:
    tree = air_spec(topology={"kind": "tree", "edges": 4, "devices_per_edge": 5})
    why = account(tree, unit="device:0", observer="edge:0").guarantees[0].why
    assert "the sum that edge:0 receives" in why


# --- artificial noise ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "participation", [{"kind": "fixed", "count": 5}, "all", {"kind": "poisson", "rate": 0.5}]
)
def test_a_target_is_met_by_artificial_noise(participation: Any) -> None:
    spec = air_spec(
        training={"participation": participation}, privacy={"noise": {"epsilon": 3.0, "for": "cloud"}}
    )
    assert _epsilon(spec, "cloud") == pytest.approx(3.0, rel=1e-3)
    assert _epsilon(spec, "cloud") <= 3.0 * (1 + 1e-9)
    plan = resolve_tree(spec)
    assert resolve_tree(plan.spec).noise.device == pytest.approx(plan.noise.device)


def test_the_channels_noise_counts_towards_a_target() -> None:
    target = {"noise": {"epsilon": 3.0, "for": "cloud"}}
    strong = {"gain": {"kind": "constant", "mean": 1e4, "max": 1e4}, "snr_db": [2, 15]}
    quiet = _plan(air={"power_control": "fixed", "beta": 100.0}, privacy=target, radio=strong)
    needed = quiet.noise.device[0, 0] * math.sqrt(5)  # multiplier of the sum
    loud = _plan(air={"power_control": "fixed", "beta": 1 / (0.8 * needed)}, privacy=target, radio=strong)
    assert loud.noise.device[0, 0] == pytest.approx(0.6 * needed / math.sqrt(5), rel=1e-3)
    for plan in (quiet, loud):
        assert _epsilon(plan.spec, "cloud") == pytest.approx(3.0, rel=1e-3)


def test_nothing_is_added_where_the_channel_is_enough() -> None:
    spec = air_spec(
        air={"power_control": "fixed", "beta": 0.01}, privacy={"noise": {"epsilon": 3.0, "for": "cloud"}}
    )
    plan = resolve_tree(spec)
    assert not plan.noise.device.any()
    assert _epsilon(spec, "cloud") < 3.0
    assert resolve_tree(plan.spec).spec == plan.spec


def test_a_multiplier_is_the_received_sums() -> None:
    spec = air_spec(
        training={"participation": "all"},
        air={"power_control": "fixed", "beta": 0.5},
        privacy={"noise": {"multiplier": 3.0}},
        radio={"gain": {"kind": "constant", "mean": 1.0}, "snr_db": [2, 15]},
    )
    plan = resolve_tree(spec)
    assert plan.noise.device[0, 0] == pytest.approx(math.sqrt((9 - 4) / 20))
    mu = math.sqrt(4) / 3.0  # four rounds
    assert _epsilon(spec, "cloud") == pytest.approx(gaussian.epsilon(delta=1e-3, mu=mu), rel=1e-9)


@pytest.mark.parametrize("participation", [{"kind": "fixed", "count": 5}, {"kind": "poisson", "rate": 0.25}])
def test_a_target_is_met_though_some_stay_silent(participation: Any) -> None:
    spec = air_spec(
        training={"participation": participation},
        air={"min_gain": 0.1},
        privacy={"noise": {"epsilon": 3.0, "for": "cloud"}},
    )
    assert _epsilon(spec, "cloud") == pytest.approx(3.0, rel=1e-3)
    plan = resolve_tree(spec)
    release = plan.releases.exposures(0, (Party("node", 0, 0),))[0].releases[0]
    own, channel = plan.noise.device[0, 0], plan.air.multiplier[0] if plan.air else math.nan
    assert math.sqrt(release.variance) / release.own_sensitivity == pytest.approx(math.hypot(own, channel))


def test_gains_that_cannot_be_too_weak_leave_everybodys_noise() -> None:
    silent, all_send = (
        _plan(air={"min_gain": least}, privacy={"noise": {"multiplier": 2.0}}) for least in (0.002, 0.001)
    )
    assert silent.releases.min_contributors.tolist() == [0]
    assert all_send.releases.min_contributors.tolist() == [5]
    assert silent.noise.device == pytest.approx(all_send.noise.device)


@pytest.mark.parametrize(
    ("sections", "heard"),
    [
        ({}, True),
        ({"air": {"power_control": "wfl-p", "min_gain": 0.1}}, False),
        (
            {
                "air": {"power_control": "wfl-p"},
                "training": {"participation": {"kind": "poisson", "rate": 0.5}},
            },
            False,
        ),
        ({"air": {"power_control": "fixed", "beta": 1.0, "min_gain": 0.1}}, True),
    ],
)
def test_a_sibling_counts_only_where_its_receiver_is_sure_to_be_heard(
    sections: dict[str, Any], heard: bool
) -> None:
    plan = _plan(
        **{
            "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 10},
            "air": {"power_control": "wfl-p"},
            "privacy": {"noise": "none"},
            **sections,
        }
    )
    release = plan.releases.exposures(0, (Party("public"),))[0].releases[0]
    one = (plan.releases.steps[0].channel_std[-1][0] / 2) ** 2
    assert release.variance == pytest.approx(2 * one if heard else one)


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "place", "said"),
    [
        ({"privacy": {"clip": None, "noise": "none"}}, "privacy.clip", "is required over the air"),
        ({"transport": {"devices_to_cloud": "plain"}}, "transport.devices_to_cloud", "pfels is over the air"),
        ({"protocol": "dp-fedavg", "air": {}, "privacy": {"noise": "none"}}, "air", "goes with transport"),
        ({"air": {"power_control": "wfl-p"}}, "air.power_control", "has no epsilon term"),
        ({"air": {"power_control": "fixed", "beta": 1}}, "air.power_control", "has no epsilon term"),
        ({"compression": {"kind": "rand-k", "ratio": 0.5, "bits": 4}}, "compression.bits", "amplitudes"),
        (
            {"privacy": {"noise": {"multiplier": 1}}, "air": {"csi": {"phase_error_rad": 0.1}}},
            "air.csi",
            "how much of their noise",
        ),
        (
            {
                "air": {"min_gain": 0.1},
                "compression": {"kind": "rand-k", "ratio": 0.5, "error_feedback": True},
            },
            "compression.error_feedback",
            "silent",
        ),
        ({"privacy": {"noise": {"formula": "h2fdp", "epsilon": 1}}}, "privacy.noise.formula", "pfels"),
        (
            {
                "privacy": {"noise": "none", "clip": {"kind": "step", "norm": 1}},
                "air": {"power_control": "fixed", "beta": 1},
            },
            "air.power_control",
            "kind: update",
        ),
        (
            {"privacy": {"noise": {"multiplier": 2}}, "air": {"power_control": "fixed", "beta": 1}},
            "air.beta",
            "breaks their power limits",
        ),
        ({"air": {"min_gain": 1.1}}, "air.min_gain", "nobody would send"),
    ],
)
def test_what_does_not_fit_is_refused(sections: dict[str, Any], place: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        resolve_tree(air_spec(**sections))
    assert error.value.place == place
    assert said in error.value.allowed


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"compression": {"kind": "rand-k", "ratio": 0}}, "from 1e-09 to 1 "),
        ({"compression": {"kind": "rand-k", "ratio": 1.5}}, "from 1e-09 to 1 "),
        ({"compression": {"kind": "rand-k", "ratio": 0.5, "bits": 1}}, "from 2 to 16"),
        ({"training": {"participation": {"kind": "fixed", "count": 21}}}, "at most 20"),
        ({"air": {"power_control": "fixed"}}, "goes with power_control: fixed"),
        ({"air": {"beta": 2}}, "goes with power_control: fixed"),
        ({"air": {"min_gain": 0}}, "from 1e-12 to"),
    ],
)
def test_what_cannot_be_is_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        air_spec(**sections)


def test_a_formula_outside_its_domain_is_a_warning_and_the_claim_is_void() -> None:
    plan = _plan(privacy={"delta": 0.5})
    assert plan.air is not None
    assert plan.air.max_alignment[0] == math.inf
    assert any("has no value at delta = 0.5" in note and "void" in note for note in plan.notes)
    assert any("Theorem 3 is proved for ε below 2r/N" in note for note in plan.notes)
    assert "(P1)" in account(plan.spec).claims[0].why
    within = _plan(privacy={"noise": {"formula": "pfels", "epsilon": 0.3}})
    assert not any("void" in note for note in within.notes)


def test_error_feedback_and_top_k_want_one_aggregation_a_round() -> None:
    for compression in ({"kind": "top-k"}, {"kind": "rand-k", "error_feedback": True}):
        with pytest.raises(SpecError, match="one aggregation a round"):
            resolve_tree(
                air_spec(
                    protocol="h2fdp",
                    topology={"kind": "tree", "edges": 2, "devices_per_edge": 10},
                    training={"local_epochs": None, "local_steps": 4, "edge_every": 2},
                    privacy={"noise": "none"},
                    radio=None,
                    compression={"ratio": 0.5} | compression,
                )
            )


@pytest.mark.parametrize("compression", [{"kind": "top-k"}, {"kind": "rand-k", "error_feedback": True}])
def test_aggregations_that_h2fdp_makes_by_default_count_too(compression: dict[str, Any]) -> None:
    """Without local_steps H2FDP aggregates four times a round: 0.2 looked at what was written only."""
    with pytest.raises(SpecError, match="one aggregation a round"):
        resolve_tree(
            air_spec(
                protocol="h2fdp",
                topology={"kind": "tree", "edges": 2, "devices_per_edge": 10},
                training={"local_steps": None},
                privacy={"noise": "none"},
                radio=None,
                compression={"ratio": 0.5} | compression,
            )
        )
