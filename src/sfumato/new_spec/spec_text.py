"""The spec that `sfumato init --csv` writes: YAML with a comment on every decision, for people to edit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sfumato.new_spec.decisions import DEFAULT_ROW, Decisions, is_regression
from sfumato.new_spec.table import OwnTable
from sfumato.spec.names import unfit_party_name

_SHARE, _MOST_BATCH = 5, 256
_WIDTH = 108
_TWO = 2
_WHY_AUC = "where one class is rare, accuracy is high for whoever always says the other; auc is then 0.5"


def spec_text(name: str, decisions: Decisions, table: OwnTable) -> str:
    """The new spec as YAML text with comments.

    Args:
        name: of the spec.
        decisions: checked against the table.
        table: of the rows; the values of its label and site columns are read.
    """
    regression = is_regression(decisions.label, table)
    two = not regression and len(table.labels(decisions.label)) == _TWO
    metrics = ["metrics: [mae, r2]"] if regression else [f"metrics: [auc, f1]  # {_WHY_AUC}"] if two else []
    parts = [
        f"# Written by sfumato init from {table.path.name}. Next: sfumato account {name}.yaml",
        f"name: {_flow(name)}",
        "protocol: dp-fedavg",
        *_data(decisions, table, regression=regression),
        "model: softmax  # one layer; or {kind: mlp, hidden: 32}",
        *metrics,
        *_topology(decisions, table),
        "radio: none  # the sites are on wires: bytes are counted, energy is not",
        *_training(decisions, table, regression=regression),
        *_privacy(decisions),
        "trust: {cloud: false}  # the server sees what every site sends, noised by the site",
        "watch: [cloud, public]",
    ]
    return "\n".join(parts) + "\n"


def site_names(decisions: Decisions, table: OwnTable) -> tuple[str, ...]:
    """A tuple of the names of the sites in the table, in order; empty where rows are dealt evenly."""
    return () if decisions.site is None else tuple(table.sites(decisions.site))


def units_at_sites(decisions: Decisions, table: OwnTable) -> Mapping[str, int]:
    """How many units each site has, by its name; under "" for all rows together where no column gives sites.

    Units are persons where these are protected, else rows.
    """
    if decisions.person is not None:
        return table.persons(decisions.person, decisions.site)
    if decisions.site is not None:
        return table.sites(decisions.site)
    return {"": len(table.columns.column(decisions.label))}


def devices_can_be_named(names: Sequence[str]) -> bool:
    """Whether the topology can name its devices by these names of sites.

    Not where there are none, or where one is a number or has signs that mean something else on a command
    line.
    """
    return bool(names) and all(unfit_party_name(name) is None for name in names)


def _data(decisions: Decisions, table: OwnTable, *, regression: bool) -> list[str]:
    """A list of the lines of the section ``data``; ``regression``: whether labels are quantities."""
    lines = ["data:", f"  source: {_flow(os.path.relpath(table.path, Path.cwd()))}"]
    if table.csv is not None and table.csv.separator != ",":
        lines.append(f'  separator: "{table.csv.separator_name}"')
    if table.csv is not None and table.csv.decimal != ".":
        lines.append('  decimal: ","')
    lines.append(f"  label_column: {_flow(decisions.label)}")
    lines += ["  task: regression"] if regression else []
    lines += [f"  site_column: {_flow(decisions.site)}"] if decisions.site is not None else []
    if decisions.person is not None:
        lines.append(f"  person_column: {_flow(decisions.person)}  # one person's rows are at one site only")
    if decisions.row != DEFAULT_ROW and decisions.protect != "device":
        lines.append(f"  row: {_flow(decisions.row)}  # what one row is, for reports and statements")
    lines.append("  feature_columns:  # all columns of numbers but labels, sites and identifiers")
    lines += [f"    - {_flow(name)}" for name in decisions.features(table)]
    if decisions.scale:
        lines.append("  scale:  # public ranges, stated without looking at the rows; they become 0 and 1")
        lines += [f"    {_flow(name)}: {_flow(list(bounds))}" for name, bounds in decisions.scale.items()]
    return lines


def _topology(decisions: Decisions, table: OwnTable) -> list[str]:
    """The lines of the section ``topology``: a star of sites, named if their names may be device names."""
    names = site_names(decisions, table)
    lines = ["topology:  # every site talks to the server", "  kind: star"]
    lines.append(f"  devices: {len(names) or decisions.sites}")
    if devices_can_be_named(names):
        lines += ["  device_names:", *(f"    - {_flow(name)}" for name in names)]
    return lines


def _training(decisions: Decisions, table: OwnTable, *, regression: bool) -> list[str]:
    """A list of the lines of the section ``training``: batches of about a fifth of the smallest site's units.

    ``regression``: whether labels are quantities, which take smaller steps.
    """
    fewest = min(units_at_sites(decisions, table).values())
    if decisions.site is None:
        fewest //= decisions.sites
    batch = max(1, min(_MOST_BATCH, fewest // _SHARE))
    rate = 0.2 if regression else 2.0
    if decisions.protect == "device":
        schedule = f"rounds: 10, local_steps: 5, batch_size: {batch}, learning_rate: {rate / 4:g}"
        return [f"training: {{{schedule}}}"]
    schedule = f"rounds: 200, local_steps: 1, batches: poisson, batch_size: {batch}, learning_rate: {rate:g}"
    return [f"training: {{{schedule}}}"]


def _privacy(decisions: Decisions) -> list[str]:
    """A list of the lines of the section ``privacy``, with the unit in words."""
    clip, unit = "update", "all rows of a site together"
    if decisions.protect == "person":
        clip, unit = "example", f"one person: all rows with one {decisions.person}"
    if decisions.protect == "record":
        clip, unit = "example", f"one row: {decisions.row}"
        if decisions.several:
            unit += (
                "; several rows may be of one person, who is protected less (ε grows with the number of rows)"
            )
    return [
        "privacy:",
        f"  unit: {decisions.protect}  # {_one_line(unit)}",
        f"  delta: {_flow(decisions.delta)}",
        f"  clip: {{kind: {clip}, norm: 1.0}}",
        f"  noise: {{epsilon: {_flow(decisions.epsilon)}, for: cloud}}",
    ]


def _flow(value: Any) -> str:
    """A value as YAML in one line, without a line end."""
    listed = yaml.safe_dump([value], default_flow_style=True, width=10**9, allow_unicode=True).strip()
    return listed.removeprefix("[").removesuffix("]")


def _one_line(text: str) -> str:
    """The beginning of a text that fits a line, with single spaces for line ends and blanks.

    A line end would end a comment.
    """
    return " ".join(text.split())[:_WIDTH]
