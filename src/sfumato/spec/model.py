"""``model``: what is trained. ``data.task``: what it learns to predict, and the losses and metrics for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator

from sfumato.spec.base import Count, CountOrList, Flag, Section, closest_hint, refused_error
from sfumato.spec.limits import MAX_LAYERS
from sfumato.spec.other_words import value_hint

Task = Literal["classification", "regression", "multi-label", "next-token"]
Metric = Literal[
    "auc", "f1", "mae", "rmse", "r2", "perplexity", "train_loss", "accuracy_worst_decile", "accuracy_spread"
]

LOSSES: Mapping[str, tuple[str, ...]] = {
    "classification": ("cross-entropy",),
    "regression": ("squared-error", "absolute-error", "huber"),
    "multi-label": ("binary-cross-entropy",),
    "next-token": ("cross-entropy",),
}
"""Losses by task; the first is the default."""

METRICS_OVER_DEVICES: tuple[Metric, ...] = ("train_loss", "accuracy_worst_decile", "accuracy_spread")
"""Those that follow from what each device holds, and not from outputs on the test set alone."""

METRICS: Mapping[str, tuple[Metric, ...]] = {
    "classification": ("auc", "f1", *METRICS_OVER_DEVICES),
    "regression": ("mae", "rmse", "r2", "train_loss"),
    "multi-label": ("auc", "f1", "train_loss"),
    "next-token": ("perplexity", "train_loss"),
}
"""What may be measured beside the loss on the test set, and the accuracy there where there is one."""

BUILT_IN_MODELS = ("softmax", "mlp", "cnn-small", "cnn", "resnet18", "vgg11")
KIND_OF_KEY = {"bias": "softmax", "hidden": "mlp", "norm": "vgg11"}
"""Keys that one kind of model uses."""


class Model(Section):
    """A built-in architecture, or ``package.module:factory`` for one's own."""

    kind: str = Field(
        default="softmax",
        description=f"{', '.join(BUILT_IN_MODELS)}, or package.module:factory, or FILE.py:factory",
    )
    trained: Literal["all", "head", "adapters"] = Field(
        default="all", description="what is trained and sent; the rest is frozen and the same everywhere"
    )
    rank: Count = Field(default=4, description="trained: adapters: of each")
    bias: Flag = Field(default=True, description="softmax only: with or without bias")
    norm: Literal["group", "none"] = Field(
        default="group", description="vgg11 only: group normalisation after every convolution, or none"
    )
    hidden: CountOrList = Field(default=200, description="mlp only: width of the hidden layer, or of each")

    @field_validator("hidden")
    @classmethod
    def _few_layers(cls, hidden: int | tuple[int, ...]) -> int | tuple[int, ...]:
        """``hidden``, the widths of hidden layers; refused where there are more than a model may have."""
        if isinstance(hidden, tuple) and len(hidden) > MAX_LAYERS:
            allowed = f"must be at most {MAX_LAYERS} layers: deeper ones cannot be trained without shortcuts"
            raise refused_error("", len(hidden), allowed)
        return hidden

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        """``kind``, refused where it is neither a built-in model nor a factory of the user's."""
        module, colon, name = kind.rpartition(":")
        if kind in BUILT_IN_MODELS or (colon and module and name):
            return kind
        known = ", ".join(BUILT_IN_MODELS)
        near = value_hint(kind, list(BUILT_IN_MODELS)) or closest_hint(kind, BUILT_IN_MODELS)
        if kind.endswith(".py"):
            near = f" (write {kind}:NAME, with the class or function in that file)"
        raise refused_error("", kind, f"must be one of {known}, or package.module:factory{near}")
