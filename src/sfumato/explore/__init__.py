"""``sfumato explore``: a web page on this machine that shows who learns what while a setting is changed.

    edited_spec.py    a spec's document with changes, as the browser keeps it
    accounted_setting.py  the figures of one setting: guarantees, network, matrix, noise, costs
    trust.py          whom to trust, and the changes that do so
    controls.py       the numbers and choices of a spec that the page can change
    edits.py          what a change, a click or a plan makes of a setting
    words.py          figures and differences in sentences
    compared.py       pairs whose ε differs between two settings
    figures.py        the drawings, which are those of reports
    accuracy.py       how accurate finished runs of a setting were
    accuracy_figure.py    their accuracy against ε
    jobs.py           runs that were started from the page
    page.py explore.css    the layout
    answers.py        the values of its controls and figures
    callbacks.py      what the page asks of the server
    job_callbacks.py  the same, about runs
    application.py    the web application, and which requests it refuses
    server.py         the server on the loopback interface

Only `page`, `answers`, `callbacks`, `job_callbacks` and `application` need Dash (extra ``explore``). Figures
need no torch: runs are processes of `sfumato run`. May be imported by ``sfumato.cli`` only; imports
``sfumato.report``, ``sfumato.planning``, ``sfumato.accounting`` and what lies below them.
"""
