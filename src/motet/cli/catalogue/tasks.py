"""Tasks and rewards: E-TASK, E-REWARD."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
    "E-TASK-01": Entry(
        "unknown task",
        "task.name names no task, or a setting was given that this task does not have.",
        'A task is "running_sums", "gsm8k", "math500", "gym:<name>", an installed task, "module:Class", '
        '"file.py:Class", or the path of a JSON-lines file, whose name ends in .jsonl.',
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
    "E-TASK-07": Entry(
        "package of a task is missing",
        "gsm8k and math500 need the package datasets, gym:<name> needs reasoning-gym.",
        "They are an extra, since a run of other tasks needs none of them.",
        "pip install 'motet[tasks]'",
    ),
    "E-TASK-08": Entry(
        "arguments of a gym task do not work",
        "task.arguments holds a name that this task of reasoning-gym does not have, a value that it refuses, or "
        "arguments that leave too few different questions to hold a fifth of them out.",
        "The arguments are those of reasoning-gym, and `answer` of ours.",
        "Use the name that the message gives, or widen the arguments.",
    ),
    "E-TASK-09": Entry(
        "own task does not work",
        "The task class cannot be imported or made, lacks a member of motet.tasks.Task, gives another prompt for the "
        "same id, or a score that is none.",
        "It is tried on two rows before a model loads, because every node of a swarm must get the same from it.",
        "Mend the class where the message says.",
    ),
    "E-TASK-10": Entry(
        "task failed at a prompt",
        "An own task or one of reasoning-gym raised, or took too long, when it was asked for a prompt.",
        "Without the prompt there is nothing to sample from.",
        "Mend the task, or choose other arguments; the message has the line.",
    ),
    "E-TASK-11": Entry(
        "data set cannot be fetched",
        "The hub did not answer, and the data set is not in its cache on this machine.",
        "There is no network here, or the hub is down.",
        'Copy the data set into a folder and name it: "gsm8k:<folder>".',
    ),
    "E-TASK-12": Entry(
        "folder of a data set is not of the expected form",
        "The folder of gsm8k or math500 lacks a split, or a row lacks a column or has an answer that cannot be read.",
        "GSM8K has question and answer, with the result after ####; MATH-500 has problem, solution and answer.",
        "Compare the place in the message with the data set on the hub.",
    ),
    "E-TASK-13": Entry(
        "task has no training prompts",
        "The task has test prompts only.",
        "MATH-500 is a test set.",
        'Use it as task.ood = "math500", or in `motet eval --task math500`.',
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
    "E-REWARD-03": Entry(
        "process of a reward ended",
        "The process in which the reward function runs ended, or did not come up in time, before it scored anything.",
        "Own functions run in a process of their own, so that one that hangs can be stopped. Importing it failed hard.",
        "Import the file in a Python of your own and see what it says.",
    ),
    "E-REWARD-04": Entry(
        "math-verify is missing",
        'The rewards "math" and "boxed", and the tasks gsm8k and math500, compare answers with math-verify.',
        "It is an extra, since a run of other tasks does not need it.",
        "pip install 'motet[tasks]'",
    ),
}
