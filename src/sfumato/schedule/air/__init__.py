"""Sending over the air: settings, power control, and the channels of a finished run.

Imported by ``schedule`` and what is above it; imports ``schedule`` and what ``schedule`` imports.

    power_control      how loud devices send, and the noise that is left
    realised_channels  channels as they were in a run
    settings           what sending over the air, and compression, settle and refuse
"""
