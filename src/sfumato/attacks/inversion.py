"""Inversion attacks: images reconstructed from what an observer received, beside a baseline.

The first targets of a run are attacked, in order of rounds: the first rounds have the largest gradients. All
attacks are scored. The result of a target is the attack whose images explain the observation best, which an
attacker can compute. The baseline is the mean image of the true label, from data that no device holds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.arguments import Argument
from sfumato.attacks.gradient_matching import Reconstruction
from sfumato.attacks.image_metrics import (
    class_means,
    compare_with_baseline,
    lpips_score,
    match_to_originals,
    mse,
    psnr,
    ssim,
)
from sfumato.attacks.inversion_problem import MOST_UNKNOWN, AttackerKnowledge, InversionProblem
from sfumato.attacks.inversion_targets import InversionTarget, smallest_sum_targets
from sfumato.attacks.label_recovery import label_accuracy
from sfumato.attacks.views import RecordedView, load_view_by_name, plan_of_run, replay_rounds
from sfumato.data.builtin_datasets import BUILT_IN, pixel_scaling
from sfumato.data.features import read_all
from sfumato.durable_files import replacing
from sfumato.engine.tiles import intra_op_threads
from sfumato.errors import SpecError
from sfumato.learning.dropout import masks_of
from sfumato.learning.parameters import ParameterLayout
from sfumato.privacy.guarantee import json_number
from sfumato.progress import Progress, silent, track
from sfumato.protocols.tree.local_work import local_task
from sfumato.random import Stream, generator
from sfumato.run_folder.manifest import FileRecord
from sfumato.run_folder.reader import ATTACKS_FOLDER, adding_files, load_run_to_add, write_json
from sfumato.run_folder.view_files import slug
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.schedule.tree import TreePlan
from sfumato.simulation.training_inputs import TrainingInputs

FloatArray = npt.NDArray[np.float64]

MOST_IMAGES = 24
MOST_TARGETS = 8
_KEY = 20


@dataclass(frozen=True, eq=False)
class InversionResult:
    """The result of one attack on one target.

    Attributes:
        target: description of the target.
        attack: name of the attack.
        mismatch: between the update of its images and the observed one.
        labels: true labels of the images ``[I]``.
        label_accuracy: share of the labels that was recovered.
        originals: pixels ``[I, C, H, W]``.
        reconstructions: pixels, matched to the originals.
        guesses: the baseline: mean images of the true labels.
        scores: of the reconstructions, by name, each ``[I]``.
        guess_scores: of the baseline.
        seconds: duration of the attack.
    """

    target: str
    attack: str
    mismatch: float
    labels: Tensor
    label_accuracy: float
    originals: Tensor
    reconstructions: Tensor
    guesses: Tensor
    scores: dict[str, FloatArray]
    guess_scores: dict[str, FloatArray]
    seconds: float


def attack_by_inversion(run: Path, observer: str, progress: Progress = silent) -> dict[str, Any]:
    """Reconstruct training images from what ``observer`` received in a run; writes the result to its folder.

    Args:
        run: the run folder.
        observer: a party or a coalition whose view was recorded.
        progress: called with the number of targets that are done.

    Returns:
        ``attacks/inversion-OBSERVER.json`` (docs/attacks.md).

    Raises:
        SpecError: there is no such view, it contains nothing to attack, the data are not images, or the
            training has settings that the attack does not know.
        RunError: the run is damaged.
    """
    attacked = load_run_to_add(run)
    plan = plan_of_run(attacked)
    view = load_view_by_name(plan, attacked, observer)
    if plan.spec.training.batches == "poisson":
        allowed = "inversion needs to know how large batches are; Poisson mini-batches are drawn in secret"
        raise SpecError("training.batches", "poisson", allowed)
    correction = plan.spec.training.drift_correction.kind
    if correction != "none":
        allowed = "must be none for an inversion: it plays plain local steps"
        raise SpecError("training.drift_correction", correction, allowed)
    if not plan.spec.training.takes_plain_steps:
        allowed = "must be sgd, and weight_decay 0, for an inversion: it plays plain local steps"
        raise SpecError("training.optimizer", plan.spec.training.optimizer.kind, allowed)
    inputs = TrainingInputs.of(plan)
    if masks_of(inputs.model) is not None:
        allowed = "must have no dropout for an inversion, which would have to know what devices dropped"
        raise SpecError("model.kind", plan.spec.model.kind, allowed)
    if len(inputs.data.facts.input_shape) != 3:
        raise SpecError(Argument("kind"), "inversion", "needs images (channels, height, width)")
    score, about = lpips_score()
    scorer = _InversionScorer(plan, inputs, score)
    results: list[list[InversionResult]] = []
    for round_number, target in track(list(_targets_of_first_rounds(plan, inputs, view)), progress):
        with intra_op_threads(1):
            results.append(list(scorer.results_of(round_number, target)))
        if sum(len(ways[0].labels) for ways in results) >= MOST_IMAGES:
            break
    if not results:
        raise SpecError(Argument("observer"), observer, "received nothing that depends on any device")
    result, pictures = _result_and_images(plan, view, results)
    result["notes"].append(f"LPIPS: {about}.")
    _write_result(run, view.observer, result, pictures)
    return result


def _targets_of_first_rounds(
    plan: TreePlan, inputs: TrainingInputs, view: RecordedView
) -> Iterator[tuple[int, InversionTarget]]:
    """Yield (round number, target) of the first rounds, at most `MOST_TARGETS` in all.

    If a round has more, some are drawn at random.
    """
    coalition = parse_coalition(view.observer, plan.parties)
    initial, left = ParameterLayout.of(inputs.model).read(inputs.model), MOST_TARGETS
    for round_number, model, vectors in replay_rounds(plan, view, initial):
        found = smallest_sum_targets(
            plan.at(round_number), inputs.partition, vectors, model, round_number, coalition
        )
        rng = generator(plan.spec.seed, Stream.ATTACK, _KEY, round_number)
        for at in np.sort(rng.permutation(len(found))[:left]):
            yield round_number, found[int(at)]
        left -= min(left, len(found))
        if not left:
            return


class _InversionScorer:
    """Runs the attacks on a target and scores their reconstructions with the true images.

    Args:
        plan: of the run.
        inputs: data, partition and model of the run.
        lpips: computes LPIPS; ``None`` if it cannot be computed.
    """

    def __init__(self, plan: TreePlan, inputs: TrainingInputs, lpips: Any) -> None:
        """Collect the training examples, what the attacker knows, and the guess of every class's mean image.

        ``lpips``: a function of images and originals; ``None``: LPIPS is not computed.
        """
        data = inputs.data
        mean, std = pixel_scaling(BUILT_IN.get(data.facts.name))
        self._plan, self._lpips = plan, lpips
        self._features = torch.from_numpy(read_all(data.train_features))
        self._labels = torch.from_numpy(data.train_labels.astype(np.int64, copy=False))
        self._public = AttackerKnowledge(
            inputs.model,
            data.facts.classes,
            torch.from_numpy(read_all(data.test_features)),
            torch.from_numpy(data.test_labels),
            torch.tensor(mean)[:, None, None],
            torch.tensor(std)[:, None, None],
        )
        own = self._public.pixels(self._public.features)
        self._guesses = class_means(own, self._public.labels, data.facts.classes)

    def results_of(self, round_number: int, target: InversionTarget) -> Iterator[InversionResult]:
        """Yield the scored result of every inversion attack that applies to ``target``.

        ``round_number``: of the round that it was seen in.
        """
        spec = self._plan.at(round_number).spec
        problem = InversionProblem(self._public, target, local_task(spec, round_number))
        key = (_KEY, round_number, int(target.devices[0]))
        rng = generator(spec.seed, Stream.ATTACK, *key)
        began = time.monotonic()
        for attack, found in problem.reconstructions(rng):
            seconds = time.monotonic() - began
            yield self._result(
                f"{target.description}, round {round_number + 1}", attack, found, target, seconds
            )
            began = time.monotonic()

    def _result(
        self, what: str, attack: str, found: Reconstruction, target: InversionTarget, seconds: float
    ) -> InversionResult:
        """The scores of one attack's reconstruction, and of the baseline's guess, against the originals.

        Args:
            what: the target in words.
            attack: its name.
            found: the reconstruction.
            seconds: that it took.
        """
        rows = torch.from_numpy(target.rows)
        images = self._public.pixels(found.images)
        originals, labels = self._public.pixels(self._features[rows]), self._labels[rows]
        if len(images) < len(originals):  # fewer images are solved for: each is compared with the closest one
            whose = torch.from_numpy(match_to_originals(originals, images))
            originals, labels = originals[whose], labels[whose]
        else:
            images = images[torch.from_numpy(match_to_originals(images, originals))]
        accuracy = label_accuracy(found.labels, labels, self._public.classes)
        guesses = self._guesses[labels]
        return InversionResult(
            what,
            attack,
            found.mismatch,
            labels,
            accuracy,
            originals,
            images,
            guesses,
            self._scores(images, originals),
            self._scores(guesses, originals),
            seconds,
        )

    def _scores(self, images: Tensor, originals: Tensor) -> dict[str, FloatArray]:
        """Metric to the score of each image ``[I]`` against its original; both ``[I, C, H, W]``."""
        found = {
            name: score(images, originals) for name, score in (("ssim", ssim), ("psnr", psnr), ("mse", mse))
        }
        if self._lpips is not None:
            found["lpips"] = self._lpips(images, originals)
        return found


def _result_and_images(
    plan: TreePlan, view: RecordedView, results: Sequence[Sequence[InversionResult]]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The result as JSON, and arrays of images by name.

    Of every target the attack counts whose images explain the update best (least mismatch).

    Args:
        results: of every target, those of all its attacks.
    """
    chosen = [min(ways, key=lambda way: way.mismatch) for ways in results]
    beside = compare_with_baseline(_all_scores(chosen, "ssim"), _all_scores(chosen, "ssim", guess=True))
    images = [
        {
            "target": one.target,
            "attack": one.attack,
            "label": int(one.labels[at]),
            "scores": {name: json_number(float(values[at])) for name, values in one.scores.items()},
            "guess": {name: json_number(float(values[at])) for name, values in one.guess_scores.items()},
        }
        for one in chosen
        for at in range(len(one.labels))
    ]
    attacks = dict.fromkeys(way.attack for ways in results for way in ways)
    by_attack = {name: [way for ways in results for way in ways if way.attack == name] for name in attacks}
    result = {
        "kind": "inversion",
        "spec": plan.spec.name,
        "observer": view.observer,
        "seed": plan.spec.seed,
        "targets": [one.target for one in chosen],
        "results": [_summary_row("best explanation", chosen)]
        + [_summary_row(name, ways) for name, ways in by_attack.items()],
        "guess": _mean_scores(chosen, guess=True),
        "beside_guess": {"score": "ssim", **asdict(beside)},
        "images": images,
        "notes": _notes(results),
    }
    pictures = {
        "originals": torch.cat([one.originals for one in chosen]),
        "reconstructions": torch.cat([one.reconstructions for one in chosen]),
        "guesses": torch.cat([one.guesses for one in chosen]),
    }
    return result, pictures


def _all_scores(chosen: Sequence[InversionResult], score: str, *, guess: bool = False) -> FloatArray:
    """The metric ``score`` of all images of the results ``chosen``, ``[I]``; ``guess``: of the baseline's."""
    return np.concatenate([(one.guess_scores if guess else one.scores)[score] for one in chosen])


def _mean_scores(chosen: Sequence[InversionResult], *, guess: bool = False) -> dict[str, float | str]:
    """The mean over all images of the results ``chosen``, by name of the metric."""
    return {
        name: json_number(float(_all_scores(chosen, name, guess=guess).mean())) for name in chosen[0].scores
    }


def _summary_row(name: str, ways: Sequence[InversionResult]) -> dict[str, Any]:
    """The JSON row of the attack ``name`` in the summary; ``ways``: its results for all targets."""
    count = sum(len(way.labels) for way in ways)
    return {
        "attack": name,
        "images": count,
        "scores": _mean_scores(ways),
        "label_accuracy": sum(way.label_accuracy * len(way.labels) for way in ways) / count,
        "mismatch": float(np.mean([way.mismatch for way in ways])),
        "seconds_a_target": float(np.mean([way.seconds for way in ways])),
    }


def _notes(results: Sequence[Sequence[InversionResult]]) -> list[str]:
    """Sentences for the result file on how its figures are to be read."""
    notes = [
        "The class-mean baseline is given the true label. The success of an attack is a lower bound on what "
        "can be learned."
    ]
    if any(len(ways[0].labels) == MOST_UNKNOWN for ways in results):
        notes.append(
            f"Of a sum of more images, {MOST_UNKNOWN} are reconstructed; each is scored against the closest "
            "original."
        )
    return notes


def _write_result(run: Path, observer: str, result: dict[str, Any], pictures: dict[str, Tensor]) -> None:
    """Write ``result`` and the images ``pictures``, by name, to two files of the run folder.

    They are ``attacks/inversion-OBSERVER.json`` and ``.npz``.
    """
    name = f"{ATTACKS_FOLDER}/inversion-{slug(observer)}"
    arrays = {name: part.float().numpy() for name, part in pictures.items()}
    with adding_files(run) as files:
        with replacing(run / f"{name}.npz", private=True) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        files[f"{name}.npz"] = FileRecord.of(file)
        files[f"{name}.json"] = write_json(run / f"{name}.json", result)
