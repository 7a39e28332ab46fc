"""The page of a study.

    document.py   the whole page: verdicts, figures, tables, how it was computed
    panels.py     chooses how a panel is drawn
    panel_data.py what a panel shows: means over seeds, and the paper's values
    curves.py     lines, bars and dots with intervals, and the paper's values
    matrices.py   heatmaps: by two axes, and of workers by workers; of few workers a table
    tables.py     tables of measures beside the paper's values
    colours.py    the colours of settings: one each on a page
    numbers.py    values with half of their interval as text
    lines.py      the lines of a panel: places, values, names and colours
    captions.py   what stands below lines, bars and dots
    agreement.py  the figures and tables of all statements: what was measured, and what the paper states

Figures, tables and the frame of the page are those of ``sfumato.report``.
"""
