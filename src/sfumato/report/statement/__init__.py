"""The privacy statement: what it says, as JSON, and its page.

Imported by ``report`` and what is above it; imports ``report`` and what ``report`` imports.

    content       what a privacy statement says, and its JSON
    gains         what an (ε, δ) implies with δ counted, for two contents of a unit, and for several units
    simulated     what follows for the figures of a run from a simulation's seed
    pairs         its guarantees by how observers are placed towards units, and by named site
    assumptions   what it takes on trust, and what it does not cover
    trusted       who is trusted with raw updates, from which round on
    words         its sentences for readers without mathematics
    learned       what each observer can learn, as HTML
    why           why each ε is what it is, in the words of the accountant and these explained
    page          the statement as a page for an auditor
"""
