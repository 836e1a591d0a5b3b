"""`motet bench WHAT`: measure motet beside the alternative in one run, here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from motet.cli.options import add_json, at_least_one, new_file, write_results
from motet.errors import UsageError

SHAPES = {"short": (44, 24), "long": (200, 200)}
_MODEL_HELP = "smollm2-135m (its architecture, weights at random), tiny:small, tiny:large, or a folder [%(default)s]"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb's arguments."""
    parser = subparsers.add_parser(
        "bench",
        description="Measure motet beside the alternative, in one run: contestants take turns, each in a process of "
        "its own, and medians count. With --quick: only this version's fast paths against its plain ones, compared "
        "with stored ratios; exit code 1 if one got slower.",
    )
    parser.add_argument("--quick", action="store_true", help="compare with the stored ratios, in about two minutes")
    parser.add_argument("--store", action="store_true", help="with --quick: store the ratios instead")
    add_json(parser)
    kinds = parser.add_subparsers(title="what", metavar="WHAT", dest="what")
    _add_learner(kinds)
    _add_generate(kinds)
    wire = kinds.add_parser("wire", allow_abbrev=False, help="bytes and time of groups on the wire")
    _add_repeats(wire, 5)
    _add_overlap(kinds)
    _add_growth(kinds)
    for name, kind in kinds.choices.items():
        kind.prog = f"motet bench {name}"
        add_json(kind, default=argparse.SUPPRESS)  # the flag may stand before the word too


def run(args: argparse.Namespace) -> int:
    """Carry it out."""
    if args.store and not args.quick:
        raise UsageError("--store: stores what --quick measures; say both", code="E-CLI-02")
    if args.quick and args.what is not None:
        raise UsageError(f"--quick measures its own choice; leave out {args.what}", code="E-CLI-02")
    if not args.quick and args.what is None:
        raise UsageError(
            f"motet bench: say what to measure ({', '.join(_RUNS)}), or --quick; see `motet bench --help`",
            code="E-CLI-02",
        )
    return _quick(args) if args.quick else _RUNS[args.what](args)


def _add_learner(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = kinds.add_parser(
        "learner",
        allow_abbrev=False,
        help="one optimiser step, against TRL's GRPOTrainer",
        description="One optimiser step on the same batch by TRL's own training loop, by motet's plain (padded) paths "
        "and by its fast ones.",
    )
    parser.add_argument("--model", default="smollm2-135m", help=_MODEL_HELP)
    parser.add_argument("--lora", action="store_true", help="train an adapter of rank 16 instead of all weights")
    parser.add_argument("--shape", default="short", help="short (44,24), long (200,200) or PROMPT,COMPLETION [short]")
    parser.add_argument("--prompt", type=at_least_one, metavar="P", help="tokens of a prompt, +-10 %% [the shape's]")
    parser.add_argument(
        "--completion", type=at_least_one, metavar="C", help="longest completion; they begin at C/4 [the shape's]"
    )
    _add_batch(parser)
    parser.add_argument(
        "--batch",
        choices=("ftis", "full"),
        default="ftis",
        help="ftis: half external, half of those dropped, a third of the groups without variance; full: nothing to "
        "skip [ftis]",
    )
    _add_dtype(parser)
    _add_repeats(parser, 5)
    parser.add_argument("--arms", default="trl,plain,fast", help="of trl, trl-docs, plain, fast [trl,plain,fast]")
    parser.add_argument("--max-batch-tokens", type=at_least_one, default=4096, metavar="N", help="motet's [4096]")
    parser.add_argument(
        "--trl-rows", type=at_least_one, metavar="N", help="TRL's micro-batch, without checkpointing [tried out]"
    )


def _add_generate(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = kinds.add_parser(
        "generate",
        allow_abbrev=False,
        help="sampling, against model.generate",
        description="The same number of tokens sampled by model.generate as TRL calls it, by motet's plain paths and "
        "by its fast ones.",
    )
    parser.add_argument("--model", default="smollm2-135m", help=_MODEL_HELP)
    parser.add_argument("--prompt", type=at_least_one, default=44, metavar="P", help="tokens of a prompt, +-10 %% [44]")
    parser.add_argument("--new-tokens", type=at_least_one, default=32, metavar="N", help="of every completion [32]")
    _add_batch(parser)
    _add_dtype(parser)
    _add_repeats(parser, 5)
    parser.add_argument("--arms", default="hf,plain,fast", help="of hf, plain, fast [hf,plain,fast]")


def _add_overlap(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = kinds.add_parser(
        "overlap",
        allow_abbrev=False,
        help="rounds per second of two nodes: one process, two, one round ahead",
        description="`motet swarm` on two tiny nodes under several settings, in turn.",
    )
    parser.add_argument("--rounds", type=_at_least_four, default=24, metavar="N", help="of each run [24]")
    _add_repeats(parser, 3)


def _add_growth(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = kinds.add_parser(
        "growth",
        allow_abbrev=False,
        help="time and memory of a round as one thing grows",
        description="Sampling, wire and learning of one round, as prompts, completions, lengths, model or nodes grow "
        "one at a time.",
    )
    parser.add_argument("--factors", default="prompts,group_size,completion,model,nodes", help="what grows [all]")
    parser.add_argument("--steps", type=_at_least_two, metavar="N", help="the first N sizes only [all]")
    parser.add_argument("--png", type=new_file, metavar="FILE", help="also draw it")
    parser.add_argument("--md", type=new_file, metavar="FILE", help="also write the table as Markdown")
    _add_repeats(parser, 3)


def _add_batch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompts", type=_at_least_two, default=8, metavar="N", help="prompts [8]")
    parser.add_argument("--group-size", type=_at_least_two, default=8, metavar="G", help="completions of each [8]")


def _add_dtype(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dtype", choices=("auto", "fp32", "bf16"), default="auto", help="auto: the faster one here [auto]"
    )


def _add_repeats(parser: argparse.ArgumentParser, number: int) -> None:
    parser.add_argument(
        "--repeats", type=at_least_one, default=number, metavar="N", help="measured times of each [%(default)s]"
    )


def _learner(args: argparse.Namespace) -> int:
    from motet.bench import LearnerBench, bench_learner
    from motet.bench.arm import LEARNER_ARMS, choose_arms
    from motet.bench.models import BenchModel, check_model
    from motet.bench.process import split_words
    from motet.cli.bench_view import learner_lines, learner_table

    check_model(args.model)
    prompt, completion = _shape(args.shape)
    bench = LearnerBench(
        BenchModel(args.model, lora=args.lora),
        prompt=args.prompt or prompt,
        completion=args.completion or completion,
        prompts=args.prompts,
        group_size=args.group_size,
        kind=args.batch,
        dtype=args.dtype,
        repeats=args.repeats,
        arms=tuple(choose_arms(split_words(args.arms), LEARNER_ARMS)),
        max_batch_tokens=args.max_batch_tokens,
        trl_rows=args.trl_rows,
    )
    return _show(args, lambda say: bench_learner(bench, say=say, note=_note), learner_table, learner_lines)


def _generate(args: argparse.Namespace) -> int:
    from motet.bench.arm import GENERATE_ARMS, choose_arms
    from motet.bench.generate import GenerateBench, bench_generate
    from motet.bench.models import BenchModel, check_model
    from motet.bench.process import split_words
    from motet.cli.bench_view import generate_lines, generate_table

    check_model(args.model)
    bench = GenerateBench(
        BenchModel(args.model),
        prompt=args.prompt,
        prompts=args.prompts,
        group_size=args.group_size,
        new_tokens=args.new_tokens,
        dtype=args.dtype,
        repeats=args.repeats,
        arms=tuple(choose_arms(split_words(args.arms), GENERATE_ARMS)),
    )
    return _show(args, lambda say: bench_generate(bench, say=say), generate_table, generate_lines)


def _wire(args: argparse.Namespace) -> int:
    from motet.bench.wire import bench_wire
    from motet.cli.bench_view import wire_lines, wire_table

    return _show(args, lambda say: bench_wire(say=say, repeats=args.repeats), wire_table, wire_lines)


def _overlap(args: argparse.Namespace) -> int:
    from motet.bench.overlap import bench_overlap
    from motet.cli.bench_view import overlap_lines, overlap_table

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        return bench_overlap(say=say, note=_note, rounds=args.rounds, repeats=args.repeats)

    return _show(args, measure, overlap_table, overlap_lines)


def _growth(args: argparse.Namespace) -> int:
    from motet.bench.growth import FACTORS, bench_growth, growth_markdown
    from motet.bench.process import split_words
    from motet.cli.bench_view import growth_lines, growth_table

    factors = split_words(args.factors)
    unknown = next((word for word in factors if word not in FACTORS), None)
    if unknown is not None or not factors:
        raise UsageError(f'--factors: no factor "{unknown or ""}"; factors are {", ".join(FACTORS)}', code="E-BENCH-01")

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        result = bench_growth(say=say, factors=factors, repeats=args.repeats, steps=args.steps)
        if args.png is not None:
            from motet.bench.plots import draw_growth

            draw_growth(result, args.png)
        if args.md is not None:
            args.md.parent.mkdir(parents=True, exist_ok=True)
            args.md.write_text(growth_markdown(result), encoding="utf-8")
        return result

    return _show(args, measure, growth_table, growth_lines)


def _quick(args: argparse.Namespace) -> int:
    from motet.bench.ratios import EXPECTED, bench_quick, judge, read_expected, store_expected
    from motet.cli.bench_view import quick_lines, quick_table

    verdicts: list[Any] = []

    def measure(say: Callable[[str], None]) -> dict[str, Any]:
        result = bench_quick(say=say)
        if args.store:
            store_expected(result)
        verdicts.extend(judge(result["ratios"], read_expected()))
        result["verdicts"] = [
            {"name": verdict.name, "stored": verdict.stored, "least": verdict.least, "slower": verdict.slower}
            for verdict in verdicts
        ]
        return result

    _show(args, measure, quick_table, quick_lines)
    if args.store:
        print(f"stored in {EXPECTED}")
    for verdict in verdicts:
        if verdict.slower:
            print(
                f"slower: {verdict.name} is {verdict.found:.2f} now, stored {verdict.stored:.2f}, least "
                f"{verdict.least:.2f}",
                file=sys.stderr,
            )
    return int(any(verdict.slower for verdict in verdicts))


_RUNS: dict[str, Callable[[argparse.Namespace], int]] = {
    "learner": _learner,
    "generate": _generate,
    "wire": _wire,
    "overlap": _overlap,
    "growth": _growth,
}


def _show(
    args: argparse.Namespace,
    measure: Callable[[Callable[[str], None]], dict[str, Any]],
    table: Callable[[dict[str, Any]], Any],
    lines: Callable[[dict[str, Any]], list[str]],
) -> int:
    """Measure with progress on stderr, print table and lines, write the JSON."""
    from motet.cli.bench_view import Ticker
    from motet.cli.console import make_console

    with Ticker() as ticker:
        result = measure(ticker.say)
    if args.json is not None:
        write_results(args.json, result)
    console = make_console()
    console.print(table(result))
    for line in lines(result):
        console.print(line, soft_wrap=not console.is_terminal)
    return 0


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _shape(text: str) -> tuple[int, int]:
    """Prompt and completion of a shape."""
    words = text.split(",")
    if text in SHAPES:
        return SHAPES[text]
    if len(words) == 2 and all(word.strip().isdecimal() and int(word) > 0 for word in words):
        return int(words[0]), int(words[1])
    raise UsageError(
        f'--shape: got "{text}"; allowed: short (44,24), long (200,200), or two whole numbers PROMPT,COMPLETION',
        code="E-BENCH-01",
    )


def _at_least_two(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"got {text}; allowed: a whole number from 2 up")
    return int(text)


def _at_least_four(text: str) -> int:
    if not text.isdecimal() or int(text) < 4:
        raise argparse.ArgumentTypeError(f"got {text}; allowed: a whole number from 4 up")
    return int(text)
