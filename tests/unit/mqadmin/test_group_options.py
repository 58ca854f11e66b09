"""Commands about groups: where to make or delete one has to be said."""

import pytest


@pytest.mark.parametrize("command", ["updateSubGroup", "deleteSubGroup"])
def test_a_group_is_not_changed_nowhere(mqadmin, command):
    done = mqadmin(command, "-g", "g")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "-b" in done.err


@pytest.mark.parametrize("text", ["a=b", "+a", "+a=1,+a=2", "-a=b"])
def test_attributes_are_set_with_plus_and_removed_with_minus(mqadmin, rocketmq, text):
    done = mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", "g", "--attributes", text)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "attributes" in done.err
