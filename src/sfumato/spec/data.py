"""``data``: which examples there are and who holds them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Tag, field_validator

from sfumato.spec.base import (
    Count,
    OpenUnit,
    Positive,
    Section,
    Whole,
    by_kind,
    count_limit,
    in_range,
    one_or_list,
    refused_error,
)
from sfumato.spec.limits import LEAST, MAX_VOCABULARY, MOST, MOST_SIGMA
from sfumato.spec.model import Task
from sfumato.spec.refusals import Refusals

TABLE_SUFFIXES = (".csv", ".parquet", ".arrow")
"""How the names of tables end, without regard to case."""
HDF5_SUFFIXES = (".h5", ".hdf5")
"""How the names of TensorFlow Federated's files end, without regard to case."""
BY_USER_SUFFIXES = (".json", *HDF5_SUFFIXES)
"""How the names of files end that say what each user has, without regard to case."""
DATA_SUFFIXES = (*TABLE_SUFFIXES, ".npz", *BY_USER_SUFFIXES)
"""How the names of files end that ``data.source`` may be, without regard to case."""

Sigma = Annotated[float, Field(ge=0, le=MOST_SIGMA), in_range(LEAST, MOST_SIGMA, or_zero=True)]
Bound = Annotated[float, Field(ge=-MOST, le=MOST), in_range(-MOST, MOST)]
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
    shards: Count | None = Field(
        default=None,
        description="parts that all examples are divided into, of which devices hold the first; the rest "
        "stay unused; default: as many as devices",
    )
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
PartitionRule = Annotated[
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


Names = Annotated[tuple[str, ...], Field(min_length=1)]
LabelColumn = Annotated[Annotated[str, Tag("=one")] | Annotated[Names, Tag("=list")], one_or_list()]
Vocabulary = Annotated[int, Field(ge=2, le=MAX_VOCABULARY), count_limit(MAX_VOCABULARY, least=2)]
Bounds = tuple[Bound, Bound]


class Data(Section):
    """``source``: a built-in name, a file, folder or Hub id, ``synthetic`` or a factory of one's own."""

    source: str = Field(
        min_length=1,
        description="digits, fashion-mnist, mnist, cifar10, cifar100, emnist, emnist-digits, femnist, "
        "synthetic, a file "
        "(.csv, .parquet, .arrow, .npz, .json, .h5), a folder, a Hub id, package.module:factory or "
        "FILE.py:factory",
    )
    partition: PartitionRule = IidPartition()
    examples_per_device: Count | None = Field(default=None, description="synthetic data only")
    image_column: str | None = None
    feature_columns: Names | None = Field(
        default=None, description="CSV and Parquet: default all other columns that hold numbers"
    )
    label_column: LabelColumn | None = Field(
        default=None, description="or a list of columns, with task: regression and multi-label"
    )
    task: Task = Field(default="classification", description="what a model learns to predict")
    vocabulary: Vocabulary | None = Field(
        default=None,
        description="features are token ids below it: a public number, whichever tokens occur in the data",
    )
    group_column: str | None = None
    site_column: str | None = Field(
        default=None, description="whose rows they are: the names of the topology's edges"
    )
    person_column: str | None = Field(
        default=None,
        description="tables: who a row is of, with privacy.unit: person; all rows of one are at one site",
    )
    row: str | None = Field(
        default=None,
        min_length=1,
        max_length=60,
        description="what one row is, such as a patient: words for reports and statements",
    )
    scale: Annotated[dict[str, Bounds], Field(min_length=1)] | None = Field(
        default=None,
        description="CSV and Parquet: [low, high] of a feature, public numbers that become 0 and 1",
    )
    separator: Literal[",", ";", "tab"] | None = Field(
        default=None, description="CSV: between columns; default: a comma"
    )
    decimal: Literal[".", ","] | None = Field(
        default=None, description="CSV: before the decimals of a number; default: a point"
    )
    test_fraction: OpenUnit | None = Field(
        default=None, description="held-out share where the data set has no test split"
    )
    test_within: Literal["group"] | None = Field(
        default=None,
        description="the share is held out of the rows of each natural group, not of all rows at once",
    )
    test_file: str | None = Field(
        default=None, description="CSV, Parquet, Arrow, JSON, HDF5: a file of rows to test on"
    )
    test_column: str | None = Field(
        default=None, description="CSV and Parquet: true, 1 or test in the rows to test on"
    )

    @field_validator("scale")
    @classmethod
    def _low_before_high(cls, scale: dict[str, Bounds] | None) -> dict[str, Bounds] | None:
        """``scale`` itself, (low, high) by column; refused where a low bound is not below the high one."""
        for column, (low, high) in (scale or {}).items():
            if low >= high:
                raise refused_error(column, [low, high], "must be [low, high], the lower number first")
        return scale

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`.

        They refuse one sign as separator and as decimal sign, and more than one way to say what is tested on.
        """
        allowed = "must be ';' or tab with decimal: ',': a comma cannot do both"
        yield self.decimal == (self.separator or ","), "separator", self.separator, allowed
        values = {key: getattr(self, key) for key in ("test_fraction", "test_file", "test_column")}
        first, *others = [key for key, value in values.items() if value is not None] or [""]
        for key in others:
            yield True, key, values[key], f"must be left out: {first} says what is tested on"
        if self.test_within is not None:
            says = first if first in ("test_file", "test_column") else ""
            allowed = f"must be left out: {says} says what is tested on"
            yield bool(says), "test_within", self.test_within, allowed
            allowed = "goes without person_column: persons are held out whole"
            yield self.person_column is not None, "test_within", self.test_within, allowed
