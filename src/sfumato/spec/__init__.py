"""What a user may write: frozen models, unknown keys refused, one file a section."""

from sfumato.spec.document import Spec
from sfumato.spec.load import builtin_names, builtin_text, dump_spec, load_spec

__all__ = ["Spec", "builtin_names", "builtin_text", "dump_spec", "load_spec"]
