"""Formulas of the papers that no run and no account holds."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property

import numpy as np

from sfumato.adaptive_control.bounds import BoundInputs, Constants
from sfumato.adaptive_control.problem import Gap
from sfumato.claims.hdp import epsilon_by_old_conversion, noisers_of
from sfumato.errors import SpecError
from sfumato.radio.channels import Channels, FloatArray, from_db
from sfumato.schedule.air.power_control import AirPlan, AirTransmission
from sfumato.schedule.control.adaptive import local_aggregations, noise_constant
from sfumato.schedule.model_size import parameter_count
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.spec.document import Spec
from sfumato.spec.privacy import NoiseByMultiplier
from sfumato.spec.radio import AirRadio
from sfumato.studies.measures.base import Measurement, Measurements

PRINTED, MENDED = "as printed", "slips mended"
TIGHTER, INDEPENDENT = "mended and tightened", "tightened, independent noises"
SERIES_OF_TERMS = {
    "start": (PRINTED, MENDED),
    "drift": (PRINTED, MENDED, TIGHTER),
    "noise": (PRINTED, INDEPENDENT),
    "bound": (PRINTED, MENDED, TIGHTER, INDEPENDENT),
}
"""Of each term of Theorem 4.3 the series in which it is not that of another series."""


def convergence_bound(spec: Spec, term: str) -> Measurements:
    """A term of Theorem 4.3 of H2FDP, its whole bound, or a constant of its Proposition 4.2.

    At the largest step size that the theorem allows.

    Args:
        spec: of H2FDP's default experiment.
        term: ``b1``, ``b2``, ``start``, ``drift``, ``noise`` or ``bound``; after a colon the constants of
            the loss: ``noise:BETA,SIGMA,ZETA,ZETA_C,G,GAP``.

    Raises:
        SpecError: the model is not a built-in one.

    Returns:
        By series, the value as printed; with slips mended; tightened besides, with (ητ)² where the proof puts
        the larger ητ; and with independent noises too. Of a term those series in which it differs. Of the
        dispersions b1 and b2 it is the square, printed and mended.
    """
    name, _, written = term.partition(":")
    beta, sigma, between, within, gradient, largest_gap = map(float, written.split(","))
    plan = resolve_tree(spec)
    rounds, steps = spec.training.rounds, plan.aggregations[-1].step
    trusted = int(plan.tree.tiers[-1].trusted.sum())
    untrusted, devices = plan.tree.leaf_count - trusted, int(plan.tree.devices[0])
    gap = Gap(
        parameters_of(spec), gradient, noise_constant(plan), trusted, untrusted, local_aggregations(plan)
    )
    loss = Constants(beta, sigma, between, within, gradient)
    inputs = BoundInputs(loss, 1 / (rounds * beta), steps, rounds, devices, devices, gap)
    if name in ("b1", "b2"):
        both = {PRINTED: inputs.printed_dispersions(), MENDED: inputs.corrected_dispersions()}
        return [Measurement(getattr(found, name) ** 2, series) for series, found in both.items()]
    tighter = inputs.corrected_terms(largest_gap)
    found = {
        PRINTED: inputs.printed_terms(largest_gap),
        MENDED: inputs.mended_terms(largest_gap),
        TIGHTER: tighter,
        INDEPENDENT: dataclasses.replace(tighter, noise=inputs.noise_of_independent_sums),
    }
    return [
        Measurement(
            sum(dataclasses.astuple(found[series])) if name == "bound" else getattr(found[series], name),
            series,
        )
        for series in SERIES_OF_TERMS[name]
    ]


def parameters_of(spec: Spec) -> int:
    """The number of parameters of the spec's model.

    Raises:
        SpecError: the model is not a built-in one.
    """
    parameters = parameter_count(spec)
    if parameters is None:
        raise SpecError("model.kind", spec.model.kind, "must be a built-in model")
    return parameters


def rule_of_table_three(spec: Spec, _: str) -> Measurements:
    """ε by the rule of HDP's Table III: that of one noiser, over the square root of the number of noisers.

    The ε of one noiser is by the old conversion from Rényi DP. The second argument is not used.

    Raises:
        SpecError: the noise is not stated as a multiplier.
    """
    plan = resolve_tree(spec)
    noise = spec.privacy.requested_noise
    if not isinstance(noise, NoiseByMultiplier):
        raise SpecError("privacy.noise", None, "must be a multiplier, which HDP's Table III is about")
    rounds, rate = plan.releases.rounds, plan.participants.rate
    of_one = epsilon_by_old_conversion(noise.multiplier, rate, rounds, spec.privacy.delta)
    return [Measurement(of_one / math.sqrt(noisers_of(plan).total))]


def energy_at_clip(spec: Spec, written: str) -> Measurements:
    """Σ‖x‖² of over-the-air training if every update is as long as the clip, in units of σ₀².

    A device sends its amplitude times the update, of whose square rand-k leaves the share p on average.

    Args:
        spec: over the air, without noise of the devices.
        written: ``PARAMETERS,ROUNDS``: number of the model's parameters, and of rounds in place of the
            spec's. With ``,linear`` behind it SNR limits are drawn as ratios, not in dB.

    Raises:
        SpecError: ``spec`` does not send over the air.
    """
    air, sent = _transmissions(spec, written)
    share = 1.0 if air.spec.compression is None else air.spec.compression.ratio
    return [Measurement(share * sum(float((one.amplitude**2).sum()) for one in sent))]


def privacy_binds(spec: Spec, written: str) -> Measurements:
    """Percentage of rounds in which PFELS's privacy formula (20), and not power, limits the amplitude.

    ``spec``: of a star. ``written`` and errors as of `energy_at_clip`.
    """
    air, sent = _transmissions(spec, written)
    return [
        Measurement(100 * sum(float(one.alignment[0]) >= air.max_alignment[0] for one in sent) / len(sent))
    ]


def _transmissions(spec: Spec, written: str) -> tuple[AirPlan, list[AirTransmission]]:
    """How the devices of a star send over the air, and what they send in every round.

    ``written``: as of `energy_at_clip`.

    Returns:
        The settings of transmission, and for every round amplitudes and alignments of its participants.

    Raises:
        SpecError: ``spec`` does not send over the air.
    """
    parameters, rounds, *scale = written.split(",")
    plan = resolve_tree(spec)
    if plan.air is None:
        raise SpecError("protocol", spec.protocol, "must send over the air")
    air = plan.air
    if scale == ["linear"]:
        fields = {one.name: getattr(air.channels, one.name) for one in dataclasses.fields(air.channels)}
        air = dataclasses.replace(air, channels=_LinearLimits(**fields))
    sent = []
    for number in range(int(rounds)):
        devices = draw_participants(plan, number)
        sent.append(air.sending(number, 0, devices, np.zeros(len(devices)), int(parameters)))
    return air, sent


@dataclasses.dataclass(frozen=True, eq=False)
class _LinearLimits(Channels):
    """Channels whose SNR limits are uniform as ratios between the ends that the spec has in dB."""

    @cached_property
    def snr_limits(self) -> FloatArray:
        """As of `Channels`, from the same draws: a device at a quarter of the range is so here, too."""
        in_db = 10 * np.log10(super().snr_limits)
        if not isinstance(self.radio, AirRadio):
            return from_db(in_db)
        low, high = self.radio.snr_db
        ratios: FloatArray = np.interp(in_db, [low, high], [from_db(low), from_db(high)])
        return ratios
