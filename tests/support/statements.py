"""Statements of plans in tests, and the words of their pages."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import sfumato as sf
from sfumato.report.statement.content import PlayedRun, Statement
from sfumato.report.statement.page import statement_page
from sfumato.run_folder.recorded_privacy import RecordedPrivacy

SPEC: dict[str, Any] = {
    "name": "hospitals",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 3},
    "trust": {"trusted_edges": [1]},
    "training": {"rounds": 4, "local_steps": 4, "edge_every": 2, "batch_size": 5, "learning_rate": 0.2},
    "privacy": {
        "delta": 1e-5, "clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 0.7},
    },
}  # fmt: skip


class Text(HTMLParser):
    """The words of a page, and its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words, self.tags = "", set[str]()
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words += data.replace("\N{NO-BREAK SPACE}", " ")

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)


def made(spec: Any) -> Statement:
    """The statement of a plan."""
    report = sf.account(spec)
    resolved = report.plan.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Statement(resolved, RecordedPrivacy.from_dict(report.to_dict()), "a plan", {"sfumato": "0"})


def played(spec: Any, **run: Any) -> Statement:
    """A statement of ``spec`` as if it had been run, with these attributes of `PlayedRun`."""
    return replace(made(spec), source="A run (finished)", run=PlayedRun("all recomputed.", **run))


def words_of(statement: Statement) -> str:
    """The words of the page of a statement."""
    return Text(page_of(statement)).words


def page_of(statement: Statement) -> str:
    """The page of a statement, with spaces where no line may break as plain spaces."""
    return statement_page(statement).replace("\N{NO-BREAK SPACE}", " ")
