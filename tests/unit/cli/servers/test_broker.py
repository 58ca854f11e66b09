"""``rocketlens broker``; running ones are tested with ``serve``."""

from rocketlens.main import build_parser


def test_a_broker_without_a_name_server_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    done = run("broker")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "name server" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_broker_builds_its_index_itself_unless_told_otherwise():
    assert build_parser(["broker"]).parse_args(["broker"]).index_builder == "inline"
    assert build_parser(["serve"]).parse_args(["serve"]).index_builder == "auto"
