"""H2FDP's adaptive control: what to set in the next round, from what has been released (docs/control.md)."""
