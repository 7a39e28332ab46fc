"""All parties of a spec in this process, each with a key and a memory of its own: a deployment, rehearsed.

What parties do is what they will do on machines of their own; only what carries frames is another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sfumato.deployment.carrier import FrameReceiver
from sfumato.deployment.consent import Agreement, Consent, agree
from sfumato.deployment.device import DeviceParty
from sfumato.deployment.edge import EdgeParty
from sfumato.deployment.invitation import ledger_path
from sfumato.deployment.ledger import OwnersLedger
from sfumato.deployment.local_data import LocalData
from sfumato.deployment.local_parties import LocalGroups, LocalParties, PartyFolders, local_parties_of
from sfumato.deployment.own_loop import OwnLoop, TrainingLoop
from sfumato.deployment.played_rounds import PlayedRounds, played_run
from sfumato.deployment.randomness import Randomness, SystemRandomness
from sfumato.deployment.refusals import require_own_loop_fits
from sfumato.deployment.worker import WorkerParty
from sfumato.deployment.worker_data import WorkerData
from sfumato.run_folder.reader import RunFolder
from sfumato.simulation.run import RoundResult, run_rounds
from sfumato.simulation.training_loop import Session
from sfumato.spec.document import Spec


def rehearse(
    spec: Spec,
    *,
    out: Path,
    parties: Path,
    purpose: str,
    consent: Consent,
    loop: TrainingLoop | None = None,
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
        consent: of every device; the ledger of device N is the path in it with -N after it, new if missing.
        loop: trains every device in the place of Sfumato's engine (`own_loop`): ``loop(model, rows, task)``.
        resume: continue the run in ``out``; its parties go on where they were.
        force: replace the run that ``out`` holds.
        randomness: of every party, by number; others than the system's are for tests.
        on_round: called after every round.
        on_words: called with every sentence that a device agrees to, and where its loop fails.

    Raises:
        SpecError: the spec is wrong or cannot be deployed, ``out`` holds another run, or the loop fails.
        ConsentRefusedError: a device does not agree.
        SfumatoError: a party refuses a frame, or a folder cannot be written.
    """
    opened = ExitStack()

    def played_by(session: Session) -> PlayedRounds[Any]:
        local = local_parties_of(session, parties, out, purpose, resume=resume)
        opened.callback(local.close)
        draws = {number: randomness(number) for number in local.folders}
        own = None if loop is None else OwnLoop.given(loop)
        if isinstance(local, LocalGroups):
            there = _workers_of(local, consent, own, draws, on_words)
        else:
            there = _parties_of(local, consent, own, draws, on_words)
        return local.rounds(there, draws.__getitem__, {one.source for one in draws.values()})

    with opened:
        for result in run_rounds(
            spec, out=out, device="cpu", resume=resume, force=force, played_by=played_by
        ):
            on_round(result)
    return played_run(out, purpose)


def _workers_of(
    local: LocalGroups,
    consent: Consent,
    loop: OwnLoop | None,
    draws: Mapping[int, Randomness],
    on_words: Callable[[str], object],
) -> dict[int, FrameReceiver]:
    """All workers of groups, by number; every one has agreed.

    ``draws``: secret choices by number; ``on_words``: called with every sentence agreed to.
    """
    if loop is not None:
        require_own_loop_fits(local.terms.plan.spec)
    there: dict[int, FrameReceiver] = {}
    for worker, rows in enumerate(local.rows()):
        own, data = local.folders[worker], WorkerData(worker, local.terms, rows)
        agreement = _agreed(local, worker, consent, on_words)
        there[worker] = WorkerParty(agreement, data, own.identity, own.memory, draws[worker])
    return there


def _agreed(
    local: PartyFolders[Any], device: int, consent: Consent, on_words: Callable[[str], object]
) -> Agreement:
    """The agreement of ``device``, whose ledger is made if it is missing.

    ``local``: the parties' folders; ``on_words``: called with every sentence agreed to.
    """
    ledger = Path(f"{ledger_path(consent, local.places[device])}-{device}")
    if not ledger.exists():
        OwnersLedger.create(ledger)
    agreement = agree(local.terms, device, consent, ledger)
    for sentence in agreement.words:
        on_words(sentence)
    return agreement


def _parties_of(
    local: LocalParties,
    consent: Consent,
    loop: OwnLoop | None,
    draws: Mapping[int, Randomness],
    on_words: Callable[[str], object],
) -> dict[int, FrameReceiver]:
    """All parties but the cloud, by number; every device has agreed.

    ``draws``: secret choices by number; ``on_words``: called with every sentence agreed to.
    """
    terms = local.terms
    data = [LocalData(device, terms, rows, loop, on_words) for device, rows in enumerate(local.rows())]
    there: dict[int, FrameReceiver] = {}
    for number, own in local.folders.items():
        if number < terms.cloud:
            agreement = _agreed(local, number, consent, on_words)
            if loop is not None:
                on_words(loop.in_words(terms.name(number)))
            there[number] = DeviceParty(agreement, data[number], own.identity, own.memory, draws[number])
        elif number > terms.cloud:
            there[number] = EdgeParty(number, terms, own.identity, own.memory, draws[number])
    return there
