"""Files with a secret: read within bounds, and never shown."""

import os

import pytest

from rocketlens.errors import BadInput
from rocketlens.net.secret_file import MAX_SECRET_BYTES, opened_regular, read_secret_file


def test_a_secret_is_read_without_the_ends_of_its_lines(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b" s3cret\r\n\n")
    seen = []
    secret = read_secret_file(path, "the file", on_opened=lambda *given: seen.append(given))
    assert secret == " s3cret"
    assert seen == [(path.stat().st_mode, path)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff hidden", "not UTF-8"),
        (b"hidden" * MAX_SECRET_BYTES, "over 4096 bytes"),
        (None, "cannot be read: No such file"),
    ],
)
def test_what_is_no_secret_is_refused_without_its_content_or_path(tmp_path, content, said):
    path = tmp_path / "hidden"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=f"^the file .*{said}") as refused:
        read_secret_file(path, "the file")
    assert "hidden" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_only_a_regular_file_is_opened_and_none_blocks(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, f"{tmp_path}/a\0b"):
        with pytest.raises(BadInput, match=r"^it "):
            opened_regular(type(tmp_path)(path), "it")
    with opened_regular(type(tmp_path)(os.devnull), "it") as file:
        assert file.read() == b""
