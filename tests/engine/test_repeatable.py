"""Settings of torch for a GPU; they can be read and set without one."""

from __future__ import annotations

import os

import pytest
import torch

from sfumato.engine.repeatable import repeatable_arithmetic


def settings() -> tuple[object, ...]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
    )


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    return monkeypatch


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_computes_in_full_precision_and_a_fixed_order(device: str) -> None:
    before = settings()
    with repeatable_arithmetic(device):
        assert settings() == (True, True, "highest", False, False, True)
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert settings() == before


def test_a_workspace_that_somebody_chose_is_kept(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with repeatable_arithmetic("cuda"):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


@pytest.mark.usefixtures("environment")
def test_settings_return_after_an_error() -> None:
    before = settings()
    with pytest.raises(KeyError), repeatable_arithmetic("cuda"):
        raise KeyError
    assert settings() == before


@pytest.mark.usefixtures("environment")
def test_nothing_is_changed_for_a_cpu() -> None:
    before = settings()
    with repeatable_arithmetic("cpu"):
        assert settings() == before
        assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
