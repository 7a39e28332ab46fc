"""The air of radio cells in one round: how long messages take, and with how much energy.

Devices of a cell transmit in turns (TDMA) or side by side (OFDMA).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sfumato.radio.channels import Channels, FloatArray, IntArray, watts
from sfumato.spec.radio import LinkRadio


@dataclass(frozen=True, eq=False)
class Airtime:
    """What transmissions took in every cell.

    Attributes:
        energy_j: ``[..., cells]``, J.
        delay_s: ``[..., cells]``, s.
    """

    energy_j: FloatArray
    delay_s: FloatArray

    def then(self, other: Airtime) -> Airtime:
        """The sum of this airtime and ``other``, one after the other."""
        return Airtime(self.energy_j + other.energy_j, self.delay_s + other.delay_s)


@dataclass(frozen=True, eq=False)
class Cells:
    """The radio cells of one round.

    Attributes:
        channels: all links.
        gains: their magnitudes in this round ``[N]``.
    """

    channels: Channels
    gains: FloatArray

    def uplink(self, links: IntArray, bits: float | FloatArray) -> Airtime:
        """The airtime of one message from each of ``links`` (numbers, ascending) to its aggregator, by cell.

        ``bits`` of a message: one number, or ``[len(links)]``.
        """
        channels = self.channels
        cells, count = channels.cells[links], channels.cell_count
        shares: float | FloatArray = 1.0
        if channels.radio.access == "ofdma":
            shares = 1.0 / np.bincount(cells, minlength=count)[cells]
        times = airtime_s(bits, channels.uplink_snr(self.gains, links), channels.bandwidth_hz, shares)
        together = slowest_in_cells if channels.radio.access == "ofdma" else sum_in_cells
        energy = sum_in_cells(channels.powers_w[links] * times, cells, count)
        return Airtime(energy, together(times, cells, count))

    def broadcast(self, links: IntArray, bits: float) -> Airtime:
        """The airtime of one message of ``bits`` bits from each aggregator to all its ``links``, by cell.

        It is sent at the rate of the link that hears worst.
        """
        slowest = slowest_in_cells(
            self._downlink_s(links, bits), self.channels.cells[links], self.channels.cell_count
        )
        return Airtime(self._broadcast_w * slowest, slowest)

    def unicast(self, links: IntArray, bits: FloatArray) -> Airtime:
        """The airtime of one message to each of ``links``, in turns in every cell; ``bits``: ``[links]``."""
        times = self._downlink_s(links, bits)
        total = sum_in_cells(times, self.channels.cells[links], self.channels.cell_count)
        return Airtime(self._broadcast_w * total, total)

    def expected_uplink(self, counts: IntArray, bits_of_each: Callable[[int], float]) -> Airtime:
        """Expected airtime if each of ``counts[..., c]`` devices drawn in every cell c sends one message.

        Args:
            counts: 0 to the cell's size, ``[..., cells]``; drawn uniformly without replacement.
            bits_of_each: bits of each message, given how many devices of the cell take part.

        Returns:
            Energy (joules) and delay (seconds), ``[..., cells]`` each.
        """
        channels, split = self.channels, self.channels.radio.access == "ofdma"
        sizes, links = channels.cell_sizes, np.arange(len(channels.cells))
        snr, first = channels.uplink_snr(self.gains, links), np.concatenate([[0], np.cumsum(sizes)])
        energy, delay = np.zeros(counts.shape), np.zeros(counts.shape)
        for chosen in np.unique(counts[counts > 0]):
            bits = bits_of_each(int(chosen))
            times = airtime_s(bits, snr, channels.bandwidth_hz, 1.0 / chosen if split else 1.0)
            spent = sum_in_cells(channels.powers_w * times, channels.cells, channels.cell_count)
            if split:
                slowest = [
                    expected_slowest(times[a:b], int(chosen)) if chosen <= b - a else np.nan
                    for a, b in pairwise(first)
                ]
                done = np.array(slowest)
            else:
                done = chosen / sizes * sum_in_cells(times, channels.cells, channels.cell_count)
            here = counts == chosen
            energy = np.where(here, chosen / sizes * spent, energy)
            delay = np.where(here, done, delay)
        return Airtime(energy, delay)

    def expected_unicast(self, counts: IntArray, bits_of_each: Callable[[int], float]) -> Airtime:
        """Expected airtime if each of ``counts[..., c]`` devices, drawn in every cell c, is sent one message.

        Args:
            counts: 0 to the cell's size, ``[..., cells]``; drawn uniformly without replacement.
            bits_of_each: bits of each message, given how many devices of the cell take part.

        Returns:
            Energy (joules) and delay (seconds), ``[..., cells]`` each; 0 where the downlink is ideal.
        """
        channels, total = self.channels, np.zeros(counts.shape)
        sizes, links = channels.cell_sizes, np.arange(len(channels.cells))
        for chosen in np.unique(counts[counts > 0]):
            times = self._downlink_s(links, bits_of_each(int(chosen)))
            whole = sum_in_cells(times, channels.cells, channels.cell_count)
            total = np.where(counts == chosen, chosen / sizes * whole, total)
        return Airtime(self._broadcast_w * total, total)

    def _downlink_s(self, links: IntArray, bits: float | FloatArray) -> FloatArray:
        """Seconds that ``bits`` take down each of n ``links``, ``[n]``; 0 where the downlink is ideal."""
        snr = self.channels.downlink_snr(self.gains, links)
        return np.zeros(len(links)) if snr is None else airtime_s(bits, snr, self.channels.bandwidth_hz)

    @property
    def _broadcast_w(self) -> float:
        """The power of an aggregator's broadcast, W; 0 without a link budget."""
        radio = self.channels.radio
        return watts(radio.broadcast_power_dbm) if isinstance(radio, LinkRadio) else 0.0


def bits_of(count: IntArray) -> FloatArray:
    """The number of bits in ``count`` bytes, elementwise, as float64 of the same shape."""
    return 8.0 * count.astype(np.float64)


def bytes_of(bits: int) -> int:
    """Number of bytes that ``bits`` bits take, rounded up."""
    return -(-bits // 8)


def airtime_s(
    bits: float | FloatArray, snr: float | FloatArray, bandwidth_hz: float, share: float | FloatArray = 1.0
) -> FloatArray:
    """Seconds that messages take at Shannon's rate, ``f·W·log2(1 + snr/f)`` bits a second.

    Args:
        bits: of each message.
        snr: as received if all the power went over the whole band (linear); at 0 the time is infinite.
        bandwidth_hz: W, of the whole band.
        share: f, of the band that the sender has to itself; its power is then denser, and its noise less.
    """
    rate_bps = share * bandwidth_hz * np.log1p(np.asarray(snr) / share) / math.log(2)
    with np.errstate(divide="ignore"):
        return np.asarray(np.divide(bits, rate_bps), dtype=np.float64)


def sum_in_cells(values: FloatArray, cells: IntArray, count: int) -> FloatArray:
    """The sum of the ``values`` in every cell, ``[count]``; of airtimes, the seconds that they take in turn.

    ``cells``: the cell of each value; ``count``: of cells.
    """
    return np.bincount(cells, weights=values, minlength=count).astype(np.float64)


def slowest_in_cells(airtimes_s: FloatArray, cells: IntArray, count: int) -> FloatArray:
    """The largest of ``airtimes_s`` in every cell, ``[count]``: all begin together; 0 in an empty cell.

    ``cells``: the cell of each airtime; ``count``: of cells.
    """
    slowest = np.zeros(count)
    np.maximum.at(slowest, cells, airtimes_s)
    return slowest


def expected_slowest(values: FloatArray, chosen: int) -> float:
    """The expected largest of ``chosen`` of the ``values``, drawn uniformly without replacement.

    ``chosen`` is s, from 1 to n, the number of values. The j-th smallest of n is the largest drawn with
    probability ``C(j−1, s−1)/C(n, s)``.
    """
    n, weight, expected = len(values), chosen / len(values), 0.0
    for j, value in zip(range(n, chosen - 1, -1), np.sort(values)[::-1], strict=False):
        expected += weight * float(value)
        weight *= (j - chosen) / (j - 1) if j > 1 else 0.0
    return expected
