"""Links of a spec: the distributions asked for, one draw whoever asks, and what cannot be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sfumato.errors import SpecError
from sfumato.network import tree as topology
from sfumato.network.groups import ring
from sfumato.radio.channels import Channels, radio_of
from sfumato.spec.load import dump_spec, load_spec
from sfumato.spec.radio import AirRadio, Gain, LinkRadio

NEVER = 1e-7


def links(radio, devices=20_000, seed=0, protocol="hfl-dp", **other) -> Channels:
    star = protocol == "pfels"
    shape = (
        {"kind": "star", "devices": devices}
        if star
        else {"kind": "tree", "edges": 1, "devices_per_edge": devices}
    )
    spec = load_spec(
        {
            "name": "x", "protocol": protocol, "seed": seed, "topology": shape, "data": {"source": "digits"},
            "training": {"rounds": 2, "steps_per_round": 1, "batch_size": 1, "learning_rate": 1},
        } | ({} if radio is None else {"radio": radio})
    )  # fmt: skip
    return Channels.of_tree(spec, topology.from_spec(spec.topology))


def loose(**gain):
    return {"gain": {"min": 1e-9, "max": 1e9} | gain, "snr_db": [0, 0]}


@pytest.mark.parametrize(
    ("gain", "law"),
    [
        ({"kind": "exponential", "mean": 0.2}, stats.expon(scale=0.2)),
        ({"kind": "rayleigh", "mean": 0.2}, stats.rayleigh(scale=0.2 / math.sqrt(math.pi / 2))),
        ({"kind": "rician", "mean": 0.2, "k_factor_db": 6.0}, stats.rice(math.sqrt(2 * 10**0.6))),
        ({"kind": "rician", "mean": 0.2}, stats.rice(math.sqrt(20))),
    ],
)
def test_gains_have_the_stated_distribution(gain, law) -> None:
    if gain["kind"] == "rician":
        law = stats.rice(law.args[0], scale=0.2 / law.mean())
    drawn = links(loose(**gain)).gains(0)
    assert stats.kstest(drawn, law.cdf).pvalue > NEVER
    for scale in (2 / 3, 3 / 2):
        assert stats.kstest(scale * drawn, law.cdf).pvalue < NEVER


def test_gains_are_held_within_their_bounds() -> None:
    drawn = links({"preset": "pfels"}).gains(0)
    assert drawn.min() == 1e-4
    assert drawn.max() == 0.1
    # P(below 1e-4) = 1 - exp(-1/200) = .004988, P(above .1) = exp(-5) = .006738; 5.4 standard deviations
    for share, expected in ((np.mean(drawn == 1e-4), 0.004988), (np.mean(drawn == 0.1), 0.006738)):
        assert share == pytest.approx(expected, abs=5.4 * math.sqrt(expected / len(drawn)))
    assert (links(loose(kind="constant", mean=0.3)).gains(4) == 0.3).all()


def test_snr_limits_are_uniform_in_decibels_and_drawn_once() -> None:
    channels = links({"preset": "pfels"})
    assert stats.kstest(10 * np.log10(channels.snr_limits), stats.uniform(2.0, 13.0).cdf).pvalue > NEVER
    assert stats.kstest(channels.snr_limits, stats.uniform(2.0, 13.0).cdf).pvalue < NEVER


def test_h2fdp_links_are_path_loss_times_rayleigh() -> None:
    channels = links({"preset": "h2fdp", "radius_m": 300.0})
    distances = channels.distances_m
    assert stats.kstest(distances**2, stats.uniform(1.0, 300.0**2 - 1).cdf).pvalue > NEVER
    faded = channels.gains(3) / np.sqrt(10**-3 * distances**-3.75)
    assert stats.kstest(faded, stats.rayleigh(scale=math.sqrt(0.5)).cdf).pvalue > NEVER
    # 24 dBm over -113 dBm is 137 dB
    assert 10 * np.log10(channels.snr_limits) == pytest.approx(np.full(20_000, 137.0))


def test_shadowing_stays_and_fading_does_not() -> None:
    channels = links(
        {"preset": "h2fdp", "shadowing_db": 8.0, "distances_m": [100.0] * 20_000, "fading": "none"}
    )
    first, second = channels.gains(0), channels.gains(1)
    assert (first == second).all()
    assert stats.kstest(20 * np.log10(first) + 105.0, stats.norm(scale=8.0).cdf).pvalue > NEVER
    rician = links(
        {"preset": "h2fdp", "fading": "rician", "k_factor_db": 6.0, "distances_m": [10.0] * 20_000}
    )
    law = stats.rice(math.sqrt(2 * 10**0.6), scale=math.sqrt(10**-6.75 * 0.5 / (10**0.6 + 1)))
    assert stats.kstest(rician.gains(0), law.cdf).pvalue > NEVER
    assert (rician.gains(0) != rician.gains(1)).all()


@pytest.mark.parametrize("radio", [{"preset": "h2fdp", "shadowing_db": 3.0}, {"preset": "pfels"}])
def test_everybody_who_asks_meets_the_same_channel(radio) -> None:
    one, other, third = links(radio, 50), links(radio, 50), links(radio, 50, seed=1)
    assert (one.gains(7) == other.gains(7)).all()
    assert (one.snr_limits == other.snr_limits).all()
    assert (one.gains(7) != one.gains(8)).all()
    assert (one.gains(7) != third.gains(7)).all()


def test_the_radio_is_the_paper_s_where_none_is_written() -> None:
    assert links(None).radio == LinkRadio()
    assert links(None, protocol="pfels").radio == AirRadio(preset="pfels")
    assert radio_of(load_spec("quickstart")) == LinkRadio()


def test_normalised_units_of_a_link_budget() -> None:
    # SNR times N0 joules of noise in a symbol, and so many symbols a second: 24 dBm again
    channels = links({"preset": "h2fdp"}, 3)
    assert channels.joule == pytest.approx(10**-17.3 * 1e-3)
    assert channels.powers_w == pytest.approx(np.full(3, 0.251189), rel=1e-5)
    assert channels.air_delay_s(5_000_000) == pytest.approx(5.0)


def test_groups_have_a_link_for_every_membership() -> None:
    groups = ring(20, 4)
    spec = load_spec("quickstart")
    channels = Channels.of_groups(spec, groups)
    assert len(channels.gains(0)) == len(groups.members) == 24
    assert (groups.members[groups.positions(np.array([1, 3]), np.array([7, 0]))] == [7, 0]).all()


def refusal(radio, devices=3) -> SpecError:
    with pytest.raises(SpecError) as caught:
        _ = links(radio, devices).path_gains
    return caught.value


def test_distances_come_from_a_list_or_a_file(tmp_path) -> None:
    file = tmp_path / "distances.txt"
    file.write_text("10\n20.5\n1e2\n", encoding="utf-8")
    found = links({"preset": "h2fdp", "distances_m": str(file)}, 3).distances_m
    assert (
        found.tolist()
        == links({"distances_m": [10, 20.5, 100]}, 3).distances_m.tolist()
        == [10.0, 20.5, 100.0]
    )
    error = refusal({"distances_m": [10, 20]})
    assert (error.place, "2 distances; must have 3" in error.allowed) == ("radio.distances_m", True)
    file.write_text("10\n0.5\n3\n", encoding="utf-8")
    error = refusal({"distances_m": str(file)})
    assert (error.place, error.value) == ("radio.distances_m: distances.txt: number 2", "0.5")
    file.write_text("10\nfar\n3\n", encoding="utf-8")
    assert refusal({"distances_m": str(file)}).value == "far"
    file.write_bytes(b"\xff\xfe")
    assert refusal({"distances_m": str(file)}).allowed.startswith("must be text in UTF-8")
    assert "cannot be read" in refusal({"distances_m": str(tmp_path / "none.txt")}).allowed


@pytest.mark.parametrize(
    ("radio", "place", "allowed"),
    [
        ({"preset": "wifi"}, "radio.preset", "must be one of h2fdp, pfels"),
        (
            {"gain": {"kind": "exponential", "mean": 0.1, "min": 0}, "snr_db": [1, 2]},
            "radio.gain.min",
            "number from 1e-12",
        ),
        ({"preset": "pfels", "gain": {"max": 0}}, "radio.gain.max", "number from 1e-12"),
        ({"preset": "pfels", "gain": {"min": 0.2}}, "radio.gain.min", "at most max (0.1)"),
        ({"preset": "pfels", "gain": {"kind": "constant", "mean": 3}}, "radio.gain.mean", "to max (1.0)"),
        ({"preset": "pfels", "gain": {"k_factor_db": 3}}, "radio.gain.k_factor_db", "kind: rician"),
        ({"preset": "pfels", "snr_db": [15, 2]}, "radio.snr_db", "the smaller first"),
        ({"preset": "pfels", "noise_std": 0}, "radio.noise_std", "number from 1e-12"),
        ({"preset": "pfels", "slot_s": 1e-5}, "radio.slot_s", "hold a symbol"),
        ({"preset": "pfels", "radius_m": 5}, "radio.radius_m", "no such key"),
        ({"snr_db": [2, 15]}, "radio.gain", "is required without a preset"),
        ({"gain": {"kind": "constant", "mean": 0.1}}, "radio.snr_db", "is required without a preset"),
        ({"distances_m": [3, 0.5, 4]}, "radio.distances_m[1]", "number from 1 to"),
        ({"radius_m": 1}, "radio.radius_m", "above 1"),
        ({"k_factor_db": 3}, "radio.k_factor_db", "fading: rician"),
        ({"access": "cdma"}, "radio.access", "tdma, ofdma"),
        ({"bits_per_parameter": 65}, "radio.bits_per_parameter", "64"),
    ],
)
def test_refusals(radio, place, allowed) -> None:
    error = refusal(radio)
    assert error.place == place
    assert allowed in error.allowed


def test_a_preset_keeps_the_keys_that_are_not_overridden() -> None:
    radio = links({"preset": "pfels", "gain": {"mean": 0.05}, "subcarriers": 10}, 2).radio
    assert radio == AirRadio(
        preset="pfels", gain=Gain(kind="exponential", mean=0.05, min=1e-4, max=0.1), subcarriers=10
    )
    assert radio.snr_db == (2.0, 15.0)
    assert links({"preset": "h2fdp", "pathloss_exponent": 3}, 2).radio == LinkRadio(pathloss_exponent=3)


@pytest.mark.parametrize("radio", [{"preset": "h2fdp"}, {"preset": "pfels"}, loose(kind="rician", mean=0.1)])
def test_a_radio_survives_being_written_and_read(radio, tmp_path) -> None:
    spec = load_spec("quickstart").model_copy(update={"radio": links(radio, 2).radio})
    (tmp_path / "spec.yaml").write_text(dump_spec(spec), encoding="utf-8")
    assert load_spec(tmp_path / "spec.yaml").radio == spec.radio
