"""``data.task``: what a model learns to predict, its losses and metrics, and what goes with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from sfumato.spec.base import closest, refuse

if TYPE_CHECKING:  # the document imports this module
    from sfumato.spec.document import Spec

Task = Literal["classification", "regression", "multi-label", "next-token"]
Metric = Literal["auc", "f1", "mae", "rmse", "r2", "perplexity"]

LOSSES: Mapping[str, tuple[str, ...]] = {
    "classification": ("cross-entropy",),
    "regression": ("squared-error", "absolute-error", "huber"),
    "multi-label": ("binary-cross-entropy",),
    "next-token": ("cross-entropy",),
}
"""Losses by task; the first is the default."""

METRICS: Mapping[str, tuple[Metric, ...]] = {
    "classification": ("auc", "f1"),
    "regression": ("mae", "rmse", "r2"),
    "multi-label": ("auc", "f1"),
    "next-token": ("perplexity",),
}
"""What may be measured on the test set beside the loss, and the accuracy where there is one."""

_BY_LABEL = ("labels", "dirichlet", "flwr")


def check_task(spec: Spec) -> None:
    """Refuse what does not go with the task.

    Raises:
        PydanticCustomError: with the place of the key that does not fit.
    """
    data, task = spec.data, spec.data.task
    _loss_fits(task, spec.training.loss)
    for metric in spec.metrics:
        if metric not in METRICS[task]:
            known = ", ".join(METRICS[task])
            raise refuse("metrics", metric, f"must be of {known} with task: {task}")
    if len(set(spec.metrics)) < len(spec.metrics):
        raise refuse("metrics", list(spec.metrics), "must name each metric once")
    if task == "next-token" and data.vocabulary is None:
        allowed = "is required with task: next-token: the number of different tokens, a public number"
        raise refuse("data.vocabulary", None, allowed)
    if task == "next-token" and data.label_column is not None:
        allowed = "must be left out with task: next-token: the tokens themselves are predicted"
        raise refuse("data.label_column", data.label_column, allowed)
    if isinstance(data.label_column, tuple) and task not in ("regression", "multi-label"):
        allowed = f"must be one column with task: {task}; several go with regression and multi-label"
        raise refuse("data.label_column", list(data.label_column), allowed)
    if task != "classification":
        _labels_are_not_needed(spec)


def _loss_fits(task: Task, loss: str | None) -> None:
    if loss is None or loss in LOSSES[task] or (":" in loss and not loss.startswith(":")):
        return
    known = ", ".join(LOSSES[task])
    near = closest(loss, LOSSES[task])
    raise refuse(
        "training.loss", loss, f"must be {known}, or package.module:function, with task: {task}{near}"
    )


def _labels_are_not_needed(spec: Spec) -> None:
    """Without classes nothing can be divided by label."""
    whole, task = spec.data.partition, spec.data.task
    rules = {"": whole, ".edge": getattr(whole, "edge", None), ".device": getattr(whole, "device", None)}
    for place, rule in rules.items():
        if rule is not None and rule.kind in _BY_LABEL:
            allowed = f"goes with task: classification, which has labels; with {task} use iid or natural"
            raise refuse(f"data.partition{place}.kind", rule.kind, allowed)
    zones = getattr(spec.topology, "zones", None)
    if zones is not None and zones.kind == "data":
        allowed = "goes with task: classification: it puts devices of one label together"
        raise refuse("topology.zones.kind", "data", allowed)
