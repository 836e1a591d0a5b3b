"""`motet study`: E-STUDY."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
    "E-STUDY-01": Entry(
        "a study file has mistakes",
        "A key of the file is unknown, missing or of the wrong kind, or names a pair or an arm that is not there.",
        "A study file is not a run file: it has [study], [settings], a [pair.NAME] and an [arm.NAME] for each.",
        "The message names each key. configs/study/sums.toml is one to start from.",
    ),
    "E-STUDY-02": Entry(
        "a pair and an arm make no run file",
        "The settings of the study, of one of its pairs and of one of its arms, laid over one another, are wrong.",
        "A setting is mistyped, or the arm's settings contradict the pair's.",
        "The message names pair, arm and key. `motet study FILE --dry-run` checks all combinations.",
    ),
    "E-STUDY-03": Entry(
        "not the results of a study",
        "A file that should hold the rows of a study cannot be read, or holds something else.",
        "It was written by another version, or is not the study.json that `motet study` writes.",
        "Name the study.json, or write it again with `motet study FILE`: finished runs are not repeated.",
    ),
    "E-STUDY-04": Entry(
        "a study's folder holds runs of other settings",
        "Where a run of the study belongs, there is one that was trained with other settings.",
        "The study file or a --set has changed since then. Runs of different settings are never mixed into one page.",
        "Restore the settings, choose another study.name, or delete the folder that the message names. What a run was "
        "trained with stands in its config.toml.",
    ),
    "E-STUDY-05": Entry(
        "runs of a study stopped before their end",
        "Some runs failed. The others were done, and the page was written from those that are finished, if any.",
        "Memory or disk did not suffice, a process was killed, or the settings of an arm cannot be trained with.",
        "The message has the last words of the first few, and the files with all that they said. Mend it and give the "
        "same command again: finished runs are not repeated.",
    ),
}
