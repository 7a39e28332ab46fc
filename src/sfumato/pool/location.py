"""Where jobs are done: on this machine, on Ray's cluster here, or on one at an address."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sfumato.arguments import Argument
from sfumato.errors import MissingExtraError, SpecError
from sfumato.pool.jobs import Workers

_CLIENT = "ray://"


@dataclass(frozen=True)
class Location:
    """Where jobs are done.

    Attributes:
        name: ``local``, ``ray`` (the cluster that runs here, else one of this machine alone, which ends with
            the jobs) or ``ray://HOST:PORT`` (a cluster's client server).
    """

    name: str

    @classmethod
    def named(cls, name: str) -> Location:
        """The location called ``name``, as the argument ``on``: ``local``, ``ray`` or ``ray://HOST:PORT``.

        Raises:
            SpecError: there is no such place.
            MissingExtraError: it is Ray's, which is not installed.
        """
        if name not in ("local", "ray") and not (name.startswith(_CLIENT) and name != _CLIENT):
            raise SpecError(Argument("on"), name, "must be local, ray or ray://ADDRESS")
        if name != "local":
            found = find_spec("ray")
            if found is None or found.origin is None:  # a folder ./ray is none
                raise MissingExtraError(str(Argument("on", name)), "ray")
        return cls(name)

    @property
    def is_here(self) -> bool:
        """Whether the workers are processes that this process starts on this machine."""
        return self.name == "local"

    def workers(self, size: int | None, log: Path) -> AbstractContextManager[Workers]:
        """Context with workers; if it ends by an exception, those at work save their checkpoints.

        Args:
            size: how many jobs are done at once; ``None`` on Ray: as many as the cluster has cores, or GPUs
                where a job uses one.
            log: file for the output of jobs and libraries, and for tracebacks.

        Raises:
            RunError: the cluster cannot be reached.
        """
        if self.is_here:
            from sfumato.pool.on_loky import LokyWorkers

            assert size is not None
            return LokyWorkers(size, log)
        from sfumato.pool.on_ray import RayWorkers

        return RayWorkers("" if self.name == "ray" else self.name, size, log)
