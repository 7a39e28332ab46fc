"""What contradicts another section of a spec, in tables of refusals (`sfumato.spec.refusals`).

Of each table the first row that applies is raised. Four rules bound what a device sends with Adam or weight
decay at local steps; the table `_local_optimizer` follows from them (docs/accounting.md, *Local optimizers*).
λ is the weight decay, η the step size, w₀ the model that a message starts from.

* **A whole update is clipped** (``clip: update``). The bound is that of the clip, whatever led to the update.
  Moments start at zero with every message, so one in which a record was not drawn has the same law in both
  worlds.
* **Noise at every local step** (``noise: {at: step}``). Each noised sum of gradients counts as a release by
  itself, and no rule adds their noise up. Moments, decay and all later models follow from these sums.
* **Steps are clipped** (``clip: step``). A message is bounded as a sum of steps of at most η C. A step of
  Adam is as long as its moments make it, and with decay a message also contains ``((1 - ηλ)^m - 1) w₀``,
  whose length no clip bounds. Neither is charged.
* **Examples are clipped, messages noised** (``clip: example``). Two messages are compared: by how much one
  gradient moves them. That of Adam may move by any step it takes. Decay takes ``(1 - ηλ)^m w₀`` from both
  alike where w₀ is the same in both worlds, as it is in trees for what is charged by draws of records, and
  differences of steps shrink with 0 <= ηλ <= 1. In groups w₀ may be the mean of models that nobody outside
  sees, and may differ. Masked sums in trees need messages that are bounded: there is no room for w₀.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from sfumato.families import TREE, family_of, topologies_of
from sfumato.spec.base import closest_hint
from sfumato.spec.model import LOSSES, METRICS
from sfumato.spec.other_words import loss_hint
from sfumato.spec.privacy import NoiseByMultiplier, NoiseBySource, NoiseByTarget, NoNoise
from sfumato.spec.refusals import Refusals
from sfumato.spec.topology import StarTopology, TreeTopology
from sfumato.spec.training import FixedParticipation

if TYPE_CHECKING:  # the document imports this module
    from sfumato.spec.document import Spec

# fmt: off


def protocol_refusals(spec: Spec) -> Refusals:
    """One row as of `Section.refusals`; it refuses a topology that the protocol does not run on.

    Where it applies no other table of refusals is read.
    """
    kind, wanted = spec.topology.kind, topologies_of(spec.protocol)
    yield (kind not in wanted, "topology.kind", kind,
           f"must be {' or '.join(wanted)} with protocol {spec.protocol}")


def _noise_without_clip(spec: Spec) -> Refusals:
    """Refusal of noise without a clip, which nothing bounds the messages for."""
    yield (spec.privacy.noise.kind != "none" and spec.privacy.clip is None, "privacy.clip", None,
           "is required: noise needs a clip, {kind: update, step or example, norm: a number above 0}")


def _example_level(spec: Spec) -> Refusals:
    """Refusals on Poisson mini-batches, clips of examples and noise at steps, for guarantees of records."""
    training, clip, noise = spec.training, spec.privacy.clip, spec.privacy.requested_noise
    if training.batches == "poisson":
        yield (training.local_epochs is not None, "training.batches", "poisson",
               "goes with training.local_steps: Poisson mini-batches make no passes over the data, so there "
               "are no epochs to count")
        yield (training.batch_size == "all", "training.batch_size", "all",
               "must be a number with training.batches: poisson: every sum of gradients is divided by it; "
               "use batches: shuffled to take all examples in every step")
        yield (spec.control is not None, "training.batches", "poisson",
               "must be shuffled with control, whose estimates are made for it")
    if clip is not None and clip.kind == "example":
        yield (training.batches != "poisson", "privacy.clip.kind", "example",
               "needs training.batches: poisson: a step is then a sum of clipped gradients over a public "
               "constant; with shuffled batches it is a mean over what is there")
        yield (clip.norms is not None, "privacy.clip.norm", list(clip.norms or ()),
               "must be one number with kind: example, for all groups")
        yield (spec.sends_over_the_air, "privacy.clip.kind", "example",
               "must be update or step over the air: the power of a message is set by its bound, and clipped "
               "examples leave the message of a device without one")
        for_records = isinstance(noise, NoiseByTarget) and spec.privacy.unit_within_device
        is_stated = isinstance(noise, NoNoise | NoiseByMultiplier | NoiseBySource)
        yield (not (for_records or is_stated), "privacy.noise.kind", noise.kind,
               "must be none, a multiplier, or with privacy.unit: record or person a target where "
               "privacy.clip.kind is example: for a device it is computed from the bound of its message, "
               "which clipped examples do not give")
    if isinstance(noise, NoiseByMultiplier) and noise.at == "step":
        mechanism = spec.privacy.mechanism
        yield (clip is None or clip.kind != "example", "privacy.noise.at", "step",
               "needs privacy.clip.kind: example: the noise is a multiple of the norm that examples get")
        yield (noise.multiplier == 0, "privacy.noise.multiplier", 0.0,
               "must be above 0 with at: step; write noise: none")
        yield (noise.placement is not None, "privacy.noise.placement", None,
               "must be left out with at: step: every device adds its own noise")
        yield (noise.multipliers is not None, "privacy.noise.multiplier", list(noise.multipliers or ()),
               "must be one number with at: step")
        yield (mechanism is not None, "privacy.mechanism", mechanism and mechanism.kind,
               "must be left out with privacy.noise.at: step, which adds Gaussian noise")


def _persons(spec: Spec) -> Refusals:
    """Refusals of what divides or draws rows one by one where persons are the unit."""
    if spec.privacy.unit != "person":
        return
    data, unit = spec.data, "with privacy.unit: person"
    yield (data.person_column is None, "data.person_column", None,
           f"is required {unit}: the column that says whose row it is")
    yield (spec.control is not None, "privacy.unit", "person",
           "must be device with control, whose estimates are made for shuffled batches")
    yield (spec.training.batches != "poisson", "training.batches", spec.training.batches,
           f"must be poisson {unit}: every person is in a local step by a draw of its own; with shuffled "
           "batches use privacy.unit: device")
    yield from _divisions_by_label(
        spec,
        f"must be iid or natural {unit}: persons are dealt whole, and one may have rows of several labels",
        f"must be left out {unit}: it puts devices of one label together",
    )


def _local_optimizer(spec: Spec) -> Refusals:
    """Refusals of Adam and weight decay where the account rests on plain steps."""
    training, privacy = spec.training, spec.privacy
    adam, decay = training.optimizer.kind == "adam", training.weight_decay
    if not (adam or decay):
        return
    clips_steps = privacy.clip is not None and privacy.clip.kind == "step"
    noises_messages = not (isinstance(privacy.noise, NoNoise) or privacy.step_noise)
    noised_examples = privacy.clips_examples and noises_messages
    against_adam = (
        (clips_steps,
         "a clip of steps bounds gradients, and steps of Adam may be longer; use privacy.clip.kind: update"),
        (noised_examples,
         "one clipped example may turn a whole step of Adam; use privacy.noise.at: step, or "
         "privacy.clip.kind: update"),
    )
    for applies, reason in chain(against_adam, _reasons_for_plain_steps(spec)):
        yield adam and applies, "training.optimizer", "adam", f"must be sgd here: {reason}"
    against_decay = (
        (clips_steps,
         "a message would contain a part of the model that it starts from, which a clip of steps does not "
         "bound; use privacy.clip.kind: update"),
        (noised_examples and family_of(spec) is not TREE,
         "workers of several groups start from models that nobody sees, and a message would contain a part "
         "of these; use privacy.noise.at: step, or privacy.clip.kind: update"),
    )
    for applies, reason in chain(against_decay, _reasons_for_plain_steps(spec)):
        yield decay and applies, "training.weight_decay", decay, f"must be 0 here: {reason}"


def _reasons_for_plain_steps(spec: Spec) -> Iterator[tuple[bool, str]]:
    """Yield (applies, reason) for each reason why local steps must be plain SGD; not all of them apply."""
    sums_securely = "secure-aggregation" in spec.transport.values() and family_of(spec) is TREE
    yield (spec.privacy.clips_examples and sums_securely,
           "under secure aggregation messages are bounded by their gradients; use privacy.clip.kind: update")
    yield spec.training.keeps_variates, "control variates of scaffold follow from plain steps"
    yield spec.control is not None, "control sets the step size by a theorem on plain steps"


def _settings_of_trees(spec: Spec) -> Refusals:
    """Refusals of weights, norms of layers, placement and elections where they are not derived."""
    training, clip, protocol = spec.training, spec.privacy.clip, spec.protocol
    yield (training.denominator.kind != "fixed" and protocol != "hdp", "training.denominator",
           training.denominator.kind, "goes with protocol: hdp only")
    weighs, elects = training.weights.kind != "uniform", spec.elects_supernodes
    is_tree, layers = family_of(spec) is TREE, None if clip is None else clip.per_layer
    placement = getattr(spec.privacy.requested_noise, "placement", None)
    for given, key, value in (
        (weighs, "training.weights", training.weights.kind),
        (layers, "privacy.clip.per_layer", list(layers or ())),
        (placement, "privacy.noise.placement", placement and placement.model_dump(exclude_defaults=True)),
        (elects, "topology.supernodes", "elected"),
    ):
        yield (given and not is_tree, key, value,
               f"goes with topology.kind: {' or '.join(TREE.topologies)} only")
        yield given and spec.control is not None, key, value, "must be left out with control"
        yield (given and protocol != "hdp" and spec.sends_over_the_air, key, value,
               "must be left out over the air")
    yield (weighs and protocol == "dp-fedavg", "training.weights", "capped",
           "must be uniform with dp-fedavg, which shares noise out")
    yield (placement and protocol == "hfl-dp", "privacy.noise.placement", None,
           "must be left out: every device adds its own noise")
    yield (placement and not isinstance(spec.topology, TreeTopology), "privacy.noise.placement", None,
           "goes with topology.kind: tree: it is by zone")
    yield (elects and training.global_update == "resend", "topology.supernodes", "elected",
           "goes with training.global_update: increment")


def _faults(spec: Spec) -> Refusals:
    """Refusals on the section ``faults``: what goes with the air, groups and elections."""
    if spec.faults is None:
        return
    rate, threshold = spec.faults.supernode_failure_rate, spec.faults.survival_threshold
    yield (spec.sends_over_the_air, "faults", None,
           "must be left out with air: see air.min_gain for silent devices")
    yield (rate and family_of(spec) is not TREE, "faults.supernode_failure_rate", rate,
           "must be left out: groups have masters, not supernodes")
    yield (rate and not spec.elects_supernodes, "faults.supernode_failure_rate", rate,
           "goes with topology.supernodes: elected")
    yield (threshold is not None and "secure-aggregation" not in spec.transport.values(),
           "faults.survival_threshold", threshold, "goes with secure aggregation")


def _neighbours(spec: Spec) -> Refusals:
    """Refusals of ``neighbours: remove`` where it would be seen that a device is missing."""
    participation = spec.training.participation.kind
    if spec.privacy.neighbours == "remove":
        yield (participation != "poisson", "privacy.neighbours", "remove",
               f"goes with training.participation: poisson; with {participation} it is known who takes part, "
               "so a device that is gone is missed: use zero-out or replace")
        yield (spec.elects_supernodes, "privacy.neighbours", "remove",
               "goes with fixed supernodes: elections tell who is there")


def _data(spec: Spec) -> Refusals:
    """Refusals on ``data.examples_per_device``, which synthetic data need and others do not take."""
    examples, is_synthetic = spec.data.examples_per_device, spec.data.source == "synthetic"
    yield (is_synthetic and examples is None, "data.examples_per_device", None,
           "is required with source: synthetic")
    yield (not is_synthetic and examples is not None, "data.examples_per_device", examples,
           "goes with source: synthetic only")


def _radio(spec: Spec) -> Refusals:
    """Refusals of control and the air where no radio is described."""
    if not spec.counts_radio:
        for needs, what in ((spec.control is not None, "control"), (spec.sends_over_the_air, "the air")):
            yield (needs, "radio", "none",
                   f"must be a radio with {what}, which depends on energy, time or gains of its links")


def _task(spec: Spec) -> Refusals:
    """Refusals of losses, metrics and partitions that do not go with the task."""
    data, task, loss, labels = spec.data, spec.data.task, spec.training.loss, spec.data.label_column
    known = LOSSES[task]
    if loss is not None and loss not in known and (":" not in loss or loss.startswith(":")):
        near = loss_hint(loss, list(known)) or closest_hint(loss, known)
        yield (True, "training.loss", loss,
               f"must be {', '.join(known)}, or package.module:function, with task: {task}{near}")
    for metric in spec.metrics:
        yield (metric not in METRICS[task], "metrics", metric,
               f"must be of {', '.join(METRICS[task])} with task: {task}")
    yield (len(set(spec.metrics)) < len(spec.metrics), "metrics", list(spec.metrics),
           "must name each metric once")
    yield (task == "next-token" and data.vocabulary is None, "data.vocabulary", None,
           "is required with task: next-token: the number of different tokens, a public number")
    yield (task == "next-token" and labels is not None, "data.label_column", labels,
           "must be left out with task: next-token: the tokens themselves are predicted")
    if isinstance(labels, tuple):
        yield (task not in ("regression", "multi-label"), "data.label_column", list(labels),
               f"must be one column with task: {task}; several go with regression and multi-label")
    if task == "classification":
        return
    yield from _divisions_by_label(
        spec,
        f"goes with task: classification, which has labels; with {task} use iid or natural",
        "goes with task: classification: it puts devices of one label together",
    )


def _divisions_by_label(spec: Spec, of_partition: str, of_zones: str) -> Refusals:
    """Refusals of partitions and zones that go by labels.

    Args:
        spec: whose partition and zones are looked at.
        of_partition: what is allowed of the partition, for messages.
        of_zones: what is allowed of the zones.
    """
    partition, zones = spec.data.partition, getattr(spec.topology, "zones", None)
    rules = {"": partition} | {f".{key}": getattr(partition, key, None) for key in ("edge", "device")}
    for key, rule in rules.items():
        kind = getattr(rule, "kind", None)
        yield kind in ("labels", "dirichlet", "flwr"), f"data.partition{key}.kind", kind, of_partition
    yield zones is not None and zones.kind == "data", "topology.zones.kind", "data", of_zones


def _topology(spec: Spec) -> Refusals:
    """Refusals of lists, periods and trust that do not fit the topology."""
    topology, trust, training = spec.topology, spec.trust, spec.training
    yield (trust.from_ is not None and not isinstance(topology, TreeTopology), "trust.from", None,
           "goes with topology.kind: tree, with edges under the cloud")
    if not isinstance(topology, StarTopology | TreeTopology):
        return
    for key, listed in (
        ("privacy.clip.norm", spec.privacy.clip and spec.privacy.clip.norms),
        ("privacy.noise.multiplier", getattr(spec.privacy.noise, "multipliers", None)),
        ("training.participation.rate", getattr(training.participation, "rates", None)),
    ):
        yield (listed is not None, key, list(listed or ()),
               "must be one number: lists go with topology.kind: groups")
    if isinstance(topology, StarTopology):
        for key in ("edge_every", "aggregate_every"):
            period = getattr(training, key)
            yield period is not None, f"training.{key}", period, "must be left out: a star has no edges"
        yield (trust.trusted_edges not in (0.0, ()), "trust.trusted_edges", trust.trusted_edges,
               "a star has no edges; use trust.cloud")
    else:
        periods, names = training.aggregate_every, topology.level_names or ("edge",)
        levels = len(names) if topology.levels is None else len(topology.levels) - 1
        yield (periods and topology.file is None and len(periods) != levels, "training.aggregate_every",
               list(periods or ()),
               f"must list one period for each level below the cloud, top down: {levels} here")
        yield (topology.zones and hasattr(spec.data.partition, "edge"), "topology.zones",
               topology.zones and topology.zones.kind,
               "or data.partition.edge says who is together: give one")
    yield from _too_many_participants(spec, topology)


def _too_many_participants(spec: Spec, topology: StarTopology | TreeTopology) -> Refusals:
    """Refusals of more participants than the smallest edge has devices, as far as the spec tells.

    None where sites are listed one by one: these are counted when the tree is built.
    """
    participation = spec.training.participation
    if isinstance(topology, StarTopology):
        fewest, where = topology.devices, "the star"
    elif topology.levels is not None:
        fewest, where = topology.levels[-1], "an edge"
    elif isinstance(topology.devices_per_edge, tuple):
        fewest, where = min(topology.devices_per_edge), "the smallest edge"
    elif topology.devices_per_edge is not None:
        fewest, where = topology.devices_per_edge, "an edge"
    else:
        return
    if isinstance(participation, FixedParticipation) and isinstance(participation.count, int):
        yield (participation.count > fewest, "training.participation.count", participation.count,
               f"must be at most {fewest}, the devices of {where}")


TABLES: tuple[Callable[[Spec], Refusals], ...] = (
    _noise_without_clip, _persons, _example_level, _local_optimizer, _settings_of_trees, _faults, _neighbours,
    _data, _radio, _task, _topology,
)
"""One refusal of each may be raised at once."""
