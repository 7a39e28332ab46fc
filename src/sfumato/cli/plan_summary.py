"""What ``sfumato show`` says of any plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from sfumato.cli.console import count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sfumato.radio.channels import Channels
    from sfumato.spec.document import Spec


_LONGEST = 1_000  # characters of a section in one line


class PlanSummary(Protocol):
    """A plan, to be printed."""

    @property
    def legend(self) -> str:
        """What the drawing's signs mean."""

    def rows(self) -> Iterable[tuple[str, str]]:
        """What there is, in a few lines: names and what they are."""

    def drawing(self) -> RenderableType:
        """Who there is, who is trusted, who adds which noise."""


def describe_section(section: object) -> str:
    """A section of a spec in one line: its kind, and what is set in it."""
    from sfumato.spec.base import Section

    if not isinstance(section, Section):
        return f"{section:g}"
    written = section.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    kind = str(getattr(section, "kind", ""))
    said = ", ".join([kind, *(f"{key} {value}" for key, value in written.items() if key != "kind")])
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"


def describe_model(spec: Spec) -> str:
    """The model in one line, and its size as far as arithmetic tells: a user's own code is not run."""
    from sfumato.schedule.model_size import parameter_count

    if ":" in spec.model.kind:
        return f"{spec.model.kind}, your own code, which is not run here: its size is left open"
    parameters = parameter_count(spec)
    return spec.model.kind if parameters is None else f"{spec.model.kind}, {count(parameters, 'parameter')}"


def describe_learning_rate(spec: Spec) -> str:
    """The learning rate in one line."""
    return f"learning rate {describe_section(spec.training.learning_rate)}"


def describe_radio(spec: Spec, channels: Channels) -> str:
    """The radio and, where it has a geometry, where devices are, in one line."""
    from sfumato.spec.radio import AirRadio

    found = channels.radio
    by_default = "" if spec.radio is not None else " (default)"
    turns = "in turns" if found.access == "tdma" else "side by side"
    if isinstance(found, AirRadio):
        gain, band = found.gain, f"{found.subcarriers:,} subcarriers {found.spacing_hz / 1e3:g} kHz apart"
        return (
            f"{found.preset or 'gains'}{by_default}: {band}, slots of {1e3 * found.slot_s:g} ms; "
            f"gains {gain.kind}, mean {gain.mean:g}, within {gain.min:g} to {gain.max:g}; "
            f"SNR {found.snr_db[0]:g} to {found.snr_db[1]:g} dB"
        )
    distances = channels.distances_m
    assert distances is not None  # a link budget has a geometry
    return (
        f"{found.preset}{by_default}: {found.power_dbm:g} dBm, {found.bandwidth_hz / 1e6:g} MHz, {turns}; "
        f"devices {distances.min():.0f} to {distances.max():.0f} m away"
    )
