"""Engines: how the local training of many devices is laid out on hardware."""
