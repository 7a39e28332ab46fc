"""How much of the transmitted power arrives, and how much noise with it."""

from __future__ import annotations

from sfumato.radio.units import FloatArray, from_db, watts
from sfumato.spec.radio import REFERENCE_M


def path_gain(distance_m: FloatArray, *, exponent: float, reference_db: float) -> FloatArray:
    """Log-distance path loss as a power gain (linear): ``reference_db − 10·exponent·log10(d/1 m)`` in dB.

    h2fdp.txt, Appendix D, has -30 dB and 3.75.

    Raises:
        ValueError: a distance below `REFERENCE_M`.
    """
    if not (distance_m >= REFERENCE_M).all():
        raise ValueError(f"distance_m: got {distance_m.min()}; must be at least {REFERENCE_M:g}")
    return from_db(reference_db) * (distance_m / REFERENCE_M) ** -exponent


def noise_power_w(density_dbm_hz: float, bandwidth_hz: float) -> float:
    """Noise that a receiver of this bandwidth collects, W, from its density in dBm per hertz."""
    return watts(density_dbm_hz) * bandwidth_hz
