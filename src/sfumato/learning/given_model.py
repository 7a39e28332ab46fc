"""A model given in Python; a spec stands for it with ``model.kind: python:TYPE``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import nn

from sfumato.errors import SpecError
from sfumato.spec.document import Spec
from sfumato.spec.model import Model
from sfumato.user_code import GIVEN

_PLACE = "model.kind"
_OF_EVERY_MODEL = ("trained", "rank")  # keys of ``model`` that are not of built-in ones alone
_MODEL: ContextVar[nn.Module | None] = ContextVar("model given in Python", default=None)


@contextmanager
def giving_model(model: nn.Module | None) -> Iterator[None]:
    """Context in which specs with ``model.kind: python:TYPE`` mean ``model``; no effect if it is ``None``."""
    token = _MODEL.set(model if model is not None else _MODEL.get())
    try:
        yield
    finally:
        _MODEL.reset(token)


def with_given_model(spec: Spec, model: nn.Module | None) -> Spec:
    """``spec`` with ``model.kind: python:TYPE`` for a model given in Python; unchanged if that is ``None``.

    What of the model is trained stays as the spec says; keys of built-in models are left out.

    Raises:
        SpecError: it is no ``torch.nn.Module``.
    """
    if model is None:
        return spec
    if not isinstance(model, nn.Module):
        raise SpecError("model", type(model).__name__, "must be a torch.nn.Module")
    stated = {key: getattr(spec.model, key) for key in _OF_EVERY_MODEL if key in spec.model.model_fields_set}
    return spec.model_copy(update={"model": Model(kind=f"{GIVEN}{type(model).__name__}", **stated)})


def given_model(kind: str) -> nn.Module:
    """The model that the surrounding `giving_model` gave, for the spec's ``kind`` ``python:TYPE``.

    Raises:
        SpecError: there is none: a run from Python wrote the spec.
    """
    model = _MODEL.get()
    if model is None:
        raise SpecError(_PLACE, kind, "the model was given in Python; give it again: sf.run(spec, model=...)")
    return model


def hash_given_model(kind: str) -> str:
    """SHA-256, in hexadecimal, of the layers and initial parameters of the model that `giving_model` gave.

    Raises:
        SpecError: there is none; ``kind`` (``python:TYPE``) is what the message names.
    """
    model = given_model(kind)
    found = hashlib.sha256(repr(model).encode())
    for name, tensor in model.state_dict().items():
        array = tensor.detach().cpu().numpy()
        found.update(f"{name}{array.dtype.str}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()
