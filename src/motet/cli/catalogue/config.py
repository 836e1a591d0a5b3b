"""The run file and `--set`: E-CONFIG."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
    "E-CONFIG-01": Entry(
        "run file cannot be read",
        "The run file is missing, empty, too large, a folder, or not text in UTF-8.",
        "Mostly a mistyped path, or a command started in another folder than the path is relative to.",
        "Check the path. `motet init FILE` writes a run file to start from. Some editors on Windows save UTF-16: "
        "choose UTF-8 when saving.",
    ),
    "E-CONFIG-02": Entry(
        "run file is not TOML",
        "The run file breaks the rules of TOML at the line and column of the message.",
        "Text needs quotes, true and false are written small, a key or section stands once only, and a table in "
        "{ } stands on one line. YAML and JSON are not TOML.",
        "Mend that line. Compare with the file that `motet init` writes.",
    ),
    "E-CONFIG-03": Entry(
        "wrong settings",
        "Settings have names or values that motet does not know, or contradict each other. Every mistake has a line "
        "of its own: file and line (or the --set flag), the setting, what is wrong, and what is allowed.",
        "Unknown names are refused, because a mistyped setting would otherwise be ignored in silence. Names of TRL, "
        "prime-rl and verl are translated in the message, and never accepted as they are.",
        "Change the settings as the lines say. `motet init` writes a file with all settings and what they mean; "
        "`motet init --schema motet.schema.json` writes a schema with which editors complete and check run files.",
    ),
    "E-CONFIG-04": Entry(
        "--set cannot be carried out",
        "A --set flag is not of the form section.key=value, or names a node that the run file does not have.",
        "The value is read as TOML, and as text where it is none. A node is named by its name or its number from 0.",
        "Write for example: --set rollout.group_size=16 --set node.small.model=tiny:large. Quote the flag for the "
        "shell where its value has blanks or brackets: --set 'task.terms=[3, 4]'.",
    ),
}
