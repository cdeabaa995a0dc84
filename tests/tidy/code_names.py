"""The names that the code defines: what a document may name in backticks.

A name counts where it is defined (module, class, function, parameter, attribute, constant) or where it is written as a
string of its own (a field of a JSON document, a reason, a state). Docstrings, comments and local variables do not
count.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tests.tidy.repository import files, python_files, text

# The lists of exceptions stand there: they must not vouch for themselves.
OWN_FOLDER = "tests/tidy/"
SETTING = re.compile(r"\b[A-Z]+_[A-Z0-9_]+\b")
SETTING_FILES = (".yml", ".example", "Dockerfile", "penstock")
METRIC_PREFIX = "penstock_"
METRICS = {"Counter", "Gauge", "Histogram", "CounterMetricFamily", "GaugeMetricFamily", "HistogramMetricFamily"}
# Methods of frontend/metering/meters.py, which puts the prefix in front.
METER_OWNERS = {"meters"}
METERS = {"count": "Counter", "counter": "Counter", "gauge": "Gauge"}
HISTOGRAM_SERIES = ("_bucket", "_sum", "_count")


@dataclass
class CodeNames:
    modules: set[str] = field(default_factory=set)  # dotted
    defined: set[str] = field(default_factory=set)  # bare names
    strings: set[str] = field(default_factory=set)
    # Of a class, or of a module by the last part of its name.
    members: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    bases: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    metrics: dict[str, set[str]] = field(default_factory=dict)  # as Prometheus shows them, with their labels
    metric_strings: set[str] = field(default_factory=set)  # as the code writes them
    settings: set[str] = field(default_factory=set)
    # Paths and all their ends: "storage_nodes/log/wal.py", "log/wal.py", "wal.py".
    files: set[str] = field(default_factory=set)

    def has_member(self, owner: str, member: str, seen: frozenset[str] = frozenset()) -> bool:
        if member in self.members[owner]:
            return True
        return any(self.has_member(base, member, seen | {owner}) for base in self.bases[owner] - seen)

    def is_known(self, name: str) -> bool:
        """Of a bare name, or of a dotted one: a module, a string as it is, or an owner with its member."""
        if name in self.strings or name in self.modules or _is_of_python(name):
            return True
        owners, _, member = name.rpartition(".")
        if not owners:
            return name in self.defined
        return self.has_member(owners.rpartition(".")[2], member) and (
            "." not in owners or owners in self.modules or self.is_known(owners)
        )


def _is_of_python(name: str) -> bool:
    """`time.time`, `sorted`: names of Python itself."""
    first, *rest = name.split(".")
    if not rest:
        return hasattr(builtins, name)
    return len(rest) == 1 and first in sys.stdlib_module_names and hasattr(importlib.import_module(first), rest[0])


@functools.cache
def code_names() -> CodeNames:
    sources = {name: text(name) for name in python_files() if not name.startswith(OWN_FOLDER)}
    others = {name: text(name) if name.endswith(SETTING_FILES) else "" for name in files() if name not in sources}
    return names_of(sources, others)


def names_of(sources: dict[str, str], others: dict[str, str]) -> CodeNames:
    """Of Python sources, and of other files, of which only paths and settings count."""
    names = CodeNames()
    for path, source in sources.items():
        _add_module(names, path, ast.parse(source))
    for source in others.values():
        names.settings |= set(SETTING.findall(source))
    for path in (*sources, *others):
        parts = path.split("/")
        names.files |= {"/".join(parts[start:]) for start in range(len(parts))}
    return names


def _add_module(names: CodeNames, path: str, tree: ast.Module) -> None:
    module = str(PurePosixPath(path).with_suffix("")).replace("/", ".").removesuffix(".__init__")
    stem = module.rpartition(".")[2]
    names.modules |= {module, stem}
    names.defined.add(stem)
    _add_body(names, stem, tree.body)
    nodes = list(ast.walk(tree))
    docstrings = _docstrings(nodes)
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            names.bases[node.name] |= {base for base in map(_last_name, node.bases) if base}
            _add_body(names, node.name, node.body)
            _add_attributes_of_self(names, node)
        elif isinstance(node, ast.arg):
            names.defined.add(node.arg)
        elif isinstance(node, ast.Call):
            _add_metric(names, node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            names.strings.add(node.value)
            names.settings |= set(SETTING.findall(node.value))
    if "PENSTOCK_" in {node.value for node in nodes if isinstance(node, ast.Constant)}:
        # Settings are read with the prefix in front: they are the fields of this module's classes.
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        names.settings |= {f"PENSTOCK_{member.upper()}" for name in classes for member in names.members[name]}


def _docstrings(nodes: list[ast.AST]) -> set[int]:
    """Strings that stand as a statement of their own."""
    values = (node.value for node in nodes if isinstance(node, ast.Expr))
    return {id(value) for value in values if isinstance(value, ast.Constant)}


def _add_body(names: CodeNames, owner: str, body: list[ast.stmt]) -> None:
    """What a module or a class defines, also under an `if` or a `try`."""
    for node in body:
        found: set[str] = set()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found = {node.name}
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found = {leaf.id for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)}
        elif isinstance(node, ast.If | ast.Try):
            _add_body(names, owner, [*node.body, *node.orelse])
        names.members[owner] |= found
        names.defined |= found


def _add_attributes_of_self(names: CodeNames, node: ast.ClassDef) -> None:
    for leaf in ast.walk(node):
        if isinstance(leaf, ast.Attribute) and isinstance(leaf.ctx, ast.Store) and _last_name(leaf.value) == "self":
            names.members[node.name].add(leaf.attr)
            names.defined.add(leaf.attr)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _add_metric(names: CodeNames, call: ast.Call) -> None:
    called, arguments = call.func, call.args
    if _last_name(called) == "partial" and len(arguments) == 2:
        called, *arguments = arguments
    if not arguments or not isinstance(arguments[0], ast.Constant) or not isinstance(arguments[0].value, str):
        return
    maker, name = _last_name(called), arguments[0].value
    if isinstance(called, ast.Attribute) and _last_name(called.value).lstrip("_") in METER_OWNERS:
        maker, name = METERS.get(maker, ""), METRIC_PREFIX + name
    if maker not in METRICS or not name.startswith(METRIC_PREFIX):
        return
    names.metric_strings.add(name)
    named = (word.value for word in call.keywords if word.arg in ("labels", "labelnames"))
    labels = {
        leaf.value
        for argument in [*arguments[2:], *named]
        for leaf in ast.walk(argument)
        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
    }
    if maker.startswith("Counter"):
        names.metrics[name.removesuffix("_total") + "_total"] = labels
    elif maker.startswith("Histogram"):
        names.metrics |= {name + series: labels for series in ("", *HISTOGRAM_SERIES)}
    else:
        names.metrics[name] = labels
