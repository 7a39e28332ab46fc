"""``model``: what is trained."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from sfumato.spec.base import Count, CountOrList, Flag, Section, closest, refuse
from sfumato.spec.limits import MAX_LAYERS

BUILT_IN_MODELS = ("softmax", "mlp", "cnn-small", "cnn", "resnet18", "vgg11")
KIND_OF_KEY = {"bias": "softmax", "hidden": "mlp"}
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
    hidden: CountOrList = Field(default=200, description="mlp only: width of the hidden layer, or of each")

    @field_validator("hidden")
    @classmethod
    def _few_layers(cls, hidden: int | tuple[int, ...]) -> int | tuple[int, ...]:
        if isinstance(hidden, tuple) and len(hidden) > MAX_LAYERS:
            allowed = f"must be at most {MAX_LAYERS} layers: deeper ones cannot be trained without shortcuts"
            raise refuse("", len(hidden), allowed)
        return hidden

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        module, colon, name = kind.rpartition(":")
        if kind in BUILT_IN_MODELS or (colon and module and name):
            return kind
        known = ", ".join(BUILT_IN_MODELS)
        near = closest(kind, BUILT_IN_MODELS)
        raise refuse("", kind, f"must be one of {known}, or package.module:factory{near}")
