"""Where ``rocketlens resend`` reads messages that it sends again: the cluster, or an archive."""

from typing import TYPE_CHECKING, Final

from rocketlens.errors import AnswerIncomplete, MessageNotFound

if TYPE_CHECKING:
    from rocketlens.archive.archive import Archive
    from rocketlens.client.mq_admin import MQAdmin
    from rocketlens.client.resend.resend_journal import PlannedMessage
    from rocketlens.model.answer import Answer
    from rocketlens.model.message import MessageExt
    from rocketlens.query.options import Kind


class ResendOrigin:
    """Finds messages for a job of a cluster: there, or in an archive."""

    def __init__(self, admin: "MQAdmin", archive: "Archive | None" = None) -> None:
        """Send to the cluster of ``admin``, what is in ``archive``, or without one there."""
        self.admin: Final = admin
        self._archive: Final = archive

    @property
    def name(self) -> str:
        """The archive as a job's header has it; empty for the cluster."""
        return "" if self._archive is None else self._archive.source.name

    async def message(self, topic: str | None, text: str) -> "MessageExt":
        """Return the message at a queue position, or with an id.

        :raises MessageNotFound: if there is none.
        :raises AnswerIncomplete: if not everything could be searched.
        """
        from rocketlens.query.request import FindRequest

        if FindRequest.parse(text).queue_position is None:
            named = (topic, text) if topic else (text,)
            if self._archive is not None:
                return self._archive.view_message(*named)
            return await self.admin.view_message(*named)
        answer = await self._find(text, kind="queue-offset")
        if not answer.complete:
            failed = next(each for each in answer.coverage if each.is_failure)
            raise AnswerIncomplete(f"{text}: {failed.source}: {failed.error}", answer)
        if not answer.messages:
            raise MessageNotFound(f"there is no message {text}")
        return answer.messages[0]

    async def with_key(self, key: str, topic: str) -> "Answer":
        """Return the messages of a topic that have a key."""
        return await self._find(key, topic, kind="key")

    async def planned(self, message: "PlannedMessage") -> "MessageExt":
        """Return the message of a plan.

        :raises MessageNotFound: if it is not there any more.
        """
        if self._archive is None:
            return await self.admin.view_message(message.offset_msg_id)
        position = f"{message.topic}/{message.queue_id}/{message.queue_offset}"
        for each in await self._find(position, kind="queue-offset"):
            # Each broker has such a queue.
            if each.offset_msg_id == message.offset_msg_id:
                return each
        raise MessageNotFound(f"{position} is not in {self.name} any more")

    async def _find(self, text: str, topic: str | None = None, *, kind: "Kind") -> "Answer":
        if self._archive is not None:
            return self._archive.find(text, topic, kind=kind)
        return await self.admin.find(text, topic, kind=kind)
