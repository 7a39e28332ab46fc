"""Faults: dropouts, lost messages, failing and elected supernodes, before and after a run.

Imported by ``schedule`` and what is above it; imports ``schedule`` and what ``schedule`` imports.

    dropouts        who drops out or fails, and what noise is sure to be left
    elections       which devices are elected supernode
    lost_messages   whose messages get through in groups, where workers drop out
    realised        dropouts and elections as they were in a run
"""
