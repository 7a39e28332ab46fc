"""Parts of ``sfumato show`` that trees and groups share, each in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from sfumato.cli.console import with_noun

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sfumato.radio.channels import Channels
    from sfumato.spec.document import Spec
    from sfumato.spec.faults import Faults


_LONGEST = 1_000  # characters of a section in one line, at most


class PlanSummary(Protocol):
    """The summary of a plan that ``sfumato show`` prints."""

    @property
    def legend(self) -> str:
        """A sentence, printed below the drawing, that explains its signs."""

    def rows(self) -> Iterable[tuple[str, str]]:
        """Pairs of the name and the value of each property of the plan, as texts."""

    def drawing(self) -> RenderableType:
        """A drawing or a table of the parties, with their trust and their noise."""


def describe_section(section: object) -> str:
    """A section of a spec, or a number in its place, as one line: its kind and the keys that are set.

    Such as ``dirichlet, alpha 0.5``. Keys with their default value are left out, and what is longer than
    1,000 characters is cut.
    """
    from sfumato.spec.base import Section

    if not isinstance(section, Section):
        return f"{section:g}"
    written = section.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    kind = str(getattr(section, "kind", ""))
    said = ", ".join([kind, *(f"{key} {value}" for key, value in written.items() if key != "kind")])
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"


def first_rows(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yield (name, value) texts on the spec, its data and its model."""
    yield "spec", f"{spec.name}: protocol {spec.protocol}, seed {spec.seed}"
    yield "data", f"{spec.data.source}, {describe_section(spec.data.partition)}"
    yield "model", describe_model(spec)


def describe_model(spec: Spec) -> str:
    """The kind of model and, if it is built in, its number of parameters; a user's code is not run."""
    from sfumato.schedule.model_size import parameter_count

    if ":" in spec.model.kind:
        return f"{spec.model.kind}, your own code, which is not run here; its size is not known"
    parameters = parameter_count(spec)
    return (
        spec.model.kind if parameters is None else f"{spec.model.kind}, {with_noun(parameters, 'parameter')}"
    )


def describe_dropouts(faults: Faults) -> Iterator[str]:
    """Yield a phrase for each phase in which devices may drop out, with the probability.

    None where nobody drops out.
    """
    from sfumato.spec.faults import PHASE_NAMES

    for phase, rate in zip(PHASE_NAMES, faults.drop_rates, strict=True):
        if rate:
            yield f"a device drops out before its {phase} message with probability {rate:g}"


def describe_training(spec: Spec) -> str:
    """One line of text such as ``3 rounds, batches of 16, learning rate 0.1``.

    An optimizer other than SGD, momentum and weight decay follow where there are any.
    """
    training = spec.training
    said = [f"{with_noun(training.rounds, 'round')}, batches of {training.batch_size}"]
    said.append(f"learning rate {describe_section(training.learning_rate)}")
    if training.optimizer.kind != "sgd":
        said.append(describe_section(training.optimizer))
    for name in ("momentum", "weight_decay"):
        value = getattr(training, name)
        if value:
            said.append(f"{name.replace('_', ' ')} {value:g}")
    return ", ".join(said)


def describe_radio(spec: Spec, channels: Channels) -> str:
    """The radio as text of one line, with the distances of devices if it has a geometry."""
    from sfumato.spec.radio import AirRadio

    if not spec.counts_radio:
        return "none: bytes are counted, energy and time are not"
    found = channels.radio
    by_default = "" if spec.radio is not None else " (default)"
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
        f"{found.preset}{by_default}: {found.power_dbm:g} dBm, {found.bandwidth_hz / 1e6:g} MHz, "
        f"{found.access.upper()}; "
        f"devices {distances.min():.0f} to {distances.max():.0f} m away"
    )
