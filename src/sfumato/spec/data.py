"""``data``: which examples there are and who holds them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from sfumato.spec.base import Count, OpenUnit, Positive, Section, Whole, by_kind, number
from sfumato.spec.limits import LEAST, MOST_SIGMA

Sigma = Annotated[float, Field(ge=0, le=MOST_SIGMA), number(LEAST, MOST_SIGMA, or_zero=True)]
EmptyDevices = Literal["refuse", "allow"]


class IidPartition(Section):
    """Shuffled, then divided evenly."""

    kind: Literal["iid"] = "iid"
    empty_devices: EmptyDevices = Field(
        default="refuse", description="what to do with more devices than examples"
    )
    size_sigma: Sigma = Field(
        default=0.0, description="sizes spread as a lognormal of this sigma; 0 makes them equal"
    )


class LabelsPartition(Section):
    """Every device holds this many labels; every label is held by equally many devices in equal shards."""

    kind: Literal["labels"] = "labels"
    labels_per_device: Count = Field(description="distinct labels a device holds")
    empty_devices: EmptyDevices = "refuse"


class DirichletPartition(Section):
    """Label shares of every device drawn from a symmetric Dirichlet distribution."""

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: Positive = Field(description="concentration; smaller is more heterogeneous")
    min_examples: Whole | None = Field(
        default=None, description="no device gets fewer; default 1, or 0 where empty devices are allowed"
    )
    empty_devices: EmptyDevices = "refuse"


class NaturalPartition(Section):
    """Devices are the distinct values of a column (a writer, a user)."""

    kind: Literal["natural"] = "natural"
    column: str | None = Field(default=None, description="the column; default: the data set's own")
    groups_per_device: Count | None = Field(
        default=None, description="groups a device holds, the rest stay unused; default: all are dealt out"
    )
    min_examples: Whole | None = Field(default=None, description="groups with fewer are left out")
    empty_devices: EmptyDevices = "refuse"


class FlowerPartition(Section):
    """A partitioner of flwr-datasets (extra ``hub``), by name."""

    kind: Literal["flwr"] = "flwr"
    partitioner: str = Field(
        pattern=r"^[A-Za-z]+$", description="its class, e.g. PathologicalPartitioner, in full"
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="its arguments; number of devices, seed and label column are supplied",
    )
    empty_devices: EmptyDevices = "refuse"


class TwoLevelPartition(Section):
    """First over the edges by one rule, then inside every edge over its devices by another."""

    kind: Literal["two-level"] = "two-level"
    edge: SimplePartition = Field(description="how examples are divided over edges")
    device: SimplePartition = Field(description="how an edge's examples are divided over its devices")
    empty_devices: EmptyDevices = "refuse"


SimplePartition = Annotated[
    Annotated[IidPartition, Tag("=iid")]
    | Annotated[LabelsPartition, Tag("=labels")]
    | Annotated[DirichletPartition, Tag("=dirichlet")]
    | Annotated[NaturalPartition, Tag("=natural")],
    by_kind(
        "iid", "labels", "dirichlet", "natural",
        default="iid", labels_per_device="labels", alpha="dirichlet", column="natural",
    ),
]  # fmt: skip
Partition = Annotated[
    Annotated[IidPartition, Tag("=iid")]
    | Annotated[LabelsPartition, Tag("=labels")]
    | Annotated[DirichletPartition, Tag("=dirichlet")]
    | Annotated[NaturalPartition, Tag("=natural")]
    | Annotated[FlowerPartition, Tag("=flwr")]
    | Annotated[TwoLevelPartition, Tag("=two-level")],
    by_kind(
        "iid", "labels", "dirichlet", "natural", "flwr", "two-level",
        default="iid", labels_per_device="labels", alpha="dirichlet", column="natural", edge="two-level",
        device="two-level", partitioner="flwr",
    ),
]  # fmt: skip
TwoLevelPartition.model_rebuild()


class Data(Section):
    """``source``: a built-in name, a Hub id, a saved folder, ``synthetic`` or ``package.module:factory``."""

    source: str = Field(
        min_length=1,
        description="digits, fashion-mnist, mnist, cifar10, cifar100, emnist, femnist, synthetic, "
        "a Hub id, a folder or package.module:factory",
    )
    partition: Partition = IidPartition()
    examples_per_device: Count | None = Field(default=None, description="synthetic data only")
    image_column: str | None = None
    label_column: str | None = None
    group_column: str | None = None
    test_fraction: OpenUnit | None = Field(
        default=None, description="held-out share where the data set has no test split"
    )
