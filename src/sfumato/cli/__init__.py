"""The command line: one file for each command, imported only when that command runs.

    run.py account.py validate.py show.py init.py plan.py sweep.py study.py report.py compare.py attack.py
    audit.py verify.py statement.py explore.py deploy.py party.py
    torchrun.py       a command over the processes that torchrun starts
    options.py        arguments and options that several commands share, and how messages name them
    spec_argument.py  reads the SPEC argument; errors name the file
    hinting_command.py  what to write instead of an option that there is not
    console.py        tables and numbers as commands print them
    pilot_scan.py     `sfumato plan --accuracy`
    plan_summary.py   parts of `sfumato show` that trees and groups share
    show_tree.py      `sfumato show` for a tree or a star
    show_groups.py    `sfumato show` for overlapping groups
    attack_table.py   the tables of `sfumato attack`

Exit status: 0 done; 2 the spec or the call is wrong; 1 the run failed; 130 interrupted. No traceback
reaches a user without ``--debug``. Nothing imports this package; it may import every other.
"""

from __future__ import annotations

import io
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer

from sfumato.arguments import spelled_by
from sfumato.cli.hinting_command import COMMANDS_OF_OTHERS, HintingCommand
from sfumato.cli.options import DEBUG, OptionSpelling
from sfumato.cli.torchrun import require_startable_by_torchrun
from sfumato.distributed.launch import Launch
from sfumato.durable_files import reason
from sfumato.errors import SfumatoError, SpecError, SpecProblemsError
from sfumato.interrupts import Interruption, interrupted_by
from sfumato.user_code import command_was_exited, describe_error, user_code_location

COMMANDS = (
    "run", "account", "validate", "show", "init", "plan", "sweep", "study", "report", "compare", "attack",
    "audit", "verify", "statement", "explore", "deploy", "party",
)  # fmt: skip
"""Each is the function of its name in the file of its name, listed in this order by ``--help``."""


def app_of(arguments: Sequence[str]) -> typer.Typer:
    """The Typer application with only the command that ``arguments`` name, so that others are not imported.

    Where they name no known command it has all commands, to list them or to refuse the word.

    Raises:
        SpecError: they name a command of another program; the message has the command to call instead.
    """
    app = typer.Typer(
        name="sfumato",
        help="Differentially private federated learning over real networks. Reports the privacy loss ε of "
        "every device towards every observer, and what a training costs.",
        epilog="SPEC is a YAML file or the name of a built-in spec. Start with: sfumato run quickstart",
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help: rich would triple the time it takes
        pretty_exceptions_enable=False,
    )
    app.callback()(_global)
    named = command_in(arguments)
    _refuse_words_of_others(named)
    for name in COMMANDS if named not in COMMANDS else (named,):
        app.command(cls=HintingCommand)(getattr(import_module(f"sfumato.cli.{name}"), name))
    return app


def _refuse_words_of_others(named: str | None) -> None:
    """Refuse ``named``, the first word of the command line, if it is a command of another program.

    Raises:
        SpecError: it is; the message has the command to call instead.
    """
    if named is None or named in COMMANDS:
        return
    if (meant := COMMANDS_OF_OTHERS.get(named)) is not None:
        raise SpecError(named, None, f"is no command; write: sfumato {meant}")


def command_in(arguments: Sequence[str]) -> str | None:
    """The first argument that is no option, which should name a command; ``None`` if there is none."""
    return next((word for word in arguments if not word.startswith("-")), None)


def _print_version(wanted: bool) -> None:
    """Print the version and exit, where ``--version`` is given."""
    if wanted:
        print(f"sfumato {version('sfumato')}")
        raise typer.Exit


def _global(
    debug: Annotated[bool, DEBUG] = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status of the process, one of those that `sfumato.cli` lists.

    Errors are printed to stderr, not raised.

    Args:
        arguments: what follows ``sfumato``; default: those of this process.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ε shows a question mark
    debug, interruption = "--debug" in arguments, Interruption()
    try:
        launch = Launch.of()
        try:
            require_startable_by_torchrun(command_in(arguments), launch)
        except SpecError as error:
            if launch.rank == 0:
                raise
            return error.exit_status  # rank 0 says why
        with interrupted_by(*_signals()) as interruption, spelled_by(OptionSpelling()):
            typer.main.get_command(app_of(arguments))(args=arguments, prog_name="sfumato")
    except SystemExit as done:
        if command_was_exited(done):
            return _report(done, f"code that was called failed: {describe_error(done)}", 1, debug=debug)
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except KeyboardInterrupt as error:
        return _report(error, "interrupted", 130, debug=debug)
    except SfumatoError as error:
        if interruption.came:  # libraries in other languages may drop its exception and fail a little later
            return _report(error, f"interrupted ({error})", 130, debug=debug)
        return _report(error, str(error), error.exit_status, debug=debug)
    except MemoryError as error:
        return _report(error, _describe_memory_error(error), 1, debug=debug)
    except OSError as error:
        return _report(error, _describe_system_error(error), 1, debug=debug)
    except Exception as error:
        if interruption.came:
            return _report(error, f"interrupted ({describe_error(error)})", 130, debug=debug)
        if user_code_location(error) is not None:
            return _report(error, f"code that was called failed: {describe_error(error)}", 1, debug=debug)
        if "can't allocate memory" in str(error) or "out of memory" in str(error):
            return _report(error, _describe_memory_error(error), 1, debug=debug)
        hint = "" if debug else " (run again with --debug for a traceback)"
        return _report(error, f"internal error: {type(error).__name__}: {error}{hint}", 1, debug=debug)
    return 0


def _signals() -> list[int]:
    """The signals that interrupt a command: SIGTERM, and SIGINT unless a shell has it ignored."""
    heeds = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return [signal.SIGTERM, signal.SIGINT] if heeds else [signal.SIGTERM]


def _describe_system_error(error: OSError) -> str:
    """The one-line message for an error of the operating system, such as a full disk."""
    return reason(error) if error.filename is None else f"{error.filename}: {reason(error)}"


def _describe_memory_error(error: BaseException) -> str:
    """The one-line message for an error of too little memory, on the machine or a GPU."""
    said = " ".join(str(error).split())[:200]
    return f"this does not fit into the machine's memory{': ' if said else ''}{said}"


def _report(error: BaseException, message: str, status: int, *, debug: bool) -> int:
    """Print ``message`` to stderr, after the traceback of ``error`` if ``debug``; returns ``status``."""
    if debug:
        traceback.print_exception(error)
    lines = message.split("\n") if isinstance(error, SpecProblemsError) else [message]
    print("\n".join(f"sfumato: {line}" for line in lines), file=sys.stderr)
    return status
