"""The model that a run trained, read from its folder, and what it predicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sfumato.arguments import Argument
from sfumato.data.dataset_sizes import dataset_facts
from sfumato.data.given import given
from sfumato.engine.base import EngineSettings
from sfumato.errors import RunError, SpecError
from sfumato.learning.dropout import with_own_dropout
from sfumato.learning.given_model import giving_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.schedule.resolve import resolve
from sfumato.simulation import checkpoint
from sfumato.simulation.training_inputs import initial_model, load_data
from sfumato.simulation.training_loop import Session
from sfumato.spec.base import closest_hint
from sfumato.spec.document import Spec
from sfumato.user_code import allow_user_code


def trained_model(
    spec: Spec, folder: Path, state: Path | None, data: Any, given_model: nn.Module | None
) -> nn.Module:
    """The trained model, on the CPU, in eval mode.

    Args:
        spec: of the run.
        folder: of the run.
        state: the file of the trained parameters; ``None``: those of the checkpoint.
        data: what was given as data in Python.
        given_model: what was given as model in Python.

    Raises:
        RunError: there is no checkpoint either.
        SpecError: the spec does not resolve, or its model cannot be built.
    """
    # the shape of an example depends on the data set, which is loaded to find it
    with allow_user_code(), given(data), giving_model(given_model):
        plan = resolve(spec)
        if state is None:
            model = _of_checkpoint(folder, Session.prepare(plan, EngineSettings.default()))
        else:
            model = initial_model(spec, load_data(plan))
            model.load_state_dict(torch.load(state, map_location="cpu", weights_only=True))
    return with_own_dropout(model)


def _of_checkpoint(folder: Path, session: Session) -> nn.Module:
    """The model of a run that was stopped.

    Raises:
        RunError: it has no checkpoint.
    """
    found = checkpoint.load(folder)
    if found is None:
        raise RunError(f"{folder}: has no checkpoint, so no model; resume the run")
    ParameterLayout.of(session.model).write(session.protocol.model(found.position.state), session.model)
    return session.model


def predictions(model: nn.Module, spec: Spec, features: Any) -> npt.NDArray[np.generic]:
    """What ``model``, trained by ``spec``, predicts for ``features``, in the forms of `Run.predict`."""
    if type(features).__name__ == "DataFrame" and hasattr(features, "columns"):
        features = _scaled(features, spec)
    kind = np.int64 if spec.data.vocabulary is not None else np.float32
    with torch.no_grad():
        outputs = model(torch.from_numpy(_as_examples(features, kind)))
    match spec.data.task:
        case "regression":
            return np.asarray(outputs.numpy())
        case "multi-label":
            return np.asarray((outputs > 0).long().numpy())
        case _:
            return _labels_of(np.asarray(outputs.argmax(dim=-1).numpy()), spec)


def _as_examples(features: Any, kind: type[np.generic]) -> npt.NDArray[Any]:
    """``features``, anything that NumPy takes, as an array ``[N, ...]`` of the type ``kind``.

    Raises:
        SpecError: they are no numbers, such as the path of a file, or are one example in place of several.
    """
    allowed = "must be a data frame, as pandas.read_csv(FILE) gives it, or an array [N, ...] of numbers"
    try:
        found = np.ascontiguousarray(features, kind)
    except (TypeError, ValueError):
        raise SpecError(Argument("features"), features, allowed) from None
    if np.ndim(features) < 2:
        raise SpecError(Argument("features"), features, f"{allowed}; one example is a row: [example]")
    return found


def _labels_of(classes: npt.NDArray[np.int64], spec: Spec) -> npt.NDArray[np.generic]:
    """The labels ``[N]`` as text for ``classes``, class numbers ``[N]``, where the data have labels of text.

    Otherwise ``classes``.
    """
    if spec.data.task != "classification":
        return classes
    names = dataset_facts(spec.data, 1).label_names
    return np.asarray(names)[classes] if names else classes


def _scaled(frame: Any, spec: Spec) -> npt.NDArray[np.float64]:
    """The features in a data frame, found by name of the column, scaled as the spec says, ``[N, F]``.

    Raises:
        SpecError: a feature of the run is not among the columns.
    """
    columns: Sequence[str] = spec.data.feature_columns or dataset_facts(spec.data, 1).feature_columns
    for name in columns:
        if name not in frame.columns:
            near = closest_hint(name, [str(column) for column in frame.columns])
            raise SpecError(Argument("features"), None, f"has no column {name!r}{near}, a feature of the run")
    values = frame[list(columns)].to_numpy(np.float64)
    bounds = [(spec.data.scale or {}).get(name, (0.0, 1.0)) for name in columns]
    low, high = np.array(bounds).T
    return np.asarray((values - low) / (high - low))
