"""Findings of ``rocketlens doctor``, and how they are printed."""

from rocketlens.cli.doctor.doctor import (
    about,
    fail,
    free_space,
    guarded,
    listed,
    ok,
    print_check,
    warn,
)


def test_what_mends_it_ends_the_line(capsys):
    print_check(warn("disk", "full", "make room"))
    assert capsys.readouterr().out == "warn  disk           full; to mend: make room\n"


def test_a_terminal_gets_lines_that_fit_it(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_check(warn("consume queues", "word " * 30, "rocketlens index build --queues"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 60
    assert all(line.startswith(" " * 21) for line in lines[1:])
    assert "--queues" in " ".join(lines)


def test_only_the_first_of_many_alike_are_listed():
    found = list(listed(warn("queue", str(number), "mend it") for number in range(13)))
    assert [each.detail for each in found[:10]] == [str(number) for number in range(10)]
    assert found[10:] == [warn("queue", "3 more like these", "mend it")]
    assert list(listed([ok("a", "b")])) == [ok("a", "b")]


def test_what_a_check_raises_is_its_failure():
    def broken():
        yield about("before", "it")
        raise ImportError("numpy says no")

    before, failed = guarded(broken, "kernels")
    assert before.name == "before"
    assert (failed.state, failed.detail) == ("fail", "ImportError: numpy says no")
    assert failed.mend


def test_a_disk_without_room_for_a_rebuild_is_a_warning(tmp_path):
    assert free_space("disk", tmp_path, 1).state == "ok"
    check = free_space("disk", tmp_path, 1 << 60)
    assert check.state == "warn"
    assert "--out DIR" in check.mend


def test_terminals_do_not_obey_what_is_printed(capsys):
    print_check(fail("store", "\x1b[2J", "x"))
    assert "\x1b" not in capsys.readouterr().out
