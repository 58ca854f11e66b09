"""Progress of Spark jobs, as a command shows it."""

from rocketlens.cli.jobs import spark


def test_progress_is_a_line_a_phase_where_no_terminal_is(capsys):
    show = spark.ProgressLine()
    for done in range(3):
        show("read", done, 2)
    assert capsys.readouterr().err == "read: 2 of 2, 0.0 s\n"


def test_progress_moves_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    show = spark.ProgressLine()
    show("read", 1, 2)
    show("read", 2, 2)
    said = capsys.readouterr().err
    assert said.count("\r") == 2
    assert said.endswith("2/2  0.0 s\n")
