"""`sfumato init --csv FILE`: from a table of one's own to a spec, and who will learn what.

    table         a CSV or Parquet file: its columns, sites and labels
    joined_files  several CSV files, one a site, as one table
    decisions     what a user decides about it, checked against its columns
    questions     asks on a terminal what options leave open
    spec_text     the spec as YAML with comments
    written_spec  the checked spec, and who will learn what
    hints         what a user may not have meant

Imported by ``sfumato.cli``; imports ``sfumato.accounting`` and what lies below it.
"""
