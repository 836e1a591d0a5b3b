"""`motet export RUN -o FOLDER`: a node's model as an ordinary Hugging Face folder."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from motet.cli.options import new_folder
from motet.cli.targets import find_run, one_node
from motet.config import NodeSettings, RunFile, load_run_file
from motet.errors import UsageError
from motet.journal import RunDir

if TYPE_CHECKING:
    from motet.integrations.hf_folder import Base
    from motet.models import Policy

_NUM_SAMPLES: Final = 3
_NUM_IDS: Final = 64


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "export",
        description="Write a node's model as an ordinary Hugging Face folder: weights or adapter, tokenizer with chat "
        "template, generation config, and a model card. The folder is then loaded in plain transformers and must give "
        "the log-probs of the run's model.",
    )
    parser.add_argument("run", metavar="RUN", help="run directory, or its checkpoints/round_N")
    parser.add_argument("--node", help="which node's model; may be left out where there is one node only")
    parser.add_argument("--checkpoint", metavar="round_N", help="this checkpoint [the latest]")
    parser.add_argument("--best", action="store_true", help="the run's best checkpoint (run.keep_best)")
    parser.add_argument("--merge", action="store_true", help="put a trained adapter into the weights: a whole model")
    parser.add_argument("-o", "--output", metavar="FOLDER", type=new_folder, required=True, help="folder to make")


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    target = find_run(args.run)
    if target is None:
        RunDir.open(Path(args.run))  # says what is wrong with it
        raise AssertionError("a run that can be opened is found")
    run_file = load_run_file(target.run_dir.config)
    settings = one_node(run_file, args.node, path=target.run_dir.path)
    if args.merge and settings.lora is None and settings.peft is None:
        raise UsageError(
            f"--merge: node {settings.name} trains no adapter; leave it out, the export is a whole model anyway",
            code="E-EXPORT-03",
        )
    folder = target.folder(name=args.checkpoint, best=args.best)

    from motet.cli.console import working
    from motet.integrations.hf_folder import export_policy, refuse_to_overwrite
    from motet.node import policy_at

    refuse_to_overwrite(args.output)
    with working("exporting"):
        base = _base(settings, merge=args.merge)
        policy = policy_at(run_file, settings, folder)
        check = export_policy(
            policy,
            args.output,
            base=base,
            merge=args.merge,
            card=_card(args, run_file, target.run_dir, settings, policy, folder, base),
            chat_template=_chat_template(run_file),
            samples=_samples(target.run_dir, settings, policy),
        )
    print(f"wrote {args.output}")
    print(
        f"loaded in plain transformers{' and peft' if base is not None else ''}: log-probs of {check.num_tokens} "
        f"tokens differ by at most {check.max_difference:.2g} nats"
    )
    return 0


def _base(settings: NodeSettings, *, merge: bool) -> Base | None:
    """What an adapter's folder names as its base; None where the folder holds a whole model."""
    from motet.integrations.hf_folder import Base
    from motet.models.sources import find_source

    if merge or (settings.lora is None and settings.peft is None):
        return None
    source = find_source(settings.model, settings.revision, weights=False)
    if source.gguf is not None:
        raise UsageError(
            f"node {settings.name}: its base {settings.model!r} is a GGUF file, and an adapter's folder must name a "
            "Hugging Face folder or hub model; --merge writes a whole model",
            code="E-EXPORT-03",
        )
    if source.hub_name is not None:
        return Base(source.hub_name, source.commit)
    return Base(str(source.folder.resolve()))


def _card(
    args: argparse.Namespace,
    run_file: RunFile,
    run_dir: RunDir,
    settings: NodeSettings,
    policy: Policy,
    folder: Path,
    base: Base | None,
) -> str:
    from motet.integrations.model_card import Form, Subject, license_of, model_card
    from motet.models.sources import find_source

    source = find_source(settings.model, settings.revision, weights=False)
    form: Form = "adapter" if base is not None else "merged" if args.merge else "model"
    subject = Subject(
        settings,
        form,
        num_parameters=policy.num_parameters,
        num_trained=sum(parameter.numel() for parameter in policy.trainable().values()),
        rounds_done=int(folder.name.removeprefix("round_")),
        hub_name=source.hub_name,
        commit=source.commit,
        license="apache-2.0" if settings.model.startswith("tiny:") else license_of(source.folder),
    )
    name = args.output.absolute().name
    return model_card(run_file, run_dir, subject, name=name, base=settings.model if base is None else base.name)


def _chat_template(run_file: RunFile) -> str | None:
    """Text of the run's own template, which was read to load the model."""
    template = run_file.prompt.template
    return None if template is None else Path(template).read_text(encoding="utf-8")


def _samples(run_dir: RunDir, settings: NodeSettings, policy: Policy) -> list[list[int]]:
    """Completions that the node sampled in the run, those of a group in one row; some ids without its archive.

    Prompts are left out: whether two models compute the same does not hang on them, and the task may be gone.
    """
    from motet.records import read_archive

    archive = run_dir.archive(settings.name)
    groups = islice(read_archive(archive), _NUM_SAMPLES) if archive.is_file() else ()
    rows = [[int(i) for rollout in group.rollouts for i in rollout.token_ids] for group in groups]
    return rows or [list(range(min(_NUM_IDS, policy.vocab_size)))]
