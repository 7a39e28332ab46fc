"""What a privacy statement says: of a resolved spec and its guarantees.

`sfumato.report.statement.page` writes it as HTML, `Statement.to_dict` as JSON.

An auditor reads who is protected against whom, under which
assumptions, by how much, whose noise does it, and which versions and files this is about.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sfumato.network.tree import Tree
from sfumato.privacy.guarantee import Guarantee, json_number
from sfumato.report.formatting import sentence, unit_of
from sfumato.report.page.who_adds_noise import noise_of, training_of
from sfumato.report.results.dp_ogl_plus import protocol_warnings
from sfumato.report.results.held import NOT_KNOWN, HeldCounts
from sfumato.report.results.network import Network, read_network
from sfumato.report.results.secure_sums import hops_in_words, least_of_sums
from sfumato.report.results.spec_sections import clip_kind_of, row_in_words, stated_participation
from sfumato.report.statement import assumptions as assumed
from sfumato.report.statement import words
from sfumato.report.statement.assumptions import Assumed
from sfumato.report.statement.pairs import RelatedPairs, SiteEpsilons, observer_in_words
from sfumato.report.statement.simulated import about_simulation
from sfumato.report.statement.trusted import TrustSince, noise_of_trusted, trust_by_round
from sfumato.run_folder.recorded_privacy import RecordedPrivacy
from sfumato.spec.document import SPEC_HASH, fingerprint

STATEMENT_FORMAT = 3

_SECRET_HASHES = "data.source"  # and data.source/FILE: of rows that somebody may know but for one
_UNSEEN = re.compile(r"\bunseen\b")  # the accountant's word for a draw that the observer must not know
_LEFT_OUT = ("bounds", "as_seen_by", "curve")  # of the rows of ``privacy.json``


@dataclass(frozen=True)
class PlayedRun:
    """What a statement says of a run that was played.

    Attributes:
        verified: the result of verifying the run, a sentence.
        mismatches: what did not match, a line each; empty if everything did.
        unchecked: what the verification took on trust, lines ``WHAT: WHY``.
        written: date (ISO) at which the model was written, by the machine's clock; no file proves it.
        recomputed: number of ε that the verification recomputed.
        session: of a deployed run, a hash of its terms and keys, which all its parties know.
        draws: sources of the secret draws of a deployed run; empty for a simulation.
        purpose: of a deployed run, as its parties were told.
        on: whose machines a deployed run was on, as of `sfumato.deployment.rounds.DeployedRounds`; "" if not
            known.
    """

    verified: str
    mismatches: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    written: str = ""
    recomputed: int = 0
    session: str = ""
    draws: tuple[str, ...] = ()
    purpose: str = ""
    on: str = ""


@dataclass(frozen=True)
class Statement:
    """A privacy statement.

    Attributes:
        spec: resolved, as ``spec.yaml`` of a run folder has it.
        privacy: the guarantees, and what belongs to them.
        source: what it is made from: a spec before a run, or a run folder.
        versions: of the packages on which the figures depend.
        made: when it is made, an ISO date.
        run: what is known of the run; ``None`` before it.
        held: how many records or persons devices hold.
        tested: how many examples the model was tested on; 0 for none, or where that is not known.
        test_persons: how many persons they are of; ``None`` where that is not known.
        labels: labels of these examples; () where there are none, or where they are not known.
    """

    spec: Mapping[str, Any]
    privacy: RecordedPrivacy
    source: str
    versions: Mapping[str, str]
    made: str = ""
    run: PlayedRun | None = None
    held: HeldCounts = NOT_KNOWN
    tested: int = 0
    test_persons: int | None = None
    labels: tuple[str, ...] = ()

    @cached_property
    def network(self) -> Network:
        """The network that the spec describes."""
        return read_network(self.spec)

    @property
    def peer(self) -> str:
        """What a peer that observes is called: "another device under the same edge", or "a peer"."""
        shape = self.network.shape
        if not isinstance(shape, Tree):
            return "a peer"
        if shape.depth > 1:
            return f"another {self.place} under the same {shape.tiers[-1].name}"
        return f"another {self.place}"

    @cached_property
    def place(self) -> str:
        """What a party with data is called: site or device."""
        return words.place_of(self.network, self._kinds)

    @property
    def simulation(self) -> str:
        """Of a simulated run, sentences on whom its ε hold against; "" of a plan and of a deployed run."""
        return about_simulation(int(self.spec.get("seed", 0))) if self._played == "simulated" else ""

    def observer(self, row: Guarantee) -> str:
        """The observer of ``row``, a guarantee, in words, such as "the cloud"."""
        who = words.observer_phrase(row, self.peer, self.place)
        alike = row.unit_kind, row.relation.words
        return f"{who} (where it is not trusted)" if alike in self._trusted and not row.trusted else who

    @property
    def subject(self) -> str:
        """Sentences on who trains what on which data, with the stated purpose of a deployed run."""
        purpose = self.run.purpose if self.run is not None else ""
        unit, aside = self.spec["privacy"].get("unit", "device"), bool(assumed.set_aside(self.spec["data"]))
        tested = words.rows_to_test_on(unit, self.tested, self.test_persons, set_aside=aside)
        said = words.training_in_words(self.spec, self.network, self._played, self.place, self.held, tested)
        return f"{said} {sentence(f'its stated purpose: {purpose}')}" if purpose else said

    @property
    def _played(self) -> words.Played:
        """On whose machines the training ran, or that it has not run yet."""
        by_parties: dict[str, words.Played] = {
            "one machine": "rehearsed",
            "machines of their own": "deployed",
        }
        if self.run is None:
            return "not yet"
        if not self.run.draws:
            return "simulated"
        return by_parties.get(self.run.on, "by parties")

    @property
    def whoever_runs(self) -> str:
        """Who has everybody's data because they run the training, in words; "" where nobody has."""
        return words.whoever_runs(self._played)

    @property
    def having_the_data(self) -> list[str]:
        """Phrases on the parties that have a unit's data, to whom no ε applies; each phrase once."""
        holders = [words.holder_phrase(kind, self.place) for kind in self.units]
        return list(dict.fromkeys(filter(None, [*holders, self.whoever_runs])))

    @property
    def draws(self) -> tuple[str, ...]:
        """Where the secret draws of a deployed run came from, a tuple of texts; empty for others."""
        return () if self.run is None else self.run.draws

    @property
    def not_covered(self) -> tuple[str, ...]:
        """A tuple of sentences on what no ε of the statement covers; see `assumptions.not_covered`."""
        return assumed.not_covered(self.spec["data"], exact=bool(self.draws))

    @property
    def findings(self) -> tuple[str, ...]:
        """Warnings about the spec or the run, that on its protocol first; none on scales of features."""
        found = zip(self.privacy.kinds_of_findings, self.privacy.findings, strict=True)
        return (*protocol_warnings(self.spec), *(said for kind, said in found if kind != "unscaled"))

    @cached_property
    def units(self) -> dict[str, str]:
        """Each kind of unit (device, record, person) that has guarantees, to a phrase on what it is."""
        named = {kind: what for kind, what in words.UNITS.items() if kind in self._kinds}
        column = self.spec["data"].get("person_column") or "data.person_column"
        return {kind: what.format(place=self.place, person_column=column) for kind, what in named.items()}

    @cached_property
    def _kinds(self) -> frozenset[str]:
        """Kinds of units that have guarantees."""
        return frozenset(row.unit_kind for row in self.privacy.guarantees)

    @property
    def protected(self) -> str:
        """Sentences on what is protected, for readers without mathematics."""
        if all(row.epsilon == math.inf for row in self.privacy.guarantees):
            return "Nothing is protected: there is no guarantee (ε = ∞) towards any observer."
        return words.protected(self.promises, self.place, self.spec["data"])

    @cached_property
    def promises(self) -> tuple[words.Promise, ...]:
        """The least and the largest ε of each kind of unit; () without guarantees."""
        return tuple(map(self._promise, self.units))

    def _promise(self, kind: str) -> words.Promise:
        """What the guarantees of units of one kind amount to."""
        rows = [row for row in self.privacy.guarantees if row.unit_kind == kind]
        best = min(rows, key=lambda row: row.epsilon)
        stated = str(self.spec["privacy"].get("neighbours", "zero-out"))
        if best.neighbours in words.RELATIONS:
            stated = best.neighbours
        finite = [row.epsilon for row in rows if row.epsilon < math.inf]
        return words.Promise(kind, stated, best.epsilon, max(finite, default=math.inf))

    def titled(self, name: str) -> str:
        """Names of parties or units with the titles that the topology gives them."""
        return self.network.titled(name)

    @property
    def not_protected(self) -> tuple[str, ...]:
        """A tuple of sentences on what is not protected."""
        clip = clip_kind_of(self.spec)
        row = row_in_words(self.spec) if "record" in self.units else ""
        stated = f"That a record is {row} is what the spec says; no program can check it."
        said = words.not_protected(self.promises, self.place, clip, self.privacy.delta)
        return (*([stated] if row else []), *said)

    @cached_property
    def assumptions(self) -> tuple[Assumed, ...]:
        """A tuple of what is assumed of observers, noise, files and the rows of a person."""
        return (
            *assumed.OF_OBSERVERS,
            *assumed.of_ciphers(
                hops_in_words(self.network), least_of_sums(self.spec, self.network), self._played
            ),
            *([assumed.OF_RECEIVERS] if self.network.over_air else []),
            assumed.of_noise(self._played, self.draws),
            *self._of_draws(),
            assumed.of_files(played=self.run is not None),
            *(
                assumed.of_persons(self.spec["data"]["person_column"], self.place)
                if "person" in self.units
                else ()
            ),
        )

    def _of_draws(self) -> Iterator[Assumed]:
        """What is assumed of draws of participants and rows, where there are any."""
        kind = stated_participation(self.spec["training"])["kind"]
        parties = kind != "all"
        if any(_UNSEEN.search(row.why) for row in self.privacy.guarantees):
            yield assumed.of_draws(self._played, parties=parties)
        if self.draws and parties:
            yield assumed.OF_SEEN_COINS if kind == "poisson" else assumed.OF_TRUSTED_DRAWS

    @property
    def unchecked(self) -> tuple[Assumed, ...]:
        """A tuple of what the verification of the run took on trust."""
        return assumed.unchecked_as_assumed(() if self.run is None else self.run.unchecked)

    @cached_property
    def largest(self) -> tuple[RelatedPairs, ...]:
        """All guarantees, grouped by kind of unit, relation of the observer and trust."""
        groups: dict[tuple[str, str, bool], list[Guarantee]] = {}
        for row in self.privacy.guarantees:
            groups.setdefault((row.unit_kind, row.relation.words, row.trusted), []).append(row)
        return tuple(RelatedPairs(tuple(rows), self._example(rows)) for rows in groups.values())

    def _example(self, rows: list[Guarantee]) -> str:
        """The text "UNIT towards OBSERVER" of the row with the largest ε."""
        worst, titled = max(rows, key=lambda row: row.epsilon), self.network.titled
        return f"{unit_of(replace(worst, unit=titled(worst.unit)))} towards {titled(worst.observer)}"

    @cached_property
    def _trusted(self) -> frozenset[tuple[str, str]]:
        """Kinds of units and relations of observers that some of these units trust."""
        return frozenset(
            (row.unit_kind, row.relation.words) for row in self.privacy.guarantees if row.trusted
        )

    @cached_property
    def sites(self) -> tuple[SiteEpsilons, ...]:
        """The largest ε at each named site, the site with the largest first; () without named sites."""
        found: dict[tuple[str, str], dict[str, float]] = {}
        for row in self.privacy.guarantees:
            for site in row.sites:
                largest, whom = found.setdefault((site, row.unit_kind), {}), observer_in_words(row)
                largest[whom] = max(row.epsilon, largest.get(whom, 0.0))
        ordered = sorted(found.items(), key=lambda one: -max(one[1].values()))
        return tuple(SiteEpsilons(site, unit, towards) for (site, unit), towards in ordered)

    @cached_property
    def noise(self) -> dict[str, Any]:
        """Who adds noise with which multipliers, a JSON object, as of `noise_of`."""
        return noise_of(self.spec, self.network)

    @cached_property
    def training(self) -> dict[str, Any]:
        """Rounds, steps and participation, a JSON object, as of `training_of`."""
        return training_of(self.spec, self.network)

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 by name: of the spec, of files of code and network that it reads, and of a session.

        Left out are hashes of the data and of any file that follows from data (the models hold hashes of the
        data, and follow from the data and a seed), and from the hash of the spec these and the seed: whoever
        knows all but one row, or tries seeds, compares what a guess gives. The session, of a deployed run, is
        a hash of terms, keys and numbers of rows.
        """
        inputs = {
            name: value
            for name, value in (self.spec.get("hashes") or {}).items()
            if name != SPEC_HASH and not name.startswith(_SECRET_HASHES)
        }
        open_spec = {key: value for key, value in self.spec.items() if key != "seed"} | {"hashes": inputs}
        session = self.run.session if self.run is not None else ""
        return {SPEC_HASH: fingerprint(open_spec), **inputs} | ({"session": session} if session else {})

    @property
    def trusted(self) -> list[str] | None:
        """Titles of the parties trusted with raw updates in any round; ``None`` for an unknown network."""
        if isinstance(self.network.shape, str):
            return None
        return list(dict.fromkeys(title for era in self.trust_by_round for title in era.trusted))

    @cached_property
    def trust_by_round(self) -> tuple[TrustSince, ...]:
        """Who is trusted with raw updates, by title and round; () where the network is not known."""
        return trust_by_round(self.network)

    @property
    def trusted_add_noise(self) -> str:
        """A sentence on whether trusted parties add noise to what they send on; "" where there are none."""
        return noise_of_trusted(self.network)

    def to_dict(self) -> dict[str, Any]:
        """The whole statement as a JSON object."""
        raw = self.privacy.raw_to_trusted_edge
        return {
            "format": STATEMENT_FORMAT,
            "name": str(self.spec["name"]),
            "source": self.source,
            "made": self.made,
            "subject": self.subject,
            "protocol": str(self.spec["protocol"]),
            "units": self.units,
            "neighbours": {
                one.kind: {"relation": one.relation, "meaning": words.RELATIONS[one.relation]}
                for one in self.promises
            },
            "delta": self.privacy.delta,
            "guarantees": list(self._rows()),
            "largest": [row.to_dict() for row in self.largest],
            "after_run": list(self._after_run()),
            "sites": [row.to_dict() for row in self.sites],
            "protected": self.protected,
            "have_the_data": self.having_the_data,
            "not_protected": list(self.not_protected),
            "threat_model": [assumed.ATTACKER, *(f"{one.what} {one.why}" for one in self.assumptions)],
            "trust": {
                "trusted_with_raw_updates": self.trusted,
                "by_round": [one._asdict() for one in self.trust_by_round],
                "raw_to_trusted_edge": None if raw is None else vars(raw),
            },
            "noise": self.noise,
            "training": self.training,
            "findings": list(self.findings),
            "notes": list(self.privacy.notes),
            "not_covered": list(self.not_covered),
            "versions": dict(self.versions),
            "hashes": self.hashes,
        } | self._of_run()

    def _of_run(self) -> dict[str, Any]:
        """The entries of the JSON that a statement of a run has, and that of a plan has not."""
        if self.run is None:
            return {}
        return {
            "simulation": self.simulation,
            "run_written": self.run.written,
            "verified": self.run.verified,
            "mismatches": list(self.run.mismatches),
            "not_checked": list(self.run.unchecked),
        }

    def _after_run(self) -> Iterator[dict[str, Any]]:
        """The entries of ``after_run``: ε of units of which it is known in how many rounds they took part."""
        for place, after in self.privacy.after_run.items():
            row = self.privacy.guarantees[place]
            yield {
                "unit": row.unit, "observer": row.observer, "epsilon": json_number(after.epsilon),
                "participations": after.participations,
            }  # fmt: skip

    def _rows(self) -> Iterator[dict[str, Any]]:
        """The rows of ``privacy.json`` without what a reader does not need."""
        for row in self.privacy.guarantees:
            yield {key: value for key, value in row.to_dict().items() if key not in _LEFT_OUT}
