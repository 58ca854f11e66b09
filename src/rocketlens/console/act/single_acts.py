"""Acts on one message, for pages and API: a client consumes it; a new one is sent."""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from fastapi import Request

from rocketlens.client.admin.consume_directly import consume_directly
from rocketlens.client.resend.resend import RESEND_GROUP
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer
from rocketlens.client.send.unique_key import new_unique_key
from rocketlens.console.act.acts import Act, Acts, act_now, consume_results, send_results
from rocketlens.console.act.forms import checked_name, checked_reason
from rocketlens.console.act.permission import check_may_act, check_may_see_job, record, user_of
from rocketlens.console.message.look_up import LookUps, MessageAddress
from rocketlens.errors import BadInput
from rocketlens.model.message import MessageExt
from rocketlens.model.properties import SYSTEM_PROPERTIES


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message as a form or a program gives it."""

    topic: str
    body: bytes
    tags: str = ""
    keys: str = ""
    properties: Mapping[str, str]

    @classmethod
    def of_form(cls, form: Mapping[str, str]) -> Self:
        """Return the message of a form.

        :raises BadInput: if its body is no base64, or a property has no value.
        """
        # Browsers end the lines of a field with CR LF, whatever stood there.
        text = form.get("body", "").replace("\r\n", "\n")
        is_base64 = form.get("encoding") == "base64"
        return cls(
            topic=form.get("topic", "").strip(),
            body=base64_bytes("".join(text.split())) if is_base64 else text.encode(),
            tags=form.get("tags", "").strip(),
            keys=" ".join(form.get("keys", "").split()),
            properties=dict(_pairs(form.get("properties", "").splitlines())),
        )

    def message(self, topic: str) -> Message:
        """Return what is sent to a topic, with a new unique key.

        :raises BadInput: if a part cannot be sent.
        """
        return Message(
            topic,
            self.body,
            tags=self.tags or None,
            keys=self.keys or (),
            properties=self.properties,
            unique_key=new_unique_key(),
        )


def base64_bytes(text: str) -> bytes:
    """Return bytes of base64.

    :raises BadInput: if it is none.
    """
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error) as error:
        raise BadInput("the body is not base64") from error


def _pairs(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        name, separator, value = line.partition("=")
        if line.strip() and not (separator and name and value):
            raise BadInput(f"invalid property {line[:80]!r}: expected NAME=VALUE, one on a line")
        if line.strip():
            yield name.strip(), value


def form_fields(message: MessageExt) -> dict[str, str]:
    """Return the fields of a form that are filled with a message.

    A body is text if a browser returns it as it was, otherwise base64.

    :raises BadInput: if its body cannot be decompressed.
    """
    if message.body_error is not None:
        raise BadInput(f"its body cannot be read: {message.body_error}")
    # What is not UTF-8 becomes a character that is not printable.
    body, encoding = message.body.decode("utf-8", "surrogateescape"), "text"
    if not all(each.isprintable() or each in "\n\t" for each in body):
        body, encoding = base64.b64encode(message.body).decode("ascii"), "base64"
    own = {k: v for k, v in message.properties.items() if k not in SYSTEM_PROPERTIES}
    return {
        "topic": message.topic,
        "tags": message.tags or "",
        "keys": " ".join(message.keys),
        "properties": "\n".join(f"{name}={value}" for name, value in own.items()),
        "encoding": encoding,
        "body": body,
    }


class SingleActs:
    """Acts on one message."""

    def __init__(self, look_up: LookUps, acts: Acts) -> None:
        self.look_up: Final = look_up
        self.acts: Final = acts

    async def send(
        self, request: Request, cluster: str, new: NewMessage, *, name: str, reason: str
    ) -> str:
        """Send a new message once; return the name of the act.

        :raises BadInput: if a part of it cannot be sent, or a reason is missing.
        :raises ActRefused: if the user may not.
        :raises TopicNotFound: if the cluster does not have the topic: none is created.
        """
        name, reason = checked_name(name), checked_reason(reason)
        goes_to = check_may_act(request, self.look_up.sources.named(cluster), new.topic)
        access = goes_to.access
        if access is None:
            raise AssertionError(cluster)
        if self.acts.has(name):
            return name
        message = new.message(goes_to.admin.source.full_topic(new.topic))
        await goes_to.admin.source.survey.route(message.topic)
        facts = {
            "topic": message.topic,
            "tags": new.tags,
            "keys": new.keys,
            "msg_id": message.unique_key or "",
            "size": str(len(message.body)),
        }
        record(request, "send", job=name, cluster=cluster, reason=reason, **facts)

        async def work() -> dict[str, str]:
            # One attempt: a second one after a timeout could store it twice.
            options = {**access.client_options, "namespace": "", "retries": 0}
            async with Producer(access.name_servers, group=RESEND_GROUP, **options) as producer:
                return send_results(await producer.send(message))

        await self.acts.do(self._act(request, "send", name, goes_to.name, reason, facts), work)
        return name

    async def act(self, name: str) -> Act:
        """Return an act that the viewer may see; errors as `Acts.act`."""
        found = await self.acts.act(name)
        check_may_see_job(self.look_up.sources, name, found.user, found.cluster)
        return found

    async def consume(
        self,
        request: Request,
        address: MessageAddress,
        *,
        group: str,
        client_id: str,
        name: str,
        reason: str,
    ) -> str:
        """Let a client consume a stored message once; return the name of the act.

        :raises BadInput: if group, client or reason are missing.
        :raises ActRefused: if the user may not.
        :raises MessageNotFound: if there is no such message.
        :raises AnswerIncomplete: if it could not be looked for.
        """
        name, reason = checked_name(name), checked_reason(reason)
        source = self.look_up.sources.named(address.source)
        cluster = check_may_act(request, source, address.topic)
        if not (group and client_id):
            raise BadInput("choose a client of a consumer group")
        if self.acts.has(name):
            return name
        message = await self.look_up.original(address)
        facts = {
            "topic": message.topic,
            "position": f"{message.queue_id}/{message.queue_offset}",
            "msg_id": message.msg_id,
            "group": group,
            "client_id": client_id,
        }
        record(request, "consume", job=name, cluster=cluster.name, reason=reason, **facts)
        full_group = cluster.admin.source.full_topic(group)

        async def work() -> dict[str, str]:
            calls = cluster.admin.source.cluster
            return consume_results(await consume_directly(calls, full_group, client_id, message))

        await self.acts.do(self._act(request, "consume", name, cluster.name, reason, facts), work)
        return name

    @staticmethod
    def _act(  # noqa: PLR0917 - the parts of an act
        request: Request,
        kind: str,
        name: str,
        cluster: str,
        reason: str,
        facts: Mapping[str, str],
    ) -> Act:
        return act_now(
            name=name,
            kind=kind,
            cluster=cluster,
            reason=reason,
            user=user_of(request),
            facts={key: value for key, value in facts.items() if value},
        )
