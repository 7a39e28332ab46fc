"""Who there is: trees, overlapping groups, and who is trusted. No data, no noise, no schedule.

``radio``, ``data``, ``schedule`` and everything above them import from here; here only ``spec`` and the shape
of trees (``privacy.tree.shape``) are imported.

    tree         trees of aggregators: names, sites, and the spec's ``trust`` section drawn and checked
    groups       overlapping groups of workers, each with a master
    group_graph  groups from a graph file
    given_graph  a NetworkX graph given in Python, as a topology
    moves        who is under which edge, and which edges are trusted, from which round on
    inlining     what a spec keeps in files beside it, put into the spec
"""
