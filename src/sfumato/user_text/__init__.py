"""Reads all text from users and files: specs, topology files, group graphs, options, run folders.

    files.py      regular files of bounded size, in UTF-8
    yaml_text.py  YAML: bounded size, depth and aliases; no key twice, no tags; the line that a key is in
    values.py     values of YAML and JSON: mappings, lists, text, numbers of bounded length, true, false, null

May be imported by every package but ``privacy``; imports only ``sfumato.errors``. An invalid text is a
`SpecError`.
"""

from sfumato.user_text.files import MAX_BYTES, MAX_OWN_BYTES, read_bytes, read_text
from sfumato.user_text.values import MAX_VALUES, decimal, join, parse_json, plain
from sfumato.user_text.yaml_text import KeyLines, parse_yaml

__all__ = [
    "MAX_BYTES",
    "MAX_OWN_BYTES",
    "MAX_VALUES",
    "KeyLines",
    "decimal",
    "join",
    "parse_json",
    "parse_yaml",
    "plain",
    "read_bytes",
    "read_text",
]
