"""Lives of a store in which anything happens in any order, as a seed decides."""

import time
from typing import Final

from tests.oracle.servers import OURS
from tests.oracle.story import TOPICS, Story

MAX_HANDLES: Final = 5
STEPS: Final = {
    "send": 6,
    "end": 4,
    "remake_topic": 2,
    "delete_oldest": 2,
    "open_handle": 1,
    "move_away_and_back": 1,
    "put_copy": 1,
    "write_another": 1,
    "settle": 1,
}
"""What may happen next, and how often it does for each other thing."""


async def live(story: Story, version: str, seconds: float, *, with_spark: bool) -> None:
    """Have a store written by ours and by a real broker in turn, for about so many seconds."""
    deadline_s = time.monotonic() + seconds
    try:
        await story.start(story.chance.choice((OURS, version)))
        for kind in ("handle", "scans", "command", "wire", *(["spark"] if with_spark else [])):
            story.reader(kind)
        await story.send(100)
        while time.monotonic() < deadline_s:
            await _step(story, version)
        await story.stop()
        await story.settle()
    finally:
        story.close()


async def _step(story: Story, version: str) -> None:
    chance = story.chance
    step = chance.choices(list(STEPS), list(STEPS.values()))[0]
    writer = chance.choice((OURS, version))
    match step:
        case "send":
            await story.send(chance.randrange(100, 1500))
        case "end":
            if chance.random() < 0.5:
                await story.kill(chance.randrange(1, 300))
            else:
                await story.stop()
            await story.start(writer, cleans=chance.random() < 0.25)
        case "remake_topic":
            await story.remake_topic(chance.choice(TOPICS), chance.randrange(50, 300))
        case "delete_oldest" if story.server.writer != OURS:
            story.delete_oldest()
        case "open_handle" if sum(r.kind == "handle" for r in story.readers) < MAX_HANDLES:
            story.reader("handle")
        case "move_away_and_back" | "put_copy":
            await story.stop()
            await getattr(story, step)()
            await story.start(writer)
        case "write_another":
            await story.stop()
            await story.write_another(writer, chance.randrange(50, 300))
            await story.start(chance.choice((OURS, version)))
        case "settle":
            await story.read_up()
            await story.settle()
