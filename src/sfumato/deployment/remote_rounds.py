"""What plays the rounds of the cloud, or of one master, whose children are on other machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sfumato.deployment.asked_again import AskedAgain
from sfumato.deployment.calls import at_once
from sfumato.deployment.carrier import FrameReceiver, InProcess
from sfumato.deployment.cloud import AskingParty, CloudParty
from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.group_terms import GroupTerms
from sfumato.deployment.master_rounds import MasterRounds
from sfumato.deployment.party_folder import PartyFolder
from sfumato.deployment.played_rounds import Machines, PlayedRounds
from sfumato.deployment.randomness import SystemRandomness
from sfumato.deployment.rounds import DeployedRounds
from sfumato.deployment.terms import DeploymentTerms
from sfumato.protocols.base import FederatedProtocol
from sfumato.protocols.groups.base import GroupedProtocol
from sfumato.protocols.tree.rounds import TreeProtocol

_ON: Machines = "machines of their own"


def remote_rounds(
    number: int,
    terms: CommonTerms,
    own: PartyFolder,
    children: Mapping[int, FrameReceiver],
    simulated: FederatedProtocol[Any],
    say: Callable[[str], object],
) -> PlayedRounds[Any]:
    """What plays the rounds of a party without a parent.

    Args:
        number: of the cloud, or of a master.
        terms: of the run.
        own: its folder, open.
        children: by number, as it reaches them.
        simulated: the protocol that would play the same plan.
        say: called with what a master waits for.
    """
    draws, parents = SystemRandomness(), dict.fromkeys(children, number)  # of all parties
    if isinstance(terms, GroupTerms):
        assert isinstance(simulated, GroupedProtocol)  # what can be deployed is played by it
        master = AskingParty(number, terms, own.identity, own.memory, draws)
        asked = {child: AskedAgain(one, terms.name(child), say) for child, one in children.items()}
        carrier = InProcess({number: master, **asked}, parents, at_once)
        return MasterRounds(terms, [master], carrier, simulated, {draws.source}, _ON)
    assert isinstance(terms, DeploymentTerms)  # there is no third kind
    assert isinstance(simulated, TreeProtocol)
    cloud = CloudParty(terms, own.identity, own.memory, draws)
    carrier = InProcess({number: cloud, **children}, parents, at_once)
    return DeployedRounds(terms, cloud, carrier, simulated, {draws.source}, _ON)
