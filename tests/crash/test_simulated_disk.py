"""The simulated disk loses what it may lose, and nothing else."""

import random
import shutil

import pytest

from rocketlens.store.disk import Disk
from tests.support.simulated_disk import SECTOR_BYTES, PowerCut, SimDisk

IMAGES = 100


@pytest.fixture
def disk(in_memory):
    root = in_memory / "live"
    root.mkdir()
    (root / "old").write_bytes(b"old")
    disk = SimDisk(root)
    yield disk
    disk.close()


def outcomes(disk, look, mood=""):
    """Give everything that `look` sees in many images of this moment."""
    seen = set()
    for number in range(IMAGES):
        image = disk.root.with_name("image")
        disk.image(image, random.Random(number), mood)
        seen.add(look(image))
        shutil.rmtree(image)
    return seen


def content_of(name):
    """Give a look at one file: its bytes, None when it is not there."""
    return lambda image: (image / name).read_bytes() if (image / name).exists() else None


def tree_of(image):
    return tuple(sorted(str(path.relative_to(image)) for path in image.rglob("*")))


def test_sectors_are_written_or_not_one_by_one(disk):
    path = disk.root / "mapped"
    disk.make_file(path, 3 * SECTOR_BYTES, disk.root / "scratch")
    file = disk.open_file(path)
    file.sync()
    disk.sync_directory(disk.root)
    for sector in range(3):
        file.content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = b"x" * SECTOR_BYTES
    look = lambda image: content_of("mapped")(image)[::SECTOR_BYTES]  # noqa: E731
    seen = outcomes(disk, look)
    assert {bytes(s) for s in seen if set(s) <= {0, ord("x")}} == {
        bytes((a, b, c)) for a in (0, 120) for b in (0, 120) for c in (0, 120)
    }
    assert any(set(s) - {0, ord("x")} for s in seen), "garbage"
    file.sync()
    assert outcomes(disk, look) == {b"xxx"}
    file.close()


def test_two_directories_are_exchanged_whole_or_not_at_all(disk):
    for name in ("a", "b"):
        (disk.root / name).mkdir()
        (disk.root / name / name).write_bytes(b"")
        disk.sync_directory(disk.root / name)
    disk.sync_directory(disk.root)
    seen = []
    disk.on_event = lambda _: seen.extend(outcomes(disk, tree_of))
    disk.exchange_directories(disk.root / "a", disk.root / "b")
    assert set(seen) == {("a", "a/a", "b", "b/b", "old"), ("a", "a/b", "b", "b/a", "old")}
    disk.on_event = lambda _: None
    assert outcomes(disk, tree_of) == {("a", "a/b", "b", "b/a", "old")}


def test_what_is_written_in_the_middle_of_a_sync_is_not_in_it(disk):
    path = disk.root / "old"

    def meanwhile(what):
        if what.startswith("in sync"):
            path.write_bytes(b"won")

    disk.on_event = meanwhile
    disk.sync_file(path)
    assert outcomes(disk, content_of("old"), "mixed") == {b"old", b"won"}


def rename_before_syncing(disk, path, content):
    beside = path.with_name("beside")
    beside.write_bytes(content)
    beside.replace(path)
    disk.sync_file(path)
    disk.sync_directory(path.parent)


def rename_without_syncing_the_file(disk, path, content):
    beside = path.with_name("beside")
    beside.write_bytes(content)
    beside.replace(path)
    disk.sync_directory(path.parent)


def rename_without_syncing_the_directory(disk, path, content):
    beside = path.with_name("beside")
    beside.write_bytes(content)
    disk.sync_file(beside)
    beside.replace(path)


def write_in_place(disk, path, content):
    path.write_bytes(content)
    disk.sync_file(path)


def sync_the_wrong_directory(disk, path, content):
    beside = path.with_name("beside")
    beside.write_bytes(content)
    disk.sync_file(beside)
    beside.replace(path)
    disk.sync_directory(path.parent.parent)


def write_into_a_directory_nobody_synced(disk, path, content):
    path.parent.mkdir(exist_ok=True)
    beside = path.with_name("beside")
    beside.write_bytes(content)
    disk.sync_file(beside)
    beside.replace(path)
    disk.sync_directory(path.parent)


MISTAKES = (
    rename_before_syncing,
    rename_without_syncing_the_file,
    rename_without_syncing_the_directory,
    write_in_place,
    sync_the_wrong_directory,
    write_into_a_directory_nobody_synced,
)


def lost_by(write, disk):
    """Write a file twice with a power cut at each moment; gives what was read that may not be."""
    path = disk.root / "config" / "table"
    saved, wrong = [None], []

    def look():
        seen = outcomes(disk, content_of("config/table"))
        wrong.extend(content for content in seen if content not in saved[-2:])

    disk.on_event = lambda _: look()
    for content in (b"1" * 1000, b"2" * 1000):
        saved.append(content)
        write(disk, path, content)
        del saved[:-1]
        look()
    return wrong


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_writer_with_a_mistake_is_caught(disk, mistake):
    if mistake is not write_into_a_directory_nobody_synced:
        disk.make_directory_durably(disk.root / "config")
    assert lost_by(mistake, disk)


def test_a_file_that_is_written_durably_is_the_old_or_the_new(disk):
    assert lost_by(Disk.write_durably, disk) == []


def test_the_power_can_be_cut_between_any_two_lines_of_the_store(in_memory):
    root = in_memory / "live"
    root.mkdir()
    disk = SimDisk(root)
    moments = []

    def cut(what):
        moments.append(what)
        raise PowerCut

    disk.on_event = cut
    with pytest.raises(PowerCut), disk.between_lines(lambda: True):
        disk.open_file(root / "none")
    assert moments == ["__init__, line " + moments[0].rpartition(" ")[2]]
    disk.close()
