"""What goes to other tools: `motet export` and trackers: E-EXPORT, E-TRACK."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
    "E-EXPORT-01": Entry(
        "folder is there already",
        "`motet export -o` names a folder that holds something, or a file.",
        "Nothing is overwritten unasked.",
        "Name another folder, or delete that one.",
    ),
    "E-EXPORT-02": Entry(
        "exported model computes something else",
        "The exported folder was loaded in plain transformers (an adapter with peft), and could not be loaded or gave "
        "other log-probs than the run's model. The folder has been removed.",
        "The base model has changed since the run (a hub model without node.revision may), or a library writes or "
        "reads this architecture wrongly.",
        "Pin node.revision, try --merge (or without it), and report it if it stays.",
    ),
    "E-EXPORT-03": Entry(
        "cannot be exported in this form",
        "--merge was asked for a node without an adapter or with one that cannot be merged, or an adapter was to be "
        "exported whose base is no Hugging Face folder or hub model.",
        "An adapter's folder names its base by path or hub name; a GGUF file or package cannot stand there. Some "
        "adapters, such as prompts that are learned, are no change of weights.",
        "Leave --merge away, or add it: a merged model is whole and needs no base.",
    ),
    "E-TRACK-01": Entry(
        "a tracker's package is missing",
        "run.trackers names a tracker whose package, or accelerate, is not installed.",
        "Trackers are optional: the journal in the run's directory is complete without them.",
        "Install what the message says, or take the name out of run.trackers.",
    ),
}
