"""Prepare the page of the Python API: docstrings become Markdown, settings become arguments.

An extension of griffe, which reads the code without running it.
"""

from collections.abc import Iterator
from typing import Any

import griffe

from docs.generate import markdown_of


class MarkdownDocstrings(griffe.Extension):
    """Rewrites each docstring after it was read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute. griffe calls this."""
        if obj.docstring is not None:
            obj.docstring.value = markdown_of(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Show clients with the arguments that `takes_settings` gives them. griffe calls this."""
        for client in _classes(pkg):
            init = client.members.get("__init__")
            if not isinstance(init, griffe.Function):
                continue
            for decorator in init.decorators:
                call = decorator.value
                if isinstance(call, griffe.ExprCall) and str(call.function) == "takes_settings":
                    settings = pkg.modules_collection[call.arguments[0].canonical_path]
                    own = init.parameters["self"]
                    init.parameters = griffe.Parameters(own, *_parameters_of(settings))


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
