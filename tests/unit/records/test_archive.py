from __future__ import annotations

import dataclasses
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from motet.errors import RunFailed, UsageError
from motet.records import Archive, Group, Rollout, SamplerInfo, decode_group, encode_group, read_archive
from motet.records.archive import read_groups, scan_archive


def make_group(round: int) -> Group:
    rollout = Rollout(np.array([1, 2, round], np.uint32), np.array([-0.1, -2, -1e-6], np.float32), "stop", 1.0)
    return Group("kim", round, f"train/{round}", SamplerInfo("tiny:small", round, 1.0, "9c1f"), (rollout, rollout))


def write(path: Path, rounds: range) -> list[int]:
    """Positions after each group, the first one before any."""
    with Archive(path) as archive:
        positions = [archive.position()]
        for round in rounds:
            archive.append(make_group(round))
            positions.append(archive.position())
    return positions


def rounds_in(path: Path) -> list[int]:
    return [group.round for group in read_archive(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive" / "kim.motet"


def test_groups_come_back_in_order_and_exactly(path: Path) -> None:
    write(path, range(5))
    read, written = (
        [encode_group(g, log_probs="exact") for g in groups]
        for groups in (
            read_archive(path),
            map(make_group, range(5)),
        )
    )
    assert read == written


def test_an_empty_archive_has_no_groups(path: Path) -> None:
    write(path, range(0))
    assert rounds_in(path) == []


def test_reopening_continues(path: Path) -> None:
    positions = write(path, range(2))
    assert write(path, range(2, 4))[0] == positions[-1]
    assert rounds_in(path) == [0, 1, 2, 3]


def test_every_group_is_readable_before_the_archive_is_closed(path: Path) -> None:
    with Archive(path) as archive:
        archive.append(make_group(0))
        assert rounds_in(path) == [0]
        assert archive.position() == path.stat().st_size


def test_sync_and_close_twice(path: Path) -> None:
    archive = Archive(path)
    archive.append(make_group(0))
    archive.sync()
    archive.close()
    archive.close()
    assert rounds_in(path) == [0]


def test_a_tear_at_every_byte_of_the_last_record(path: Path) -> None:
    positions = write(path, range(3))
    whole = path.read_bytes()
    for end in range(positions[2], positions[3]):
        path.write_bytes(whole[:end])
        assert rounds_in(path) == [0, 1]
        with Archive(path) as archive:
            assert archive.position() == positions[2]
            archive.append(make_group(9))
        assert rounds_in(path) == [0, 1, 9]


def test_a_tear_within_the_magic_leaves_an_empty_archive(path: Path) -> None:
    write(path, range(0))
    magic = path.read_bytes()
    for end in range(len(magic)):
        path.write_bytes(magic[:end])
        assert rounds_in(path) == []
        write(path, range(1))
        assert rounds_in(path) == [0]


def test_a_last_record_whose_data_never_arrived_is_torn(path: Path) -> None:
    positions = write(path, range(3))
    whole = path.read_bytes()
    for tail in (bytes(40), whole[positions[2] : positions[3] - 20] + bytes(20)):
        path.write_bytes(whole[: positions[2]] + tail)
        assert rounds_in(path) == [0, 1]
        with Archive(path) as archive:
            assert archive.position() == positions[2]


def test_damage_at_every_byte_in_the_middle_names_file_and_offset(path: Path) -> None:
    positions = write(path, range(3))
    whole = path.read_bytes()
    for position in range(positions[1], positions[2]):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        groups = read_archive(path)
        assert next(groups).round == 0
        with pytest.raises(RunFailed, match=f"kim.motet: damaged at byte {positions[1]}") as caught:
            next(groups)
        assert caught.value.code == "E-ARCHIVE-01"


def test_a_damaged_archive_is_not_continued(path: Path) -> None:
    positions = write(path, range(3))
    damaged = bytearray(path.read_bytes())
    damaged[positions[1] + 20] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(RunFailed, match="damaged"):
        Archive(path)
    assert path.read_bytes() == damaged


def test_zeros_in_the_middle_are_damage(path: Path) -> None:
    positions = write(path, range(3))
    whole = path.read_bytes()
    path.write_bytes(whole[: positions[1]] + bytes(positions[2] - positions[1]) + whole[positions[2] :])
    with pytest.raises(RunFailed, match="damaged"):
        rounds_in(path)


def test_a_record_that_is_whole_but_no_group_is_damage(path: Path) -> None:
    positions = write(path, range(1))
    payload = b"no group"
    frame = struct.pack("<II", len(payload), zlib.crc32(payload))
    with path.open("ab") as file:
        file.write(frame + struct.pack("<I", zlib.crc32(frame)) + payload)
    with pytest.raises(RunFailed, match=f"byte {positions[1]}") as caught:
        rounds_in(path)
    assert caught.value.code == "E-ARCHIVE-01"


def test_a_resumed_run_cuts_to_its_checkpoint(path: Path) -> None:
    positions = write(path, range(4))
    with Archive(path, keep_bytes=positions[2]) as archive:
        assert archive.position() == positions[2]
        archive.append(make_group(2))
    assert rounds_in(path) == [0, 1, 2]


def test_a_resumed_run_may_cut_everything_or_nothing(path: Path) -> None:
    positions = write(path, range(2))
    Archive(path, keep_bytes=positions[-1]).close()
    assert rounds_in(path) == [0, 1]
    Archive(path, keep_bytes=positions[0]).close()
    assert rounds_in(path) == []


def test_damage_after_the_checkpoint_does_not_hinder_the_resumption(path: Path) -> None:
    positions = write(path, range(3))
    damaged = bytearray(path.read_bytes())
    damaged[positions[1] + 20] ^= 1
    path.write_bytes(damaged)
    Archive(path, keep_bytes=positions[1]).close()
    assert rounds_in(path) == [0]


@pytest.mark.parametrize("offset", [-1, 1, 10_000])
def test_a_position_where_no_group_ends_is_refused(path: Path, offset: int) -> None:
    positions = write(path, range(2))
    before = path.read_bytes()
    with pytest.raises(RunFailed, match="no group ends at byte") as caught:
        Archive(path, keep_bytes=positions[1] + offset)
    assert caught.value.code == "E-ARCHIVE-04"
    assert path.read_bytes() == before


def test_a_resumption_without_its_archive_is_refused(path: Path) -> None:
    with pytest.raises(RunFailed, match="gone") as caught:
        Archive(path, keep_bytes=8)
    assert caught.value.code == "E-ARCHIVE-04"
    assert not path.exists()


def test_a_missing_file(path: Path) -> None:
    with pytest.raises(UsageError, match=r"kim\.motet: no such archive") as caught:
        rounds_in(path)
    assert caught.value.code == "E-ARCHIVE-02"


@pytest.mark.parametrize("data", [b"{}", b"MOTETA" + bytes(40), b"name,reward\nkim,1\n"])
def test_a_file_that_is_no_archive_is_left_alone(path: Path, data: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(data)
    for attempt in (rounds_in, Archive):
        with pytest.raises(UsageError, match="not an archive") as caught:
            attempt(path)
        assert caught.value.code == "E-ARCHIVE-03"
    assert path.read_bytes() == data


@pytest.mark.parametrize("magic", [b"MOTETAR1", b"MOTETAR3"])
def test_an_archive_of_another_version_is_left_alone(path: Path, magic: bytes) -> None:
    write(path, range(2))
    data = magic + path.read_bytes()[8:]
    path.write_bytes(data)
    for attempt in (rounds_in, Archive, lambda path: Archive(path, keep_bytes=8)):
        with pytest.raises(UsageError, match=r"kim\.motet: .*another version.*MOTETAR2.*run\.name") as caught:
            attempt(path)
        assert caught.value.code == "E-ARCHIVE-03"
    assert path.read_bytes() == data


def test_log_probs_are_kept_to_the_last_bit(path: Path) -> None:
    write(path, range(1))
    (group,) = read_archive(path)
    assert group.rollouts[0].logp_gen.tobytes() == make_group(0).rollouts[0].logp_gen.tobytes()
    received = decode_group(encode_group(group))
    assert received.rollouts[0].logp_gen.tobytes() != group.rollouts[0].logp_gen.tobytes()


def test_own_groups_beyond_the_limits_for_peers_are_read(path: Path) -> None:
    group = make_group(0)
    group = dataclasses.replace(group, rollouts=group.rollouts * 100)
    with Archive(path) as archive:
        archive.append(group)
    assert [len(group.rollouts) for group in read_archive(path)] == [200]


def test_groups_are_found_again_where_a_scan_met_them(path: Path) -> None:
    write(path, range(4))
    offsets = [offset for offset, _ in scan_archive(path)]
    assert [group.round for group in read_groups(path, [offsets[3], offsets[0]])] == [3, 0]
    with pytest.raises(RunFailed, match=f"damaged at byte {offsets[1] + 1}"):
        list(read_groups(path, [offsets[1] + 1]))
