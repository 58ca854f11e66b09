"""Lines of JSON for many rows at once: what is refused, and what bounds them."""

import pytest

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.formats.json_lines import json_lines
from tests.support.made_stores import make_store, some_messages
from tests.unit.formats.compiled.test_kernels_json import chunks_of


@pytest.fixture
def chunk(tmp_path):
    [found] = chunks_of(make_store(tmp_path / "store", some_messages(50)))
    return found


def test_rows_of_another_buffer_are_refused(chunk):
    with pytest.raises(BadInput):
        list(json_lines(chunk.content[:200], chunk.base_offset, chunk.rows))
    moved = chunk.rows.copy()
    moved["body_length"] = 1 << 30
    with pytest.raises(BadInput):
        list(json_lines(chunk.content, chunk.base_offset, moved))


def test_however_small_the_pieces_the_lines_are_the_same(chunk, monkeypatch):
    def written():
        pieces = json_lines(chunk.content, chunk.base_offset, chunk.rows)
        return b"".join(piece.text.tobytes() for piece in pieces)

    whole = written()
    assert whole.count(b"\n") == 50
    for size in (1, 5_000, 20_000):
        monkeypatch.setattr(limits, "MAX_JSON_PIECE_BYTES", size)
        assert written() == whole
