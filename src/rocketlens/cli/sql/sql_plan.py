"""Derives from a query which messages it needs: topics, tags, times, a key, bodies and a LIMIT.

DuckDB evaluates the whole query again on what was read. So the plan may ignore conditions, but must
not add any: it uses only conditions of the outermost ``WHERE`` that ``AND`` joins.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import BadInput

TABLE: Final = "messages"
_BODY_COLUMNS: Final = frozenset({"body", "body_error", "body_text", "body_json"})
_EQUAL: Final = "COMPARE_EQUAL"
_MIRRORED: Final = {
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    _EQUAL: _EQUAL,
}
_CONTAINS: Final = frozenset(
    {"list_contains", "array_contains", "list_has", "array_has", "contains"}
)
_TIMES: Final = {"store_timestamp_ms": False, "store_time": True}
_PATTERN: Final = frozenset("*?[],")
_ORDERS: Final = frozenset({*_TIMES, "physical_offset"})
_NOT_SCALAR: Final = frozenset({"WINDOW", "SUBQUERY"})
_MAX_LIMIT: Final = 10_000
"""Bound of a LIMIT that is planned; a larger one scans."""
ToMicroseconds = Callable[[str], int | None]
AreScalar = Callable[[frozenset[str]], bool]


class SqlLimit(NamedTuple):
    """The messages that a LIMIT needs: the oldest or newest of the chosen topics and times."""

    rows: int
    column: str | None = None
    """The first column of the order: a time or ``physical_offset``; None without an order."""
    oldest: bool = False
    is_only: bool = True
    """Whether the order has no other column, so that messages with equal times are equivalent."""


class SqlPlan(NamedTuple):
    """The messages that a query reads, and their columns."""

    topics: frozenset[str] | None = None
    """None: all."""
    begin: int | None = None
    end: int | None = None
    key: str | None = None
    tags: frozenset[str] | None = None
    with_body: bool = True
    is_streamed: bool = False
    """Whether the query reads the table once, so that it need not be kept."""
    uses_table: bool = True
    describes: bool = False
    """Whether the query only lists the columns."""
    limit: SqlLimit | None = None


def plan_of(serialized: str, to_microseconds: ToMicroseconds, are_scalar: AreScalar) -> SqlPlan:
    """Return the plan of a query that DuckDB serialized (``json_serialize_sql``).

    `to_microseconds` converts text as DuckDB converts a timestamp; `are_scalar` returns True if all
    functions are scalar.

    :raises BadInput: if it is not one SELECT.
    """
    parsed = json.loads(serialized)
    if parsed["error"]:
        problem = parsed.get("error_message", "").splitlines()[:1]
        if parsed.get("error_type") != "parser":
            raise BadInput(
                "only SELECT, DESCRIBE and SHOW TABLES can be run: messages are read only"
            )
        path = "; a value in a body is body_json->>'$.NAME' in SQL" if '"$"' in problem[0] else ""
        raise BadInput(f"one SELECT is needed: {''.join(problem)[:300]}{path}")
    if len(parsed["statements"]) != 1:
        raise BadInput(f"one SELECT is needed, and there are {len(parsed['statements'])}")
    node = parsed["statements"][0]["node"]
    nodes = list(_nodes(node))
    tables = [each for each in nodes if each.get("type") == "BASE_TABLE"]
    uses_table = any(each["table_name"].lower() == TABLE for each in tables)
    source = node.get("from_table") or {}
    if source.get("type") == "SHOW_REF" and source["show_type"] != "SUMMARY":
        return SqlPlan(uses_table=False, describes=True)
    is_plain = (
        node["type"] == "SELECT_NODE"
        and not node["cte_map"]["map"]
        and source.get("type") == "BASE_TABLE"
        and len(tables) == 1
        and source["table_name"].lower() == TABLE
        and not source["schema_name"]
        and not source["column_name_alias"]
    )
    if not is_plain:
        return SqlPlan(uses_table=uses_table)
    names = {TABLE, source["alias"].lower()}
    aliases = {each.get("alias", "").lower() for each in node["select_list"]}
    plan = SqlPlan(with_body=_reads_body(nodes, names), is_streamed=True)
    is_exact = True
    for condition in _conjuncts(node["where_clause"]):
        narrowed = _narrow(plan, _Condition(condition, names, aliases, to_microseconds))
        is_exact = is_exact and narrowed is not None
        plan = narrowed or plan
    if is_exact and are_scalar(_functions(node)):
        column = _Condition({"type": ""}, names, aliases, to_microseconds).column
        plan = plan._replace(limit=_limit_of(node, column))
    return plan


def _functions(node: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(each["function_name"] for each in _nodes(node) if "function_name" in each)


def _limit_of(node: Mapping[str, Any], column_of: Callable[[Any], str | None]) -> SqlLimit | None:
    """Return the LIMIT of a plain query, if each message is one row of the result."""
    *others, last = node["modifiers"] or [{}]
    kinds = [each["type"] for each in others]
    is_grouped = node["group_expressions"] or node["aggregate_handling"] != "STANDARD_HANDLING"
    is_other = any(node[name] for name in ("having", "sample", "qualify"))
    is_scalar = _NOT_SCALAR.isdisjoint(each.get("class") for each in _nodes(node["select_list"]))
    if kinds not in ([], ["ORDER_MODIFIER"]) or is_grouped or is_other or not is_scalar:
        return None
    numbers = [literal(last.get(name), "INTEGER") for name in ("limit", "offset")]
    if last.get("limit_type") != "ROW_COUNT" or numbers[0] is None:
        return None
    if last["offset"] is not None and numbers[1] is None:
        return None
    count = sum(int(each or 0) for each in numbers)
    if not 0 < count <= _MAX_LIMIT:
        return None
    if not others:
        return SqlLimit(count)
    first, *more = others[0]["orders"]
    column = column_of(first["expression"])
    if column not in _ORDERS:
        return None
    return SqlLimit(count, column, first["type"] != "DESCENDING", not more)


def _nodes(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all objects in a value."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            yield each
            stack += each.values()
        elif isinstance(each, list):
            stack += each


def _conjuncts(condition: Any) -> Iterator[Mapping[str, Any]]:
    if condition is None:
        return
    if condition["type"] == "CONJUNCTION_AND":
        for child in condition["children"]:
            yield from _conjuncts(child)
    elif condition["type"] == "COMPARE_BETWEEN":
        left = condition["input"]
        for kind, side in (("GREATER", "lower"), ("LESS", "upper")):
            yield {"type": f"COMPARE_{kind}THANOREQUALTO", "left": left, "right": condition[side]}
    else:
        yield condition


def _reads_body(nodes: list[Mapping[str, Any]], names: set[str]) -> bool:
    for each in nodes:
        if str(each.get("type")) not in {"COLUMN_REF", "STAR"}:
            continue
        parts = [name.lower() for name in each.get("column_names", ())]
        # All columns, or a whole row.
        if each["type"] == "STAR" or _BODY_COLUMNS & set(parts) or parts[0] in names:
            if len(parts) == 2 and parts[0] in names and not parts[1].startswith("body"):
                continue
            return True
    return False


class _Condition:
    """One condition of a WHERE."""

    def __init__(
        self,
        node: Mapping[str, Any],
        names: set[str],
        aliases: set[str],
        to_microseconds: ToMicroseconds,
    ) -> None:
        self.node: Final = node
        self.kind: Final[str] = node["type"]
        self._names: Final = names
        self._aliases: Final = aliases
        self._to_microseconds: Final = to_microseconds

    def column(self, node: Any) -> str | None:
        """Return the column of the table that a node names, or None."""
        if not isinstance(node, dict) or node.get("type") != "COLUMN_REF":
            return None
        names: list[str] = [name.lower() for name in node["column_names"]]
        *table, column = names
        # The name can be an alias of the result.
        if column in self._aliases or len(table) > 1 or not set(table) <= self._names:
            return None
        return column

    def compared(self) -> tuple[str, str, Any] | None:
        """Return column, comparison and other operand, with the column on the left."""
        left, right = self.node.get("left"), self.node.get("right")
        if self.kind not in _MIRRORED:
            return None
        column = self.column(left)
        if column is not None:
            return column, self.kind, right
        column = self.column(right)
        return None if column is None else (column, _MIRRORED[self.kind], left)

    def microseconds(self, node: Any, column: str) -> int | None:
        """Return the epoch microseconds of a constant that is compared with a column."""
        value = literal(node, "STRING" if _TIMES[column] else "INTEGER")
        if value is None:
            return None
        number = self._to_microseconds(value) if _TIMES[column] else int(value) * 1000
        most = limits.MAX_TIMESTAMP_MS * 1000
        return number if number is not None and 0 <= number <= most else None


def literal(node: Any, kind: str) -> str | None:
    """Return the text of a constant of a kind; for strings also in a cast to a time."""
    if not isinstance(node, dict):
        return None
    if node.get("type") == "OPERATOR_CAST" and kind == "STRING" and not node["try_cast"]:
        name = node.get("type_expr", {}).get("type_name", "")
        is_time = name.upper().startswith(("TIMESTAMP", "DATE"))
        return literal(node["child"], kind) if is_time else None
    node_literal = node.get("literal")
    if node.get("type") != "VALUE_CONSTANT" or not isinstance(node_literal, dict):
        return None
    return (
        str(node_literal["text"])
        if node_literal.get("kind") == kind and "text" in node_literal
        else None
    )


def _narrow(plan: SqlPlan, condition: _Condition) -> SqlPlan | None:
    """Return a plan narrowed by a condition; None if the plan cannot express it."""
    node, kind = condition.node, condition.kind
    compared = condition.compared()
    if compared is not None:
        return _narrow_by_comparison(plan, condition, *compared)
    if kind == "COMPARE_IN":
        column = condition.column(node["children"][0])
        return _narrow_by_texts(plan, column, [_text(each) for each in node["children"][1:]])
    if kind == "FUNCTION" and node["function_name"] in _CONTAINS:
        first, *others = [each["expression"] for each in node["arguments"]]
        if condition.column(first) == "keys" and len(others) == 1:
            return _narrow_by_key(plan, _text(others[0]))
    if kind == "SUBQUERY" and node.get("comparison_type") == _EQUAL and _is_any_key(condition):
        return _narrow_by_key(plan, _text(node["child"]))
    return None


def _is_any_key(condition: _Condition) -> bool:
    """Return True for ``... = ANY(keys)``."""
    inner = condition.node.get("subquery", {}).get("node", {})
    if condition.node.get("subquery_type") != "ANY" or len(inner.get("select_list", ())) != 1:
        return False
    (only,) = inner["select_list"]
    return (
        (inner.get("from_table") or {}).get("type") == "EMPTY"
        and only.get("function_name") == "unnest"
        and [condition.column(each["expression"]) for each in only["arguments"]] == ["keys"]
    )


def _narrow_by_comparison(
    plan: SqlPlan, condition: _Condition, column: str, kind: str, other: Any
) -> SqlPlan | None:
    if column not in _TIMES:
        return _narrow_by_texts(plan, column, [_text(other)] if kind == _EQUAL else [])
    moment = condition.microseconds(other, column)
    if moment is None:
        return None
    # The milliseconds around the moment.
    floor, ceiling = moment // 1000, -(-moment // 1000)
    low = {"COMPARE_GREATERTHAN": floor + 1, "COMPARE_GREATERTHANOREQUALTO": ceiling}
    high = {"COMPARE_LESSTHAN": max(ceiling - 1, 0), "COMPARE_LESSTHANOREQUALTO": floor}
    if kind == _EQUAL:
        return _narrow_by_time(plan, ceiling, floor)
    return _narrow_by_time(plan, low.get(kind), high.get(kind))


def _text(node: Any) -> str | None:
    """Return a constant text without a cast."""
    is_constant = isinstance(node, dict) and node.get("type") == "VALUE_CONSTANT"
    return literal(node, "STRING") if is_constant else None


def _narrow_by_texts(plan: SqlPlan, column: str | None, texts: list[str | None]) -> SqlPlan | None:
    """Return a plan for messages of some topics or tags; None for other columns."""
    names = frozenset(each for each in texts if each)
    if column not in ("topic", "tags") or not names or len(names) < len({*texts}):
        return None
    if column == "tags":
        from rocketlens.query.request import parse_tags

        is_option = parse_tags(" || ".join(names)) == names
        return plan._replace(tags=names & (plan.tags or names)) if is_option else None
    if any(_PATTERN & set(each) for each in names):
        return None
    return plan._replace(topics=names & (plan.topics or names))


def _narrow_by_time(plan: SqlPlan, low: int | None, high: int | None) -> SqlPlan:
    begin = max((each for each in (plan.begin, low) if each is not None), default=None)
    end = min((each for each in (plan.end, high) if each is not None), default=None)
    return plan._replace(begin=begin, end=end)


def _narrow_by_key(plan: SqlPlan, key: str | None) -> SqlPlan | None:
    return None if key is None or plan.key is not None else plan._replace(key=key)
