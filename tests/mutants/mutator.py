"""Specs with something wrong in them, or merely odd: seeded mutations of every spec that comes with us.

`mutant(seed, number)` is the same wherever and whenever it is made. Three sorts of change are mixed: to the
document (keys, types, magnitudes, nesting, sections of another protocol), to its YAML text, and to the call
(``--set``, ``--unit``, ``--observer``, ``--delta``).
"""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from snippets import FILES, NAMES, NUMBERS, SECTIONS, VALUES

from sfumato.errors import SpecError
from sfumato.spec import load_spec

ROOT = Path(__file__).parents[2]
FOLDERS = ("src/sfumato/spec/builtin", "examples", "tests/spec/specs")
SPEC_FILE = "spec.yaml"


@dataclass
class Mutant:
    """A spec to be tried, with the files it names and the options of the call.

    Attributes:
        spec: the bytes of the spec file.
        files: other files beside it, by name.
        changes: ``--set`` options.
        asked: options of ``account``.
    """

    spec: bytes
    files: dict[str, bytes] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


def corpus() -> list[tuple[str, Any]]:
    """Every spec that comes with us: name and document; sweep requests and the like are left out."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.yaml"))
    found = [(str(path.relative_to(ROOT)), yaml.safe_load(path.read_text("utf-8"))) for path in paths]
    specs = [(name, document) for name, document in found if "protocol" in document]
    for _, document in specs:
        if document["topology"].get("structure") == "labels":
            document["topology"]["devices"] = 8  # of 100 workers, what every kind learns takes minutes
    return specs


_CORPUS = corpus()
_BY_KEY: dict[str, list[Any]] = {}
for _, _document in _CORPUS:
    for _key, _value in _document.items():
        _BY_KEY.setdefault(_key, []).append(_value)
for _key, _values in SECTIONS.items():
    _BY_KEY.setdefault(_key, []).extend(_values)


def mutant(seed: int, number: int) -> Mutant:
    """The mutant of this number. Of every ten, seven have a document that loads, so that more than the
    loader is tried.
    """
    rng = random.Random(f"{seed}/{number}")
    document = _mutated(rng)
    for _ in range(12 if rng.random() < 0.7 else 0):
        if not _is_refused(document):
            break
        document = _mutated(rng)
    made = Mutant(_dumped(rng, document))
    made.files = {name: text.encode("utf-8", "surrogatepass") for name, text in FILES.items()}
    if rng.random() < 0.15:
        made.spec = _corrupted(rng, made.spec)
    if rng.random() < 0.2:
        name = rng.choice(sorted(made.files))
        made.files[name] = _corrupted(rng, made.files[name])
    made.changes = [_setting(rng) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
    made.asked = _asked(rng)
    return made


def _mutated(rng: random.Random) -> dict[str, Any]:
    document = copy.deepcopy(rng.choice(_CORPUS)[1])
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        _change(rng, document)
    return document


def _is_refused(document: dict[str, Any]) -> bool:
    """Whether the loader refuses it as it should; what else goes wrong is for the trial to find."""
    try:
        load_spec(document)
    except SpecError:
        return True
    except Exception:
        return False
    return False


def _dumped(rng: random.Random, document: Any) -> bytes:
    if rng.random() < 0.1:
        return json.dumps(document, default=str).encode("utf-8", "surrogatepass")
    flow = rng.choice((None, False, True))
    try:
        text = yaml.safe_dump(document, sort_keys=False, default_flow_style=flow, allow_unicode=True)
    except (yaml.YAMLError, RecursionError):
        text = json.dumps(document, default=str)
    return text.encode("utf-8", "surrogatepass")


def _change(rng: random.Random, document: dict[str, Any]) -> None:
    """One change, in place."""
    kinds = ("section", "section", "value", "value", "number", "number", "number", "key", "nest", "place")
    kind = rng.choice(kinds)
    if kind == "section":
        key = rng.choice(sorted(_BY_KEY))
        document[key] = copy.deepcopy(rng.choice(_BY_KEY[key]))
        if key == "topology" and rng.random() < 0.7:
            document["protocol"] = rng.choice(_fitting(document["topology"]))
        return
    holder, key = _somewhere(rng, document, leaf=kind in ("value", "number"))
    value = holder[key]
    match kind:
        case "value":
            holder[key] = copy.deepcopy(rng.choice(VALUES))
        case "number":
            holder[key] = _another_number(rng, value)
        case "nest":
            for _ in range(rng.choice((1, 1, 2, 18))):
                value = rng.choice(([value], {"kind": value}, {str(key): value}, [value, value]))
            holder[key] = value
        case "place":
            section = document.get(rng.choice(sorted(map(str, document))))
            target = section if isinstance(section, dict) and rng.random() < 0.7 else document
            target[rng.choice(NAMES)] = copy.deepcopy(rng.choice((value, rng.choice(VALUES))))
        case "key" if isinstance(holder, dict):
            del holder[key]
            if rng.random() < 0.7:
                holder[rng.choice((str(key) + "s", str(key).upper(), rng.choice(NAMES)))] = value


def _fitting(topology: Any) -> tuple[str, ...]:
    kind = str(topology.get("kind", "")) if isinstance(topology, dict) else ""
    return {
        "groups": ("dp-ogl", "dp-ogl+", "dp-ogl-local", "ms-fedavg"),
        "tree": ("h2fdp", "hfl", "hfl-dp", "hdp", "pfels", "wfl-p", "wfl-pdp"),
    }.get(kind, ("dp-fedavg", "pedpfl", "pfels", "wfl-p", "wfl-pdp"))


def _somewhere(rng: random.Random, document: dict[str, Any], *, leaf: bool) -> tuple[Any, Any]:
    """A mapping or list and a place in it: a leaf, or anywhere."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any, depth: int) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in list(items)[:20]:
            is_leaf = not isinstance(inner, dict | list) or not inner
            if is_leaf or not leaf:
                places.append((value, key))
            if isinstance(inner, dict | list) and depth < 8:
                walk(inner, depth + 1)

    walk(document, 0)
    return rng.choice(places) if places else (document, rng.choice(NAMES))


def _another_number(rng: random.Random, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return rng.choice(NUMBERS)
    match rng.randrange(6):
        case 0:
            return rng.choice(NUMBERS)
        case 1:
            return -value
        case 2:
            return float(value) * 10.0 ** rng.randint(-12, 12) if abs(value) < 1e200 else 0
        case 3:
            return value + rng.choice((-1, 1, 0.5 if abs(value) < 1e200 else 2))
        case 4:
            return str(value)
        case _:
            power = rng.randint(1, 12)
            return value * 10**power if isinstance(value, int) else value * 10.0 ** rng.randint(-320, 300)


_SCRAPS = (
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r\n", b"\t", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\x1b[31m",
    b"\x85", b": ", b"- ", b"---\n", b"...\n", b"%YAML 1.1\n", b"&a ", b"*a", b"&b [*b]", b"<<: *a\n",
    b"!!python/name:os.exit ", b"!!binary ", b"!!set {a}", b"!!timestamp ", b"!!float ", b"!!int ", b"{",
    b"}", b"[", b"]", b'"', b"'", b"? ", b"|\n", b">\n", b"#", b"@", b"`", b"0x" + b"f" * 5000,
    b"0b" + b"1" * 9000, b"0o" + b"7" * 5000, b"9" * 5000, b"1e400", b"-1e400", b"1_000", b"190:20:30",
    b"0777", b"[" * 200, b"{a: " * 200, b"- " * 300, b"=", b"~", b".inf", b".nan",
    b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\n",
)  # fmt: skip


def _corrupted(rng: random.Random, content: bytes) -> bytes:
    """The bytes with something inserted, deleted, repeated or exchanged."""
    for _ in range(rng.choice((1, 1, 2, 6))):
        at, end = (rng.randrange(len(content) + 1) for _ in range(2))
        lines = content.split(b"\n")
        match rng.randrange(7):
            case 0:
                content = content[:at] + rng.choice(_SCRAPS) + content[at:]
            case 1:
                content = content[: min(at, end)] + content[min(max(at, end), min(at, end) + 20) :]
            case 2:
                content = content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
            case 3:
                lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
                content = b"\n".join(lines)
            case 4:
                del lines[rng.randrange(len(lines))]
                content = b"\n".join(lines)
            case 5:
                content = content.replace(b"\n", b"\r\n")
            case _:
                content = content.decode("utf-8", "replace").encode(
                    rng.choice(("utf-16", "utf-8-sig", "utf-8"))
                )
    return content


def _setting(rng: random.Random) -> str:
    """A ``--set``; mostly of a key that there is."""
    section = rng.choice(sorted(_BY_KEY))
    value: Any = rng.choice(_BY_KEY[section])
    path = [section]
    while isinstance(value, dict) and value and rng.random() < 0.8:
        path.append(str(rng.choice(sorted(value, key=str))))
        value = next(inner for key, inner in value.items() if str(key) == path[-1])
    if rng.random() < 0.5:
        value = _another_number(rng, value) if rng.random() < 0.7 else rng.choice(VALUES)
    if rng.random() < 0.05:
        path[rng.randrange(len(path))] = rng.choice(NAMES)
    text = (
        rng.choice(_SCRAPS).decode("utf-8", "replace")
        if rng.random() < 0.1
        else json.dumps(value, default=str)
    )
    return f"{'.'.join(path)}={text}"


def _asked(rng: random.Random) -> list[str]:
    """Options of ``account``."""
    if rng.random() < 0.6:
        return []
    observers = [
        "cloud",
        "public",
        "edge:0",
        "edge:1",
        "master:0",
        "device:1",
        "device:0",
        "region:0",
        *NAMES,
    ]
    found = []
    if rng.random() < 0.5:
        found += [
            "--unit",
            rng.choice(
                (
                    "device:0",
                    "device:1",
                    "0",
                    "device:99999999999999999999",
                    "device:" + "9" * 5000,
                    "cloud",
                    "",
                    "device:²",
                    "device:-1",
                )
            ),
        ]
    if rng.random() < 0.5:
        found += ["--observer", ",".join(rng.choice(observers) for _ in range(rng.choice((1, 1, 2, 2000))))]
    if rng.random() < 0.3:
        found += [
            "--delta",
            rng.choice(("1e-6", "1e-300", "1e-320", "0.999999999999", "5e-324", "inf", "1", "0.5", "x")),
        ]
    if rng.random() < 0.3:
        found += ["--curve"]
    return found
