"""What an archive tells of one message: its records, copies and traces.

Consumer groups and their offsets are not archived: what groups did is known as far as copies in
their retry and dead letter topics, or traces, prove it.
"""

from typing import Final

from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.facts.group_state import GroupFacts
from rocketlens.query.story.story import Unlearnt
from rocketlens.query.story.story_search import SourceFacts, StorySource

_NO_GROUPS: Final = Unlearnt(Sentence("groups_did"), Sentence("not_in_archive"))


class ArchiveStorySource(StorySource):
    """An archive, asked for the story of a message."""

    def facts(self, _message: MessageExt, groups: set[str], group: str | None) -> SourceFacts:
        """Return that the offsets of groups are not known."""
        names = sorted({group} if group is not None else groups)
        return SourceFacts(tuple(map(GroupFacts, names)), (_NO_GROUPS,))

    def said_by(self, _message: MessageExt) -> str:
        """Return which archive has it."""
        return Sentence("by_archive", source=self.source.name)
