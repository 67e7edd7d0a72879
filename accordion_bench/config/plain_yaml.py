"""YAML whose words mean what they mean on the command line, and that is safe and quick to read whoever wrote it.

PyYAML reads YAML 1.1, where 010 is eight, `on` is true, 1:30 is ninety, 2026-01-02 a date and 1e3 a word. Hydra's
grammar, which reads the command line, sees 010, on, 1:30 and 2026-01-02 as words and 1e3 as a thousand; so does this.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

DEEPEST = 100  # levels of nesting; a run's configuration has three
INTEGER = re.compile(r"[-+]?(?:0|[1-9](?:_?[0-9])*)")
FLOAT = re.compile(
    r"""[-+]?(?:(?:0|[1-9](?:_?[0-9])*)\.(?:[0-9](?:_?[0-9])*)?(?:[eE][-+]?[0-9]+)?
    |\.[0-9](?:_?[0-9])*(?:[eE][-+]?[0-9]+)?
    |(?:0|[1-9](?:_?[0-9])*)[eE][-+]?[0-9]+
    |\.?(?:inf|Inf|INF))|\.?(?:nan|NaN|NAN)""",
    re.VERBOSE,
)
TAG = "tag:yaml.org,2002:"


class NotYaml(ValueError):
    """Text that cannot be read; the message is one line."""


def load_yaml(text: str) -> Any:
    """The value that the text describes: mappings, lists, words, numbers, booleans and None.

    Raises:
        NotYaml: it is not YAML, is nested more than DEEPEST levels, or has a tag or number that cannot be read.
    """
    import yaml

    quick, careful = _loaders()
    # libyaml's recursion has no bottom. Deep nesting needs many of these on few lines, or a very long text.
    nests = sum(text.count(opener) for opener in ("[", "{", "- ", "? ")) > DEEPEST or len(text) > 2**20
    try:
        return yaml.load(text, careful if nests else quick)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        raise NotYaml(f"{getattr(error, 'problem', None) or 'unreadable characters'}{place}") from None
    except RecursionError:
        raise NotYaml(f"nested more than {DEEPEST} levels") from None
    except (ValueError, OverflowError, TypeError) as error:
        raise NotYaml(str(error).partition("\n")[0]) from None


def dump_yaml(value: Any) -> str:
    """The text of plain values; words that some reader of YAML would take for something else are quoted."""
    import yaml

    return yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=True)


@cache
def _loaders() -> tuple[type, type]:
    import yaml

    def plain(base: Any) -> type:
        loader: Any = type("PlainLoader", (base,), {"yaml_implicit_resolvers": {}})
        resolvers = (
            ("null", re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
            ("bool", re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF")),
            ("int", INTEGER, list("-+0123456789")),
            ("float", FLOAT, list("-+.0123456789iInN")),
            ("merge", re.compile("<<"), ["<"]),
        )
        for tag, pattern, first in resolvers:
            loader.add_implicit_resolver(TAG + tag, re.compile(f"(?:{pattern.pattern})$", pattern.flags), first)
        loader.add_constructor(TAG + "int", lambda own, node: int(own.construct_scalar(node)))
        loader.add_constructor(TAG + "float", lambda own, node: _float(own.construct_scalar(node)))
        return loader

    return plain(getattr(yaml, "CSafeLoader", yaml.SafeLoader)), plain(yaml.SafeLoader)


def _float(text: str) -> float:
    return float(re.sub(r"\.(inf|nan)", r"\1", text.lower()))


@cache
def _dumper() -> type:
    import yaml

    dumper: Any = type("PlainDumper", (yaml.SafeDumper,), {})
    dumper.yaml_implicit_resolvers = {key: list(own) for key, own in yaml.SafeDumper.yaml_implicit_resolvers.items()}
    pattern = re.compile(f"(?:{FLOAT.pattern})$", FLOAT.flags)
    dumper.add_implicit_resolver(TAG + "float", pattern, list("-+.0123456789iInN"))
    dumper.add_representer(str, _quoted_breaks)
    return dumper


def _quoted_breaks(dumper: Any, text: str) -> Any:
    """In double quotes, where it is escaped, what ends a line in YAML but is not written as one."""
    style = '"' if re.search(r"[\x85\u2028\u2029]", text) else None
    return dumper.represent_scalar(TAG + "str", text, style=style)
