"""The command line and the disk: E-CLI, E-DISK."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
    "E-CLI-01": Entry(
        "unknown verb",
        "The word after `motet` is none of its verbs.",
        "It is mistyped, or belongs to a newer version.",
        "`motet --help` lists the verbs; `motet --version` says which version this is.",
    ),
    "E-CLI-02": Entry(
        "wrong arguments",
        "A verb got an argument that it does not know, or lacks one that it needs.",
        "Flags must be written out in full; abbreviations are not accepted.",
        "`motet VERB --help` lists the arguments of a verb.",
    ),
    "E-CLI-03": Entry(
        "unknown error code",
        "`motet explain` knows no such code.",
        "It is mistyped, or belongs to another version.",
        "`motet explain` without a code lists all.",
    ),
    "E-CLI-04": Entry(
        "no such task for the new run file",
        "`motet init --task` names neither a built-in task nor a file.",
        'A task is "running_sums", or a JSON-lines file with a prompt and an answer in each line.',
        "Check the path, which is relative to the current folder.",
    ),
    "E-CLI-05": Entry(
        "new file cannot be written there",
        "`motet init` would overwrite a file, or its folder does not exist.",
        "Nothing is overwritten unasked.",
        "Choose another name, create the folder, or say --force to overwrite.",
    ),
    "E-DISK-01": Entry(
        "disk full",
        "A file could not be written because the disk or the quota is full.",
        "Checkpoints hold weights and optimiser of every node, three times the size of a model or so each.",
        "Free some space, or set run.dir to another disk. What was written before stays usable: a checkpoint is "
        "written aside and renamed when it is whole.",
    ),
    "E-DISK-02": Entry(
        "not permitted",
        "A file or folder may not be read or written by this user, or lies on a read-only disk.",
        "Often a folder of another user, or one that a container has mounted read-only.",
        "Set run.dir to a folder of yours, or change who may write there.",
    ),
}
