"""What a user might name as ``package.module:factory``."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def plain() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def sized(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0] * input_shape[1] * input_shape[2], classes))


def anything(**options: object) -> nn.Module:
    assert set(options) == {"input_shape", "classes"}
    return plain()


def batch_norm() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))


def stateless_batch_norm() -> nn.Module:
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    return nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.Flatten(), nn.Linear(144, 10))


def instance_norm(track: bool = True) -> nn.Module:
    norm = nn.InstanceNorm2d(4, track_running_stats=track)
    return nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.Flatten(), nn.Linear(144, 10))


def stateless_instance_norm() -> nn.Module:
    return instance_norm(track=False)


def dropout() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))


def no_dropout() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(64, 10))


class _Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1) + torch.randn_like(x.flatten(1)))


def ends_the_program() -> nn.Module:
    raise SystemExit(0)


class OwnError(BaseException):
    pass


def raises_its_own() -> nn.Module:
    raise OwnError("no\nweights today")


class _Ending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        raise SystemExit


def ends_in_its_forward_pass() -> nn.Module:
    return _Ending()


class _Choosy(_Ending):
    def forward(self, x: Tensor) -> Tensor:
        return {0: x}["a key that is not there"]


def breaks_in_its_forward_pass() -> nn.Module:
    return _Choosy()


def noisy() -> nn.Module:
    return _Noisy()


class _HandMade(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight


def hand_made() -> nn.Module:
    return _HandMade()


def frozen() -> nn.Module:
    return plain().requires_grad_(False)


def wrong_classes() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 7))


def broken() -> nn.Module:
    raise OSError("no weights")


def not_a_module() -> int:
    return 3


NOT_CALLABLE = 3
