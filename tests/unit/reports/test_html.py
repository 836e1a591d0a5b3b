"""The page: order, escaping, no network, size."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from motet.journal import JsonLinesWriter
from motet.reports import compare, read_run, write_report
from motet.reports.html import render_page

WriteRun = Callable[..., Path]

HOSTILE = "<img src=x onerror=alert(1)>\"'&</title></style><script>alert(2)</script>"
FORBIDDEN = {"script", "img", "iframe", "object", "embed", "link", "a", "form", "base", "image", "foreignobject"}


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def _page(*paths: Path) -> tuple[str, Page]:
    html = render_page(compare([read_run(path) for path in paths]))
    return html, Page(html)


@pytest.fixture(scope="module")
def three(three_runs: list[Path]) -> tuple[str, Page]:
    return _page(*three_runs)


def test_order_verdict_first(three: tuple[str, Page]) -> None:
    _, page = three
    headings = [
        "F-TIS ends level", "Held-out accuracy", "Differences at the end", "Curves", "Cost", "Who learned from whom",
        "Time per phase", "Events", "Settings", "Run it again", "Runs, seeds and versions",
    ]  # fmt: skip
    positions = [page.text.find(heading) for heading in headings]
    assert -1 not in positions
    assert positions == sorted(positions)
    assert "loss" not in page.text.lower()


def test_the_numbers_are_on_it(three: tuple[str, Page]) -> None:
    _, page = three
    for text in (
        "43.0 \u00b1 1.0 %",
        "5,120",
        "6.10",
        "2 duplicate; 1 bad_logp",
        "1,400 advantage; 160 kl",
        "39 %",
        "4.0 s (50 %)",
        "17 %",
        "large left",
        "method.name",
        "run.name=sums-again",
        "finished, 20 of 20 rounds",
    ):
        assert text in page.text, text


def test_no_network_and_no_script(three: tuple[str, Page]) -> None:
    html, page = three
    assert "http://" not in html
    assert "https://" not in html
    assert "//" not in html.replace("</", "")
    assert not FORBIDDEN & set(page.tags)
    assert all(value.startswith("#") for name, value in page.attributes if name in {"src", "href", "xlink:href"})
    policy = next(value for name, value in page.attributes if name == "content")
    assert policy.startswith("default-src 'none';")
    assert "script" not in policy


def test_texts_of_strangers_stay_text(write_run: WriteRun) -> None:
    path = write_run("f_tis", name=HOSTILE, nodes={HOSTILE: {"test": (0.3, 0.4)}, "small": {"test": (0.3, 0.4)}})
    with JsonLinesWriter(path / "events.jsonl") as events:
        events.write({"kind": HOSTILE, "round": 3, "node": HOSTILE, "text": HOSTILE})
    summary = json.loads((path / "summary.json").read_text())
    summary["nodes"]["small"]["ledger"] = {HOSTILE: {"received": 1, "rejected": {HOSTILE: 1}, "dropped": {HOSTILE: 2}}}
    summary["nodes"]["small"]["model"] = HOSTILE
    summary["nodes"][HOSTILE]["accuracy"][HOSTILE] = summary["nodes"][HOSTILE]["accuracy"]["test"]
    (path / "summary.json").write_text(json.dumps(summary))
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(info | {"platform": HOSTILE, HOSTILE: HOSTILE}))
    _, page = _page(path)
    assert not FORBIDDEN & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count(HOSTILE) >= 8
    assert page.tags.count("title") == 1
    assert page.tags.count("style") >= 1


def test_an_interrupted_run_by_itself(write_run: WriteRun) -> None:
    _, page = _page(write_run("f_tis", is_finished=False, nodes={"small": {"test": (0.3, 0.4)}}))
    for text in ("change", "small improved", "interrupted after round 20 of 20", "interrupted, 20 of 20 rounds"):
        assert text in page.text, text


def test_a_run_with_next_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bare"
    path.mkdir()
    (path / "run.json").write_text('{"journal_version": 1}')
    (path / "metrics.jsonl").write_text('{"round": 0, "node": "a", "reward/mean": null}\n')
    _, page = _page(path)
    for text in ("nothing to judge yet", "No groups of peers", "The runs wrote no times", "left no config.toml"):
        assert text in page.text


def test_three_nodes_and_300_rounds_stay_below_two_megabytes(write_run: WriteRun, tmp_path: Path) -> None:
    nodes = {name: {"test": (0.3, 0.5), "ood": (0.1, 0.2)} for name in ("small", "medium", "large")}
    runs = [write_run(method, rounds=300, evaluate_every=10, nodes=nodes) for method in ("on_policy", "f_tis", "nois")]
    write_report(runs, html=tmp_path / "out" / "r.html", png=None)
    assert 50_000 < (tmp_path / "out" / "r.html").stat().st_size < 1_000_000
