"""The page of a report: its sections in order, the first screen, HTML, styles and scripts.

Imported by ``report`` and what is above it; imports ``report`` and what ``report`` imports.

    comparison       several runs: which is best at what, and a table of their figures
    differences      several runs: in which settings their specs differ
    first_screen     the first screen: who learns what, at what cost, is it worth it
    html             the HTML page and its figures
    lead             pieces of the first screen: large sentences, notices, findings, commands
    not_accounted    what the ε do not speak of, and that a simulation's noise follows from its seed
    papers           links from the places of papers that a page names to a list at its end
    party_words      parties called by words on a whole page
    sections         the report of runs: its sections in order
    several_runs     the first screen of several runs
    tiles            tiles with a name and a value, and what their colours mean
    who_adds_noise   who adds how much noise, who takes part and what is clipped
"""
