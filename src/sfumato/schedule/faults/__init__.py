"""Faults in trees: dropouts, failing and elected supernodes, in a round and after a run.

Imported by ``schedule`` and what is above it; imports ``schedule`` and what ``schedule`` imports.

    dropouts           who drops out, who is elected supernode, and who fails
    realised_dropouts  dropouts and elections as they were in a run
"""
