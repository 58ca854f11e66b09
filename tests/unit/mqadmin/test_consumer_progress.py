"""Groups of which something cannot be learnt are rows, and an error at the end."""


def test_a_group_without_offsets_is_refused_with_rocketmqs_code(mqadmin, rocketmq):
    done = mqadmin("consumerProgress", "-g", "never-seen")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "group never-seen: no name server knows a broker of it" in done.err
    everyone = mqadmin("consumerProgress")
    assert everyone.code == 0
    assert everyone.out.startswith("#Group ")
