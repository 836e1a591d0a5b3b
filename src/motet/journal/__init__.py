"""What a run leaves on disk: its directory, its metrics, its events. Standard library only.

The JSON-lines journal is the truth about a run; reports and trackers read it. Knows file names and rows, and nothing
of nodes, records or tensors.
"""

from motet.journal.metrics import METRICS, Metric, known, metrics_table_markdown
from motet.journal.reader import read_jsonl
from motet.journal.run_dir import JOURNAL_VERSION, RunDir
from motet.journal.writer import JsonLinesWriter, keep_rounds_below, write_json

__all__ = [
    "JOURNAL_VERSION",
    "METRICS",
    "JsonLinesWriter",
    "Metric",
    "RunDir",
    "keep_rounds_below",
    "known",
    "metrics_table_markdown",
    "read_jsonl",
    "write_json",
]
