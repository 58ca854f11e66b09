"""Prepare the page of the Python API: docstrings become Markdown, settings become arguments.

An extension of griffe, which reads the code without running it.
"""

from collections.abc import Iterator
from typing import Any

import griffe

from docs.generate import markdown_of
from rocketlens.client.blocking.blocking_client import blocking_doc


class MarkdownDocstrings(griffe.Extension):
    """Rewrites each docstring after it was read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute. griffe calls this."""
        if obj.docstring is not None:
            obj.docstring.value = markdown_of(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Show what decorators give clients: arguments, and docstrings. griffe calls this."""
        for client in _classes(pkg):
            for argument in _arguments(client, "documented_by"):
                _add_docstrings(client, pkg.modules_collection[argument.canonical_path])
            init = client.members.get("__init__")
            if not isinstance(init, griffe.Function):
                continue
            for argument in _arguments(init, "takes_settings"):
                settings = pkg.modules_collection[argument.canonical_path]
                own = init.parameters["self"]
                init.parameters = griffe.Parameters(own, *_parameters_of(settings))


def _arguments(decorated: griffe.Class | griffe.Function, name: str) -> Iterator[Any]:
    """Return the first argument of each decorator of a name."""
    for decorator in decorated.decorators:
        call = decorator.value
        if isinstance(call, griffe.ExprCall) and str(call.function) == name:
            yield call.arguments[0]


def _add_docstrings(client: griffe.Class, documented: griffe.Class) -> None:
    for name, member in client.members.items():
        original = documented.all_members.get(name)
        has_both = member.docstring and original is not None and original.docstring
        if has_both and not name.startswith("_"):
            member.docstring.value = blocking_doc(original.docstring.value)


def _parameters_of(settings: griffe.Class) -> list[griffe.Parameter]:
    """Return the fields of a dataclass, those of its bases first; the first one is positional."""
    fields: dict[str, griffe.Parameter] = {}
    for part in reversed([settings, *settings.mro()]):
        for name, field in part.members.items():
            is_field = isinstance(field, griffe.Attribute) and "property" not in field.labels
            if is_field and field.annotation and name != "_":
                fields[name] = griffe.Parameter(
                    name,
                    annotation=field.annotation,
                    kind=griffe.ParameterKind.keyword_only,
                    default=str(field.value) if field.value is not None else None,
                )
    fields["name_servers"].kind = griffe.ParameterKind.positional_or_keyword
    return list(fields.values())


def _classes(module: griffe.Module) -> Iterator[griffe.Class]:
    for member in module.members.values():
        if isinstance(member, griffe.Class):
            yield member
        elif isinstance(member, griffe.Module):
            yield from _classes(member)
