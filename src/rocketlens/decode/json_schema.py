"""Checks documents against JSON Schema, with the package ``jsonschema``.

Its checks are counted, because a few bytes of a schema or a body can cause millions of them.
Regular expressions are those of RE2. Nothing is downloaded: referenced schemas are passed in.
"""

import json
import threading
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from typing import Any, Final
from urllib.parse import urljoin

from rocketlens.decode.tree import Tree
from rocketlens.errors import BodyError
from rocketlens.model.arrow import package

MAX_SCHEMA_CHECKS: Final = 100_000
"""Rules of a JSON schema that are checked on one body: some 0.5 s."""
_PART: Final = 64
"""This many members, elements, pairs of elements or characters cost as much time as a check."""
_ABOUT_NAMES: Final = ("required", "additionalProperties", "dependentRequired")
"""Rules whose errors contain only names of members; others quote values, which may have to be
masked."""

_thread: Final = threading.local()
"""``left``: the remaining checks for the current body of each thread."""


def _library(name: str) -> Any:
    return package(name, "decode", "a JSON schema")


def schema_check(text: str, references: Mapping[str, str]) -> Callable[[Tree], str | None]:
    """Return a function that returns the rule that a value breaks, or why the check failed; else
    None.

    ``references``: the texts of other schemas, by their names in references.

    :raises BodyError: if it is not a schema.
    :raises PackageMissing: if jsonschema or google-re2 is not installed.
    """
    library, referencing, _ = map(_library, ("jsonschema", "referencing.jsonschema", "re2"))
    try:
        draft = library.validators.validator_for(json.loads(text), library.Draft7Validator)
        load = partial(json.loads, object_pairs_hook=_without_draft)
        schema = load(text)
        draft.check_schema(schema)
        base, dialect = draft.ID_OF(schema) or "", draft.ID_OF(draft.META_SCHEMA)
        make = referencing.specification_with(dialect).create_resource
        registry = (
            _library("referencing")
            .Registry()
            .with_resources(
                (urljoin(base, name), make(load(each))) for name, each in references.items()
            )
        )
        checker = _bounded(draft)(schema, registry=registry)
    except (library.SchemaError, ValueError, TypeError, AttributeError, RecursionError) as error:
        why = getattr(error, "message", str(error))
        raise BodyError(f"it is not a JSON schema: {why:.200}") from None
    unknown = library.exceptions.UnknownType, _library("referencing").exceptions.Unresolvable

    def broken_rule(value: Tree) -> str | None:
        _thread.left = MAX_SCHEMA_CHECKS
        try:
            error = next(checker.iter_errors(value), None)
        except (BodyError, RecursionError, *unknown) as reason:
            return f"it is not checked by its schema: {reason!s:.200}"
        if error is None or error.validator is None:
            return error and f"{error.json_path:.200} is not allowed by its schema"
        rule = json.dumps(error.validator_value, ensure_ascii=False)
        what = error.message if error.validator in _ABOUT_NAMES else rule
        return f"{error.json_path:.200} breaks {error.validator} of its schema: {what:.200}"

    return broken_rule


def _without_draft(pairs: list[tuple[str, Tree]]) -> Tree:
    """Return a part of a schema without ``$schema``: checks of a named draft are not counted."""
    return {name: each for name, each in pairs if name != "$schema" or not isinstance(each, str)}


@cache
def _bounded(draft: Any) -> Any:
    """Return a draft's validator class with counted checks."""
    error, properties = _library("jsonschema").ValidationError, draft.VALIDATORS["properties"]

    def counted(name: str, check: Callable[..., Any]) -> Callable[..., Any]:
        def run(checker: Any, rule: Tree, value: Tree, schema: dict[str, Tree]) -> Any:
            parts = sum(len(each) for each in (rule, value) if isinstance(each, dict | list))
            _spend(1 + (parts**2 if name == "uniqueItems" else parts) // _PART)
            if name == "pattern":
                return [error(rule)] if isinstance(value, str) and not _has(rule, value) else ()
            patterns = schema.get("patternProperties")
            if patterns and isinstance(value, dict) and name.endswith("Properties"):
                found = {n: [patterns[p] for p in patterns if _has(p, n)] for n in value}
                if name == "patternProperties":
                    rules = {n: {"allOf": each} for n, each in found.items()}
                    return properties(checker, rules, value, schema)
                value = {n: each for n, each in value.items() if not found[n]}
                schema = {n: each for n, each in schema.items() if n != "patternProperties"}
            return check(checker, rule, value, schema)

        return run

    checks = {name: counted(name, check) for name, check in draft.VALIDATORS.items()}
    return _library("jsonschema").validators.extend(draft, checks)


def _spend(checks: int) -> None:
    _thread.left -= checks
    if _thread.left < 0:
        raise BodyError(f"that takes more than {MAX_SCHEMA_CHECKS} checks")


def _has(pattern: str, text: str) -> bool:
    _spend(len(text) // _PART)
    return _compiled(pattern).search(text) is not None


@lru_cache
def _compiled(pattern: str) -> Any:
    re2 = _library("re2")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        raise BodyError(f"RE2 does not support the pattern {pattern:.100}") from None
