"""What the rounds of real parties have in common, whatever the topology: all but how a round is played."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

from torch import Tensor

from sfumato.arguments import Argument
from sfumato.deployment.carrier import Carrier
from sfumato.deployment.common_terms import CommonTerms
from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.errors import RunError, SpecError
from sfumato.learning.server_optimizer import ServerState
from sfumato.protocols.base import FederatedProtocol, PilotNorms, RoundStats, State
from sfumato.protocols.evaluator import Evaluator
from sfumato.protocols.tree.local_work import server_optimizer
from sfumato.protocols.tree.state import DeployedState
from sfumato.run_folder.reader import RunFolder, load_run

Machines: TypeAlias = Literal["one machine", "machines of their own"]
"""Where parties are: of one machine, whoever starts them has all keys and rows."""

S = TypeVar("S", bound=State)


def played_run(out: Path, purpose: str) -> RunFolder:
    """The folder of a run that real parties have played to its end, for ``purpose``.

    Raises:
        SpecError: it had ended before, and its parties had agreed to another purpose.
        RunError: it cannot be read.
    """
    found = load_run(out)
    before = found.deployed["purpose"]
    if purpose != before:
        allowed = f"must be {before!r}: the run in {out} has ended, and its parties agreed to that"
        raise SpecError(Argument("purpose"), purpose, allowed)
    return found


class PlayedRounds(ABC, Generic[S]):
    """Plays the rounds of a plan with real parties; all else is as in a simulation.

    Args:
        terms: of the run.
        heads: numbers of the aggregators without a parent that play the run here.
        carrier: of frames.
        simulated: the protocol that would play the same plan.
        sources: where all parties' secret choices come from, for the run folder.
        on: whose machines the parties are on, for the run folder.
    """

    metrics: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        terms: CommonTerms,
        heads: Iterable[int],
        carrier: Carrier,
        simulated: FederatedProtocol[S],
        sources: Collection[str],
        on: Machines,
    ) -> None:
        self._carrier, self._simulated = carrier, simulated
        self._sources, self._on, self._purpose = sorted(sources), on, terms.purpose
        self.ranks: Ranks = ALONE
        self._server = server_optimizer(terms.plan.spec.training.server)
        self._session, self._heads = terms.session.hex(), terms.digest_of_keys(heads)

    @abstractmethod
    def initial(self, model: Tensor) -> DeployedState:
        """The state before the first round, from the initial model: float32 ``[M]``, M parameters."""

    @abstractmethod
    def run_round(self, state: DeployedState) -> tuple[DeployedState, RoundStats]:
        """Run round ``state.round`` with the parties; returns the state after it, and its measurements.

        Raises:
            RunError: somebody did not answer, or parties of other terms began the run.
            SfumatoError: a party refuses.
        """

    @abstractmethod
    def _simulated_state(self, state: DeployedState) -> S:
        """What a simulation remembers in the place of ``state``."""

    @abstractmethod
    def _steps(self) -> list[float]:
        """The step of every aggregation's grid in the first round."""

    def _state(self, number: int, model: Tensor, server: ServerState) -> DeployedState:
        """The state after ``number`` rounds, of these terms and heads."""
        return DeployedState(number, model, server, session=self._session, heads=self._heads)

    def _require_session(self, state: DeployedState) -> None:
        """Refuse a state of other terms; `remote_party.require_own_run` refuses one of another master.

        Raises:
            RunError: parties of other terms began the run.
        """
        if state.session != self._session:
            other = f"began in the session {state.session[:12]}, and these terms are of {self._session[:12]}"
            raise RunError(f"the run {other}: another spec, version, purpose, label or list of keys")

    def rounds_expected(self, state: DeployedState) -> int:
        """The number of rounds in the spec, whatever the state: no deployment ends earlier."""
        return self._simulated.rounds_expected(self._simulated_state(state))

    def spent(self, state: DeployedState) -> None:
        """``None``: the plan declares every round, and nothing is spent beside it."""

    def model(self, state: DeployedState) -> Tensor:
        """The one model ``[M]`` that a finished run keeps, after the rounds of ``state``."""
        return self._simulated.model(self._simulated_state(state))

    def artifacts(self, state: DeployedState) -> dict[str, Tensor]:
        """Further models that a finished run keeps, by file name: those of groups; empty for a tree."""
        return self._simulated.artifacts(self._simulated_state(state))

    def realised_facts(self, state: DeployedState) -> dict[str, Any]:
        """What ``ledger.json`` keeps of the deployment, as JSON.

        ``deployed`` has the session (hex), the purpose, the largest grid step of any aggregation in the first
        round, the sources of randomness (``draws``) and the machines (``on``). ``sum_steps`` has ``None`` for
        every aggregation.
        """
        steps = self._steps()
        return {
            "sum_steps": [None] * len(steps),
            "deployed": {"session": self._session, "purpose": self._purpose, "step": max(steps)}
            | {"draws": self._sources, "on": self._on},
        }

    def is_finite(self, state: DeployedState) -> bool:
        """Whether all numbers of all models are finite."""
        return self._simulated.is_finite(self._simulated_state(state))

    def scores(self, state: DeployedState, examination: Evaluator) -> dict[str, float]:
        """Accuracy, loss and further metrics, by name, on the test set of whoever writes the run folder."""
        return self._simulated.scores(self._simulated_state(state), examination)

    def pilot(self, model: Tensor, rounds: int) -> PilotNorms:
        """Refuse ``rounds`` rounds of a pilot: it needs norms of real parties' messages, which are private.

        Raises:
            RunError: always.
        """
        raise RunError("a pilot looks at messages without noise: simulate it on public data")
