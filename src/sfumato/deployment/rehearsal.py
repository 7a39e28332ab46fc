"""All parties of a spec in this process, each with a key and a memory of its own: a deployment, rehearsed.

What parties do is what they will do on machines of their own; only what carries frames is another.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sfumato.data.dataset import Dataset
from sfumato.data.partition import Partition
from sfumato.deployment.carrier import InProcess, Party
from sfumato.deployment.cloud import Cloud
from sfumato.deployment.consent import Agreement, Consent, agree
from sfumato.deployment.device import Device
from sfumato.deployment.edge import Edge
from sfumato.deployment.local_data import LocalData
from sfumato.deployment.party_folder import PartyFolder
from sfumato.deployment.randomness import Randomness, SystemRandomness
from sfumato.deployment.refusals import require_deployable
from sfumato.deployment.rounds import DeployedRounds
from sfumato.deployment.terms import DeploymentTerms
from sfumato.durable_files import replacing
from sfumato.learning.parameters import ParameterLayout
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.run_folder.reader import RunFolder, load_run
from sfumato.simulation.run import RoundResult, run_rounds
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.simulation.training_loop import Session
from sfumato.spec.document import Spec
from sfumato.user_text import read_text

_LABEL = "label"


def rehearse(
    spec: Spec,
    *,
    out: Path,
    parties: Path,
    purpose: str,
    consent: Consent,
    resume: bool = False,
    force: bool = False,
    randomness: Callable[[int], Randomness] = lambda party: SystemRandomness(),
    on_round: Callable[[RoundResult], object] = lambda result: None,
    on_words: Callable[[str], object] = lambda sentence: None,
) -> RunFolder:
    """Deploy ``spec`` within this process, and write the run folder ``out``.

    Args:
        spec: as loaded.
        out: the run folder.
        parties: the folder of the parties' own folders. Parties that are there already take part again: they
            have their keys, and remember what they agreed to before.
        purpose: what the data are used for.
        consent: of every device.
        resume: continue the run in ``out``; its parties go on where they were.
        force: replace the run that ``out`` holds.
        randomness: of every party, by number; others than the system's are for tests.
        on_round: called after every round.
        on_words: called with every sentence that a device agrees to.

    Raises:
        SpecError: the spec is wrong or cannot be deployed, or ``out`` holds another run.
        ConsentRefusedError: a device does not agree.
        SfumatoError: a party refuses a frame, or a folder cannot be written.
    """
    opened: list[PartyFolder] = []

    def played_by(session: Session) -> DeployedRounds:
        stage = _Stage(session, parties, purpose, opened, randomness)
        terms = stage.terms(_label(parties, spec.name, resume=resume))
        data = stage.local_data(terms)
        agreements = [agree(terms, device, consent, opened[device].memory) for device in range(terms.cloud)]
        for agreement in agreements:
            for sentence in agreement.words:
                on_words(sentence)
        return stage.rounds(terms, agreements, data)

    try:
        for result in run_rounds(
            spec, out=out, device="cpu", resume=resume, force=force, played_by=played_by
        ):
            on_round(result)
    finally:
        for folder in opened:
            folder.close()
    return load_run(out)


def _label(parties: Path, name: str, *, resume: bool) -> str:
    """The label of the run that is resumed, or a new one."""
    place = parties / _LABEL
    if resume and place.exists():
        return read_text(place).strip()
    label = f"{name}/{secrets.token_hex(16)}"
    with replacing(place) as file:
        file.write(f"{label}\n".encode())
    return label


class _Stage:
    """The parties of one run, made from the session that would simulate it; arguments as of `rehearse`."""

    def __init__(
        self,
        session: Session,
        parties: Path,
        purpose: str,
        opened: list[PartyFolder],
        randomness: Callable[[int], Randomness],
    ) -> None:
        self._session, self._purpose, self._randomness = session, purpose, randomness
        plan, self._opened = session.plan, opened
        self._parameters = ParameterLayout.of(session.model).total
        tree = require_deployable(plan, self._parameters).tree
        names = [f"device-{number}" for number in range(tree.device_count)]
        names += ["cloud", *(f"edge-{number}" for number in range(tree.leaf_count if tree.depth > 1 else 0))]
        for name in names:
            opened.append(PartyFolder.open_or_create(parties / name))

    def terms(self, label: str) -> DeploymentTerms:
        """The terms of the run with this label."""
        return DeploymentTerms.of(
            self._session.plan.spec,
            parameters=self._parameters,
            purpose=self._purpose,
            label=label,
            keys=tuple(folder.identity.public for folder in self._opened),
        )

    def local_data(self, terms: DeploymentTerms) -> list[LocalData]:
        """What every device holds."""
        made = TrainingInputs.of(terms.plan)
        own = (rows_of(made.data, made.partition, device) for device in range(terms.cloud))
        return [LocalData(device, terms, rows) for device, rows in enumerate(own)]

    def rounds(
        self, terms: DeploymentTerms, agreements: list[Agreement], data: list[LocalData]
    ) -> DeployedRounds:
        """The rounds of the run, with all parties in place."""
        parties = dict[int, Party]()
        folders, draws = self._opened, [self._randomness(number) for number in range(len(self._opened))]
        for agreement in agreements:
            number = agreement.device
            own = folders[number]
            parties[number] = Device(agreement, data[number], own.identity, own.memory, draws[number])
        for number in range(terms.cloud + 1, len(folders)):
            own = folders[number]
            parties[number] = Edge(number, terms, own.identity, own.memory, draws[number])
        own = folders[terms.cloud]
        cloud = Cloud(terms, own.identity, own.memory, draws[terms.cloud])
        parties[terms.cloud] = cloud
        parents = {number: terms.parent(number) for number in parties if number != terms.cloud}
        simulated = self._session.protocol
        assert isinstance(simulated, TreeProtocol)  # what can be deployed is played by it
        return DeployedRounds(terms, cloud, InProcess(parties, parents), simulated)


def rows_of(data: Dataset, partition: Partition, device: int) -> Dataset:
    """The data set whose training rows are those of one device."""
    rows = partition.indices(device)
    targets = None if data.train_targets is None else data.train_targets[rows]
    return replace(
        data,
        train_features=data.train_features[rows],
        train_labels=data.train_labels[rows],
        train_targets=targets,
        train_groups=None,
        train_sites=None,
    )
