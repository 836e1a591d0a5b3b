"""The paper's experiments as a matrix of runs: what came of them, compared over seeds, and which claims hold.

`rows` reads finished runs, `intervals` and `table` compare them, `claims` judges, `page` and `curves` show. Adding an
arm takes a few lines of a study file; adding a claim takes one function in `claims`.
"""

from motet.study.claims import Verdict, judge
from motet.study.page import render_page
from motet.study.rows import Row, read_rows, rows_from_json, rows_to_json
from motet.study.table import Table

__all__ = [
    "Row",
    "Table",
    "Verdict",
    "judge",
    "read_rows",
    "render_page",
    "rows_from_json",
    "rows_to_json",
]
