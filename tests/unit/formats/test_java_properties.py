"""Java's properties files."""

from hypothesis import given
from hypothesis import strategies as st

from rocketlens.formats import java_properties


def test_a_broker_conf_is_read_as_java_reads_it():
    text = (
        "# comment\n! comment\n\nbrokerName=broker-a\n  listenPort : 10911 \ndeleteWhen 04\n"
        "path=C:\\\\store\\ttab\\u00e9\nlong = one \\\n    two\nkey\\ with\\=odd=1=2\n"
        "empty=\nalone"
    )
    assert java_properties.loads(text) == {
        "brokerName": "broker-a",
        "listenPort": "10911 ",
        "deleteWhen": "04",
        "path": "C:\\store\ttab\xe9",
        "long": "one two",
        "key with=odd": "1=2",
        "empty": "",
        "alone": "",
    }


@given(st.text())
def test_every_text_has_entries(text):
    values = java_properties.loads(text)
    assert all(type(word) is str for pair in values.items() for word in pair)


def test_the_line_of_a_key_is_that_whose_value_counts():
    text = "# c\na=1\n\nb=1\\\n  2\na=3\\"
    assert java_properties.key_lines(text) == {"a": 6, "b": 5}


def test_of_a_key_that_comes_twice_the_last_value_counts():
    assert java_properties.loads("a=1\na=2\na\\\n") == {"a": ""}


def test_an_answer_has_a_line_for_each_key_sorted_and_without_escapes():
    assert java_properties.dumps_unescaped({"b": "C:\\x", "a": "1=2"}) == "a=1=2\nb=C:\\x\n"


def test_a_line_ends_as_in_java_and_nowhere_else():
    separators = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
    text = f"a=1{separators}b=2\rc=3\r\nd=4\ne=5"
    assert java_properties.loads(text) == {
        "a": f"1{separators}b=2",
        "c": "3",
        "d": "4",
        "e": "5",
    }
