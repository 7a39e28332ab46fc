"""The process of a party that draws what `run` draws: ``python simulated_party.py FOLDER``, for tests."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from rehearsals import SimulatedRandomness

from sfumato.cli import main
from sfumato.deployment import invitation
from sfumato.schedule.tree import TreePlan
from sfumato.simulation.training_inputs import TrainingInputs


def drawn(plan: TreePlan, number: int) -> SimulatedRandomness:
    """What `run` draws for a party."""
    return SimulatedRandomness(plan, TrainingInputs.of(plan), number)


if __name__ == "__main__":
    own = Path(sys.argv[1])
    said, terms = invitation.read_terms(own)
    assert isinstance(terms.plan, TreePlan)
    plan = terms.plan
    with patch.object(invitation, "SystemRandomness", lambda: drawn(plan, said.number)):
        sys.exit(main(["party", own.name, "--folder", str(own.parent), "--with-starter"]))
