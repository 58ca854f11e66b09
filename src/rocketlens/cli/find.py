"""``rocketlens find``: finds messages by id, key, queue position, or topic and time.

If a search by text finds nothing, hints suggest what was meant.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.cli.options import (
    add_all_topics,
    add_archive,
    add_content,
    add_max,
    add_source,
    add_times,
    add_topics,
    add_verbose,
    content_of,
    option,
    time_range,
)
from rocketlens.cli.printing import MessageOutput, add_output
from rocketlens.cli.source import ChosenSource, choose_source, forget_broker
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.model.answer import Answer
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import NearlyMessageId, nearly_message_id
from rocketlens.model.rocketmq import lite_topic
from rocketlens.model.text.counted import counted
from rocketlens.model.text.escape import printable
from rocketlens.terminal.json_text import answer_fields
from rocketlens.terminal.message_values import BodyView, sort_messages, value_names
from rocketlens.terminal.notes import print_notes
from rocketlens.terminal.output import (
    SEARCH_EXIT_CODES,
    TIMES_HELP,
    ExitCode,
    discard_stdout,
    note,
    range_text,
    say,
)
from rocketlens.terminal.progress import SearchProgress, paged

if TYPE_CHECKING:
    from rocketlens.query.request import FindRequest

_KINDS: Final = ("auto", "key", "unique-key", "offset-id", "queue-offset")
EXAMPLES: Final = """
rocketlens find ORDER-42 --store /data/rocketmq/store  # all messages with a key, in any topic
# the last two hours of a topic, in a running cluster
rocketlens find -t order-paid --since 2h -n 127.0.0.1:9876
# by a value in decoded bodies, a tag and a time
rocketlens find --where "body.$.amount > 100 AND tag = 'paid' AND time > '2h'"
# by a regular expression in bodies; JSON lines with decoded bodies
rocketlens find -t 'order-*' --grep 'timeout|refused' -o jsonl --body decoded
# in an archive and in a running cluster, as one answer
rocketlens find ORDER-42 --archive /lake/rocketmq -n 127.0.0.1:9876
"""
_MAX_KEYS_SHOWN: Final = 5
_MAX_MESSAGES_COUNTED: Final = 100
"""Bound of the count of messages whose key has another case."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = f"{TIMES_HELP}\n{SEARCH_EXIT_CODES}"
    parser.add_argument(
        "text",
        metavar="TEXT",
        nargs="*",
        help="a key, a message id of either kind, or TOPIC/QUEUE/OFFSET; without it, every message "
        "of the topic and time range. The words of the console's search box narrow it: "
        "topic:T, tag:T, since:T, until:T, broker:B, key:KEY, id:ID, source:CONTEXT",
    )
    add = partial(option, parser)
    add("-k --key KEY", "TEXT as a key, without its words, such as topic:T, being read")
    add("-i --id ID", "TEXT, under mqadmin's name")
    add_source(parser)
    add_archive(parser)
    add_topics(parser, "search only this topic", default="every topic")
    add("--tag TAGS", "only messages with a tag, or 'A || B'")
    add("--lite NAME", "only its lite topic of this name (RocketMQ 5.5)")
    add(
        "--kind",
        "the kind of TEXT (default: auto, which tries every kind)",
        choices=_KINDS,
        default="auto",
    )
    add_times(parser)
    add_max(parser)
    add(
        "--cursor TOKEN",
        "page through an archive: print the oldest --max messages after this cursor, which the "
        "page before printed; `begin` starts",
    )
    add(
        "--exhaustive",
        "read whole queues of a cluster, or all of a store's log, instead of relying on sorted "
        "store times and complete consume queues",
    )
    add_all_topics(parser)
    add(
        "--only-delivered",
        "leave out messages that wait for delivery: delays, timers, half messages",
    )
    add(
        "--forget-broker NAME",
        "forget a broker that has left this cluster for good: from now on answers are complete "
        "without it",
    )
    add("--no-pager", "print on a terminal without $PAGER (default: less -FRX)")
    add_content(parser)
    parser.add_argument(
        "--sort",
        metavar="A,-B",
        help="sort the found messages by these values, named as for --fields; - sorts in "
        "descending order. It does not change which messages are found",
    )
    add_output(parser)
    add_verbose(parser)


def run(arguments: Namespace) -> ExitCode:
    typed = _apply_words(arguments)
    text, topic = _text(arguments), _topics(arguments)
    if text is None and arguments.kind != "auto":
        raise BadInput(f"--kind {arguments.kind} describes TEXT, but there is no TEXT")
    if arguments.forget_broker:
        forget_broker(choose_source(arguments).cluster, arguments.forget_broker)
        if text is None and not topic:
            return ExitCode.OK
    content = content_of(arguments)
    chosen = (topic, arguments.tag, arguments.since, arguments.until, content)
    if text is None and not any(chosen):
        raise BadInput(
            "nothing to find: give a key, an id or TOPIC/QUEUE/OFFSET, or --topic, --tag, --since, "
            "--where or --grep"
        )
    begin, end = time_range(arguments)
    from rocketlens.query.request import FindRequest

    request = FindRequest.parse(
        text,
        topic or None,
        kind=arguments.kind,
        begin=begin,
        end=end,
        tag=arguments.tag,
        max_num=arguments.max,
        exhaustive=arguments.exhaustive,
        all_topics=arguments.all,
        only_delivered=arguments.only_delivered,
        **content,
    )
    # If a filter names a key, the request has a text.
    output = MessageOutput.of(arguments, request.text)
    order = () if arguments.sort is None else value_names(arguments.sort, where="--sort", sign="-")
    if order and arguments.cursor is not None:
        raise BadInput("--cursor prints the oldest messages first: leave out --sort")
    source = choose_source(arguments)
    is_object = arguments.output == "json"
    if arguments.cursor is not None:
        return _code(*print_page(source, arguments, request, output))
    if request.text is None and not (is_object or arguments.max or source.is_merged or order):
        return _stream(arguments, request, output, source)

    progress = SearchProgress()
    # A search of a cluster handles Ctrl-C itself; a look-up is too short for it.
    takes_interrupt = source.is_local and request.text is None
    with progress if takes_interrupt else closing(progress):
        answer = source.find(request, progress)
    if answer.held_by:
        names = {id(m): ", ".join(held) for m, held in zip(answer, answer.held_by, strict=True)}
        column = {"sources": lambda message: names.get(id(message))}
        output = MessageOutput.of(arguments, request.text, more=column)
    print_answer(
        replace(answer, messages=sort_messages(answer.messages, order, BodyView.of(arguments))),
        output,
        is_object=is_object,
        is_paged=not is_object and not arguments.no_pager,
        verbose=arguments.verbose,
    )
    _print_range(begin, end)
    if text is not None and not answer.messages:
        hints = list(_hints(text, source, arguments.kind))
        more = _other_cases(text, source, request) if answer.complete else ()
        for line in (*hints, *more):
            note(line)
        if typed not in (None, text):
            note(f"words such as topic: were read as options: --key {typed!r} finds the text")
    return _code(progress, answer)


def _topics(arguments: Namespace) -> list[str] | None:
    topics: list[str] | None = arguments.topic
    if arguments.lite is None:
        return topics
    if topics is None or len(topics) != 1 or "," in topics[0]:
        raise BadInput("--lite needs one --topic, the parent of the lite topic")
    return [lite_topic(topics[0], arguments.lite)]


def _code(progress: SearchProgress, answer: Answer, count: int | None = None) -> ExitCode:
    """Return the exit code; print a note if Ctrl-C ended the search."""
    if not progress.is_interrupted:
        return exit_code(answer, count)
    say("interrupted: this is what was found until then (exit code 130)")
    return ExitCode.INTERRUPTED


def _apply_words(arguments: Namespace) -> str | None:
    """Move the words of TEXT, such as ``topic:T``, to their options; return the original text.

    :raises BadInput: if a word and its option are both given, or several texts.
    """
    from rocketlens.query.search_words import with_broker, words_in

    words, named = arguments.text, dict[str, str]()
    typed = text = " ".join(words) if words else None
    if text is not None and arguments.kind == "auto":
        text, named = words_in(text)
        for name, value in named.items():
            if name == "broker":
                arguments.where = with_broker(value, arguments.where or "")
                continue
            option = "context" if name == "source" else name
            if getattr(arguments, option):
                raise BadInput(f"{name}: in TEXT and --{option} mean the same: give only one")
            setattr(arguments, option, [value] if option == "topic" else value)
    if len(words) - len(named) > 1:
        raise BadInput(f"{printable(str(text))[:80]} is not one text: quote it if it has blanks")
    arguments.text = None if named and not text else text
    return typed


def _text(arguments: Namespace) -> str | None:
    """Return the text to find, from TEXT, --key or --id."""
    given = [each for each in (arguments.text, arguments.key, arguments.id) if each is not None]
    if len(given) > 1:
        raise BadInput("TEXT, --key and --id are the same: give one of them")
    if arguments.key is not None:
        if arguments.kind not in ("auto", "key"):
            raise BadInput(f"--key is of kind key, not of --kind {arguments.kind}")
        arguments.kind = "key"
    return given[0] if given else None


def _print_range(begin: int | None, end: int | None) -> None:
    """Print the searched time range, because a time can be read in several ways."""
    if begin is not None or end is not None:
        say(f"only messages {range_text(begin, end)}")


def print_interpretation(answer: Answer) -> None:
    """Print how the text of a search was read, if it was not searched as given."""
    from rocketlens.query.pasted import PASTED

    for each in answer.coverage:
        if each.source == PASTED:
            say(printable(each.note or each.error or ""))


def exit_code(answer: Answer, count: int | None = None) -> ExitCode:
    """Return 3 for an incomplete answer, else 0 if it has messages (or `count`) and 1 if not."""
    if not answer.complete:
        return ExitCode.INCOMPLETE
    return ExitCode.OK if (len(answer) if count is None else count) else ExitCode.NO


def print_answer(
    answer: Answer,
    output: MessageOutput,
    *,
    is_object: bool,
    is_paged: bool = False,
    verbose: bool = False,
) -> None:
    """Print an answer and its notes; `is_object` prints one JSON object."""
    if is_object:
        output.print_object(answer_fields(answer), answer.messages)
    else:
        with paged(is_allowed=is_paged), suppress(BrokenPipeError):
            output.print_all(answer.messages)
            sys.stdout.flush()
    sys.stdout.flush()
    # JSON contains all notes, but missing messages are also printed for people.
    if not is_object or not answer.complete or answer.truncated:
        print_notes(answer, verbose=verbose)


def _stream(
    arguments: Namespace, request: "FindRequest", output: MessageOutput, source: ChosenSource
) -> ExitCode:
    """Print messages as they are read, because a time range can exceed memory."""
    with SearchProgress() as progress, source.scan(request, progress) as scan:
        counted = _Counted(scan, progress)
        with paged(is_allowed=not arguments.no_pager), suppress(BrokenPipeError):
            if output.is_plain_json:
                counted.print_json()
            else:
                output.print_all(counted)
            sys.stdout.flush()
        if counted.reader_closed and not progress.is_interrupted:
            # The reader closed the pipe: print no notes.
            discard_stdout()
            return ExitCode.OK
        progress.close()
        sys.stdout.flush()
        answer = Answer(request.query, (), scan.coverage)
        print_notes(answer, counted.count, verbose=arguments.verbose)
        if arguments.since or arguments.until:
            end = request.end if arguments.until else None
            _print_range(request.begin if arguments.since else None, end)
        return _code(progress, answer, counted.count)


class _Counted:
    """Counts printed messages; the first one on a terminal ends the progress line."""

    def __init__(self, scan: Iterable[MessageExt], progress: SearchProgress) -> None:
        self._scan: Final = scan
        self._progress: Final = progress
        self.count = 0
        self.reader_closed = True
        """Whether stdout was closed before all messages were printed."""

    def __iter__(self) -> Iterator[MessageExt]:
        for message in self._scan:
            self._end_progress()
            self.count += 1
            yield message
        self.reader_closed = False

    def print_json(self) -> None:
        """Print all messages as lines of JSON, many in one write."""
        from rocketlens.formats.commitlog_record import message_of
        from rocketlens.query.lookup.by_time import Scan
        from rocketlens.terminal.as_json import write_message, write_rows

        if not isinstance(self._scan, Scan) or self._scan.has_static:
            for message in self:
                write_message(message, "\n")
            return
        for rows, records in self._scan.pieces():
            self._end_progress()
            if rows is not None:
                self.count += write_rows(rows)
            for record in records:
                write_message(message_of(record), "\n")
                self.count += 1
        self.reader_closed = False

    def _end_progress(self) -> None:
        if not self.count and sys.stdout.isatty():
            self._progress.close()


def _hints(text: str, source: ChosenSource, kind: str) -> Iterator[str]:
    """Yield hints on what a text without results can stand for.

    Only a store or an archive is asked for its topics. `kind` is the value of --kind.
    """
    keys = text.split()
    nearly = nearly_message_id(text) if kind in {"auto", "unique-key"} else None
    if nearly is not None:
        yield f"this looks like a message id with {_mistake(nearly)}"
    if len(keys) > 1:
        shown = ", ".join(keys[:_MAX_KEYS_SHOWN])[: limits.MAX_QUOTATION_CHARACTERS]
        yield f"no key contains a space, because spaces separate keys: search for one of {shown}"
    elif source.is_local and text in _known_topics(source):
        yield f"{text} is a topic: rocketlens find --topic {text} lists its messages"


def _mistake(nearly: NearlyMessageId) -> str:
    count, expected, letters, meant = nearly
    if letters:
        shown = ", ".join(f"{letter} for {digit}" for letter, digit in letters)
        return f"letters for digits ({shown}): search for {meant}"
    if count < expected:
        return f"a digit missing ({count} of {expected})"
    return f"a digit too many ({count}, and not {expected})"


def _other_cases(text: str, source: ChosenSource, request: "FindRequest") -> Iterator[str]:
    """Yield a hint for the text in upper or lower case, if such a key has messages.

    An index has only hashes of keys, so other variants cannot be listed.
    """
    is_key = request.is_key and len(text.split()) == 1
    keys = sorted({text.upper(), text.lower()} - {text}) if is_key else []
    requests = [
        replace(request, text=key, max_num=_MAX_MESSAGES_COUNTED, exhaustive=False) for key in keys
    ]
    answers: list[Answer] = []
    if requests:
        # The hint is optional.
        with suppress(RocketLensError, OSError):
            answers = [source.find(each, is_quick=True) for each in requests]
    for key, answer in zip(keys, answers, strict=False):
        if answer:
            more = " or more" if answer.truncated else ""
            number = counted(len(answer), "message")
            yield f"nothing has the key {text}; {key} has {number}{more}: case matters in keys"


def _known_topics(source: ChosenSource) -> set[str]:
    """Return the topics that are archived, have queues or are configured; reads no log."""
    if source.archive is not None:
        from rocketlens.archive.archive import open_archive

        with open_archive(source.archive) as archive:
            return archive.source.topics
    from rocketlens.store.layout import StoreLayout
    from rocketlens.store.read.config_tables import TOPICS_FILE, TOPICS_MEMBER, read_table
    from rocketlens.store.read.rocks import queues_in

    layout = StoreLayout.of(source.directory)
    queues = queues_in(layout.consume_queue)
    return {*queues.topics(), *read_table(layout.root, TOPICS_FILE, TOPICS_MEMBER).entries}


BEGIN: Final = "begin"


def print_page(
    source: ChosenSource, arguments: Namespace, request: "FindRequest", output: MessageOutput
) -> tuple[SearchProgress, Answer, int]:
    """Print up to --max messages after a cursor, the oldest first, and the next cursor.

    Return what was searched, and the number of messages.

    :raises BadInput: unless the only source is an archive.
    """
    from rocketlens.archive.archive import open_archive

    if source.archive is None or source.is_merged:
        raise BadInput("--cursor is for one archive: give --archive DIR and no other source")
    is_object = arguments.output == "json"
    if is_object and arguments.max is None:
        raise BadInput(
            "--cursor with -o json needs --max N, because one object must fit into memory"
        )
    token = None if arguments.cursor == BEGIN else arguments.cursor
    with SearchProgress() as progress, open_archive(source.archive) as archive:
        find = archive.scan_for if request.text is None else archive.look_up_for
        scan = find(request, cursor=token)
        scan.on_read = progress.report
        page = _Counted(islice(scan, arguments.max), progress)
        if is_object:
            messages = list(page)
            answer = Answer(request.query, (), scan.coverage_so_far)
            output.print_object({**answer_fields(answer), "cursor": scan.cursor}, messages)
        else:
            try:
                output.print_all(page)
                sys.stdout.flush()
            except BrokenPipeError:
                # The reader did not get the last messages: a cursor after them would skip them.
                discard_stdout()
                return progress, Answer(request.query, (), scan.coverage_so_far), page.count
        sys.stdout.flush()
        progress.close()
        answer = Answer(request.query, (), scan.coverage_so_far)
        if not is_object or not answer.complete:
            print_notes(answer, page.count, verbose=arguments.verbose)
        if scan.cursor is not None and not is_object:
            note(f"to go on: --cursor {scan.cursor}")
        return progress, answer, page.count
