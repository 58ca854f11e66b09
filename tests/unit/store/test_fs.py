"""Files are mapped, listed and read in parts, and holes in them are left out."""

from rocketlens.store import fs


def test_written_parts_leave_out_holes(tmp_path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 20)
        file.seek(300_000)
        file.write(b"x")
    parts = list(fs.data_extents(path, 0, 1 << 20))
    assert all(low <= high for low, high in parts)
    assert any(low <= 300_000 < high for low, high in parts)
    assert list(fs.data_extents(path, 10, 10)) == []
    path.unlink()
    assert list(fs.data_extents(path, 5, 99)) == [(5, 99)]


def test_a_small_file_is_copied_and_a_part_can_be_mapped(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789" * 1000)
    copied = fs.MappedFile(path, copy_bytes=20_000)
    assert isinstance(copied.content, bytes)
    assert bytes(fs.MappedFile(path, 12).view) == b"012345678901"
    assert len(fs.MappedFile(path, 10**9)) == 10_000
