"""What a user may write: frozen models, unknown keys refused, one file a section.

Everything above imports from here; here only ``families``, ``user_text``, ``errors`` and ``arguments`` are
imported.

    document             the spec as a whole, and checks that need more than one section
    data, model, topology, training, privacy, transport, radio, faults, control    the sections
    moves                devices that change their edge, a part of topology
    load                 from a file, a built-in name or a mapping, and back to YAML
    overrides            ``key=value``
    renamed_keys         other and former names of keys
    tasks                what a model learns to predict, with the losses and metrics of each task
    example_level        checks of Poisson mini-batches, clips of examples, noise at steps
    local_optimizer      checks of Adam and weight decay at local steps
    grouped_protocols    names of grouped protocols and of their variants
    base                 what every section shares; kinds of numbers
    refusals             the form of refusals that stand in tables, and the search for the first that applies
    limits               the most that a spec may ask for
    names                names of levels and sites
    per_edge             counts that may differ from edge to edge
    scalar_or_list       numbers that may differ from group to group
    used_keys            which keys have an effect where; what has none is refused
    structure            which sections may stand at a place
    right_sections       what does not fit between right sections, where others are wrong
    validation_messages  from pydantic's errors to one sentence
    schema               the JSON schema
    frozen, fingerprint  the spec as a run folder keeps it, and its hash
    diff                 what two specs differ in
    seeds                several seeds of one spec
"""

from sfumato.spec.document import Spec
from sfumato.spec.load import builtin_names, builtin_text, dump_spec, load_spec

__all__ = ["Spec", "builtin_names", "builtin_text", "dump_spec", "load_spec"]
