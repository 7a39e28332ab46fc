"""All that somebody wrote comes in through `sfumato.user_text`: nothing else parses text or reads files."""

import ast
from collections import defaultdict

from source_tree import modules, nodes

PARSERS = {
    "yaml": {
        "load",
        "load_all",
        "safe_load",
        "safe_load_all",
        "full_load",
        "unsafe_load",
        "parse",
        "compose",
    },
    "json": {"load", "loads"},
    "tomllib": {"load", "loads"},
    "pickle": {"load", "loads"},
    "gzip": {"open"},
}
READERS = {"read_text", "read_bytes"}
OWN = {
    "attacks/views.py": "views of a run, once its manifest has been checked",
    "data/csv_faults.py": "the first bytes of a table, and lines of one that cannot be read",
    "data/idx.py": "data sets in IDX files: as many bytes are read as the header says",
    "data/leaf.py": "data sets in JSON files, of any size: errors of parsing and nesting are refusals",
    "data/tff.py": "the first bytes of a file, which say whether it is HDF5",
    "deployment/flower/keeper.py": "commands of its starter, and what Linux says of processes",
    "deployment/flower/relays.py": "its own app, and a number that Flower prints: else an error",
    "deployment/local_processes.py": "what a party that it started wrote to its log",
    "distributed/process_group.py": "what the other ranks of the same run send, as torch.distributed does",
    "durable_files.py": "hashes a file of a run, piece by piece",
    "explore/jobs.py": "what a run that it started wrote to its standard error",
    "explore/page.py": "a file of this package",
    "new_spec/joined_files.py": "a table, to compare it byte for byte with the one to write",
    "new_spec/written_spec.py": "the spec that it has just written itself",
    "pool/jobs.py": "a run's own log, whose lines are counted",
    "report/page/html.py": "a file of this package",
    "run_folder/manifest.py": "a run's manifest",
    "run_folder/metrics_table.py": "hashes in a run's own Parquet file",
    "run_folder/reader.py": "hashes in a run's own archive",
    "run_folder/rounds_log.py": "a run's own log, line by line",
    "run_folder/seal.py": "a run's checkpoint: length and digest are checked before it is parsed",
    "spec/load.py": "built-in specs, files of this package",
    "studies/load.py": "built-in studies, files of this package; others come in through the guarded loader",
    "verify/folder.py": "files of a run; it imports nothing of ours, and has bounds of its own",
}
"""Modules that read without the guarded loader, and what."""


def unguarded(tree: ast.Module) -> list[str]:
    """Calls in a module that parse text or read files."""
    renamed = {}
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            renamed |= {alias.asname or alias.name: alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module in PARSERS:
            renamed |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return [said for node in nodes(tree) if isinstance(node, ast.Call) and (said := _read(node, renamed))]


def _read(call: ast.Call, renamed: dict[str, str]) -> str | None:
    """How a call reads, if it does."""
    match call.func:
        case ast.Name(id=name) if name == "open" or renamed.get(name, "").partition(".")[0] in PARSERS:
            return renamed.get(name, name)
        case ast.Attribute(value=ast.Name(id=module), attr=name) if name in PARSERS.get(
            renamed.get(module, ""), ()
        ):
            return f"{renamed[module]}.{name}"
        case ast.Attribute(attr=name) if name in READERS:
            return name
        case ast.Attribute(attr="open") if call.args and isinstance(mode := call.args[0], ast.Constant):
            return "open" if str(mode.value).startswith("r") else None
    return None


def test_whoever_reads_without_the_guarded_loader_is_known():
    found = defaultdict(list)
    for name, tree, _ in modules():
        if not name.startswith("user_text/") and (calls := unguarded(tree)):
            found[name] = calls
    assert {name: calls for name, calls in found.items() if name not in OWN} == {}
    assert sorted(OWN) == sorted(found)  # the list names nobody without need


def test_the_search_finds_every_way_to_read():
    text = """
import gzip, json, yaml as y
from json import loads as l
from pathlib import Path
y.safe_load(a); y.load(a, Loader=b); json.loads(a); l(a); open(a); gzip.open(a)
Path(a).read_text(); Path(a).read_bytes(); Path(a).open("rb"); a.open(b); Path(a).open("w"); y.safe_dump(a)
"""
    assert sorted(unguarded(ast.parse(text))) == sorted(
        [
            "yaml.safe_load",
            "yaml.load",
            "json.loads",
            "json.loads",
            "open",
            "gzip.open",
            "read_text",
            "read_bytes",
            "open",
        ]
    )
