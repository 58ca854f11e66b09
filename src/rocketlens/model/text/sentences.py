"""Texts that are translated: each has a name and values, and is an English `str` itself.

They are the texts of stories, errors in filters, patterns and times, assumptions of answers, and
detected formats of bodies. Foreign texts, for example those of brokers, are values.

A translator looks up its own text for ``name`` and inserts ``values``; values that are sentences
are translated, too. Other callers use a `Sentence` like any string.
"""

from collections.abc import Mapping
from typing import Final, Self

SENTENCES: Final[Mapping[str, str]] = {
    # Events from records.
    "sent": "sent from {host}{by}{made}",
    "sent_by": " by producer group {group}",
    "key_made_on": "; its unique key was made on {address}",
    "stored": "stored as {at}",
    "stored_again": "stored again as {at}",
    "committed": "transaction committed, stored as {at}",
    "committed_again": "transaction committed, stored again as {at}",
    "half": "half message in {at} for topic {topic}{checked}{open}",
    "half_checked": ", checks so far: {times}",
    "after_checks": " after {times} checks",
    "half_open": "; its producer has not answered yet",
    "half_next_check": "; its producer has not answered yet, the next check is about {time}",
    "rolled_back": "transaction rolled back: {at} ends it, and no record commits it",
    "recalled_by": "recalled from {host}{by}, as recorded in {at}: it is not delivered",
    "resent_to_group": "sent again to group {group} by RocketLens, job {job}{why}: stored as {at}",
    "resent_stored": "sent again by RocketLens, job {job}{why}: stored as {at}",
    "resent_why": ", {why}",
    "given_up": "the broker gave up its transaction{checked}, and keeps it in {at}",
    "delayed": "kept in {at} for topic {topic}: {due}",
    "given_back": "returned by group {group}: retry {number} is kept in {at}: {due}{why}",
    "due_in": "due {time}, in {span}{level}",
    "due_ago": "due {time}, {span} ago{level}",
    "due_there": "due {time}{level}; the newest message there was stored at {end}",
    "due_unknown": "its due time is unknown{level}",
    "delivered_at": "delivered at {time}{level}",
    "recalled_at": "recalled at {time}, not delivered",
    "at_level": " (delay level {level})",
    "at_level_for": " (delay level {level}, {delay} by default)",
    "retry_stored": "retry {number} of group {group} stored as {at}{why}",
    "dead_letter_stored": "dead letter of group {group}: {at}{why}",
    "failed_at": "; it failed on {host}: {error}",
    "sent_first": "sent{by}{made}; its first record is not among these",
    # Events from traces.
    "sent_to": "producer group {group} at {address} sent it to {host} in {ms} ms",
    "sending_failed": "producer group {group} at {address} sent it to {host} in {ms} ms, which "
    "failed",
    "transaction_ended": "producer group {group} at {address} ended the transaction: {state}",
    "transaction_ended_when_asked": "producer group {group} at {address} ended the transaction "
    "after a check: {state}",
    "recalled": "producer group {group} at {address} recalled it",
    "recall_failed": "producer group {group} at {address} recalled it, which failed",
    "delivery": "group {group}: {outcome}{retry}",
    "delivery_retry": " (retry {number})",
    "handed_out": "handed to client {client}, which did not report the result",
    "consumed_by": "consumed by client {client}{took}",
    "consume_failed": "client {client} failed to consume it{took}{why}",
    "took": " in {ms} ms",
    "because": ": {why}",
    "too_late": "too late",
    "exception": "an exception",
    "null_returned": "null returned",
    # Reasons for the state of a group: copies and traces.
    "dead_letter_is": "its dead letter is {at}",
    "reported": "its client {client} reported it",
    "reported_at_retry": "its client {client} reported it, at retry {number}",
    "retry_waits": "{copy} is {at}: {due}",
    "retry_unknown": "{copy} is {at}; it is unknown whether the group received it",
    "retry_done": "{copy} is {at}; the group's offset there is {offset}, and it was not returned",
    "retry_not_yet": "{copy} is {at}, and has not been consumed yet",
    "sent_again": "the copy that was sent again",
    "with_outcome": "{rests_on}; {outcome}",
    # Reasons for the state of a group: offsets and clients.
    "offsets_unknown": "its offsets are unknown",
    "broadcasts": "it consumes by broadcasting: its clients keep their offsets themselves",
    "no_offset_in_topic": "it has no offset in topic {topic}",
    "no_offset_nor_subscription": "it has no offset in topic {topic}, and its clients do not "
    "subscribe to it",
    "no_offset_in_queue": "it has no offset in this queue",
    "goes_on": "its next offset is {offset}",
    "and_offline": "{offset}; no client is online",
    "and_not_subscribed": "{offset}; its clients do not subscribe to the topic now",
    "passed_filtered": "its next offset is {offset}; its clients subscribe to {expression}",
    "passed_unsubscribed": "its next offset is {offset}; its clients subscribe to nothing",
    "passed_by_reset": "its next offset is {offset}, but its last pull began at {began}: a reset "
    "moved it past the message",
    "passed_offline": "its next offset is {offset}; no client is online: it consumed it before, or "
    "a reset skipped it",
    "passed_subscribed": "its next offset is {offset}, and its clients subscribe to it; a reset "
    "would look the same",
    "passed_not_subscribed": "its next offset is {offset}, but its clients do not subscribe to the "
    "topic now",
    "passed_unrecorded": "its next offset is {offset}; it is not recorded whether it consumed, "
    "filtered or skipped it",
    "two_groups": "{topic} can be the retry topic of each of {groups}: RocketMQ's names are "
    "ambiguous",
    # Records of POP.
    "pop_handed_out": "POP handed {messages} out to group {group} at {time}: visible again at "
    "{again}, unless acknowledged [{at}]",
    "pop_acknowledged": "group {group} acknowledged {messages}, which POP handed out at {time}, or "
    "changed when it is visible again [{at}]",
    "pop_unknown": "{at}, a record of POP, cannot be read: it is cut, or of another version",
    "hand_outs": "whether POP handed it out",
    "newest_of_pop": "only the newest {count} records are read for that",
    # Several messages with one key.
    "key_summary": "{query}: {count} messages; {worst}",
    "dead_letter_of": "{at} is a dead letter of {group}{since}{why}",
    "retrying_of": "{at} is in retry by {group}{since}{why}",
    "not_yet_of": "{group} has not consumed {at} yet",
    "still_waits": "{at} waits for {topic}",
    "none_failed": "none is a dead letter, in retry or waiting",
    "since": " since {time}",
    # Sources of facts.
    "by_record": "its record",
    "by_log": "commit log",
    "by_log_of": "commit log of {source}",
    "by_archive": "archive {source}",
    "by_brokers": "its brokers (208)",
    "by_connections": "its connections (203)",
    "by_both": "{offsets}, {clients}",
    # Causes of repeated records and deliveries.
    "same_key": "{at} has the same unique key as {first}: {why}",
    "resent_by_job": "a resend by RocketLens, job {job}{why}",
    "producer_retry": "a producer's retry: sent {seconds} s after the first from {address}, the "
    "same host",
    "resent": "a resend: sent {seconds} s after the first from {address}",
    "handed_out_again": "{what} was handed out {times} times, to {clients}: {why}",
    "one_offset": "one offset",
    "one_retry": "retry {number}",
    "rebalanced": "the queue went to another client before the first had committed its offset "
    "(a rebalance, or a client that ended)",
    "not_acknowledged": "its acknowledgement failed, or the client began anew before it had "
    "committed",
    # Unknown facts, and why.
    "copies": "copies of the message",
    "no_unique_key": "it has no unique key, by which its copies could be looked up",
    "first_stored": "how it was first stored",
    "first_is_gone": "only {topic} has it; the first record ({msg_id}) is gone",
    "all_records": "all records of the message",
    "too_many_matches": "more than {count} messages match {query}: the oldest were left out",
    "too_many_records": "more than {count} records have its unique key: the oldest were left out",
    "copies_elsewhere": "copies in {count} other topics",
    "some_topics": "{count} topics were searched: its own, retries and dead letters of its groups, "
    "delays and transactions{more}",
    "find_searches_all": "; find {unique_key} searches all",
    "how_ended": "how its transaction ended",
    "too_many_marks": "more than {count} marks of ended transactions follow it",
    "marks_unread": "not all marks of ended transactions could be read",
    "trace": "its trace",
    "part_of_trace": "part of its trace",
    "trace_damaged": "a trace message has {damage}",
    "said_by_clients": "what its clients reported (trace)",
    "not_in_trace": "topic {topic} has no trace of it: clients write traces only if that is "
    "switched on",
    "no_trace_topic": "topic {topic} does not exist: clients write traces only if that is switched "
    "on",
    "groups_did": "what groups did",
    "group_did": "what group {group} did",
    "online_clients": "which clients were online, and what they subscribed to",
    "members_of_proxies": "a proxy is in use, and the members of a proxy are not known to brokers",
    "not_in_files": "the files of a store do not contain it",
    "not_in_archive": "an archive has messages alone: ask a store or a cluster, too",
    "part_of_story": "a part of its story",
    "broker_missing": "it was last seen {time} at {addresses} and is not registered now (if it is "
    "gone for good: --forget-broker {name})",
    "not_shown": "the reason is shown to users who may see every topic",
    # Errors in filters.
    "language_sql92": "SQL92 expression",
    "language_filter": "filter",
    "wrong_at": "{language}, character {number}: {reason}",
    "wrong_at_found": "{language}, character {number}: {reason}, not {found}",
    "with_hint": "{error}; {hint}",
    "condition_expected": "a condition is expected",
    "comparison_expected": "a comparison is expected",
    "value_expected": "a value is expected",
    "string_expected": "a string is expected",
    "text_or_number_expected": "a text or a number is expected",
    "word_expected": "{word} is expected",
    "nothing_can_follow": "the end is expected",
    "null_not_compared": "NULL is not compared: use IS NULL",
    "cannot_be_compared": "these values cannot be compared",
    "in_of_properties": "IN is for properties only",
    "in_of_properties_and_fields": "IN is for properties and fields only",
    "order_of_numbers": "only numbers and properties are compared with {sign}",
    "between_reversed": "the first value of BETWEEN is the larger one",
    "nested_too_deep": "nested deeper than {limit} levels",
    "number_too_large": "a number of at most 64 bits is expected",
    "real_out_of_range": "a real number must be above 0, and finite",
    "unknown_character": "an operator, a name or a value is expected",
    "many_on_both_sides": "one side must have a single value: key, [*] and .* have many",
    "not_a_state": "{text} is not a state: {states}; write prop.state for a property of that name",
    "minus_before_many": "a minus stands before a single value: key, [*] and .* have many",
    "pattern_of_condition": "a pattern is for texts and numbers",
    "filter_too_long": "the filter has {count} characters, {limit} are allowed",
    "hint_equal": "write = for equal",
    "hint_not_equal": "write <> for not equal",
    "hint_quotes": "quote texts: '...'",
    "hint_and": "write AND",
    "hint_or": "write OR",
    "hint_path": "fields of a body are body.$.NAME, and properties prop.NAME",
    "hint_arithmetic": "there is no arithmetic",
    "hint_like": "use CONTAINS, STARTSWITH, ENDSWITH or =~",
    # Errors in patterns and times.
    "pattern_empty": "the pattern is empty: it would match every text",
    "pattern_too_long": "the pattern has {count} characters, {limit} are allowed",
    "pattern_wrong": "pattern {pattern}: {why}",
    "pattern_too_large": "pattern {pattern}: its repetitions make {count} instructions, {limit} "
    "are allowed",
    "not_a_time": "{option} {text} is not a time: expected 2h, 30m, 1d12h, yesterday, 2026-11-20, "
    "2026-11-20T10:31:02, 20261120103102, or epoch seconds or milliseconds",
    "not_of_calendar": "{option} {text} is not a time of the calendar",
    "since_after_until": "since is after until",
    # Refused actions.
    "dead_letters_sent": "earlier jobs have sent all {count} dead letters again, or may have: "
    "choose to send these, too, if that failed",
    "alarm_of_key": "an alarm is for a key or an id, and topics: leave out tag, times and filters",
    "alarm_source": "an alarm is for one source: choose one",
    "alarm_passed": "{time} has passed: give a future time, such as 'in 2h'",
    "alarm_topics": "you can see only some topics: an alarm must name topics in full",
    "alarms_full": "{count} alarms wait already: delete one first",
    "alarm_unchecked": "no console asked at that time",
    # Notes on a search, such as messages that a filter could not decide on.
    "one_message": "1 message",
    "messages": "{count} messages",
    "no_origin": "the {name} of these messages is not known: no condition on it holds",
    "no_such_property": "no message had a property {name}; bodies do: {path}",
    "or_more": "{messages} or more",
    "some_messages": "messages",
    "lite_queues": "queues are missing, and only they name the lite topics of {parents}",
    "lite_names": "{parent} has more lite topics than its newest {count} messages name, which "
    "were read: give the name of one that is not here",
    "queue_ends": "{queue} ends at {end}{where}",
    "queue_begins": "{queue} begins at {begin}{where}",
    "no_such_queue": "there is no queue {queue}{where}: its topic has queues {least} to {most}",
    "on_broker": " on {broker}",
    "in_archive_of": " in the archive of {source}",
    "understood_as": "no message has this text as key or id; searched for its parts: {texts}",
    "understood_first": "no message has this text as key or id; searched for the first {searched} "
    "of its {count} parts: {texts}",
    "waits_for": "{at} waits for {topic}: {due}",
    "half_waits": "{at} is kept for {topic}: half message of a transaction that was not committed; "
    "its story tells whether that was rolled back",
    "more_waiting": "{count} more wait",
    "more_wait": "only the newest {count} messages that wait were checked: a look-up by key or id "
    "searches all (--only-delivered leaves them out)",
    "no_topic": "there is no topic {name}",
    "no_topic_but": "there is no topic {name}; did you mean {meant}?",
    "left_out": "{messages} of RocketMQ's own topics, in {topics}, left out",
    "filter_unread": "{messages}, the first {position}: {why}: the filter could not read the body, "
    "so these messages may match (a rule for the topic's bodies can define their format)",
    "filter_not_comparable": "{messages}, the first {position}: {why}: values cannot be compared, "
    "so these messages do not match",
    # Assumptions of an answer.
    "both": "{first}; and {second}",
    "rising_log": "store times rise along the log, as those of its files' first messages do: what "
    "is {part} was not read (an exhaustive search reads it)",
    "before_offset": "before physical offset {start}",
    "from_offset": "from physical offset {stop} on",
    "before_and_from": "before physical offset {start} and from physical offset {stop} on",
    "rising_queues": "the store times of its queues rise, as samples of them did (an exhaustive "
    "search reads whole queues)",
    "rising_key": "the store times of the messages with this key rise, as those of the ones it "
    "returned did (an exhaustive search reads whole queues)",
    "index_sampled": "its index has all messages, like those that were sampled (an exhaustive "
    "search reads whole queues)",
    "index_untried": "its index has all messages, which was not checked (an exhaustive search "
    "reads whole queues)",
    "whole_queues": "consume queues lack no message from physical offset {start} to {stop}{rising} "
    "(an exhaustive search reads the log)",
    "and_times_rise": ", and their store times rise",
    "queues_before": "consume queues lack nothing before {start}",
    "in_part_only": "something that was looked at in part only",
    # Reasons for the detected format of a body.
    "body_too_large": "it is too large",
    "body_begins": "it begins with {mark}",
    "body_bytes": "its {count} bytes are {what}",
    "canal_packet": "a packet of messages",
    "hessian_value": "a value of Hessian 2",
    "thrift_struct": "a struct of Thrift",
    "trace_records": "it has trace records, like the trace topic",
    "messagepack_values": "a map or array of MessagePack",
    "cbor_values": "a map or array of CBOR",
    "protobuf_fields": "fields of Protocol Buffers with likely numbers",
    "no_known_format": "no format that is known reads it to its last byte",
    "body_in_charset": "it is {charset}",
    "body_in_charset_and": "it is {charset}, and {what}",
    "json_document": "JSON",
    "xml_document": "well-formed XML",
    "body_not_text": "it is not text",
    "body_by_rule": "the rule for topics {topic} says so",
    "body_as_stored": "it is unchanged",
    # Errors in forms and addresses of the console.
    "not_our_form": "this form is not from this console",
    "one_millisecond": "over {count} messages were stored at {time}: ask for older ones with until",
    "contents_masked": "contents cannot be searched where some of them are masked for you",
    "nothing_asked": "nothing to find: give q, topic, since, until, tag, where or grep",
    "not_our_cursor": "this cursor is not from this console: search again without it",
    "no_time_zone": "there is no time zone {name}: Asia/Shanghai, for example",
    "no_saved_search": "there is no saved search {name}",
    "saved_by_other": "{title} belongs to {user}, who can delete it",
    "saved_title": "a name is needed, of at most {limit} characters",
    "saved_too_long": "this search has over {limit} characters",
    "saved_busy": "another program changes the saved searches now: try again in a moment",
    "saved_twice": "you have a search named {title}: give another name, or delete it",
    "saved_full": "you have {count} saved searches: delete one first",
    "saved_full_all": "this console has {count} saved searches: delete one first",
    "saved_damaged": "the file of saved searches {path} is damaged ({why}): repair it, or move it "
    "away to begin a new one; nothing is saved until then",
    "unknown_column": "unknown column {name}: expected {names}, prop.NAME for a property, or "
    "body.$.NAME for a field of the body",
    "many_columns": "{count} columns: at most {limit} are shown",
    "no_job": "there is no job {name}",
    "no_job_cluster": "no source of this console is the cluster of this job, {name}",
    "no_job_origin": "no source of this console is the store or archive of this job, {name}",
    "user_jobs_busy": "{count} of your jobs run already: pause one, or wait for it",
    "jobs_busy": "{count} jobs run already: pause one, or wait for it",
    "may_not_act": "user {user} may not act on topic {topic} of {source}",
    "store_only_read": "source {source} is a store directory, which is only read",
    "context_read_only": "the context of {source} is read_only: remove read_only from the "
    "configuration file, or use another context",
    "form_outdated": "this form is out of date: open its page again",
    "needs_reason": "a reason is needed: it is kept with what was done",
    "long_reason": "the reason has over {limit} characters",
    "two_bodies": "body and body_base64 are both given: give only one",
    "not_base64": "the body is not base64",
    "not_unicode": "the body is not Unicode text: give body_base64",
    "invalid_property": "invalid property {line}: expected NAME=VALUE, one on a line",
    "body_unread": "its body cannot be read: {why}",
    "no_writable_cluster": "this console has no cluster that messages can be sent to",
    "no_letter_chosen": "no dead letter is chosen: choose some in the list of a group",
    "no_message_chosen": "no message is chosen: choose some in the list of a search",
    "many_chosen": "{count} messages are chosen: at most {limit}; send all that a search finds, or "
    "make several jobs",
    "chosen_of_several": "the chosen messages are of {sources}: choose those of one source",
    "chosen_gone": "some of the chosen dead letters no longer exist, or were sent again: choose "
    "again",
    "job_unfinished": "job {name} of this group is not finished: resume or stop it first",
    "masked_not_sent": "parts of {id} are masked for you, so it cannot be sent from {origin} to "
    "{cluster}",
    "own_cluster_only": "messages of {origin} are sent to that cluster, not to another",
    "choose_cluster": "choose the cluster to send to",
    "no_cluster": "this console has no cluster to send to: start it with --namesrv or --context, "
    "too",
    "nothing_to_send": "there is nothing to send",
    "search_of_several": "the search has several sources: choose one of them first",
    "plan_changed": "the messages have changed since they were shown: look again",
    "choose_client": "choose a client of a consumer group",
    "not_a_page": "{path} is not the address of a message's page",
    "masked_not_edited": "parts of this message are masked for you, so it cannot be edited",
    "not_found_as": "{at} was not found: {why}",
    "nothing_at": "there is no message at {at} of {broker}",
    "story_of_key": "a story needs a key or an id, and one source: give q, and source",
    "choose_two": "{count} messages are chosen: choose two to compare them",
    "no_source": "there is no source {name}; there are {names}",
    "no_sources": "none that you may see",
    "no_topic_matches": "no topic matches {name}",
    "pattern_brackets": "{topic}: only patterns with * and ? are allowed",
    "pattern_stars": "{topic} is too complicated: use fewer *",
    "may_not_forget": "only an operator of all of a cluster can forget a broker of {source}",
    "value_int_parsing": "{name}: a whole number is expected",
    "value_greater_than_equal": "{name}: at least {ge} is expected",
    "value_less_than_equal": "{name}: at most {le} is expected",
    "value_literal_error": "{name}: one of {expected} is expected",
    "value_string_too_long": "{name}: at most {max_length} characters are expected",
    "value_missing": "{name} is missing",
    "value_bool_parsing": "{name}: true or false is expected",
    "not_a_position": "{text} is not a queue position: expected TOPIC/QUEUE/OFFSET",
    "no_tag_named": "{text} names no tag: give tags such as 'TagA || TagB'",
    "long_key": "the text has {size} bytes, and a key or id at most {limit}: give part of it; of a "
    "list of ids the first {count} are searched",
    "invalid_topic": "{name} is not a valid topic name: it may have letters, digits, % | _ and -",
    "empty_topic": "the topic is empty: name one, or leave it out to search every topic",
    # Refusals of a busy or stopping console.
    "no_page": "nothing is at {path}: the menu has all pages",
    "console_stops": "the console stops: try again when it has started",
    "searches_busy": "{count} searches run already: try again in a moment",
    "user_searches_busy": "{count} of your searches run already: try again when one has ended",
    "exports_busy": "{count} files are being downloaded already: try again when one is complete",
    "user_exports_busy": "you download {count} files already: try again when one is complete",
    "look_ups_busy": "{count} requests are answered already: try again in a moment",
    "user_look_ups_busy": "{count} of your requests are answered already: try again in a moment",
    "held_busy": "too much is being sent already: try again in a moment",
    "user_held_busy": "too much is being sent to you already: try again when part of it is here",
    "search_too_long": "the search ended after {seconds} s: not everything was read; ask for a "
    "topic, a shorter time or a key",
}
"""Every sentence by its name, with its values in braces."""


class TimeText(str):
    """A time as text; other time zones can be derived from ``epoch_ms``."""

    __slots__ = ("epoch_ms",)
    epoch_ms: int

    def __new__(cls, text: str, epoch_ms: int) -> Self:
        """Create the text of a time in epoch milliseconds."""
        made = super().__new__(cls, text)
        made.epoch_ms = epoch_ms
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[str, int], dict[str, object]]:
        """Return the arguments of the constructor, for copies and pickles."""
        return (str(self), self.epoch_ms), {}


class Sentence(str):
    """A sentence of `SENTENCES` with its values; as a string, it is English."""

    __slots__ = ("name", "values")
    name: str
    """The key in `SENTENCES`."""
    values: dict[str, object]
    """The values for the words in braces."""

    def __new__(cls, name: str, /, **values: object) -> Self:
        """Create the sentence.

        :raises KeyError: if the name is unknown, or a value is missing.
        """
        made = super().__new__(cls, SENTENCES[name].format(**values))
        made.name = name
        made.values = values
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, object]]:
        """Return the arguments of the constructor, for copies and pickles."""
        return (self.name,), self.values


def both(first: str | None, second: str | None) -> str | None:
    """Join two sentences. Each can be None; the second is dropped if the first contains it."""
    if not first or not second or second in first:
        return first or second
    return Sentence("both", first=first, second=second)
