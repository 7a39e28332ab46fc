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
from sfumato.verify.comparison import nearly_equal
from sfumato.verify.examples_held import examples_held
from sfumato.verify.facts import FACTS, Facts
from sfumato.verify.folder import DamagedFileError, NoRunError, hash_problems, read_mapping
from sfumato.verify.group_exposures import CheckedGroups
from sfumato.verify.pair_counts import pair_problems, site_of_each_device
from sfumato.verify.read import BROKEN, Json, UnknownKindError
from sfumato.verify.rows import is_gap_checked, row_problems
from sfumato.verify.spec_facts import spec_problems

FORMAT = 1


@dataclass
class CheckOutcome:
    """What a check found.

    Attributes:
        problems: what does not hold, each with the row or file that it is about.
        rows: rows of ``privacy.json`` that were checked.
        finite: bounds with a finite ε among them, each recomputed.
        unchecked_gaps: rows with ``certified`` and ``gap``, of which not all exposed sets were compared.
        unchecked: what the folder has that is not checked, and whether that is a concern, in words.
    """

    problems: list[str] = field(default_factory=list)
    rows: int = 0
    finite: int = 0
    unchecked_gaps: int = 0
    unchecked: list[str] = field(default_factory=list)


def check_run(folder: Path) -> CheckOutcome:
    """Check everything in the run folder ``folder``: hashes, spec, facts, exposed sets, charges and every ε.

    A file that is damaged, or that breaks a rule, becomes a line in ``problems`` of the outcome, not an
    error.

    Raises:
        NoRunError: the folder has no spec.yaml.
    """
    if not (folder / "spec.yaml").is_file():
        raise NoRunError(f"{folder}: is no run folder: it has no spec.yaml")
    outcome = CheckOutcome()
    try:
        names = ("manifest.json", "spec.yaml", "privacy.json", "ledger.json")
        manifest, spec, privacy, ledger = (read_mapping(folder, name) for name in names)
    except DamagedFileError as error:
        outcome.problems.append(str(error))
        return outcome
    documents = {"privacy.json": privacy, "ledger.json": ledger}
    outcome.problems += hash_problems(folder, manifest, spec, documents)
    try:
        with np.errstate(all="ignore"):  # figures that do not fit are mismatches, not warnings
            outcome.problems += document_problems(spec, privacy, ledger, outcome)
    except UnknownKindError as error:
        outcome.problems.append(str(error))
    except BROKEN as error:
        outcome.problems.append(f"ledger.json: cannot be checked: {type(error).__name__}: {error}")
    outcome.unchecked = list_unchecked(spec, privacy, ledger)
    if outcome.unchecked_gaps:
        outcome.unchecked.append(
            f"in {outcome.unchecked_gaps:,} of {outcome.rows:,} rows, whether a smaller ε could be proved "
            "from another set of messages (certified, gap): the stated ε is recomputed and holds, so this is "
            "no concern"
        )
    return outcome


def document_problems(spec: Json, privacy: Json, ledger: Json, outcome: CheckOutcome) -> Iterator[str]:
    """Yield one line for every mismatch in the parsed files of a run; hashes are not among them.

    Args:
        spec: contents of spec.yaml.
        privacy: contents of privacy.json.
        ledger: contents of ledger.json.
        outcome: its counts of rows, finite bounds and unchecked gaps are increased in place.

    Raises:
        UnknownKindError: there is no rule for this kind of protocol or format of certificates.
    """
    if ledger.get("kind") == "tiered":  # so versions up to 0.2 called it
        ledger = {**ledger, "kind": "tree"}
    no_rule = "ledger.json: this checker has no rule for"
    if ledger.get("kind") not in FACTS:
        raise UnknownKindError(f"{no_rule} the kind {ledger.get('kind')!r}")
    if "certificates" not in ledger:
        yield "ledger.json: it has no certificates; the run was made by a version before there were any"
        return
    certificates = ledger["certificates"]
    if certificates["format"] != FORMAT:
        raise UnknownKindError(f"{no_rule} certificates of format {certificates['format']}")
    yield from spec_problems(spec, ledger)
    if not nearly_equal(read.figure(privacy["delta"]), read.figure(spec["privacy"]["delta"])):
        yield f"privacy.json: delta: {privacy['delta']}; spec.yaml gives {spec['privacy']['delta']}"
    rows, listed = privacy["guarantees"], certificates["rows"]
    if len(rows) != len(listed):
        yield f"privacy.json: it has {len(rows)} guarantees; ledger.json has {len(listed)} certificates"
    facts = FACTS[ledger["kind"]](ledger)
    yield from _unit_problems(spec, privacy, facts)
    for place, (row, cert) in enumerate(zip(rows, listed, strict=False)):
        outcome.rows += 1
        outcome.finite += sum(math.isfinite(read.figure(b["epsilon"])) for b in row["bounds"].values())
        where = f"guarantees[{place}] ({row['unit']} towards {row['observer']})"
        if not nearly_equal(read.figure(cert["delta"]), read.figure(privacy["delta"])):
            yield f"{where}: δ: the certificate says {cert['delta']}; privacy.json {privacy['delta']}"
        try:
            problems = row_problems(row, cert, spec, facts, certificates["releases"])
            yield from (f"{where}: {problem}" for problem in problems)
            outcome.unchecked_gaps += not is_gap_checked(row, facts)
        except UnknownKindError as error:
            yield f"{where}: {error}"
        except BROKEN as error:
            yield f"{where}: cannot be checked: {type(error).__name__}: {error}"


def _unit_problems(spec: Json, privacy: Json, facts: Facts) -> Iterator[str]:
    """Yield a line where rows of privacy.json are about other units than the spec asks for.

    Also where a row is there twice, or where their ``stands_for`` do not add up to the pairs of unit and
    observer that there are.
    """
    rows, raw = privacy["guarantees"], privacy.get("raw_to_trusted_edge")
    if raw is not None and isinstance(facts, CheckedGroups):
        of = {"devices": facts.raw_workers, "of": facts.workers}
        if raw != of:
            yield f"privacy.json: raw_to_trusted_edge: {raw}; the facts give {of}"
    for kind in sorted({row["unit"].partition(":")[0] for row in rows}):
        about = [row for row in rows if row["unit"].startswith(f"{kind}:")]
        for (unit, observer), times in Counter((row["unit"], row["observer"]) for row in about).items():
            if times > 1:  # a row that stands for one pair is charged for that pair alone
                yield f"privacy.json: {unit} towards {observer}: {times} rows"
        stood_for, pairs = sum(read.count(row["stands_for"]) for row in about), facts.pair_count
        if stood_for != pairs:
            yield f"privacy.json: rows about a {kind} stand for {stood_for} pairs; there are {pairs}"
        else:
            relation = "replace" if kind != "device" else spec["privacy"].get("neighbours", "zero-out")
            yield from pair_problems(about, facts, relation, site_of_each_device(spec["topology"], facts))
    units = {"device", "record"} if spec["privacy"]["unit"] == "both" else {spec["privacy"]["unit"]}
    if {row["unit"].partition(":")[0] for row in rows} != units:
        yield f"privacy.json: rows are not about a {' and a '.join(sorted(units))}, as spec.yaml asks"


def list_unchecked(spec: Json, privacy: Json, ledger: Json) -> list[str]:
    """Describe, one text each, the statements of a run folder that this checker does not check, and why.

    Args:
        spec: content of spec.yaml.
        privacy: content of privacy.json.
        ledger: content of ledger.json.
    """
    rows = privacy["guarantees"]
    stated = {
        "claims of papers and the figures beside them: no guarantee depends on them": privacy.get("claims"),
        "the worst coalitions of clients (coalitions): no guarantee of a single observer depends on them": (
            privacy.get("coalitions")
        ),
        "what rows amount to after the run (ex_post): the guarantees given before it are recomputed": any(
            "ex_post" in row for row in rows
        ),
        "whether the run kept the budget of its privacy filter: the budget itself is; the program that "
        "trained stops at it, which no file can prove": spec.get("control"),
        "whether moves that were drawn follow from the seed: ε is recomputed for the moves that spec.yaml "
        "writes out, so this is no concern": spec["topology"].get("moves"),
        "the noise of the radio channel, whether it tells who was drawn, and how many devices are sure to be "
        "heard: believed, as they follow from the radio and not from one figure of spec.yaml; with less "
        "noise than stated every ε is larger": (
            any(step.get("channel_noise_std") for step in ledger.get("steps", ()))
        ),
        "the smallest ε of the units of a row (epsilon_range): the largest is the guarantee and is "
        "recomputed, so this is no concern": any("epsilon_range" in row for row in rows),
        "in groups, how many kinds of pairs a row stands for (kinds_of_pairs): every pair is counted in a "
        "row that bounds it, so this is no concern": FACTS.get(ledger.get("kind", "")) is CheckedGroups
        and any("kinds_of_pairs" in row for row in rows),
    }
    return [what for what, is_there in stated.items() if is_there] + _facts_not_determined(spec, ledger)


def _facts_not_determined(spec: Json, ledger: Json) -> list[str]:
    """A text for each rate or weight in ``ledger.json`` that spec.yaml does not determine.

    Rates are of records or of persons.
    """
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
    unit = "person" if spec["privacy"]["unit"] == "person" else "record"
    found = []
    if drawn:
        found.append(
            f"how many {unit}s each device has: believed, as they are counted in {unknown}, which is not in "
            f"the folder; with fewer {unit}s than the run counted each is drawn more often, and its ε is "
            "larger; whoever has the data can count them"
        )
    if capped:
        found.append(
            f"the weights of devices: believed, as they follow from {unknown}, which is not in the folder; a "
            "device that weighs more than stated has a larger ε"
        )
    return found


def main(arguments: Sequence[str]) -> int:
    """The command of the archive: check the run folder that the only argument names, and print the outcome.

    Returns the exit status: 0 without a mismatch, 1 with any, 2 for wrong usage or where there is no run.
    """
    if len(arguments) != 1:
        print("usage: python checker.pyz RUN", file=sys.stderr)
        return 2
    try:
        return print_outcome(arguments[0], check_run(Path(arguments[0])))
    except NoRunError as error:
        print(error, file=sys.stderr)
        return 2


def print_outcome(run: str, outcome: CheckOutcome) -> int:
    """Print every mismatch of the run named ``run``, what was checked and what was not.

    Returns the exit status: 1 if there is any mismatch, else 0.
    """
    for problem in outcome.problems:
        print(f"mismatch: {problem}")
    checked = f"{outcome.rows:,} guarantees checked, {outcome.finite:,} finite bounds recomputed"
    print(f"{run}: {checked}, {len(outcome.problems):,} mismatches")
    for what in outcome.unchecked:
        print(f"not checked: {what}")
    return 1 if outcome.problems else 0
