"""Headers as the JSON libraries of many languages write them are read by compiled code."""

import json
import random

import pytest

from rocketlens.wire import header_json
from tests.support.broker_world import create_topic, in_broker
from tests.support.effort import sized
from tests.support.fed_channel import feed
from tests.unit.broker.sends.test_send_runs import assert_same, plain_frame

VALUES = [
    *("plain", "caf\u00e9", "\u652f\u4ed8\U0001f600", "<a href='x'>&+`"),
    *('say "no"\\/', "a\tb", "\x7f"),
]


def nothing(_character):
    return False


def escaped(text, characters=nothing, form="\\u{:04x}"):
    """A JSON text with ``characters`` escaped as UTF-16 units, besides what all escape."""
    written = []
    for character in text:
        if character in '"\\':
            written.append("\\" + character)
        elif character < " " or characters(character):
            units = character.encode("utf-16-be")
            pairs = (units[at : at + 2] for at in range(0, len(units), 2))
            written += [form.format(int.from_bytes(pair)) for pair in pairs]
        else:
            written.append(character)
    return f'"{"".join(written)}"'


def joined(members, quote=escaped, comma=",", colon=":"):
    """An object of an object of texts and numbers."""

    def text(value):
        if isinstance(value, dict):
            return joined(value, quote, comma, colon)
        return quote(value) if isinstance(value, str) else json.dumps(value)

    parts = (f"{quote(name)}{colon}{text(value)}" for name, value in members.items())
    return "{" + comma.join(parts) + "}"


def is_beyond_ascii(character):
    return character > "~"


def in_order(members, *names):
    return {name: members[name] for name in names} | members


def fastjson(members):
    return joined(members, lambda text: escaped(text, nothing, "\\u{:04X}"))


def fastjson_with_more(members):
    return fastjson(members | {"type": "REQUEST_COMMAND", "onewayRPC": False, "remark": None})


def jackson(members):
    return joined(members, lambda text: escaped(text, nothing, "\\u{:04X}"))


def jackson_with_getters(members):
    more = {"remark": None, "type": "REQUEST_COMMAND", "responseType": False, "hash": 17}
    return jackson(more | in_order(members, "language", "extFields"))


def jackson_pretty(members):
    return joined(members, escaped, ",\r\n  ", " : ")


def gson(members):
    return joined(members, lambda text: escaped(text, lambda each: each in "<>&='\u2028"))


def go(members):
    fields = dict(sorted(members["extFields"].items()))
    members = in_order(members | {"remark": ""}, "code", "language", "version", "opaque", "flag")
    return joined(
        members | {"extFields": fields},
        lambda text: escaped(text, lambda each: each in "<>&\u2028\u2029"),
    )


def python(members):
    return json.dumps(members)


def python_compact(members):
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False)


def python_sorted(members):
    return json.dumps(members, sort_keys=True, indent=1)


def python_with_numbers(members):
    fields = members["extFields"]
    numbers = {name: int(text) for name, text in fields.items() if text.isdecimal()}
    return json.dumps(members | {"extFields": fields | numbers | {"k": False, "j": None}})


def rust(members):
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False)


def jsoncpp(members):
    """With a line end behind it, as its ``FastWriter`` does."""
    return joined(dict(sorted(members.items())), escaped) + "\n"


def rapidjson(members):
    return joined(members | {"code": str(members["code"])})


def nlohmann(members):
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def newtonsoft(members):
    return joined(members | {"remark": None}, escaped, ",", ": ")


def system_text_json(members):
    """It escapes what HTML needs, and all that is not ASCII."""
    return joined(
        in_order(members, "extFields"),
        lambda text: escaped(
            text, lambda each: each in "<>&'+`\x7f" or is_beyond_ascii(each), "\\u{:04X}"
        ),
    )


def javascript(members):
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False)


LIBRARIES = [
    *(fastjson, fastjson_with_more, jackson, jackson_with_getters, jackson_pretty, gson, go),
    *(python, python_compact, python_sorted, python_with_numbers, rust, jsoncpp, rapidjson),
    *(nlohmann, newtonsoft, system_text_json, javascript),
]


def members_of(frame):
    """The members of a header that RocketLens wrote, and the body behind it."""
    stop = 8 + int.from_bytes(frame[5:8])
    return json.loads(frame[8:stop]), frame[stop:]


def framed(header, body):
    content = header.encode()
    return b"".join(
        ((4 + len(content) + len(body)).to_bytes(4), len(content).to_bytes(4), content, body)
    )


def a_send(rng, number, code=310):
    key = f"0A0000091F4018B4AAC2140DD5A2{number:04d}"
    values = "".join(
        f"n{index}\x01{value}\x02" for index, value in enumerate(rng.sample(VALUES, 3))
    )
    tags = rng.choice(["paid", "\u652f\u4ed8", "caf\u00e9"])
    properties = f"KEYS\x01k{number} \u00fc\x02UNIQ_KEY\x01{key}\x02TAGS\x01{tags}\x02{values}"
    changes = {} if code == 10 else {"a": rng.choice(VALUES), "c": rng.choice(VALUES)}
    return plain_frame(number, 0, code, i=properties, **changes)


def rewritten(frame, write, more_fields=()):
    members, body = members_of(frame)
    members["extFields"] |= dict(more_fields)
    return framed(write(members), body)


@pytest.mark.parametrize("write", LIBRARIES, ids=lambda write: write.__name__)
def test_sends_in_the_json_of_any_library_are_taken_by_kernels(tmp_path, write):
    rng = random.Random(write.__name__)
    frames = [
        rewritten(a_send(rng, number, rng.choice([10, 310])), write, {"extra": rng.choice(VALUES)})
        for number in range(50)
    ]
    for frame in frames:
        stop = 8 + int.from_bytes(frame[5:8])
        header_json.decode(frame[8:stop])

    async def test(world):
        await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4)
        for number in range(8):
            await feed(world, [plain_frame(number)])
        world.core.load_kernels()
        await feed(world, [plain_frame(number) for number in range(4)])
        taken = world.core.network.runs.take(FromNowhere(), memoryview(b"".join(frames)), 64)
        alone = world.core.network.runs.answer(FromNowhere(), frames[0])
        return taken[:2], alone

    (count, end), alone = in_broker(tmp_path, test)
    assert (count, end) == (50, sum(map(len, frames)))
    assert alone is not None


class FromNowhere:
    """As much of a connection as a run looks at."""

    address = "10.0.0.9:4711"


@pytest.mark.parametrize("seed", range(sized(1, 2)))
def test_they_are_stored_as_they_are_one_by_one(tmp_path, seed):
    rng = random.Random(seed)
    streams = []
    for number in range(6):
        writers = rng.choices(LIBRARIES, k=20)
        frames = [
            rewritten(a_send(rng, 20 * number + at), write, {"extra": rng.choice(VALUES)})
            for at, write in enumerate(writers)
        ]
        streams.append([b"".join(frames)])
    messages, _ = assert_same(tmp_path, streams)
    assert messages > 60


ODD_HEADERS = [
    '{{"code":310,"opaque":7,"extFields":{fields},"x":1,"x":1}}',
    '{{"code":310,"opaque":7,"extFields":{fields},"\\u0063ode":310}}',
    '{{"code":310,"opaque":7,"extFields":{fields},"x":01}}',
    '{{"code":310,"opaque":7,"extFields":{fields},"x":-0}}',
    '{{"code":310,"opaque":7,"extFields":{fields},"x":1e5}}',
    '{{"code":310,"opaque":7,"extFields":{fields},"x":"\\ud800"}}',
    '{{"code":310,"opaque":7,"extFields":{fields},"x":"\\ud83d\\ude00"}}',
    '{{"code":310,"opaque":7,"extFields":{fields},"x":{{"y":[1]}}}}',
    '{{"code":310,"opaque":7,"extFields":{fields}}} x',
    '{{"code":310,"opaque":7,"extFields":{fields}}}\u00a0',
    '\t{{ "extFields" : {fields} ,"code":310,"opaque":7}}\n',
    '{{"extFields":{fields},"code":"310","opaque":"7","flag":null}}',
    '{{"extFields":{fields},"code":310,"opaque":-7}}',
    '{{"extFields":{fields},"extFields":{fields},"code":310}}',
    '{{"code":310,"opaque":7,"extFields":{fields},"remark":{{}}}}',
    '{{"code":310,"opaque":7,"extFields":{fields},"language":["a"]}}',
    '{{"code":310,"opaque":7,"extFields":{fields},"x":nul}}',
    '{{"code":310,"opaque":7,"extFields":{fields},"x":NaN}}',
]
ODD_FIELDS = [
    *({}, {"extra": None}, {"extra": 5}, {"extra": True}, {"extra": {}}, {"extra": 1.5}, {"e": 1}),
    *({"m": True}, {"m": False}, {"m": None}, {"j": "0"}, {"j": 2}, {"b": None}, {"e": "1\u0660"}),
    *({f"extra{number}": "x" for number in range(count)} for count in (15, 16, 17, 40)),
]


def test_odd_headers_are_what_they_are_one_by_one(tmp_path):
    rng, frames = random.Random(4), []
    for number, header in enumerate(ODD_HEADERS):
        for fields in ODD_FIELDS:
            members, body = members_of(a_send(rng, number))
            text = json.dumps(members["extFields"] | fields)
            if rng.random() < 0.3:
                name = rng.choice(["m", "extra", "e", "b"])
                text = text.replace("}", f', "{name}": "true", "{name}": null}}')
            frames.append(framed(header.format(fields=text), body))
    rng.shuffle(frames)
    # A plain message before each, so that it comes in a run.
    messages, _ = assert_same(
        tmp_path, [[plain_frame(number % 4) + frame] for number, frame in enumerate(frames)]
    )
    assert messages > len(frames)


def test_an_escape_of_a_flag_is_not_passed_over(tmp_path):
    frame = rewritten(plain_frame(1, m="true"), json.dumps)
    header = frame[8 : 8 + int.from_bytes(frame[5:8])].decode()
    frame = framed(header.replace('"m": "true"', '"m": "\\u0074rue"'), b"no batch")
    assert_same(tmp_path, [[frame, plain_frame(2)]])
