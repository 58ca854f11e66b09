"""``rocketlens doctor``: what it checks, and its exit codes. The checks have tests of their own."""


def test_without_store_and_cluster_only_the_machine_is_checked(run):
    done = run("doctor")
    assert done.code == 0
    assert "store" not in {line.split()[1] for line in done.out.splitlines()}


def test_a_check_that_fails_is_code_1(run, tmp_path):
    assert run("doctor", "--store", tmp_path).code == 1


def test_a_store_and_a_cluster_at_once_are_refused(run, tmp_path):
    done = run("doctor", "--store", tmp_path, "--namesrv", "127.0.0.1:1")
    assert done.code == 2
    assert "give only one" in done.err
