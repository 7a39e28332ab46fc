"""Over the air: how loud devices may send, who stays silent, and the noise that leaves (pfels.txt).

Everything is said in the *alignment* ``a = beta B / sigma0``: the amplitude that arrives for the longest
message (norm ``B``: the clip) over the receiver's noise in a coordinate. The noise of a superposed sum then
has the multiplier ``1 / a``, whatever the clip and the model. Nothing here needs a tensor, so ``account``,
which bounds ``a`` over everything the channel may do (the *envelope*), and ``run``, which meets the channel
as it is, agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sfumato.network.tree import Tree
from sfumato.radio.channels import Channels, from_db
from sfumato.radio.costs import FLOAT_BITS, Analog, kept_coordinates
from sfumato.random import Stream, generator
from sfumato.schedule.model_size import parameter_count
from sfumato.spec.document import Spec
from sfumato.spec.privacy import NoiseByFormula
from sfumato.spec.radio import AirRadio
from sfumato.spec.training import PoissonParticipation
from sfumato.spec.transport import Air, ChannelKnowledge, PowerControl

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_CSI_ERRORS = 10  # of Stream.CHANNEL; part of the file format: never renumber
_RULES: dict[str, PowerControl] = {"pfels": "pfels", "wfl-p": "wfl-p", "wfl-pdp": "wfl-pdp"}
ROUNDING = 1e-9
"""Relative error up to which an alignment is taken to be equal to its bound."""


def formula_alignment(epsilon: float, *, devices: float, participants: float, delta: float) -> float:
    """The largest alignment (see this file) that PFELS's privacy formulas (20) and (21) allow.

    (20) and (21) bound the receive scaling beta by ``C2 beta = epsilon``. Times clip over the receiver's
    noise this is ``epsilon N / (2 sqrt(2) r sqrt(ln(1.25 r / (N delta))))``.

    Args:
        epsilon: target ε of one round.
        devices: N, all devices.
        participants: r, the devices that take part in a round.
        delta: δ of one round, in (0, 1).

    Returns:
        The alignment; infinite where the logarithm is not above 0, as the formulas then set no limit.
    """
    log = math.log(1.25 * participants / (devices * delta))
    if log <= 0:
        return math.inf
    return epsilon * devices / (2 * math.sqrt(2) * participants * math.sqrt(log))


@dataclass(frozen=True, eq=False)
class AirTransmission:
    """Who sends how loud in one aggregation, and how it arrives.

    Attributes:
        alignment: a of every leaf ``[leaves]``; 0 where nothing is received.
        sends: who does not stay silent ``[P]``.
        amplitude: what a device multiplies its message by, in units of ``sigma0 / B`` ``[P]``: a over the
            gain it knows; 0 for the silent.
        arrives: factor on a device's contribution by what it did not know of its channel ``[P]``; 1 with
            perfect knowledge.
        limit: most ``|x|^2`` of a device, in units of ``sigma0^2`` ``[P]``.
    """

    alignment: FloatArray
    sends: BoolArray
    amplitude: FloatArray
    arrives: FloatArray
    limit: FloatArray


@dataclass(frozen=True, eq=False)
class AirPlan:
    """How devices send over the air: power control, channels, and the noise that follows.

    Attributes:
        spec: of the plan.
        tree: who is under whom.
        participants: devices of each leaf in a round (expected) ``[leaves]``.
        channels: the radio links.
    """

    spec: Spec
    tree: Tree
    participants: FloatArray
    channels: Channels

    @cached_property
    def rule(self) -> PowerControl:
        """The rule of power control: ``air.power_control``, or else the one that the protocol stands for."""
        stated = self._air.power_control
        return stated or _RULES.get(self.spec.protocol, "pfels")

    @cached_property
    def max_alignment(self) -> FloatArray:
        """The largest alignment that the privacy formula, or a fixed beta, allows in each leaf ``[leaves]``.

        ∞ where the spec has neither, so that only power limits how loud devices send.
        """
        if self.has_fixed_beta:
            return np.full(self.tree.leaf_count, self._alignment_of_fixed_beta)
        noise = self.spec.privacy.noise
        if self.rule == "wfl-p" or not isinstance(noise, NoiseByFormula) or noise.formula != "pfels":
            return np.full(self.tree.leaf_count, math.inf)
        return np.array(
            [
                formula_alignment(
                    noise.epsilon, devices=float(n), participants=float(r), delta=self.spec.privacy.delta
                )
                for n, r in zip(self.tree.devices, self.participants, strict=True)
            ]
        )

    @cached_property
    def envelope(self) -> FloatArray:
        """The largest alignment of each leaf in any round, by `max_alignment` and its power, ``[leaves]``.

        ∞ where `max_alignment` is ∞ and the largest power is not known.
        """
        return np.minimum(self.max_alignment, self._power_range[1])

    @cached_property
    def is_steady(self) -> BoolArray:
        """Mask ``[leaves]`` of those with the alignment of `envelope` in every round, whoever takes part."""
        return self.max_alignment <= self._power_range[0] * (1 + ROUNDING)

    @cached_property
    def gain_ratio(self) -> float:
        """The largest amplification by wrong channel knowledge, ``max |h / h_known|``, at least 1.

        ∞ where the error of the known gain has no bound.
        """
        csi = self._air.csi
        if csi.gain_error == 0:
            return 1.0
        return math.inf if csi.max_error_std is None else 1.0 + csi.max_error_std * csi.gain_error

    @property
    def has_fixed_beta(self) -> bool:
        """Whether the spec states ``air.beta``, which then is that of every round."""
        return self._air.beta is not None

    @property
    def everybody_sends(self) -> bool:
        """Whether every device that takes part sends: no channel can have a gain below ``air.min_gain``."""
        return (self._air.min_gain or 0.0) <= self._least_gain

    @property
    def is_always_heard(self) -> bool:
        """Whether every leaf has an alignment above 0 in every round: its receiver's noise is on each sum."""
        return bool(np.isfinite(self.max_alignment).all()) or (self.everybody_sends and not self._is_poisson)

    @property
    def needs_size(self) -> bool:
        """Whether the alignment depends on the number of the model's parameters."""
        return not self.has_fixed_beta and isinstance(self.channels.radio, AirRadio)

    @property
    def guaranteed_noisers(self) -> FloatArray:
        """How many devices at least have noise in a sum with a device's message, that device included.

        ``[leaves]``; 1 under Poisson participation or where weak channels are left out, else all
        participants.
        """
        alone = self._is_poisson or not self.everybody_sends
        return np.ones_like(self.participants) if alone else self.participants

    def max_noise_multiplier(self) -> float:
        """The largest noise multiplier that a device's power limit allows it on the weakest channel.

        0 where a channel's gain may come near 0 and ``air.min_gain`` is not stated. Only with a fixed
        ``air.beta``.
        """
        gain = max(self._least_gain, self._air.min_gain or 0.0)
        share = 1.0
        if isinstance(self.channels.radio, AirRadio) and self.spec.compression is not None:
            share = self.spec.compression.ratio
        return gain * math.sqrt(float(self.channels.snr_limits.min()) / share) / self._alignment_of_fixed_beta

    @cached_property
    def multiplier(self) -> FloatArray:
        """The noise multiplier of each leaf's sum by the receiver's noise alone, at the least, ``[leaves]``.

        That is at the alignment of `envelope`; 0 where that is infinite.
        """
        with np.errstate(divide="ignore"):
            return 1.0 / (self.envelope * self.gain_ratio)

    def coordinates(self, parameters: int) -> int:
        """Number of coordinates sent, one channel use each, of a message of ``parameters`` coordinates."""
        return kept_coordinates(self.spec.compression, parameters)

    def sending(
        self, number: int, index: int, devices: IntArray, device_noise: FloatArray, parameters: int
    ) -> AirTransmission:
        """How loud each device sends in one aggregation, and how it arrives, over channels drawn by the seed.

        Args:
            number: of the round, from 0.
            index: of the aggregation; knowledge of the channel errs anew in each.
            devices: who takes part, ascending ``[P]``.
            device_noise: multiplier of the noise that each adds to its message ``[P]``.
            parameters: M, of the model.

        Returns:
            What `AirTransmission` describes; a leaf in which nobody sends has an alignment of 0, unless a
            fixed beta or privacy states one.
        """
        leaves = self.tree.leaves_of(devices)
        gains = self.channels.gains(number)[devices]
        sends = gains >= (self._air.min_gain or 0.0)
        limit = self.channels.snr_limits[devices] * self._coordinates_with_power(parameters)
        alignment = self.max_alignment.copy()
        if not self.has_fixed_beta:
            cost = self._counted_share_of_norm(parameters) + self.coordinates(parameters) * device_noise**2
            np.minimum.at(alignment, leaves[sends], (gains * np.sqrt(limit / cost))[sends])
            # where nobody sends and nothing else says how loud, nothing is received; elsewhere the noise
            # alone is, so that silence does not tell who was drawn
            alignment[np.isinf(alignment)] = 0.0
        return AirTransmission(
            alignment,
            sends,
            np.where(sends, alignment[leaves] / gains, 0.0),
            self._draw_arriving_factors(number, index)[devices],
            limit,
        )

    def traffic(self, sending: AirTransmission, energy: FloatArray, coordinates: int) -> Analog:
        """Energy, delay and bytes of one aggregation, as the run counts costs.

        Args:
            sending: who sends, and how loud.
            energy: of every leaf's devices together, in units of ``sigma0^2`` ``[leaves]``.
            coordinates: number of coordinates that each device sends.

        Returns:
            Joules and seconds, ``[leaves]`` each (0 s for a leaf in which nobody sends); and the bytes of
            float32 numbers that the signals stand for.
        """
        channels, heard = self.channels, sending.alignment > 0
        return Analog(
            energy * channels.noise_std**2 * channels.joule,
            np.where(heard, channels.air_delay_s(coordinates), 0.0),
            int(sending.sends.sum()) * coordinates * FLOAT_BITS // 8,
        )

    @property
    def _air(self) -> Air:
        """The section ``air`` of the spec; its defaults where there is none."""
        return self.spec.air or Air()

    @property
    def _is_poisson(self) -> bool:
        """Whether every device takes part by a draw of its own."""
        return isinstance(self.spec.training.participation, PoissonParticipation)

    @property
    def _least_gain(self) -> float:
        """The weakest gain that a channel may have; 0 where fading has no lower end."""
        radio = self.channels.radio
        return radio.gain.least if isinstance(radio, AirRadio) else 0.0

    @property
    def _alignment_of_fixed_beta(self) -> float:
        """The alignment that ``air.beta``, a fixed beta, amounts to."""
        clip = self.spec.privacy.clip
        assert self._air.beta is not None
        assert clip is not None  # resolving refuses the rest
        return self._air.beta * clip.norm / self.channels.noise_std

    @cached_property
    def _power_range(self) -> tuple[float, float]:
        """The least and the largest alignment that power limits allow, over all that the channel may do.

        (∞, ∞) with a fixed beta; (0, ∞) with another radio, or a model of unknown size.
        """
        radio, parameters = self.channels.radio, parameter_count(self.spec)
        if self.has_fixed_beta:
            return math.inf, math.inf  # a message too loud is scaled down by itself
        if not isinstance(radio, AirRadio) or parameters is None:
            return 0.0, math.inf
        most = radio.gain.largest
        least = max(radio.gain.least, min(self._air.min_gain or 0.0, most))  # the weaker are silent
        root = math.sqrt(self._coordinates_with_power(parameters) / self._counted_share_of_norm(parameters))
        low, high = (math.sqrt(from_db(snr)) for snr in radio.snr_db)
        return least * low * root, most * high * root

    def _coordinates_with_power(self, parameters: int) -> int:
        """Count the coordinates whose power adds up to a device's limit, of ``parameters`` of the model.

        All of the model's in PFELS (``P_i = SNR_i d sigma0^2``), so what is not sent leaves more for the
        rest; of a link budget, which limits power at every moment, those that are sent.
        """
        is_pfels = isinstance(self.channels.radio, AirRadio)
        return parameters if is_pfels else self.coordinates(parameters)

    def _counted_share_of_norm(self, parameters: int) -> float:
        """The share of a message's squared norm that power control counts on, of ``parameters`` coordinates.

        Under the rule ``pfels`` k/d, which is the mean where k of d coordinates are sent (Lemma 5), else 1.
        """
        return self.coordinates(parameters) / parameters if self.rule == "pfels" else 1.0

    def _draw_arriving_factors(self, number: int, index: int) -> FloatArray:
        """``(h / h_known) cos(phase error)`` of every device in one aggregation, drawn from the seed ``[N]``.

        ``number``: of the round; ``index``: of the aggregation.
        """
        csi, count = self._air.csi, self.tree.device_count
        if csi.gain_error == 0 and csi.phase_error_rad == 0:
            return np.ones(count)
        rng = generator(self.spec.seed, Stream.CHANNEL, _CSI_ERRORS, number, index)
        gain, phase = _draw_channel_errors(rng, csi, (2, count))
        # a gain is a magnitude: an error of more than itself leaves nothing
        arrives: FloatArray = np.maximum(1 + csi.gain_error * gain, 0.0) * np.cos(csi.phase_error_rad * phase)
        return arrives


def _draw_channel_errors(
    rng: np.random.Generator, csi: ChannelKnowledge, shape: tuple[int, int]
) -> FloatArray:
    """Draw errors of channel knowledge, of this ``shape``, in standard deviations.

    Standard normal, truncated at ``csi.max_error_std`` on both sides if that is set.
    """
    if csi.max_error_std is None:
        return rng.standard_normal(shape)
    from scipy import special

    below = special.ndtr(-csi.max_error_std)
    errors: FloatArray = special.ndtri(below + rng.random(shape) * (1 - 2 * below))
    return np.clip(errors, -csi.max_error_std, csi.max_error_std)
