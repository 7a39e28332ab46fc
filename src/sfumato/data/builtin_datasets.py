"""What is known about the built-in data sets without reading them: sizes, classes, columns, scaling.

``account`` works from this table alone. A loader refuses a copy whose sizes differ from it, since
every privacy figure rests on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sfumato.errors import DataError, SpecError

DEFAULT_TEST_FRACTION = 0.1
HAS_TEST_SPLIT = "nothing: this data set has a test split of its own"
"""Why a share to hold out is refused."""


@dataclass(frozen=True)
class PersonCounts:
    """How many persons there are to train on.

    Attributes:
        total: all of them.
        of_groups: of each natural group, [groups]; ``None`` where there are none.
        of_sites: at each site, in the order of ``DatasetFacts.site_counts``; ``None`` where there are none.
    """

    total: int
    of_groups: tuple[int, ...] | None
    of_sites: tuple[int, ...] | None


@dataclass(frozen=True)
class DatasetFacts:
    """Sizes of a data set, as far as accounting and partitions need them.

    Attributes:
        name: as written in ``data.source``.
        train_examples: rows of the training set, all of them divided over the devices.
        test_examples: rows of the test set, held by nobody in the federation.
        classes: number of labels a model must tell apart.
        input_shape: shape of one example, (C, H, W) or (F,).
        class_counts: training rows of each label, [classes]; ``None`` where only the data tells.
        group_counts: training rows of each natural group (a writer, a site), [groups]; ``None``
            unless a group column was asked for.
        site_counts: name and training rows of each site; ``None`` where the data name no sites.
        targets: numbers to predict for an example, labels of a set, or different tokens; ``None`` for
            classes.
        feature_columns: of a table, the names of its features.
        label_names: text of the label of each class, where labels are text; else empty.
        persons: who the training rows are of; ``None`` where the data name no persons.
    """

    name: str
    train_examples: int
    test_examples: int
    classes: int
    input_shape: tuple[int, ...]
    class_counts: tuple[int, ...] | None = None
    group_counts: tuple[int, ...] | None = None
    site_counts: tuple[tuple[str, int], ...] | None = None
    targets: int | None = None
    feature_columns: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    persons: PersonCounts | None = None

    @property
    def counted_in_persons(self) -> DatasetFacts:
        """These sizes with persons counted in place of rows, for partitions that deal out whole persons.

        The same sizes where the data name no persons. Counts by label become ``None``.
        """
        if self.persons is None:
            return self
        sites = self.site_counts
        if sites is not None and self.persons.of_sites is not None:
            sites = tuple(
                (site, count) for (site, _), count in zip(sites, self.persons.of_sites, strict=True)
            )
        return replace(
            self,
            train_examples=self.persons.total,
            class_counts=None,
            group_counts=self.persons.of_groups,
            site_counts=sites,
            persons=None,
        )

    @property
    def examples(self) -> int:
        """Number of all rows, to train on and to test on."""
        return self.train_examples + self.test_examples

    @property
    def outputs(self) -> int:
        """How many numbers a model puts out for an example (for a token: at each place of the sequence).

        ``targets`` where it is known, else ``classes``.
        """
        return self.classes if self.targets is None else self.targets


@dataclass(frozen=True)
class BuiltIn:
    """A data set known by name.

    Attributes:
        facts: its sizes; where the Hub has no test split, with 10 % of the rows held out.
        mean: per channel, in units of the [0, 1] pixel scale; with ``std`` the published constants
            that standardise the features.
        std: per channel, on the same scale.
        hub_id: where the Hugging Face Hub has it; ``None`` if it ships with a dependency, or is fetched by
            hand.
        image_column: the Hub's column of images.
        label_column: the Hub's column of labels.
        group_column: the column, the Hub's or by a name of ours, that says whose row it is, if there is one.
        groups: number of natural groups of the training set, where it is published.
        has_test_split: whether the source separates a test set; if not, a share is held out.
        to_fetch: files that are fetched by hand, of a set that the Hub does not have.
    """

    facts: DatasetFacts
    mean: tuple[float, ...]
    std: tuple[float, ...]
    hub_id: str | None = None
    image_column: str = "image"
    label_column: str = "label"
    group_column: str | None = None
    groups: int | None = None
    has_test_split: bool = True
    to_fetch: str = ""


def _balanced(
    name: str, per_class: int, test: int, classes: int, input_shape: tuple[int, ...]
) -> DatasetFacts:
    """The sizes of the data set ``name`` with ``per_class`` training examples of every class.

    ``test``: number of test examples; ``input_shape``: of one example.
    """
    return DatasetFacts(name, per_class * classes, test, classes, input_shape, (per_class,) * classes)


_MNIST_COUNTS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
_DIGITS_COUNTS = (142, 146, 141, 147, 144, 146, 145, 143, 139, 144)

BUILT_IN: Mapping[str, BuiltIn] = MappingProxyType(
    {
        "digits": BuiltIn(
            DatasetFacts("digits", 1_437, 360, 10, (1, 8, 8), _DIGITS_COUNTS), mean=(0.3053,), std=(0.3760,)
        ),
        "fashion-mnist": BuiltIn(
            _balanced("fashion-mnist", 6_000, 10_000, 10, (1, 28, 28)),
            mean=(0.2860,),
            std=(0.3530,),
            hub_id="zalando-datasets/fashion_mnist",
        ),
        "mnist": BuiltIn(
            DatasetFacts("mnist", 60_000, 10_000, 10, (1, 28, 28), _MNIST_COUNTS),
            mean=(0.1307,),
            std=(0.3081,),
            hub_id="ylecun/mnist",
        ),
        # EMNIST's "digits" split, without writers.
        "emnist": BuiltIn(
            _balanced("emnist", 24_000, 40_000, 10, (1, 28, 28)),
            mean=(0.1733,),
            std=(0.3317,),
            hub_id="ernestchu/emnist-digits",
        ),
        # EMNIST's digits by writer, the set of the HDP paper, as TensorFlow Federated has published it. Paper
        # is 1 and ink 0, so it is only centred.
        "emnist-digits": BuiltIn(
            DatasetFacts("emnist-digits", 341_873, 40_832, 10, (1, 28, 28)),
            mean=(0.5,),
            std=(0.5,),
            group_column="writer",
            groups=3_383,
            to_fetch="fed_emnist_digitsonly_train.h5 and fed_emnist_digitsonly_test.h5 of TensorFlow "
            "Federated (3,383 writers, 341,873 and 40,832 images)",
        ),
        # 814,277 rows without a test split on the Hub; its published constants depend on the
        # polarity of the copy, so it is only centred.
        "femnist": BuiltIn(
            DatasetFacts("femnist", 732_849, 81_428, 62, (1, 28, 28)),
            mean=(0.5,),
            std=(0.5,),
            hub_id="flwrlabs/femnist",
            label_column="character",
            group_column="writer_id",
            has_test_split=False,
        ),
        "cifar10": BuiltIn(
            _balanced("cifar10", 5_000, 10_000, 10, (3, 32, 32)),
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
            hub_id="uoft-cs/cifar10",
            image_column="img",
        ),
        "cifar100": BuiltIn(
            _balanced("cifar100", 500, 10_000, 100, (3, 32, 32)),
            mean=(0.5071, 0.4865, 0.4409),
            std=(0.2673, 0.2564, 0.2762),
            hub_id="uoft-cs/cifar100",
            image_column="img",
            label_column="fine_label",
        ),
    }
)


def tabulated_facts(name: str, *, test_fraction: float | None = None) -> DatasetFacts:
    """Sizes of the built-in set ``name`` from the table in this module; nothing is read.

    ``test_fraction``: share of the rows to hold out for testing, of a set without a test split.

    Raises:
        KeyError: ``name`` is not built in.
        SpecError: ``test_fraction`` is given for a set with a test split, or leaves one part empty.
    """
    built_in = BUILT_IN[name]
    if test_fraction is None or built_in.has_test_split:
        refuse_test_fraction(test_fraction, built_in.has_test_split)
        return built_in.facts
    total = built_in.facts.train_examples + built_in.facts.test_examples
    held_out = held_out_count(total, test_fraction)
    return replace(built_in.facts, train_examples=total - held_out, test_examples=held_out)


def check_published(found: DatasetFacts, built_in: BuiltIn | None) -> None:
    """Check that a copy of a built-in data set has the published sizes; of a set without a test split in all.

    Args:
        found: sizes of the copy.
        built_in: the set; ``None`` for a set that is not built in, which passes.

    Raises:
        DataError: the copy has other sizes.
    """
    if built_in is None:
        return
    known = built_in.facts
    counts = ["train_examples", "test_examples"] if built_in.has_test_split else ["examples"]
    names = [*counts, "classes", "input_shape", "class_counts"]
    sizes = [(name, getattr(found, name), getattr(known, name)) for name in names]
    if found.group_counts is not None:
        sizes.append((f"groups ({built_in.group_column})", len(found.group_counts), built_in.groups))
    for what, is_, should in sizes:
        if should is not None and is_ != should:
            raise DataError(
                f"{found.name}: this copy has {what} {is_}, the published set {should}; "
                "if you mean this copy, give its folder as data.source"
            )


def pixel_scaling(built_in: BuiltIn | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, by which pixels in [0, 1] are standardised.

    They are the published constants of a built-in set; (0.5,) and (0.5,) for ``None``, a set that is not
    built in.
    """
    return ((0.5,), (0.5,)) if built_in is None else (built_in.mean, built_in.std)


def held_out_count(examples: int, test_fraction: float) -> int:
    """Rows held out for testing: ``test_fraction`` of ``examples``, rounded half up.

    Raises:
        SpecError: the share leaves no row to test on, or none to train on.
    """
    count = int(examples * test_fraction + 0.5) if 0 < test_fraction < 1 else 0
    if not 0 < count < examples:
        raise SpecError(
            "data.test_fraction",
            test_fraction,
            f"a share strictly between 0 and 1 that leaves rows for training and testing (of {examples:,})",
        )
    return count


def refuse_test_fraction(test_fraction: float | None, has_test_split: bool) -> None:
    """Refuse a share of rows to hold out for testing where the source has a test split.

    Raises:
        SpecError: ``test_fraction`` is given and ``has_test_split`` is true.
    """
    if test_fraction is not None and has_test_split:
        raise SpecError("data.test_fraction", test_fraction, HAS_TEST_SPLIT)


def held_out_within_error(allowed: str) -> SpecError:
    """The error for rows that cannot be held out within groups; ``allowed``: what is, or why not."""
    return SpecError("data.test_within", "group", allowed)
