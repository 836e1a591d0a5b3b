"""Runs, checkpoints, learning and nodes: E-RUN, E-RESUME, E-CHECKPOINT, E-DEMO, E-METHOD, E-LEARN, E-SWARM."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
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
    "E-METHOD-01": Entry(
        "function of the method not found",
        "method.weights or method.rule names no file, module or function that can be loaded.",
        'Functions are named "file.py:function" or "module:function"; paths are relative to the folder in which motet '
        "was started.",
        "Check the spelling. If the file itself fails to run, mend what the message says about it.",
    ),
    "E-METHOD-02": Entry(
        "function of the method does not work",
        "The function that method.weights or method.rule names raised an error, or returned something else than it "
        "must: at the start, where it is tried on two completions, or later in a round.",
        "Weights are called as f(logp_old_BT, logp_gen_BT, mask_BT) and return floats of that shape, 0 or more. Rules "
        "are called as f(advantage_B, kl_B, is_external_B) and return booleans, true where a completion is kept. Both "
        "see a part of a batch at a time.",
        "Mend what the message says; 'A method of your own' in docs/method.md has two functions that work. A run that "
        "stopped in a round is continued by the command that started it.",
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
    "E-SWARM-04": Entry(
        "nodes see different prompts",
        "Two nodes of a swarm that share completions have another task or tokenizer, or turn the same prompt into "
        "other token ids.",
        "Completions travel as token ids and their rewards are computed again: of other prompts both would be wrong, "
        "and nothing would show it. Mostly the models come with different chat templates.",
        'Use models of one tokenizer; give both the same template in prompt.template, or prompt.format = "raw".',
    ),
    "E-RESUME-03": Entry(
        "run began with other prompts",
        "The run was begun with another task, tokenizer, chat template or commit of a model than are there now.",
        "A file of the task was changed, a package was updated, or a model on the hub was.",
        "Bring back what has changed (node.revision pins a model), or begin a run of another name.",
    ),
}
