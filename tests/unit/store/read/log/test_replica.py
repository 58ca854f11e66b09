"""A DLedger log beside where a commit log would be."""

import pytest

from rocketlens.errors import NotAStore
from rocketlens.formats import dledger
from rocketlens.store.read.log.replica import Replica


def make_replica(store, name="dledger-n0", *, offsets=(0, 500, 900)):
    root = store / name
    (root / "data").mkdir(parents=True)
    (root / "data" / f"{0:020}").write_bytes(bytes(100))
    (root / "index").mkdir()
    items = [dledger.INDEX_ITEM.pack(1, o, 1, n, 1) for n, o in enumerate(offsets)]
    (root / "index" / f"{0:020}").write_bytes(b"".join(items) + bytes(64))
    (root / "checkpoint").write_text("committedIndex=1\n")
    return root


def test_a_replica_knows_how_far_it_is_committed_and_learns_more(tmp_path):
    root = make_replica(tmp_path)
    replica = Replica.beside(tmp_path / "commitlog")
    assert replica.has_committed(548)
    assert not replica.has_committed(549)
    (root / "checkpoint").write_text("committedIndex=2\n")
    replica.look_again()
    assert replica.committed_to == 948


def test_what_is_committed_is_not_known_without_checkpoint_or_index(tmp_path):
    root = make_replica(tmp_path)
    (root / "index" / f"{0:020}").unlink()
    assert Replica(root).committed_to == -1
    (root / "checkpoint").unlink()
    assert Replica(root).committed_to == -1


def test_a_store_with_a_commit_log_has_no_replica(tmp_path):
    (tmp_path / "commitlog").mkdir()
    assert Replica.beside(tmp_path / "commitlog") is None


def test_two_logs_in_one_store_are_refused(tmp_path):
    make_replica(tmp_path)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(b"x")
    with pytest.raises(NotAStore, match="more than one log"):
        Replica.beside(tmp_path / "commitlog")
