"""Pieces of the first screen of a report: sentences in large type, notices, findings, folded commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sfumato.report import formatting as text

WHAT_NOISE_COSTS = "How to find out what the noise costs"
"""The question above commands that train a run without noise."""


def notice_html(sentence: str) -> str:
    """A sentence of plain text as the HTML of a notice."""
    return f'<p class="notice">{text.escape(sentence)}</p>'


def lead_html(lines: Sequence[str]) -> str:
    """Lines of text as HTML in large type; "" without lines."""
    return f'<div class="lead">{paragraphs_html(lines)}</div>' if lines else ""


def paragraphs_html(lines: Iterable[str]) -> str:
    """HTML paragraphs of sentences, in which an ε or δ is not parted from its value by a line break."""
    joined = (text.escape(line).replace(" = ", "&nbsp;=&nbsp;").replace(" %", "&nbsp;%") for line in lines)
    return "".join(f"<p>{line}</p>" for line in joined)


def commands_html(question: str, how: str, commands: str) -> str:
    """HTML of shell commands that answer a question, folded, below a sentence on what they do.

    Args:
        question: HTML that is shown while it is folded.
        how: the sentence, plain text.
        commands: plain text.
    """
    shown = f'<pre class="command" tabindex="0">{text.escape(commands)}</pre>'
    return f"<details><summary>{question}</summary>{paragraphs_html([how])}{shown}</details>"


def findings_html(found: Mapping[str, Sequence[str]]) -> str:
    """An HTML list of warnings, each with the names of runs that it is about, if any; "" for no warnings."""
    lines = "".join(
        f"<li>{f'<b>{text.escape(text.join_names(who))}</b>: ' if who else ''}"
        f"{text.escape(text.sentence(said))}</li>"
        for said, who in found.items()
    )
    return f'<div class="notice"><p>Findings</p><ul>{lines}</ul></div>' if lines else ""
