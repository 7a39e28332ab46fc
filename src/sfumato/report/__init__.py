"""Run folders drawn and compared: one self-contained HTML file, no network, no torch."""

from sfumato.report.compare import Comparison, compare
from sfumato.report.page import write_report

__all__ = ["Comparison", "compare", "write_report"]
