"""What the ranks of a run exchange after training: the sums of messages, or every update."""

from __future__ import annotations

from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.protocols.message_hooks import Listener
from sfumato.schedule.tree import TreePlan


def ranks_of_sums(ranks: Ranks, plan: TreePlan, listener: Listener | None) -> Ranks:
    """The ranks (processes) over which the sums of a round's messages have to be added up.

    Args:
        ranks: of the run, each with the devices that it trained.
        plan: of the tree.
        listener: who hears messages, if anybody does.

    Returns:
        ``ranks``; or `ALONE` (no exchange of sums) where every rank has all updates, as sums are not enough:
        for a listener, and in rounds whose messages are sent again.
    """
    again = any(step.resends.any() for step in plan.releases.steps)
    return ALONE if listener is not None or again else ranks
