"""Reads what a run recorded of an observer, and the plan that it played."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sfumato.errors import RunError, SpecError
from sfumato.protocols.recording import VIEWS_FOLDER, read_observers, round_file, slug
from sfumato.protocols.tiered import server_optimizer
from sfumato.run_folder import SPEC_FILE
from sfumato.schedule.resolve import resolve
from sfumato.schedule.tiered import TieredPlan
from sfumato.spec.load import load_spec

Key = tuple[int, str, int, int]
"""Aggregation (in groups, of a worker's message: the group), kind, tier and party; see `recording`."""
Heard = Mapping[Key, Tensor]


@dataclass(frozen=True)
class RecordedView:
    """What a run recorded of one observer or coalition.

    Attributes:
        folder: of the run.
        observer: its name.
    """

    folder: Path
    observer: str

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """Numbers of the rounds recorded, ascending, from 0."""
        files = (self.folder / VIEWS_FOLDER / slug(self.observer)).glob("round-*.npz")
        found = (re.fullmatch(r"round-(\d+)", file.stem) for file in files)
        return tuple(sorted(int(match[1]) - 1 for match in found if match))

    def vectors(self, number: int) -> Heard:
        """What was received in a round, in order: float32 ``[M]`` each.

        Raises:
            RunError: the file is missing or damaged.
        """
        path = round_file(self.folder, self.observer, number)
        try:
            with np.load(path, allow_pickle=False) as file:
                columns = [file[name].tolist() for name in ("step", "kind", "tier", "party")]
                vectors = torch.from_numpy(file["vector"])
            keys = zip(*columns, strict=True)
            return {
                (int(step), str(kind), int(tier), int(party)): vector
                for (step, kind, tier, party), vector in zip(keys, vectors, strict=True)
            }
        except (OSError, ValueError, KeyError) as error:
            raise RunError(f"{path}: cannot be read: {error}") from None


def played_plan(folder: Path) -> TieredPlan:
    """The plan of a run that attacks know how to read.

    Raises:
        SpecError: there is no run, or it was not over a tree, or its noise followed what was released.
    """
    if not (folder / SPEC_FILE).is_file():
        seeds = sorted(path.parent.name for path in folder.glob(f"seed-*/{SPEC_FILE}"))
        one = f"; attack one seed of it: {folder / seeds[0]}" if seeds else ""
        raise SpecError(str(folder), None, f"is not a run folder: it has no {SPEC_FILE}{one}")
    plan = resolve(load_spec(folder / SPEC_FILE))
    if not isinstance(plan, TieredPlan):
        raise SpecError("protocol", plan.spec.protocol, "attacks read runs over a tree or a star")
    if plan.spec.control is not None:
        raise SpecError("control", "given", "attacks read runs without adaptive control")
    return plan


def replayed(plan: TieredPlan, view: RecordedView, initial: Tensor) -> Iterator[tuple[int, Tensor, Heard]]:
    """Every round recorded, in order: its number, the global model it began with, what was heard in it.

    That model is public: it follows from what the cloud broadcast before.

    Args:
        plan: of the run.
        view: of anybody; the last broadcast of a round reaches everybody.
        initial: the model that training started from ``[M]``.
    """
    server, last = server_optimizer(plan.spec.training.server), len(plan.aggregations) - 1
    memory, model = server.initial(initial), initial
    for number in view.rounds:
        heard = view.vectors(number)
        yield number, model, heard
        memory, model = server.step(memory, model, heard[last, "broadcast", 0, 0] - model)


def load_view(folder: Path, observer: str) -> RecordedView:
    """The view of ``observer`` in a run folder.

    Raises:
        SpecError: the run did not record it.
        RunError: the record is damaged, or holds no round yet.
    """
    name = ",".join(dict.fromkeys(party.strip() for party in observer.split(",")))
    recorded = read_observers(folder)
    if name not in recorded:
        there = f"recorded: {'; '.join(recorded)}" if recorded else "it recorded none"
        raise SpecError(
            "--observer",
            observer,
            f"must be a view that the run kept ({there}); run it with --record-views {name}",
        )
    view = RecordedView(folder, name)
    if not view.rounds:
        raise RunError(f"{folder / VIEWS_FOLDER / slug(name)}: holds no round yet")
    return view
