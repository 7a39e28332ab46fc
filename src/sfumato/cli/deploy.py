"""``sfumato deploy``: the parties of a spec as processes of their own."""

from __future__ import annotations

import enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.arguments import Argument
from sfumato.cli.options import Debug, Set, folder_named
from sfumato.cli.party import party_command, say
from sfumato.cli.spec_argument import locating_errors, read_spec
from sfumato.errors import SpecError

if TYPE_CHECKING:
    from sfumato.spec import Spec


class Carrying(enum.StrEnum):
    """Programs of others that carry the frames of a local run."""

    FLOWER = "flower"


_PREPARING = ("check", "keys", "flower")
"""What comes in the place of a spec, and prepares for one."""

_What = Annotated[
    str,
    typer.Argument(
        metavar="SPEC|check|keys|flower",
        help="A YAML file or the name of a built-in spec; or check, or keys, and the folder of a party; "
        "or flower.",
    ),
]
_Party = Annotated[
    Path | None, typer.Argument(metavar="[DIR]", help="Of check and keys: the folder of a party.")
]
_Parties = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a folder a party, for the machines that FILE names."),
]
_Over = Annotated[
    Carrying | None,
    typer.Option(help="With --local: all frames go over Flower: a SuperLink an aggregator, with TLS."),
]
_Out = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="The run folder, by default runs/NAME-deployed; with --parties: of the folders.",
    ),
]
_Local = Annotated[bool, typer.Option("--local", help="All parties on this machine, and play the run.")]
_Purpose = Annotated[
    str, typer.Option(metavar="TEXT", help="What local data are used for: devices consent to it.")
]
_Confirm = Annotated[
    bool, typer.Option("--confirm", help="Of check: its owner agrees to the consent.yaml that is in DIR.")
]
_Loop = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:FUNCTION",
        help="With --local: this function of yours trains every device, instead of Sfumato's engine.",
    ),
]
_Folder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where local parties have their folders: keys, consent, data, memory. Default: OUT-parties",
    ),
]


def deploy(
    spec: _What,
    party: _Party = None,
    confirm: _Confirm = False,
    local: _Local = False,
    over: _Over = None,
    parties: _Parties = None,
    out: _Out = None,
    folder: _Folder = None,
    purpose: _Purpose = "rehearsal",
    loop: _Loop = None,
    overrides: Set = None,
    resume: Annotated[bool, typer.Option(help="Continue the local run in the folder.")] = False,
    force: Annotated[bool, typer.Option(help="Replace the local run that the folder holds.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print no progress.")] = False,
    debug: Debug = False,
) -> None:
    """Play a spec with real parties: each a process with a key, data, consent and a memory of its own.

    Noise is discrete Gaussian, from the operating system; no seed leads to it. The run folder is like any.
    With --local all are on this machine. With --parties each gets a folder for a machine of its own. There
    `deploy check DIR` says whether the party could start, and dials its hops.
    `deploy keys DIR` makes the keys of a party beforehand; `deploy flower` makes what --over flower needs.
    """
    if confirm and spec != "check":
        raise SpecError(Argument("confirm"), None, "is for `deploy check` only")
    if spec in _PREPARING:
        _prepare(spec, party, confirm=confirm)
        return
    _require_one_place(party, parties, loop, local=local)
    flower = _carrier(over, local=local)
    loaded = read_spec(spec, overrides)
    if parties is not None:
        with locating_errors(spec, overrides):
            _hand_over(loaded, parties, out)
        return
    run = Path("runs") / f"{loaded.name}-deployed" if out is None else folder_named(out)
    from sfumato.simulation.run_progress import run_progress

    with locating_errors(spec, overrides), run_progress(loaded, wanted=not quiet) as shown:
        shown.step("loading PyTorch")
        from sfumato.deployment.local_processes import deploy_locally

        deploy_locally(
            loaded,
            out=run,
            parties=run.with_name(f"{run.name}-parties") if folder is None else folder,
            purpose=purpose,
            command=party_command,
            flower=flower,
            loop=loop,
            resume=resume,
            force=force,
            on_step=shown.step,
            on_round=lambda result: shown.round(result.round, result.rounds, result.metrics),
            on_words=(lambda sentence: None) if quiet else say,
        )
    print(f"run folder: {run}")


def _require_one_place(party: Path | None, parties: Path | None, loop: str | None, *, local: bool) -> None:
    """Refuse options that contradict whether the parties run on this machine or on machines of their own.

    Args:
        party: DIR, which only `deploy check` and `deploy keys` take.
        parties: ``--parties``, the list of parties on machines of their own.
        loop: ``--loop``, the training loop of all devices.
        local: ``--local``.

    Raises:
        SpecError: names the option.
    """
    if party is not None:
        raise SpecError("DIR", str(party), "is for `deploy check` and `deploy keys` only")
    if local == (parties is not None):
        raise SpecError(Argument("local"), None, f"must be given, or {Argument('parties')}, and not both")
    if loop is not None and not local:
        raise SpecError(Argument("loop"), loop, f"is for {Argument('local')}; otherwise owners name it")


def _carrier(over: Carrying | None, *, local: bool) -> Path | None:
    """The folder of Flower's environment if ``--over flower`` is given; ``None`` without ``--over``.

    Raises:
        SpecError: the parties are not on this machine.
        RunError: there is no such environment, or the system is not Linux.
    """
    if over is None:
        return None
    if not local:
        raise SpecError(Argument("over"), over.value, f"is for {Argument('local')} only")
    from sfumato.deployment.flower.environment import require_flower

    return require_flower()


def _prepare(what: str, folder: Path | None, *, confirm: bool) -> None:
    """Run ``deploy flower``, ``deploy check DIR`` or ``deploy keys DIR``.

    Args:
        what: the word after deploy.
        folder: DIR, of a party.
        confirm: whether its owner agrees to the consent that is there; of ``check``.

    Raises:
        SpecError: DIR is missing, or given to ``flower``.
    """
    if what == "flower":
        from sfumato.deployment.flower.environment import VARIABLE, make_flower

        if folder is not None:
            raise SpecError("DIR", str(folder), f"is not for `deploy flower`: {VARIABLE} names the folder")
        print(f"Flower's environment: {make_flower(partial(print, flush=True))}")
        return
    if folder is None:
        raise SpecError("DIR", None, "must be given: the folder of a party")
    if what == "check":
        from sfumato.deployment.hops_check import check_parties

        check_parties(folder, say, confirm=confirm)
        return
    from sfumato.deployment.hop_keys import PUBLIC, make_keys

    make_keys(folder)
    print(f"{folder / PUBLIC}: public keys, for whoever deploys; the secret ones stay in {folder}")


def _hand_over(spec: Spec, parties: Path, out: str | None) -> None:
    """Run ``deploy --parties``: write a folder for each party into ``out``, and say what to do with them.

    ``parties``: the file with the list of machines.

    Raises:
        SpecError: ``--out`` is missing, its folder is not empty, or the list does not fit the spec.
        SfumatoError: the data cannot be read, or a folder cannot be written.
    """
    if out is None:
        raise SpecError(Argument("out"), None, f"must be given with {Argument('parties')}: a new folder")
    from sfumato.deployment.handover import hand_over

    done = hand_over(spec, parties, folder_named(out))
    print(f"{len(done.folders):,} folders in {out}; sheet.txt in each says what its party does")
    if done.with_secrets:
        held = f"secret keys were made here of: {', '.join(done.with_secrets)}"
        print(f"{held}; hand these folders over by a safe way, and delete them here")
