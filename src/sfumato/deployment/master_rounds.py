"""The rounds of one master of deployed groups, which keeps the model of its own group and no other."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from sfumato.deployment.group_rounds import DeployedGroupRounds
from sfumato.protocols.evaluator import Evaluator
from sfumato.protocols.tree.state import DeployedState


class MasterRounds(DeployedGroupRounds):
    """Plays the rounds of one group with real workers; arguments as of `DeployedGroupRounds`.

    The run folder has the model of this group, and scores of it alone. What other groups released is known
    here from the terms only: their declared noise, of which the account is.
    """

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "loss")

    def model(self, state: DeployedState) -> Tensor:
        """The model of the group ``[P]``."""
        return state.model[0]

    def artifacts(self, state: DeployedState) -> dict[str, Tensor]:
        """Always an empty dict: the model of the group is all that is kept."""
        return {}

    def scores(self, state: DeployedState, examination: Evaluator) -> dict[str, float]:
        """Accuracy, loss and further metrics, by name, of the group's model on the test set that is here."""
        found = examination.score(state.model[0])
        return {"accuracy": found.accuracy, "loss": found.loss, **found.measures}

    def realised_facts(self, state: DeployedState) -> dict[str, Any]:
        """The facts of `PlayedRounds.realised_facts`, with the index of the group."""
        facts = super().realised_facts(state)
        (master,) = self._masters
        return facts | {"deployed": facts["deployed"] | {"group": self._terms.group(master.number)}}
