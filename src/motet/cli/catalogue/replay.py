"""`motet replay`: E-REPLAY."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
    "E-REPLAY-01": Entry(
        "nothing to replay",
        "The archives hold no group.",
        "The run has not finished a round, sampled on another machine, or is itself a replay, which samples nothing.",
        "Name a run that has sampled, or an archive/NODE.motet of one. A node on a network keeps its own groups only: "
        "name the run directories of all nodes.",
    ),
    "E-REPLAY-02": Entry(
        "an archive without its run",
        "The archive does not lie in the directory of a run, so its task, method and models are not known.",
        "It was copied or moved. Groups name prompts and do not hold them.",
        "Give the run file with --file, or name the archive where it was written.",
    ),
    "E-REPLAY-03": Entry(
        "groups of another tokenizer or other prompts",
        "The stored groups were sampled for other prompts than the model would see, or by models of another tokenizer.",
        "Groups hold token ids, which mean nothing to another tokenizer, and numbers of prompts, which stand for other "
        "prompts in another task or under another chat template.",
        "Choose a model of the same tokenizer, and leave task and [prompt] as they were. Rewards may change: "
        "completions are scored again.",
    ),
    "E-REPLAY-04": Entry(
        "run directory holds something else",
        "The directory of this name holds a replay of other archives, or of archives that have changed since; or a run "
        "that is no replay where one should be, or the other way round.",
        "A replay that goes on must end with the numbers of an uninterrupted one, so what it learns from may not "
        "change on the way.",
        "Name the same archives in the same order, choose another name, or begin anew with --clean.",
    ),
    "E-REPLAY-05": Entry(
        "settings do not fit a replay",
        "A replay trains one node, in one process, from groups that it did not sample.",
        'method.name = "on_policy" learns from fresh completions of its own alone, and '
        'admission.max_influence = "by_gradient" compares with them; transports and paces are for several nodes.',
        "The message names the setting. --set method.name=f_tis replays a run that was trained alone.",
    ),
}
