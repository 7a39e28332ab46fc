"""Checks a run folder: hashes, facts against the spec, every row; and the command of the archive."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sfumato.verify import read
from sfumato.verify.examples_held import examples_held
from sfumato.verify.facts import FACTS
from sfumato.verify.folder import DamagedFileError, NoRunError, hash_problems, read_mapping
from sfumato.verify.group_exposures import GroupFacts
from sfumato.verify.json_values import BROKEN, Json, UnknownKindError, close
from sfumato.verify.pair_counts import pair_problems, site_of_each_device
from sfumato.verify.rows import is_gap_checked, row_problems
from sfumato.verify.spec_facts import spec_problems

FORMAT = 1


@dataclass
class Outcome:
    """What a check found.

    Attributes:
        problems: what does not hold, each with the row or file that it is about.
        rows: rows of ``privacy.json`` that were checked.
        finite: bounds with a finite ε among them, each recomputed.
        gaps_beyond: rows with ``certified`` and ``gap``, of which not all exposed sets were compared.
        unchecked: what the folder has that is not checked, in words.
    """

    problems: list[str] = field(default_factory=list)
    rows: int = 0
    finite: int = 0
    gaps_beyond: int = 0
    unchecked: list[str] = field(default_factory=list)


def check_run(folder: Path) -> Outcome:
    """Check everything in a run folder.

    Raises:
        NoRunError: there is no run in the folder.
    """
    if not (folder / "spec.yaml").is_file():
        raise NoRunError(f"{folder}: is no run folder: it has no spec.yaml")
    outcome = Outcome()
    try:
        names = ("manifest.json", "spec.yaml", "privacy.json", "ledger.json")
        manifest, spec, privacy, ledger = (read_mapping(folder, name) for name in names)
    except DamagedFileError as error:
        outcome.problems.append(str(error))
        return outcome
    outcome.problems += hash_problems(
        folder, manifest, spec, {"privacy.json": privacy, "ledger.json": ledger}
    )
    try:
        with np.errstate(all="ignore"):  # figures that do not fit are mismatches, not warnings
            outcome.problems += document_problems(spec, privacy, ledger, outcome)
    except BROKEN as error:
        known = isinstance(error, UnknownKindError)
        outcome.problems.append(
            str(error) if known else f"ledger.json: cannot be checked: {type(error).__name__}: {error}"
        )
    outcome.unchecked = list_unchecked(spec, privacy, ledger)
    if outcome.gaps_beyond:
        rows = f"in {outcome.gaps_beyond} of {outcome.rows} rows"
        outcome.unchecked.append(f"{rows}, whether no exposed set is cheaper than certified and gap say")
    return outcome


def document_problems(spec: Json, privacy: Json, ledger: Json, outcome: Outcome) -> Iterator[str]:
    """Everything that does not hold in the documents of a run; counts rows and bounds in ``outcome``."""
    if ledger.get("kind") not in FACTS:
        raise UnknownKindError(f"ledger.json: this checker has no rule for the kind {ledger.get('kind')!r}")
    if "certificates" not in ledger:
        yield "ledger.json: it has no certificates; the run was made by a version before there were any"
        return
    certificates = ledger["certificates"]
    if certificates["format"] != FORMAT:
        raise UnknownKindError(
            f"ledger.json: this checker has no rule for certificates of format {certificates['format']}"
        )
    yield from spec_problems(spec, ledger)
    if not close(read.number(privacy["delta"]), read.number(spec["privacy"]["delta"])):
        yield f"privacy.json: delta: {privacy['delta']}; spec.yaml gives {spec['privacy']['delta']}"
    rows, listed = privacy["guarantees"], certificates["rows"]
    if len(rows) != len(listed):
        yield f"privacy.json: it has {len(rows)} guarantees; ledger.json has {len(listed)} certificates"
    facts = FACTS[ledger["kind"]](ledger)
    raw = privacy.get("raw_to_trusted_edge")
    if raw is not None and isinstance(facts, GroupFacts):
        of = {"devices": facts.raw_workers, "of": facts.workers}
        if raw != of:
            yield f"privacy.json: raw_to_trusted_edge: {raw}; the facts give {of}"
    for kind in sorted({row["unit"].partition(":")[0] for row in rows}):
        about = [row for row in rows if row["unit"].startswith(f"{kind}:")]
        for (unit, observer), times in Counter((row["unit"], row["observer"]) for row in about).items():
            if times > 1:  # a row that stands for one pair is charged for that pair alone
                yield f"privacy.json: {unit} towards {observer}: {times} rows"
        stood_for = sum(read.count(row["stands_for"]) for row in about)
        if stood_for != facts.pair_count:
            there = f"there are {facts.pair_count}"
            yield f"privacy.json: rows about a {kind} stand for {stood_for} pairs; {there}"
        else:
            relation = spec["privacy"].get("neighbours", "zero-out")
            of_unit = "replace" if kind == "record" else relation
            yield from pair_problems(about, facts, of_unit, site_of_each_device(spec["topology"], facts))
    units = {"device", "record"} if spec["privacy"]["unit"] == "both" else {spec["privacy"]["unit"]}
    if {row["unit"].partition(":")[0] for row in rows} != units:
        yield f"privacy.json: rows are not about a {' and a '.join(sorted(units))}, as spec.yaml asks"
    for place, (row, cert) in enumerate(zip(rows, listed, strict=False)):
        outcome.rows += 1
        outcome.finite += sum(math.isfinite(read.number(b["epsilon"])) for b in row["bounds"].values())
        where = f"guarantees[{place}] ({row['unit']} towards {row['observer']})"
        if not close(read.number(cert["delta"]), read.number(privacy["delta"])):
            yield f"{where}: δ: the certificate says {cert['delta']}; privacy.json {privacy['delta']}"
        try:
            yield from (
                f"{where}: {problem}"
                for problem in row_problems(row, cert, spec, facts, certificates["releases"])
            )
            outcome.gaps_beyond += not is_gap_checked(row, facts)
        except UnknownKindError as error:
            yield f"{where}: {error}"
        except BROKEN as error:
            yield f"{where}: cannot be checked: {type(error).__name__}: {error}"


def list_unchecked(spec: Json, privacy: Json, ledger: Json) -> list[str]:
    """What the folder states that no certificate covers."""
    found = []
    if privacy.get("claims"):
        found.append("claims of papers and the figures beside them")
    if privacy.get("coalitions"):
        found.append("coalitions of clients")
    if any("ex_post" in row for row in privacy["guarantees"]):
        found.append("what rows amount to after the run (ex_post)")
    if spec.get("control"):
        found.append("whether the run kept the budget of its privacy filter")
    if spec["topology"].get("moves"):
        found.append("whether moves that were drawn follow from the seed; each is written in spec.yaml")
    if any(step.get("channel_noise_std") for step in ledger.get("steps", ())):
        found.append(
            "the noise of the channel, whether it tells who was drawn, and how many devices are sure to be "
            "heard: believed; they follow from the radio and not from one figure of spec.yaml"
        )
    if any("epsilon_range" in row for row in privacy["guarantees"]):
        found.append("the smallest ε of the units of a row (epsilon_range); the largest is the row's own")
    return found + _facts_believed(spec, ledger)


def _facts_believed(spec: Json, ledger: Json) -> list[str]:
    """Facts of ``ledger.json`` that spec.yaml does not determine, by name."""
    capped = (spec["training"].get("weights") or {}).get("kind", "uniform") != "uniform"
    drawn = "batches" in ledger or any("batches" in era for era in ledger.get("eras", ()))
    if not capped and not drawn:
        return []
    try:
        sizes, unknown = examples_held(spec)
    except BROKEN:
        return []  # a mismatch has been named
    if sizes is not None:
        return []
    what = f"how many records a device has follows from {unknown}, which spec.yaml does not spell out"
    found = [f"record rates of all devices: believed; {what}"] if drawn else []
    return found + ([f"weights of all devices: believed; {what}"] if capped else [])


def main(arguments: Sequence[str]) -> int:
    """Check the run folder that is named; returns the exit status."""
    if len(arguments) != 1:
        print("usage: python checker.py RUN", file=sys.stderr)
        return 2
    try:
        outcome = check_run(Path(arguments[0]))
    except NoRunError as error:
        print(error, file=sys.stderr)
        return 2
    for problem in outcome.problems:
        print(problem)
    print(
        f"{outcome.rows} rows checked, {outcome.finite} finite bounds recomputed, "
        f"{len(outcome.problems)} mismatches"
    )
    for what in outcome.unchecked:
        print(f"not checked: {what}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
