"""Who transmits when, and for how long: in turns (TDMA), side by side (OFDMA), or all at once (on air)."""

from __future__ import annotations

import math

import numpy as np

from sfumato.radio.units import FloatArray, IntArray


def airtime_s(
    bits: float | FloatArray, snr: float | FloatArray, bandwidth_hz: float, share: float | FloatArray = 1.0
) -> FloatArray:
    """Time that messages take at Shannon's rate, ``f·W·log2(1 + snr/f)`` bits a second.

    Args:
        bits: of each message.
        snr: as received if all the power went over the whole band (linear).
        bandwidth_hz: W, of the whole band.
        share: f, of the band that the sender has to itself; its power is then denser, and its noise less.
    """
    rate_bps = share * bandwidth_hz * np.log1p(np.asarray(snr) / share) / math.log(2)
    with np.errstate(divide="ignore"):
        return np.asarray(np.divide(bits, rate_bps), dtype=np.float64)


def in_cells(values: FloatArray, cells: IntArray, count: int) -> FloatArray:
    """Sums of ``values`` by cell ``[count]``; 0 of an empty one."""
    return np.bincount(cells, weights=values, minlength=count).astype(np.float64)


def in_turns_s(airtimes_s: FloatArray, cells: IntArray, count: int) -> FloatArray:
    """When the last one of each cell is done, one after the other ``[count]``: the sum; 0 of an empty cell.

    Args:
        airtimes_s: of each message.
        cells: where each is sent.
        count: of cells.
    """
    return in_cells(airtimes_s, cells, count)


def side_by_side_s(airtimes_s: FloatArray, cells: IntArray, count: int) -> FloatArray:
    """When the last one of each cell is done, all beginning together ``[count]``: the slowest; 0 if empty."""
    slowest = np.zeros(count)
    np.maximum.at(slowest, cells, airtimes_s)
    return slowest


def air_slots(coordinates: int, subcarriers: int) -> int:
    """Slots that everybody's superposed vectors take, one coordinate on each subcarrier of a slot."""
    return -(-coordinates // subcarriers)


def air_delay_s(coordinates: int, subcarriers: int, slot_s: float) -> float:
    """Time of a superposed transmission, however many take part (pfels.txt, section 4.1)."""
    return air_slots(coordinates, subcarriers) * slot_s


def expected_slowest(values: FloatArray, chosen: int) -> float:
    """Expectation of the largest of ``chosen`` of these values, drawn uniformly without replacement.

    The j-th smallest of n is the largest drawn with probability ``C(j−1, s−1)/C(n, s)``.
    """
    n, weight, expected = len(values), chosen / len(values), 0.0
    for j, value in zip(range(n, chosen - 1, -1), np.sort(values)[::-1], strict=False):
        expected += weight * float(value)
        weight *= (j - chosen) / (j - 1) if j > 1 else 0.0
    return expected
