"""What a run came to, read from its directory: verdict, comparison, curves, one HTML page and one picture.

Knows files and nothing of the objects that wrote them, so a run of another machine, or an interrupted one, is
reported by the same code. Imports neither torch nor, before it draws, matplotlib.
"""

from motet.reports.compare import Comparison, compare
from motet.reports.markdown import render_markdown
from motet.reports.run_view import RunView, read_run
from motet.reports.write import write_report

__all__ = ["Comparison", "RunView", "compare", "read_run", "render_markdown", "write_report"]
