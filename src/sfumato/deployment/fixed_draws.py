"""Whose answers a trusted aggregator adds up, where a fixed number of its devices takes part in a round.

It asks all of them, in every round, and all answer: nobody but the aggregator sees whom it draws, neither by
who is asked or answers nor by how long it takes. It draws once a round, with the operating system's
randomness, and its memory keeps the draw before anybody is asked: a restart goes on with the same devices, in
all aggregations of the round. What is accepted, and why that is what the account charges, is derived in
docs/deployment.md, "Who takes part".
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.randomness import Randomness, round_context
from sfumato.deployment.terms import DeploymentTerms
from sfumato.wire.keys import Identity


def counted_children(
    terms: CommonTerms,
    node: int,
    number: int,
    identity: Identity,
    memory: PartyMemory,
    randomness: Randomness,
) -> Collection[int]:
    """The numbers of the children whose answers aggregator ``node`` adds up in a round: all, or a draw.

    Args:
        terms: of the run.
        node: number of the aggregator, which receives single messages.
        number: of the round, from 0.
        identity: of the aggregator.
        memory: of the aggregator.
        randomness: its secret choices.

    Raises:
        SessionMemoryError: the draw cannot be recorded: nobody must be asked.
    """
    children = list(terms.children(node))
    count = terms.drawn_below(node) if isinstance(terms, DeploymentTerms) else None  # groups draw nobody
    if count is None:
        return children
    assert isinstance(terms, DeploymentTerms)
    context = round_context(identity, terms.session, node, number)
    drawn = np.zeros(len(children), np.uint8)
    drawn[randomness.chosen(terms.plan, terms.place(node)[1], number, count, context)] = 1
    kept = memory.keep_draw(terms.session, number, drawn.tobytes())
    return frozenset(child for child, is_drawn in zip(children, kept, strict=True) if is_drawn)
