"""SQL92 expressions and properties to judge them by: curious ones, and generated ones."""

from random import Random

from rocketlens.model.sql92 import EvaluationFailed, InvalidSql92, parse_sql92
from rocketlens.query.filters.where import parse_where

CURIOUS = """\
a; a = 'x'; a = 'it''s'; a = ''; a <> 'x'; a = b; a <> b; a IS NULL; a IS NOT NULL; a is not null;
NOT a IS NULL; a = NULL; NULL; NULL = NULL; NULL IS NULL; TRUE; FALSE; NOT TRUE; NOT NULL;
TRUE = 5; 5 = TRUE; TRUE = a; a = TRUE; a = true; TRUE = TRUE; TRUE IS NULL; a = 5; a = 5L;
a = 5l; a <> 5; 5 = a; a > 5; a >= 5; a < 5; a <= 5; 5 < a; a > -5; a = -5; -a = 5; -a > 5;
- - a = 5; -(5) = -5; +5 = 5; +a = 5; a = +5; a = 2147483647; a = 2147483648;
a = 9223372036854775807; a = 9223372036854775808; a = -9223372036854775807; a = 007; a = 0;
a = 0L; a = 00; a = 5.5; a > 5.; a > .5; a > 5e1; a > 5E-1; a > 5.5E+1; a > 0.0; a > 0.1;
a > 1e400; a > 1e-400; a > 4.9e-324; a = 1.0; a > b; a >= b; a BETWEEN 1 AND 9; a BETWEEN 9 AND 1;
a BETWEEN 1 AND 1; a BETWEEN 1.5 AND 9; a BETWEEN 1 AND 9.5; a BETWEEN 9.5 AND 1;
a BETWEEN -1 AND -9; a NOT BETWEEN 1 AND 9; a NOT BETWEEN 9 AND 1; a BETWEEN 'x' AND 'y';
a BETWEEN 1 AND 'y'; a BETWEEN b AND 9; a BETWEEN b AND c; a BETWEEN NULL AND 9;
a BETWEEN TRUE AND FALSE; 5 BETWEEN 1 AND 9; a between 1 and 9 and b = 'x'; a IN ('x');
a IN ('x', 'y', 'z'); a IN ('x', 'y', 'z', 'u', 'v', 'w'); a NOT IN ('x', 'y');
a NOT IN ('u', 'v', 'w', 'x', 'y', 'z'); a IN (); a IN (5); a IN 'x'; 'x' IN ('x'); (a) IN ('x');
-a IN ('x'); a IN ('x') IN ('y'); a IN ('x'; a CONTAINS 'x'; a NOT CONTAINS 'x'; a CONTAINS '';
a NOT CONTAINS ''; a STARTSWITH 'x'; a NOT STARTSWITH 'x'; a ENDSWITH 'x'; a NOT ENDSWITH 'x';
a ENDSWITH ''; a CONTAINS 5; a CONTAINS b; 5 CONTAINS '5'; 'xyz' CONTAINS 'y';
(a = 'x') CONTAINS 'x'; (a = 'x') NOT CONTAINS 'x'; a CONTAINS 'x' CONTAINS 'y'; a AND b; a OR b;
NOT a; NOT a = 5; NOT (a = 5); NOT NOT (a = 5); a = 5 OR b = 'x'; a = 'x' OR b = 5;
b = 'x' OR a = 5; b = 'x' AND a = 5; a = 'x' AND b = 'y' OR c = 'z';
a = 'x' AND (b = 'y' OR c = 'z'); a = 'x' OR b = 'y' AND c = 'z'; a > 1 > 2; a = b = c;
a = 'x' = TRUE; a = 'x' = 'true'; (a = 'x') = (b = 'y'); (a = 'x') <> (b = 'y');
(a = 'x') IS NULL; (a = 'x') IS NOT NULL; (a = 'x') > 1; a IS NULL IS NULL; a IS NULL = TRUE;
a IS NULL <> FALSE; 'x'; 5; 5 AND 6; 'x' = 'x'; 'x' = 'y'; 'x' > 'y'; '5' = 5; 5 = '5'; 5 = 5.0;
5.0 = 5; 5 = 5L; 5L = 5; 5L = 5.0; 5.5L = 5; 5 > 4; 5 > 4.5; 4.5 < 5L; 5 > TRUE; 5 > 'x'; a > 'x';
a = 5 trailing; a = 5 5; a = 5 ); a = 5 (; a = 5 @; a = 5 b @; a = 5 NOT; a = 5 NOT b;
a = 5 NOT IN ('x'); a = 5 IS; a = 5 AND; a = 5 OR; AND; OR a = 5; (); (a = 5; ((((a = 5))));
a == 5; a != 5; a = "5"; a = 'x; a = x'; a.b = 5; a-b = 5; a - 5 = 5; $a = 5; _a = 5; a1 = 5;
1a = 5; a = 5 -- comment; a = 5 /* comment */ AND b = 'x'; a = 5 /* comment;
a = 5 /* ** * / */ OR b = 'x'; a = 5 /**/; /* first */ a = 5; a = - -5; a = --5; A = 5;
not(a=5)or(b='x'); a=5and b='x'; a in('x','y'); a LIKE 'x%'; ä = 5; a = 'ä'; a = '中文';
a = '😀'; a CONTAINS '😀'; *; 1 = 1; 1 <> 1; NOT 1 = 1; NOT 1; - TRUE; -TRUE = 5; -'x' = 5;
-'x' > 5; -'x' IS NULL; +'x' = 'x'; +TRUE; +a; -a; -a IS NULL; +(a = 5); -(a = 5);
-(a = 5) IS NULL; true; True and tRUE; contains = 5; a CONTAINS TRUE; now""".replace(
    ";\n", "; "
).split("; ")
CURIOUS += [
    "",
    " ",
    "\t\n a = 5 \r\f",
    "a = 5 -- comment\n AND b = 'x'",
    "a = 5 --\rOR b = 'x'",
    "a\u00a0= 5",
]

VALUES = """\
x|y|z|xyz|yx|5|6|-5|+5|05|0|5.0|5.5|-5.5|.5|5.|1e1|5e0|5E+0|5d|5f|5L| 5|5 |0x5|0x5p0|0x1.8p1|
NaN|-NaN|Infinity|-Infinity|true|TRUE|false|null|it's|2147483647|2147483648|-2147483648|
9223372036854775807|9223372036854775808|1_000|٥|５|𝟓|ä|中文|😀|1e400|-1e400|1e-400|-0|-0.0|0.0|--5|
+|-|e5|5e|0x|0xp0|5dd|now""".replace("|\n", "|").split("|")
VALUES.append("\t5\n")

_COMPARISONS = ("=", "<>", "<", ">", "<=", ">=")


def _generated(chance: Random, depth: int) -> str:
    """Write an expression that may well be invalid."""
    kind = chance.randrange(10) if depth else chance.randrange(4, 9)
    if kind < 2:
        word = chance.choice(("AND", "OR"))
        return f"{_generated(chance, depth - 1)} {word} {_generated(chance, depth - 1)}"
    if kind == 2:
        return f"NOT {_generated(chance, depth - 1)}"
    if kind == 3:
        return f"({_generated(chance, depth - 1)})"
    left = _operand(chance, depth)
    negation = chance.choice(("", "NOT "))
    if kind == 4:
        return f"{left} {negation}BETWEEN {_operand(chance, 0)} AND {_operand(chance, 0)}"
    if kind == 5:
        texts = ", ".join(_text(chance) for _ in range(chance.randrange(1, 7)))
        return f"{left} {negation}IN ({texts})"
    if kind == 6:
        word = chance.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
        return f"{left} {negation}{word} {_text(chance)}"
    if kind == 7:
        return f"{left} IS {negation}NULL"
    return f"{left} {chance.choice(_COMPARISONS)} {_operand(chance, depth)}"


def _text(chance: Random) -> str:
    quoted = chance.choice(VALUES).replace("'", "''")
    return f"'{quoted}'"


def _operand(chance: Random, depth: int) -> str:
    kind = chance.randrange(12)
    if kind < 6:
        return chance.choice("abc")
    if kind == 6:
        return _text(chance)
    if kind == 7 and depth:
        return f"({_generated(chance, depth - 1)})"
    if kind == 8:
        return chance.choice(("-", "+")) + _operand(chance, 0)
    if kind == 9:
        return chance.choice(("TRUE", "FALSE", "NULL"))
    return chance.choice(("0", "5", "6L", "5.5", "2147483648", "1e1", ".5", "9223372036854775807"))


def _properties(chance: Random) -> dict[str, str]:
    return {name: chance.choice(VALUES) for name in "abc" if chance.randrange(4)}


def cases(seed: int, count: int) -> list[tuple[str, dict[str, str]]]:
    """Return the curious expressions with some properties each, and ``count`` generated ones."""
    chance = Random(seed)
    made: list[tuple[str, dict[str, str]]] = []
    for text in CURIOUS:
        made += [(text, {}), (text, {"a": "x", "b": "x"}), (text, {"a": "5", "b": "x"})]
        made += [(text, _properties(chance)), (text, _properties(chance))]
    made += [(_generated(chance, chance.randrange(4)), _properties(chance)) for _ in range(count)]
    return made


def ours(text: str, properties: dict[str, str]) -> str:
    """Return what we make of a case, in the judge's words."""
    try:
        expression = parse_sql92(text)
    except InvalidSql92:
        return "invalid"
    try:
        return {True: "true", False: "false", None: "null"}[expression.evaluate(properties)]
    except EvaluationFailed:
        return "error"


def by_where(text: str, properties: dict[str, str]) -> str:
    """Return what the filter language makes of a case, in the judge's words.

    It refuses what follows an expression, which SQL92 does not look at: then SQL92 decides.
    """
    try:
        where = parse_where(text)
    except InvalidSql92 as error:
        return ours(text, properties) if "the end is expected" in str(error) else "invalid"
    try:
        return "true" if where.passes(properties) else "not true"
    except EvaluationFailed:
        return "error"


def lines_of(some: list[tuple[str, dict[str, str]]]) -> str:
    """Write cases as the judge reads them."""
    lines = []
    for text, properties in some:
        words = [text, *(word for pair in properties.items() for word in pair)]
        lines.append("\t".join(word.encode().hex() for word in words))
    return "".join(f"{line}\n" for line in lines)
