"""`motet bench`: E-BENCH."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
    "E-BENCH-01": Entry(
        "nothing of that name to measure",
        "`motet bench` was given a model, an arm, a shape or a factor that it does not know.",
        "It is mistyped, or a model's folder has no config.json. Names from the hub are not taken here: a bench must "
        "not depend on a download.",
        "The message lists what there is; `motet bench WHAT --help` says more.",
    ),
    "E-BENCH-02": Entry(
        "no arm can take part",
        "Every arm that was asked for needs a package that is not installed.",
        "TRL is an extra: motet itself needs it for nothing.",
        "pip install 'motet[trl]', or name other arms with --arms.",
    ),
    "E-BENCH-03": Entry(
        "an arm broke down",
        "The process of an arm ended before it was done. The message has its last words.",
        "Killed by SIGKILL it was mostly too large for this machine's memory. Otherwise a package may have a version "
        "that the bench does not know.",
        "Choose a smaller shape, fewer completions or a smaller --trl-rows; or leave the arm out with --arms.",
    ),
}
