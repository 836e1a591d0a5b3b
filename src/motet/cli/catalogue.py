"""Every error code: what happened, why, and what to do. `motet explain CODE` prints an entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Entry:
    """What is said about one code.

    Attributes:
        title: a few words.
        happened: what motet found.
        why: how that comes about.
        todo: how to mend it.
    """

    title: str
    happened: str
    why: str
    todo: str


_CONFIG: Final = {
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

_CLI: Final = {
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

_TASKS: Final = {
    "E-TASK-01": Entry(
        "unknown task",
        "task.name names no task, or a setting was given that this task does not have.",
        'A task is "running_sums", or the path of a JSON-lines file, whose name ends in .jsonl.',
        "Correct task.name, or take the setting away.",
    ),
    "E-TASK-02": Entry(
        "task file cannot be read",
        "The file in task.name, task.test_file or task.ood_file does not exist or may not be read.",
        "Paths are relative to the folder in which motet was started.",
        "Check the path, or give a full one.",
    ),
    "E-TASK-03": Entry(
        "bad line in a task file",
        "A line of the task file is not a JSON object in UTF-8. The message says which line.",
        "The file is a JSON array, CSV, or was cut while being written.",
        'Write one object on each line: {"prompt": "3+5=", "answer": "8"}.',
    ),
    "E-TASK-04": Entry(
        "prompt or answer missing",
        "A row has no column for the prompt or the answer, or there is something else in it than text.",
        "Without task.prompt_column, motet looks for prompt, question, problem; without task.answer_column, for "
        "answer, solution, target. Lists of chat messages are not rendered.",
        'Name your columns: task.prompt_column = "input", task.answer_column = "output".',
    ),
    "E-TASK-05": Entry(
        "too few lines in a task file",
        "A task file has no lines, or nothing is left to train on after prompts are held out.",
        "Without task.test_file every tenth line is held out, and a prompt that is held out is never trained on.",
        "Add lines, or give a task.test_file with other prompts.",
    ),
    "E-TASK-06": Entry(
        "running sums that cannot be",
        "task.terms and task.ood_terms are empty, out of range, or have a number of terms in common.",
        "Out-of-distribution sums must be of lengths that are not trained on.",
        "Give lengths from 2 to 20, such as terms = [3, 4, 5, 6] and ood_terms = [7].",
    ),
    "E-REWARD-01": Entry(
        "reward function not found",
        "task.reward names no built-in reward, and no file, module or function that can be loaded.",
        'A reward is "exact", "numeric", "module:function" or "file.py:function"; paths are relative to the folder '
        "in which motet was started.",
        "Check the spelling. If the file itself fails to run, mend what the message says about it.",
    ),
    "E-REWARD-02": Entry(
        "reward function does not work",
        "The reward function was tried on two rows of the task before loading a model, and failed.",
        "It is called as TRL calls it: with keywords prompts, completions and every column of the task by name, each "
        "a list, and must return one number (or None) for each completion.",
        "Write def reward(completions, answer, **columns): return [float(...) for ...], and try it by hand.",
    ),
}

_MODELS: Final = {
    "E-MODEL-01": Entry(
        "unknown tiny model",
        "node.model begins with tiny: and names none of the models that come with motet.",
        "It is mistyped.",
        'Use "tiny:small" or "tiny:large".',
    ),
    "E-MODEL-02": Entry(
        "model cannot be loaded",
        "The folder or the hub's model in node.model is missing, incomplete, or not a causal language model.",
        "The folder needs config.json, weights in safetensors and a tokenizer that names an end token. A name is "
        "looked up on the Hugging Face hub, which needs a network unless it has been downloaded before. Code that "
        "comes with a model is never run.",
        "Check the path or name; HF_HUB_OFFLINE=1 and HF_HOME work as usual.",
    ),
    "E-MODEL-03": Entry(
        "model's logits cannot be reproduced",
        "The model computes its logits in another way than output layer times last hidden state.",
        "motet scores completions in pieces, without ever holding all logits, and checks first that its way gives "
        "what the model gives.",
        "Use another model. Architectures that scale or cap their logits are not supported.",
    ),
    "E-MODEL-04": Entry(
        "peft is missing",
        "A node has a lora table, and the package peft is not installed.",
        "LoRA is an extra, so that motet itself stays small.",
        "pip install 'motet[lora]'",
    ),
    "E-MODEL-05": Entry(
        "no such layer for LoRA",
        "node.lora.target_modules names a layer that the model does not have, or its output layer.",
        "Layers are called differently in different models; the message lists this model's.",
        'Take names from the list, or "all-linear".',
    ),
    "E-MODEL-06": Entry(
        "no such device",
        "node.device is a device that this machine, or this build of PyTorch, does not have.",
        "A CPU-only PyTorch sees no GPU; CUDA_VISIBLE_DEVICES hides some.",
        'Use "auto" or "cpu", or install a PyTorch built for your GPU.',
    ),
}

_RUNS: Final = {
    "E-RUN-01": Entry(
        "folder is in use for something else",
        "The folder <run.dir>/<run.name> exists and does not hold a run.",
        "A run has a folder to itself, so that nothing is overwritten.",
        "Choose another run.name or run.dir.",
    ),
    "E-RUN-02": Entry(
        "not a run directory",
        "The folder does not hold a run, its description is damaged, or a newer motet wrote it.",
        "Verbs that take RUN want the directory of one run, such as runs/sums, not the folder around it.",
        "Check the path; update motet if the message says so.",
    ),
    "E-RUN-03": Entry(
        "run exists",
        "A run of this name is there already.",
        "Runs are never overwritten.",
        "Resume it, choose another run.name, or delete its folder.",
    ),
    "E-RUN-04": Entry(
        "run is being worked on",
        "Another motet is at work in this run directory.",
        "Two processes that write the same files would spoil them.",
        "Wait for it or stop it: `ps PID` says what the process of the message is. Or choose another run.name.",
    ),
    "E-RUN-05": Entry(
        "no checkpoint",
        "The run, or the folder given for it, holds no checkpoint.",
        "The run has not come as far as its first checkpoint (run.checkpoint_every), or the path is mistyped.",
        "Wait for a checkpoint, continue the run with the command that started it, or check the path.",
    ),
    "E-DEMO-01": Entry(
        "a part of the demo stopped",
        "One of the runs that the demo compares ended before its time. The message has its last words and the file "
        "with all that it said.",
        "It was killed, memory or disk did not suffice, or it met an error of its own.",
        "Read its last words. The demo's run file can be run alone with `motet swarm`.",
    ),
    "E-RESUME-01": Entry(
        "run directory holds another configuration",
        "The run that lies there was started with other settings than the run file has now.",
        "A resumed run must end with the numbers of an uninterrupted one, so its settings may not change on the way.",
        "Restore the settings, choose another run.name, or delete that run with --clean. The settings that it was "
        "started with stand in its directory.",
    ),
    "E-RESUME-02": Entry(
        "a run's settings are damaged",
        "The file config.toml in the directory of the run is not TOML any more, so it cannot be told whether the run "
        "file still asks for the same run.",
        "The file was changed or cut off.",
        "Restore it from a copy, choose another run.name, or delete the run with --clean.",
    ),
    "E-CHECKPOINT-01": Entry(
        "damaged checkpoint",
        "A checkpoint is incomplete, or does not fit the run file or the model.",
        "A file in it was changed or lost. motet writes checkpoints aside and renames them, so an interruption alone "
        "does not do this.",
        "Remove the checkpoint's folder: the run then continues from the one before.",
    ),
    "E-LEARN-01": Entry(
        "gradients are not finite",
        "The gradient was infinite or not a number in many steps in a row. Such steps are skipped and counted; so "
        "many mean that the model is beyond repair.",
        "The learning rate is too high, or bf16 does not suffice for this model.",
        'Lower learner.learning_rate, lengthen learner.warmup_rounds, or set learner.precision = "fp32". The last '
        "checkpoint is from before.",
    ),
    "E-LEARN-02": Entry(
        "the model's outputs are not numbers",
        "While sampling, an output of the model was not a number (NaN).",
        "A step has broken the weights, or the model's folder holds broken ones.",
        "Lower learner.learning_rate and start anew, or delete the newest folder in checkpoints and run the same "
        "command.",
    ),
    "E-SWARM-01": Entry(
        "two nodes of one name",
        "Two nodes of the run have the same name.",
        "Groups, ledger and results are kept by node name.",
        "Give every [[node]] a name of its own.",
    ),
    "E-SWARM-02": Entry(
        "fewer prompts than a round needs",
        "rollout.prompts_per_round is larger than the number of training prompts in the task.",
        "A round draws different prompts, so the task must have that many.",
        "Lower rollout.prompts_per_round, or add prompts to the file.",
    ),
    "E-SWARM-03": Entry(
        "a node's process has ended",
        'Under swarm.transport = "pipes" every node has a process of its own, and one of them ended before the run '
        "did. The run has stopped, and its other processes with it.",
        "Somebody killed it, or the system did, mostly for want of memory (SIGKILL); or code that it calls, such as a "
        "reward function, ended the process.",
        "The same command goes on from the last checkpoint. If memory was short, lower learner.max_batch_tokens or "
        'the size of the models, or give swarm.transport = "memory", under which all nodes share one process.',
    ),
}

_FILES: Final = {
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

_BENCH: Final = {
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

CATALOGUE: Final[Mapping[str, Entry]] = MappingProxyType(
    {**_CONFIG, **_CLI, **_TASKS, **_MODELS, **_RUNS, **_FILES, **_BENCH}
)
"""Entries by code, in the order in which `motet explain` lists them."""
