"""The air of radio cells in one round: how long messages take, and with how much energy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sfumato.radio.access import airtime_s, expected_slowest, in_cells, in_turns_s, side_by_side_s
from sfumato.radio.channels import Channels
from sfumato.radio.units import FloatArray, IntArray, watts
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
        """Both, one after the other."""
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
        """Messages of so many ``bits`` (one number, or ``[len(links)]``) by ``links``, ascending."""
        channels = self.channels
        cells, count = channels.cells[links], channels.cell_count
        shares: float | FloatArray = 1.0
        if channels.radio.access == "ofdma":
            shares = 1.0 / np.bincount(cells, minlength=count)[cells]
        times = airtime_s(bits, channels.uplink_snr(self.gains, links), channels.bandwidth_hz, shares)
        together = side_by_side_s if channels.radio.access == "ofdma" else in_turns_s
        energy = in_cells(channels.powers_w[links] * times, cells, count)
        return Airtime(energy, together(times, cells, count))

    def broadcast(self, links: IntArray, bits: float) -> Airtime:
        """One message to all ``links`` of every cell, at the rate of the worst of them."""
        slowest = side_by_side_s(
            self._downlink_s(links, bits), self.channels.cells[links], self.channels.cell_count
        )
        return Airtime(self._broadcast_w * slowest, slowest)

    def unicast(self, links: IntArray, bits: FloatArray) -> Airtime:
        """Each of ``links`` its own message of so many ``bits`` ``[len(links)]``, in turns."""
        times = self._downlink_s(links, bits)
        total = in_turns_s(times, self.channels.cells[links], self.channels.cell_count)
        return Airtime(self._broadcast_w * total, total)

    def expected_uplink(self, counts: IntArray, bits_of_each: Callable[[int], float]) -> Airtime:
        """`uplink` of ``counts[..., c]`` devices drawn uniformly in every cell, in expectation.

        Args:
            counts: 0 to the cell's size, ``[..., cells]``.
            bits_of_each: of each message, where so many devices of a cell take part.
        """
        channels, split = self.channels, self.channels.radio.access == "ofdma"
        sizes = np.bincount(channels.cells, minlength=channels.cell_count)
        links = np.arange(len(channels.cells))
        snr, first = channels.uplink_snr(self.gains, links), np.concatenate([[0], np.cumsum(sizes)])
        energy, delay = np.zeros(counts.shape), np.zeros(counts.shape)
        for chosen in np.unique(counts[counts > 0]):
            bits = bits_of_each(int(chosen))
            times = airtime_s(bits, snr, channels.bandwidth_hz, 1.0 / chosen if split else 1.0)
            spent = in_cells(channels.powers_w * times, channels.cells, channels.cell_count)
            if split:
                slowest = [
                    expected_slowest(times[a:b], int(chosen)) if chosen <= b - a else np.nan
                    for a, b in pairwise(first)
                ]
                done = np.array(slowest)
            else:
                done = chosen / sizes * in_cells(times, channels.cells, channels.cell_count)
            here = counts == chosen
            energy = np.where(here, chosen / sizes * spent, energy)
            delay = np.where(here, done, delay)
        return Airtime(energy, delay)

    def expected_unicast(self, counts: IntArray, bits_of_each: Callable[[int], float]) -> Airtime:
        """`unicast` to ``counts[..., c]`` devices drawn uniformly in every cell, in expectation.

        Args:
            counts: 0 to the cell's size, ``[..., cells]``.
            bits_of_each: to each device, where so many devices of a cell take part.
        """
        channels, total = self.channels, np.zeros(counts.shape)
        sizes = np.bincount(channels.cells, minlength=channels.cell_count)
        links = np.arange(len(channels.cells))
        for chosen in np.unique(counts[counts > 0]):
            times = self._downlink_s(links, bits_of_each(int(chosen)))
            whole = in_turns_s(times, channels.cells, channels.cell_count)
            total = np.where(counts == chosen, chosen / sizes * whole, total)
        return Airtime(self._broadcast_w * total, total)

    def _downlink_s(self, links: IntArray, bits: float | FloatArray) -> FloatArray:
        snr = self.channels.downlink_snr(self.gains, links)
        return np.zeros(len(links)) if snr is None else airtime_s(bits, snr, self.channels.bandwidth_hz)

    @property
    def _broadcast_w(self) -> float:
        radio = self.channels.radio
        return watts(radio.broadcast_power_dbm) if isinstance(radio, LinkRadio) else 0.0


def bits_of(count: IntArray) -> FloatArray:
    """So many bytes, in bits."""
    return 8.0 * count.astype(np.float64)
