"""The radio links of a spec: placed once, faded anew every round, the same whoever asks.

A link is a device's towards its aggregator: in a tree one for each device, in groups one for each
membership. The channel is constant within a round (block fading) and the same both ways. The laws of
placement, path loss and fading follow the links.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt
from scipy.special import ive

from sfumato.errors import SpecError
from sfumato.random import Stream, generator
from sfumato.spec.document import Spec
from sfumato.spec.radio import REFERENCE_M, RICIAN_K_DB, AirRadio, LinkRadio, NoRadio
from sfumato.spec.used_keys import AIR_PROTOCOLS

if TYPE_CHECKING:
    from sfumato.network.groups import Groups
    from sfumato.network.tree import Tree

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_PLACEMENT, _SNR_LIMITS, _SHADOWING, _FADING = range(4)  # part of the file format: never renumber
_OF_H2FDP, _OF_PFELS = LinkRadio(), AirRadio(preset="pfels")


def radio_of(spec: Spec) -> LinkRadio | AirRadio:
    """The section ``radio`` of ``spec``, or a default: PFELS's for its protocols, else H2FDP's.

    If the section is ``none``, a radio that only says how many bits a parameter has.
    """
    if isinstance(spec.radio, NoRadio):  # messages have sizes; what the links take is not counted
        return LinkRadio(bits_per_parameter=spec.radio.bits_per_parameter)
    if spec.radio is not None:
        return spec.radio
    return _OF_PFELS if spec.protocol in AIR_PROTOCOLS else _OF_H2FDP


@dataclass(frozen=True, eq=False)
class Channels:
    """Every radio link of a run.

    Attributes:
        radio: what they are like.
        seed: of the spec.
        cells: the aggregator that each link leads to ``[N]``; ascending where nobody has moved.
        cell_count: aggregators that hear devices.
        homes: the aggregator that each link led to in the first round ``[N]``, where devices move.
    """

    radio: LinkRadio | AirRadio
    seed: int
    cells: IntArray
    cell_count: int
    homes: IntArray | None = None

    @classmethod
    def of_tree(cls, spec: Spec, tree: Tree) -> Channels:
        """The radio links of a tree: one for each device, in the order of devices."""
        cells = tree.leaves_of(np.arange(tree.device_count))
        return cls(radio_of(spec), spec.seed, cells, tree.leaf_count, tree.home)

    @classmethod
    def of_groups(cls, spec: Spec, groups: Groups) -> Channels:
        """The radio links of groups: one for each membership, in the order of ``groups.members``."""
        masters = np.arange(groups.count, dtype=np.int64)
        return cls(radio_of(spec), spec.seed, np.repeat(masters, groups.sizes), groups.count)

    @cached_property
    def cell_sizes(self) -> IntArray:
        """Number of links in each cell ``[cell_count]``."""
        return np.bincount(self.cells, minlength=self.cell_count)

    def check_distances(self) -> None:
        """Raise a SpecError if the distances that the spec lists do not fit the topology."""
        if isinstance(self.radio, LinkRadio) and self.radio.distances_m is not None:
            _ = self.distances_m

    @cached_property
    def distances_m(self) -> FloatArray | None:
        """Distance of each link's device to its aggregator, metres ``[N]``; ``None`` over the air.

        Raises:
            SpecError: a list or a file of distances that does not fit.
        """
        if isinstance(self.radio, AirRadio):
            return None
        given = self.radio.distances_m
        if given is None:
            radius = self.radio.radius_m
            return self._draw_for_links(
                lambda rng: disc_distances_m(rng, len(self.cells), radius), _PLACEMENT
            )
        if isinstance(given, str):
            from sfumato.network.inlining import read_distances

            given = read_distances(Path(given))
        found = np.array(given)
        if len(found) != len(self.cells):
            raise SpecError(
                "radio.distances_m",
                None,
                f"has {len(found):,} distances; must have {len(self.cells):,}, one for each device",
            )
        return found

    @cached_property
    def path_gains(self) -> FloatArray | None:
        """Power gain (linear) of path loss and shadowing of each link ``[N]``; ``None`` without distances."""
        radio = self.radio
        if isinstance(radio, AirRadio) or self.distances_m is None:
            return None
        gains = path_gain(
            self.distances_m, exponent=radio.pathloss_exponent, reference_db=radio.reference_gain_db
        )
        if radio.shadowing_db > 0:
            spread, count = radio.shadowing_db, len(gains)
            gains = gains * self._draw_for_links(lambda rng: shadowing(rng, count, spread), _SHADOWING)
        return gains

    @cached_property
    def snr_limits(self) -> FloatArray:
        """The largest SNR at which each device may send ``[N]``: a coordinate's power over its noise.

        Linear; ``P_i/(d·σ0²)`` of pfels.txt, section 8.1; ``p_i/(N0·W)`` of a link budget.
        """
        radio, count = self.radio, len(self.cells)
        if isinstance(radio, AirRadio):
            return from_db(self._rng(_SNR_LIMITS).uniform(radio.snr_db[0], radio.snr_db[1], count))
        return np.full(count, watts(radio.power_dbm) / self._noise_w)

    def gains(self, number: int) -> FloatArray:
        """Magnitudes ``|h|`` (linear) of all links in round ``number``, ``[N]``."""
        rng, radio, count = self._rng(_FADING, number), self.radio, len(self.cells)
        if isinstance(radio, LinkRadio):
            assert self.path_gains is not None
            return np.sqrt(self.path_gains) * _fading(radio.fading, radio.k_factor_db, rng, count)
        gain = radio.gain
        match gain.kind:
            case "exponential":
                drawn = gain.mean * rng.standard_exponential(count)
            case "rayleigh":
                drawn = gain.mean / rician_mean(0.0) * rayleigh(rng, count)
            case "rician":
                k_factor = _k_factor(gain.k_factor_db)
                drawn = gain.mean / rician_mean(k_factor) * rician(rng, count, k_factor)
            case "constant":
                drawn = np.full(count, gain.mean)
        return np.clip(drawn, gain.min, gain.max)

    @property
    def noise_std(self) -> float:
        """Std, a coordinate, of the receiver's noise; 1 with a link budget, where it is the unit."""
        return self.radio.noise_std if isinstance(self.radio, AirRadio) else 1.0

    @property
    def joule(self) -> float:
        """Joules that a device spends on a message of squared norm 1, which is the unit of energies here.

        In PFELS energy *is* the squared norm (pfels.txt, section 8.2.4). In a link budget the noise energy in
        a coordinate, which is 1 there, is N0: the power density.
        """
        return 1.0 if isinstance(self.radio, AirRadio) else watts(self.radio.noise_density_dbm_hz)

    @property
    def bandwidth_hz(self) -> float:
        """Complex symbols a second that a cell carries, in hertz.

        PFELS's K subcarriers carry one each a slot, whether it holds a coordinate or bits.
        """
        if isinstance(self.radio, AirRadio):
            return self.radio.subcarriers / self.radio.slot_s
        return self.radio.bandwidth_hz

    @cached_property
    def powers_w(self) -> FloatArray:
        """Each device's power while it sends bits, in watts ``[N]``: all that its limit allows."""
        return self.snr_limits * self.noise_std**2 * self.joule * self.bandwidth_hz

    def uplink_snr(self, gains: FloatArray, links: IntArray) -> FloatArray:
        """Linear SNR of bits sent over the whole band by ``links`` ``[len(links)]``.

        Args:
            gains: magnitudes of all links in this round ``[N]``.
            links: who sends.
        """
        # pfels.txt has noise of variance σ0² in a real coordinate; bits use both quadratures of a symbol
        noise = 2.0 if isinstance(self.radio, AirRadio) else 1.0
        snr: FloatArray = gains[links] ** 2 * self.snr_limits[links] / noise
        return snr

    def downlink_snr(self, gains: FloatArray, links: IntArray) -> FloatArray | None:
        """Linear SNR of an aggregator's broadcast at each of ``links``; ``None`` where the downlink is ideal.

        ``gains``: magnitudes of all links in this round ``[N]``.
        """
        if isinstance(self.radio, AirRadio):
            return None
        snr: FloatArray = gains[links] ** 2 * (watts(self.radio.broadcast_power_dbm) / self._noise_w)
        return snr

    def air_delay_s(self, coordinates: int) -> float:
        """Seconds that a superposed transmission of ``coordinates`` coordinates takes, whoever takes part.

        A coordinate goes over each subcarrier of a slot (pfels.txt, section 4.1).
        """
        if isinstance(self.radio, AirRadio):
            return -(-coordinates // self.radio.subcarriers) * self.radio.slot_s
        return coordinates / self.radio.bandwidth_hz

    @property
    def _noise_w(self) -> float:
        """The power of the receiver's noise over the whole band, W."""
        assert isinstance(self.radio, LinkRadio)
        return noise_power_w(self.radio.noise_density_dbm_hz, self.radio.bandwidth_hz)

    def _draw_for_links(self, draw: Callable[[np.random.Generator], FloatArray], what: int) -> FloatArray:
        """Values of all links ``[N]`` that are drawn once for every pair of a device and an aggregator.

        A device that moves meets its new aggregator as it always would; one that comes back, as before.

        Args:
            draw: draws a value for every device.
            what: address of the draw in the seed's stream.
        """
        found = draw(self._rng(what))
        if self.homes is None:
            return found
        for cell in np.unique(self.cells[self.cells != self.homes]):
            away = (self.cells == cell) & (self.homes != cell)
            found = np.where(away, draw(self._rng(what, int(cell) + 1)), found)
        return found

    def _rng(self, what: int, number: int = 0) -> np.random.Generator:
        """The generator of channel draws of the kind ``what`` (a stream address) in round ``number``."""
        return generator(self.seed, Stream.CHANNEL, what, number)


@overload
def from_db(value_db: float) -> float: ...
@overload
def from_db(value_db: FloatArray) -> FloatArray: ...
def from_db(value_db: float | FloatArray) -> float | FloatArray:
    """The linear power ratio of ``value_db`` decibels."""
    return 10.0 ** (value_db / 10.0)


def watts(power_dbm: float) -> float:
    """The power in watts of ``power_dbm`` dBm (decibels over a milliwatt)."""
    return 1e-3 * from_db(power_dbm)


def disc_distances_m(rng: np.random.Generator, count: int, radius_m: float) -> FloatArray:
    """Draw distances to the centre (m), ``[count]``, of points uniform over a disc of radius ``radius_m``.

    Points are at least a metre from the centre. The area within d grows as d squared, so a uniform share of
    the area gives the distance.

    Raises:
        ValueError: a radius of a metre or less.
    """
    if not radius_m > REFERENCE_M:
        raise ValueError(f"radius_m: got {radius_m}; must be above {REFERENCE_M:g}")
    return np.sqrt(REFERENCE_M**2 + rng.random(count) * (radius_m**2 - REFERENCE_M**2))


def path_gain(distance_m: FloatArray, *, exponent: float, reference_db: float) -> FloatArray:
    """The power gain (linear) of log-distance path loss at ``distance_m`` d, in its shape.

    ``reference_db − 10·exponent·log10(d/1 m)`` in dB; h2fdp.txt, Appendix D, has -30 dB and 3.75.

    Raises:
        ValueError: a distance below 1 m.
    """
    if not (distance_m >= REFERENCE_M).all():
        raise ValueError(f"distance_m: got {distance_m.min()}; must be at least {REFERENCE_M:g}")
    return from_db(reference_db) * (distance_m / REFERENCE_M) ** -exponent


def noise_power_w(density_dbm_hz: float, bandwidth_hz: float) -> float:
    """Watts of noise that a receiver of ``bandwidth_hz`` (Hz) collects, from ``density_dbm_hz`` (dBm/Hz)."""
    return watts(density_dbm_hz) * bandwidth_hz


def _fading(kind: str, k_factor_db: float | None, rng: np.random.Generator, count: int) -> FloatArray:
    """Magnitudes of ``count`` channels of mean power 1, ``[count]``, linear.

    ``kind``: rayleigh, rician (of ``k_factor_db``, in dB) or none (always 1).
    """
    if kind == "rayleigh":
        return rayleigh(rng, count)
    if kind == "rician":
        return rician(rng, count, _k_factor(k_factor_db))
    return np.ones(count)


def _k_factor(stated_db: float | None) -> float:
    """The K factor of Rician fading (linear) that a spec states in dB, or the default."""
    return from_db(RICIAN_K_DB if stated_db is None else stated_db)


def rayleigh(rng: np.random.Generator, count: int) -> FloatArray:
    """Random magnitudes (linear, ``[count]``) |u| of u ~ CN(0, 1), of mean power 1: no line of sight."""
    return np.sqrt(rng.standard_exponential(count))


def rician(rng: np.random.Generator, count: int, k_factor: float) -> FloatArray:
    """Random magnitudes (linear, ``[count]``) of mean power 1: fading with a line of sight.

    Args:
        rng: randomness.
        count: how many.
        k_factor: power of the direct path over that of all others (linear); 0 is Rayleigh.
    """
    direct, scattered = math.sqrt(k_factor / (k_factor + 1)), math.sqrt(0.5 / (k_factor + 1))
    in_phase, quadrature = rng.standard_normal((2, count)) * scattered
    magnitudes: FloatArray = np.hypot(direct + in_phase, quadrature)
    return magnitudes


def rician_mean(k_factor: float) -> float:
    """The mean magnitude of `rician` fading: ``√(π/(4(K+1))) · L½(−K)``; with K = 0 that of `rayleigh`."""
    half = k_factor / 2
    # the Laguerre function in scaled Bessel functions, which do not overflow
    laguerre = (1 + k_factor) * ive(0, half) + k_factor * ive(1, half)
    return math.sqrt(math.pi / (4 * (k_factor + 1))) * float(laguerre)


def shadowing(rng: np.random.Generator, count: int, std_db: float) -> FloatArray:
    """Random power gains (linear, ``[count]``) of obstacles, log-normal of median 1.

    ``std_db``: standard deviation of the gain, in dB.
    """
    return from_db(std_db * rng.standard_normal(count))
