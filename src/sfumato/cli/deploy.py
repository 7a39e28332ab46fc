"""``sfumato deploy``: the parties of a spec as processes of their own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sfumato.arguments import Argument
from sfumato.cli.options import Debug, Set, SpecSource, folder_named
from sfumato.cli.party import party_command
from sfumato.cli.spec_argument import locating_errors, read_spec
from sfumato.errors import SpecError


def deploy(
    spec: SpecSource,
    local: Annotated[
        bool, typer.Option("--local", help="All parties on this machine: the only way that there is yet.")
    ] = False,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="The run folder. Default: runs/NAME-deployed")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the parties have their folders: keys, consent, data, memory. Default: OUT-parties",
        ),
    ] = None,
    purpose: Annotated[
        str, typer.Option(metavar="TEXT", help="What the data are used for: devices consent to it.")
    ] = "rehearsal",
    overrides: Set = None,
    resume: Annotated[bool, typer.Option(help="Continue the run in the folder.")] = False,
    force: Annotated[bool, typer.Option(help="Replace the run that the folder holds.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print no progress.")] = False,
    debug: Debug = False,
) -> None:
    """Play a spec with real parties: each a process with a key, data, consent and a memory of its own.

    Noise is discrete Gaussian, from the operating system; no seed leads to it. The run folder is like any.
    """
    if not local:
        raise SpecError(Argument("local"), None, "must be given: other machines are not reached yet")
    loaded = read_spec(spec, overrides)
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
            resume=resume,
            force=force,
            on_step=shown.step,
            on_round=lambda result: shown.round(result.round, result.rounds, result.metrics),
            on_words=(lambda sentence: None) if quiet else partial(print, flush=True),
        )
    print(f"run folder: {run}")
