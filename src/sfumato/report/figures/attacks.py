"""The section about attacks: guaranteed ε, empirical lower bounds, ROC curves, reconstructed images."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.privacy.losses.gaussian import allowed_tpr
from sfumato.report import formatting as text
from sfumato.report.figures.figure import (
    LEGEND,
    MARGIN,
    NEUTRAL,
    NO_GUARANTEE,
    TRUSTED,
    Bars,
    Figure,
    Json,
    colour,
    log_ticks,
    paired_bars,
    tick_label,
    transparent,
)
from sfumato.report.page.html import PlacedFigures, bullet_list
from sfumato.report.results.attack_findings import (
    AttackCurve,
    Interval,
    ObserverFindings,
    Reconstructions,
    guaranteed_epsilon,
    verdict,
)
from sfumato.run_folder.reader import RunFolder

_MOST_PICTURES = 8
_MOST_AUDITS = 20
_NO_LIMIT = 0.99
_LEVELS = {
    "record": ("Membership of examples", "is this example in the device's data?"),
    "device": ("Membership of devices", "did this device take part with its data?"),
    "label": ("Labels held", "does the device hold this label?"),
}
_COLUMNS = {"originals": "original", "reconstructions": "reconstruction", "guesses": "class mean"}
_SCORES = {"ssim": "SSIM", "psnr": "PSNR", "mse": "MSE", "lpips": "LPIPS"}


def attacks_part(run: RunFolder, observers: Sequence[ObserverFindings], figures: PlacedFigures) -> str:
    """HTML of the audits and attacks on one run: a verdict, a figure of audits, a table of attacks.

    For each attacked observer its curves and reconstructions follow. Figures are added to ``figures``.
    """
    notes = list(dict.fromkeys(note for one in observers for note in one.notes))
    drawn = _audit_figure(observers, text.at_delta(run.privacy.delta))
    parts = [f'<p class="lead">{text.escape(verdict(observers))}</p>', figures.place(drawn) if drawn else ""]
    if attackers := [one for one in observers if one.is_attacked]:
        parts += [_overview_table(run, attackers), *(_observer_html(run, one, figures) for one in attackers)]
    return "".join([*parts, bullet_list(notes) if notes else ""])


def _audit_figure(observers: Sequence[ObserverFindings], delta: str) -> Figure | None:
    """Bars of the lower bound of ε that each audit has shown, beside the guaranteed ε.

    ``None`` without audits; of many the first `_MOST_AUDITS`. ``delta``: text that stands beside every ε.
    """
    found = [(one.title, audit) for one in observers for audit in one.audits][:_MOST_AUDITS]
    if not found:
        return None
    shown, promised = [max(0.0, one.lower) for _, one in found], [one.upper for _, one in found]
    texts = list(map(text.lower_epsilon, shown)), list(map(text.epsilon, promised))
    labels = [
        f"{text.wrapped(one.unit, 30)}<br><span style='font-size:11px'>towards "
        f"{text.wrapped(name, 36)}</span>"
        for name, one in found
    ]
    hues = [TRUSTED if one.holds else NO_GUARANTEE for _, one in found]
    bars = Bars("shown", hues, shown, texts[0]), Bars("promised", [NEUTRAL] * len(found), promised, texts[1])
    data, layout = paired_bars(labels, bars, below=40, right=64)
    rows = [
        (one.unit, name, text.lower_epsilon(one.lower), text.epsilon(one.upper), "yes" if one.holds else "no")
        for name, one in found
    ]
    return Figure(
        title="Shown by the audit, beside what is promised",
        caption=(
            "Blue: the ε that attacks on worst-case data have shown at least. Grey: the guaranteed "
            f"ε{delta}, striped where there is none. A guarantee is refuted where the blue bar is longer."
        ),
        description=" ".join(
            f"{one.unit} towards {name}: shown {low}, promised {high}."
            for (name, one), low, high in zip(found, *texts, strict=True)
        ),
        data=data,
        layout=layout,
        table=text.html_table(
            ["unit", "observer", "shown ε, at least", "promised ε, at most", "holds"],
            rows,
            caption="Audits",
            numeric=(2, 3),
        ),
        kind="audits",
    )


def _overview_table(run: RunFolder, observers: Sequence[ObserverFindings]) -> str:
    """An HTML table, a row for each attacked observer: guaranteed ε, bounds of audits, scores of attacks.

    Columns in which nothing was measured are left out.
    """
    rows = [
        (
            one.title,
            text.epsilon(guaranteed_epsilon(run, one)),
            text.lower_epsilon(max((audit.lower for audit in one.audits), default=math.nan)),
            *(text.percent(one.best(level)) for level in _LEVELS),
            _mean_ssim(one.reconstructions),
        )
        for one in observers
    ]
    found = ["examples found", "devices found", "labels found"]
    titles = ["observer", "guaranteed ε", "empirical ε (lower bound)", *found, "SSIM"]
    kept = [number for number in range(len(titles)) if number < 2 or {row[number] for row in rows} != {"–"}]
    shown = [[row[number] for number in kept] for row in rows]
    levels = text.join_names([titles[number].removesuffix(" found") for number in kept if 3 <= number <= 5])
    said = [
        f"The accountant's ε{text.at_delta(run.privacy.delta)}",
        "the lower bound of an audit" if 2 in kept else "",
        f"true-positive rate of the best attack on {levels} at 1 % false positives" if levels else "",
        "mean SSIM of images" if 6 in kept else "",
        "–: not measured" if any("–" in row for row in shown) else "",
    ]
    caption, numeric = "; ".join(filter(None, said)), tuple(range(1, len(kept)))
    return text.html_table([titles[number] for number in kept], shown, caption=caption, numeric=numeric)


def _mean_ssim(pictures: Reconstructions | None) -> str:
    """The mean structural similarity of the reconstructions as text; a dash where there are none."""
    known = (
        [] if pictures is None else [one.scores["ssim"] for one in pictures.images if "ssim" in one.scores]
    )
    return text.number(sum(known) / len(known)) if known else "–"


def _observer_html(run: RunFolder, one: ObserverFindings, figures: PlacedFigures) -> str:
    """HTML of one observer: its sentences, ROC curves and reconstructions."""
    by_level = {level: [curve for curve in one.curves if curve.level == level] for level in _LEVELS}
    drawn = [figures.place(_curve_figure(level, curves)) for level, curves in by_level.items() if curves]
    parts = [f"<h3>As {text.escape(one.title)}</h3>", bullet_list(_sentences(run, one))]
    if drawn:
        parts.append(f'<div class="panels">{"".join(drawn)}</div>')
    if one.reconstructions is not None:
        parts.append(_gallery(one.reconstructions))
    return f'<div class="observer">{"".join(parts)}</div>'


def _sentences(run: RunFolder, one: ObserverFindings) -> list[str]:
    """Sentences on one observer: the guarantee, what audits found, and attacks above the guarantee."""
    epsilon, delta = guaranteed_epsilon(run, one), text.at_delta(run.privacy.delta)
    said = []
    if math.isinf(epsilon):
        said.append("There is no guarantee towards this observer (ε = ∞).")
    elif not math.isnan(epsilon):
        said.append(f"Guarantee: no device's ε exceeds {text.epsilon(epsilon)}{delta}.")
    for audit in one.audits:
        verdict = "the guarantee holds" if audit.holds else "THE GUARANTEE IS REFUTED"
        said.append(
            f"Audit of {audit.unit}: the empirical ε is at least {text.lower_epsilon(audit.lower)}, the "
            f"guaranteed ε is {text.epsilon(audit.upper)}{delta}; {verdict}."
        )
    above = [f"{curve.attack} ({curve.level})" for curve in one.curves if curve.exceeds_bound]
    return [*said, f"ABOVE THE GUARANTEE: {text.join_names(above)}."] if above else said


def _curve_figure(level: str, curves: Sequence[AttackCurve]) -> Figure:
    """The ROC curves of attacks on ``level`` on logarithmic axes, with the region that (ε, δ) rules out.

    ``level``: ``record``, ``device`` or ``label``; ``curves``: at least one. No region is drawn of labels,
    which ε does not bound, or where ε is infinite.
    """
    (name, question), bound = _LEVELS[level], curves[0]
    floor = 10.0 ** math.floor(math.log10(min(0.5 / bound.others, 0.5 / bound.members)))
    grid = np.geomspace(floor, 1, 121)
    is_bounded = level != "label" and math.isfinite(bound.epsilon)
    data = _forbidden_region(grid, bound, floor) if is_bounded else []
    best = max(curves, key=lambda one: (one.tpr_at_one_percent, one.auc.value))
    data += _confidence_band(best, colour(curves.index(best)), floor)
    for number, one in enumerate(curves):
        line = {"color": colour(number), "width": 2, "shape": "hv"}
        data.append(
            _line_trace(one.attack, *_as_steps(one, "tpr", floor), line, hovertemplate="%{y:.3g} at %{x:.3g}")
        )
    guessing = {"color": NEUTRAL, "dash": "dot", "width": 1.5, "shape": "linear"}
    data.append(_line_trace("guessing", grid, grid, guessing, hoverinfo="skip"))
    if is_bounded:
        words = _about_the_limit(bound, floor)
    elif math.isinf(bound.epsilon):
        words = ". There is no guarantee, so every curve is possible"
    else:
        words = ". ε does not bound this curve, because common labels can be guessed without the run"
    return Figure(
        title=f"{name}: {question}",
        caption=(
            f"{text.whole(bound.members)} members, {text.whole(bound.others)} non-members. Both axes are "
            "logarithmic; a rate of zero is drawn at the left edge. Band: 95 % interval of "
            f"“{best.attack}”{words}."
        ),
        description=f"{name}. "
        + " ".join(
            f"{one.attack}: {text.percent(one.tpr_at_one_percent)} true positives at 1 % false ones, area "
            f"{one.auc.value:.3f}."
            for one in curves
        ),
        data=data,
        layout={
            "height": 400,
            "margin": MARGIN,
            "legend": LEGEND | {"traceorder": "normal"},
            "showlegend": True,
            "hovermode": "closest",
            "xaxis": _rate_axis("false-positive rate", floor),
            "yaxis": _rate_axis("true-positive rate", floor),
        },
        table=text.html_table(
            ["attack", "TPR at FPR 0.1 %", "TPR at FPR 1 %", "AUC"],
            [(one.attack, *map(_estimate_as_text, (*one.at_low_rates, one.auc))) for one in curves],
            caption="With 95 % intervals",
            numeric=(1, 2, 3),
        ),
        kind=f"roc-{level}",
    )


def _about_the_limit(bound: AttackCurve, floor: float) -> str:
    """A sentence on the curve that (ε, δ) sets for attacks, and whether any attack could cross it.

    ``floor``: the smallest rate on the axes.
    """
    stated = f"δ = {text.number(bound.delta)}, relation {bound.neighbours}"
    which = f"ε = {text.epsilon(bound.epsilon)} ({stated})"
    if bound.neighbours == "replace":
        which += ", as these attacks tell a member from another in its place"
    if float(allowed_tpr(np.array([floor]), epsilon=bound.epsilon, delta=bound.delta)[0]) > _NO_LIMIT:
        return f". The limit set by {which}, is at 100 % everywhere: no attack drawn here can refute it"
    return f". Shaded: the region that {which}, excludes; with few trials a curve may enter it by chance"


def _rate_axis(title: str, floor: float) -> Json:
    """A logarithmic axis of rates from ``floor`` to 1, with ticks in percent."""
    ticks = log_ticks(floor, 1.0)
    named = {"tickvals": ticks, "ticktext": [tick_label(100 * tick) + " %" for tick in ticks]}
    return {"title": {"text": title}, "type": "log", "range": [math.log10(floor), 0.05]} | named


def _line_trace(name: str, x: Any, y: Any, line: Mapping[str, Any], **more: Any) -> Json:
    """A Plotly trace of a line through the points ``x``, ``y``; ``more`` are further properties."""
    points = {"x": [float(value) for value in x], "y": [float(value) for value in y], "line": line}
    return {"type": "scatter", "mode": "lines", "name": text.plotly_label(name), **points, **more}


def _edge_of_region(x: Any, y: Any, shape: str, **more: Any) -> Json:
    """A Plotly line of no width, as the edge of a filled region; ``shape``: how points are joined."""
    return _line_trace("", x, y, {"width": 0, "shape": shape}, hoverinfo="skip", showlegend=False, **more)


def _forbidden_region(grid: Any, bound: AttackCurve, floor: float) -> list[Json]:
    """Plotly traces of the region of true-positive rates that (ε, δ) rules out, and of its edge.

    Args:
        grid: false-positive rates to draw at.
        bound: a curve whose ε, δ and relation count.
        floor: the smallest rate on the axes.
    """
    limit = np.maximum(allowed_tpr(grid, epsilon=bound.epsilon, delta=bound.delta), floor)
    edge = {"color": NO_GUARANTEE, "width": 1.5, "shape": "linear"}
    fill = {"fill": "tonexty", "fillcolor": transparent(NO_GUARANTEE, 0.1)}
    return [
        _edge_of_region(grid, limit, "linear"),
        _edge_of_region(grid, np.full_like(grid, 2.0), "linear", **fill),
        _line_trace("limit set by ε", grid, limit, edge, hoverinfo="skip"),
    ]


def _as_steps(one: AttackCurve, column: str, floor: float) -> tuple[Any, Any]:
    """(x, y) of a ROC curve, for drawing as steps up to the right edge: arrays of rates, equally long.

    Args:
        one: the curve.
        column: of the curve, such as ``tpr`` or ``tpr_low``.
        floor: smaller rates are drawn at this one, where the logarithmic axes begin.
    """
    x = np.append(np.maximum(one.curve["fpr"], floor), 1.0)
    y = np.maximum(one.curve[column], floor)
    return x, np.append(y, y[-1])


def _confidence_band(one: AttackCurve, hue: str, floor: float) -> list[Json]:
    """The two traces between which the confidence band of a ROC curve is filled in ``hue``.

    Rates below ``floor``, where the axes end, are drawn there.
    """
    fill = {"fill": "tonexty", "fillcolor": transparent(hue, 0.15)}
    low, high = _as_steps(one, "tpr_low", floor), _as_steps(one, "tpr_high", floor)
    return [_edge_of_region(*low, "hv"), _edge_of_region(*high, "hv", **fill)]


def _estimate_as_text(estimate: Interval) -> str:
    """An estimate with its 95 % interval as text, such as "0.512 [0.480, 0.544]"."""
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _gallery(pictures: Reconstructions) -> str:
    """HTML with originals and reconstructions side by side and their scores.

    Of more than `_MOST_PICTURES` images a sentence says how many are left out.
    """
    cards = []
    for number, image in enumerate(pictures.images[:_MOST_PICTURES]):
        views = "".join(
            f"<div>{image_element(array[number], f'{_COLUMNS[name]}, {image.target}')}"
            f"<small>{text.escape(_COLUMNS[name])}</small></div>"
            for name, array in pictures.arrays.items()
        )
        known = {title: image.scores[key] for key, title in _SCORES.items() if key in image.scores}
        scores = ", ".join(f"{title} {text.number(value)}" for title, value in known.items())
        words = " · ".join(filter(None, [image.target, image.attack, scores]))
        cards.append(f'<li><div class="views">{views}</div><p>{text.escape(words)}</p></li>')
    left = len(pictures.images) - len(cards)
    more = f"<p>{text.whole(left)} more are in the run folder.</p>" if left > 0 else ""
    return f'<h4>Reconstructions</h4><ul class="gallery">{"".join(cards)}</ul>{more}'


def image_element(image: npt.NDArray[np.floating], description: str) -> str:
    """HTML of an ``img`` element that holds its image as a PNG.

    Args:
        image: ``[C, H, W]``, 1 or 3 channels from 0 to 1; other values are clipped.
        description: plain text, for who does not see the image.

    Raises:
        KeyError: there are neither 1 nor 3 channels.
    """
    data = base64.b64encode(png(image)).decode("ascii")
    return f'<img alt="{text.escape(description)}" src="data:image/png;base64,{data}">'


def png(image: npt.NDArray[np.floating]) -> bytes:
    """The bytes of a PNG file of ``image``, ``[C, H, W]`` with 1 or 3 channels from 0 to 1.

    It is written without an image library, with 8 bits a channel; values outside are clipped, NaN is 0.

    Raises:
        KeyError: there are neither 1 nor 3 channels.
    """
    channels, height, width = image.shape
    pixels = np.nan_to_num(np.clip(image, 0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0)
    # every line begins with its filter: none
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
