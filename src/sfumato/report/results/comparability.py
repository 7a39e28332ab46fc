"""Which figures of several runs cannot be compared: ε of different units, relations or δ, scores on different
data, energies of different radios.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from sfumato.privacy.guarantee import Guarantee
from sfumato.report import formatting as text
from sfumato.report.results.series import Series
from sfumato.report.results.spec_sections import section_of, sends_over_the_air
from sfumato.report.results.summary import of_main_unit, unit_of_run
from sfumato.rounding import number
from sfumato.run_folder.headline import Headline, headline_of
from sfumato.spec.used_keys import AIR_PROTOCOLS

_RELATIVE = ((1.0, "× noise"), (1e3, "thousand × noise"), (1e6, "million × noise"))
RADIO_COSTS = ("energy_j", "delay_s")
_GAINS = ("gain", "snr_db", "noise_std", "subcarriers", "slot_s", "spacing_hz")


def radio_model(spec: Mapping[str, Any]) -> str:
    """The kind of radio of a spec, by which energies have their unit: ``gains`` or ``link budget``."""
    radio = spec.get("radio")
    if isinstance(radio, Mapping):
        by_gains = radio.get("preset") == "pfels" or any(key in radio for key in _GAINS)
        return "gains" if by_gains else "link budget"
    return "gains" if spec.get("protocol") in AIR_PROTOCOLS else "link budget"


def stated_radio(spec: Mapping[str, Any]) -> str | None:
    """`radio_model` of a spec that asks for energy and time; ``None`` where they would be those of a default.

    A spec asks by a ``radio``, by ``control``, whose objective has them, or by messages over the air.
    """
    radio = spec.get("radio")
    if has_no_radio(spec) or not (radio or spec.get("control") or sends_over_the_air(spec)):
        return None
    return radio_model(spec)


def has_no_radio(spec: Mapping[str, Any]) -> bool:
    """Whether a spec says that its parties have no radio, so that energy is nothing to ask for."""
    radio = spec.get("radio")
    return radio == "none" or (isinstance(radio, Mapping) and radio.get("preset") == "none")


def notices(deltas: Iterable[float], radios: Iterable[str]) -> list[str]:
    """Sentences on ε at different δ, and energies of different radios, that cannot be compared; [] for none.

    Args:
        deltas: δ of every ε that is shown.
        radios: the `radio_model` of every energy that is shown.
    """
    said = []
    found = sorted(set(deltas))
    if len(found) > 1:
        listed = ", ".join(f"{number(delta)}" for delta in found)
        said.append(f"The ε here are at different δ ({listed}): they cannot be compared with each other.")
    if len(set(radios)) > 1:
        said.append(
            "The energies here are of different radio models: by gains the unit is the squared signal "
            "relative to the receiver's noise, by a link budget the joule. They cannot be compared with each "
            "other."
        )
    return said


def relation_of(one: Series) -> str:
    """The neighbouring relation of the ε of a series, such as ``replace``; "" without guarantees.

    Of several relations all, as ``remove and replace``.
    """
    return " and ".join(sorted({row.neighbours for row in _rows_of(one)}))


def _with_finite_epsilon(series: Sequence[Series]) -> list[Series]:
    """The runs with any finite ε of the main unit: only these have a relation to compare."""
    return [one for one in series if any(row.epsilon < math.inf for row in _rows_of(one))]


def _rows_of(one: Series) -> list[Guarantee]:
    """The guarantees of the main unit in all runs of a series."""
    return [row for run in one.runs for row in of_main_unit(run.privacy.guarantees)]


def have_comparable_epsilons(series: Sequence[Series]) -> bool:
    """Whether the ε of all runs in ``series`` are of one kind of unit, under one relation and at one δ.

    Only then they are ranked, or drawn against a score. The relation of a run without a finite ε is none.
    """
    units = {unit_of_run(one.first) for one in series}
    relations = {relation_of(one) for one in _with_finite_epsilon(series)}
    deltas = {number(run.privacy.delta) for one in series for run in one.runs}
    return max(map(len, (units, relations, deltas))) <= 1


def data_of(one: Series) -> str:
    """The name of a run's data: ``data.source`` of its spec, of a file only the file's name."""
    source = str(section_of(one.first.spec_dict, "data").get("source", ""))
    return PurePath(source).name if PurePath(source).is_absolute() else source


def by_score_and_data(series: Sequence[Series]) -> dict[tuple[Headline, str], list[tuple[int, Series]]]:
    """The series whose scores can be drawn on one axis: by first score and data set (`data_of`).

    Each comes with its index in ``series``, from 0, by which figures choose its colour.
    """
    found: dict[tuple[Headline, str], list[tuple[int, Series]]] = {}
    for place, one in enumerate(series):
        found.setdefault((headline_of(one.first.metrics), data_of(one)), []).append((place, one))
    return found


def on_data(series: Sequence[Series], data: str) -> str:
    """The text `` on DATA`` for ``data``, with its leading space; "" if all runs are on the same data."""
    return f" on {data}" if len({data_of(one) for one in series}) > 1 else ""


def warnings_of_series(series: Sequence[Series]) -> list[str]:
    """A list of sentences on all figures of ``series`` that cannot be compared; empty where all can.

    On units, relations and data, then `notices`.
    """
    runs = [run for one in series for run in one.runs]
    deltas = [run.privacy.delta for run in runs if not math.isnan(run.privacy.delta)]
    measured = [run for run in runs if "energy_j" in run.metrics and run.metrics["energy_j"].notna().any()]
    models = [radio_model(run.spec_dict) for run in measured]
    units = _whose_differs(series, lambda one: f"of one {unit_of_run(one.first)}")
    relations = _whose_differs(_with_finite_epsilon(series), relation_of)
    data = _whose_differs(series, data_of)
    said = []
    if units:
        said.append(
            f"The ε here are of different units: {units}. They cannot be compared directly: ε of different "
            "units are neither ranked nor drawn together."
        )
    if relations:
        different = f"The ε here are under different neighbouring relations: {relations}."
        said.append(f"{different} They cannot be compared directly.")
    if data:
        said.append(
            f"The runs learn from different data: {data}. Scores on different data are neither ranked nor "
            "drawn together."
        )
    return [*said, *notices(deltas, models)]


def _whose_differs(series: Sequence[Series], property_of: Callable[[Series], str]) -> str:
    """Which runs have which value of a property: ``VALUE in RUN, RUN; VALUE in RUN``; "" if all have one."""
    runs: dict[str, list[str]] = {}
    for one in series:
        runs.setdefault(property_of(one), []).append(one.name)
    if len(runs) < 2:
        return ""
    return "; ".join(f"{value} in {text.join_names(names)}" for value, names in runs.items())


def asks_for_energy(series: Sequence[Series]) -> bool:
    """Whether the spec of any run in ``series`` asks for energy and time."""
    return any(stated_radio(run.spec_dict) is not None for one in series for run in one.runs)


def unasked_columns(series: Sequence[Series]) -> tuple[str, ...]:
    """The names of the metrics of energy and delay if no spec of ``series`` asks for them, else ().

    They are then not shown.
    """
    return () if asks_for_energy(series) else RADIO_COSTS


def energy_units(series: Sequence[Series]) -> Sequence[tuple[float, str]] | None:
    """The units for energies of the runs in ``series``, each (size, name), smallest first.

    `formatting.quantity` takes them. Of joules by a link budget, of multiples of the receiver's noise by
    gains; ``None`` where their radio models differ.
    """
    models = {radio_model(run.spec_dict) for one in series for run in one.runs}
    if len(models) > 1:
        return None
    return text.JOULES if models == {"link budget"} else _RELATIVE


def energy_text(spec: Mapping[str, Any], energy_j: float) -> str:
    """``energy_j`` as text: joules, or multiples of the receiver's noise if the radio of ``spec`` has gains.

    "–" for NaN joules.
    """
    if radio_model(spec) == "link budget":
        return text.quantity(energy_j, text.JOULES)
    return f"{text.number(energy_j)} × noise"
