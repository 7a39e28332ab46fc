"""What a user may write: frozen models, unknown keys refused, one file a section.

Everything above imports from here; here only ``families``, ``user_text``, ``errors`` and ``arguments`` are
imported.

    document             the spec as a whole: its sections, names of protocols, its hash
    conflicts            tables of what contradicts another section
    data, model, topology, training, privacy, transport, radio, faults, control    the sections
    moves                devices that change their edge, a part of topology
    load                 from a file, a built-in name or a mapping, and back to YAML
    overrides            ``key=value``, and several seeds of one spec
    renamed_keys         other and former names of keys
    base                 what every section shares; kinds of numbers, some differ between edges or groups
    without_noise        the same training without noise
    refusals             the form of refusals that stand in tables, and the search for the first that applies
    limits               the most that a spec may ask for
    names                names of levels and sites
    other_words          words of other libraries, and keys given as arguments: what to write instead
    used_keys            which keys have an effect where; what has none is refused
    validation_messages  what is wrong with a spec, in one sentence each
    schema               the JSON schema
    frozen               the spec as a run folder keeps it
    diff                 what two specs differ in
    words_of_keys        what keys are called on pages
"""

from sfumato.spec.document import Spec
from sfumato.spec.load import builtin_names, builtin_text, dump_spec, load_spec

__all__ = ["Spec", "builtin_names", "builtin_text", "dump_spec", "load_spec"]
