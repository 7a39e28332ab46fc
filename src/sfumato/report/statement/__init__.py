"""The privacy statement: what it says, as JSON, and its page.

Imported by ``report`` and what is above it; imports ``report`` and what ``report`` imports.

    content       what a privacy statement says, and its JSON
    pairs         its guarantees by how observers are placed towards units, and by named site
    assumptions   what it takes on trust, and what it does not cover
    trusted       who is trusted with raw updates, from which round on
    words         its sentences for readers without mathematics
    why           why each ε is what it is, in the words of the accountant and these explained
    page          the statement as a page for an auditor
"""
