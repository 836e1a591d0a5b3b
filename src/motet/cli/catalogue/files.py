"""Files and groups: E-ARCHIVE, E-JOURNAL, E-REPORT, E-WIRE."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
    "E-ARCHIVE-01": Entry(
        "damaged archive",
        "The archive of groups has a record that cannot be read, and others after it.",
        "The file was changed. A record torn by an interruption is at the end and is not an error.",
        "Restore the file from a copy. Groups before the damage can be read.",
    ),
    "E-ARCHIVE-02": Entry(
        "no such archive",
        "The archive of groups does not exist.",
        "The path is mistyped, or the run has not finished a round yet.",
        "Check the path.",
    ),
    "E-ARCHIVE-03": Entry(
        "not an archive",
        "The file does not begin like an archive of groups.",
        "It is another file, or an archive of another version of motet.",
        "Check the path: a run keeps its archives in its own directory. An archive of another version: use the motet "
        "that wrote it, or start anew under another run.name.",
    ),
    "E-ARCHIVE-04": Entry(
        "archive does not fit the checkpoint",
        "The run cannot be resumed, because its archive of groups is gone or not the one that the checkpoint knows.",
        "The file was deleted, replaced or cut after the checkpoint was written.",
        "Restore it from a copy, remove this checkpoint to resume from an older one, or start anew under another "
        "run.name.",
    ),
    "E-JOURNAL-01": Entry(
        "damaged journal",
        "A line of the journal is not a JSON object, and others follow it.",
        "The file was changed. A last line torn by an interruption is not an error.",
        "Restore the file from a copy, or delete that line.",
    ),
    "E-REPORT-01": Entry(
        "nothing to report yet",
        "The run has not finished a round.",
        "It has just started, or broke down before its first round ended.",
        "Wait for its first round, or see what the run itself said.",
    ),
    "E-REPORT-02": Entry(
        "damaged run directory",
        "A file of the run cannot be parsed.",
        "It was changed, or cut off.",
        "Restore it from a copy.",
    ),
    "E-REPORT-03": Entry(
        "report cannot be written",
        "The page, the picture or the JSON could not be written; the message has the system's reason.",
        "By default a report is written beside the run, which may be another user's.",
        "Choose other files with -o, --png or --json.",
    ),
    "E-REPORT-04": Entry(
        "one file for two things",
        "-o, --png, --md and --json name the same file.",
        "Each would overwrite the other.",
        "Give each a file of its own.",
    ),
    "E-WIRE-01": Entry(
        "malformed group",
        "Bytes from a peer are not a group.",
        "They were cut or changed on the way, or made to do harm.",
        "Nothing: the group is rejected and counted against that peer, and the run goes on.",
    ),
    "E-WIRE-02": Entry(
        "another wire version",
        "A group from a peer is in a version of the wire format that this motet does not read.",
        "The peer runs an older or newer motet.",
        "Bring both to the same version. Until then its groups are rejected and counted.",
    ),
    "E-WIRE-03": Entry(
        "group over a limit",
        "A group from a peer is larger than admission allows.",
        "It has more completions than admission.max_group_size, more bytes than admission.max_payload_bytes, or "
        "longer completions than the run.",
        "Raise the limit if the peer is right; otherwise nothing: the group is rejected and counted.",
    ),
}
