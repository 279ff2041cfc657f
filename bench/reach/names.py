"""Finds what a name of a source file stands for: a function, class or constant of one of our modules."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
Function = ast.FunctionDef | ast.AsyncFunctionDef
OURS = frozenset({"torchyard", "scheduling", "store", "api", "controller", "worker"})


@dataclass(frozen=True, eq=False)
class Module:
    """A source file."""

    name: str
    definitions: dict[str, Definition]
    """Its functions, classes and constants, by name."""
    imports: dict[str, tuple[str, str]]
    """The module and the name of each import, by its name in this file; an empty name is the module itself."""


@dataclass(frozen=True)
class Thing:
    """A function, class, method (`Class.method`) or constant of a module."""

    module: Module
    name: str

    @property
    def node(self) -> Definition:
        owner, _, member = self.name.partition(".")
        found = self.module.definitions[owner]
        return members(found)[member] if member and isinstance(found, ast.ClassDef) else found

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, Function)

    @property
    def owner(self) -> "Thing | None":
        """The class of a method."""
        owner, _, member = self.name.partition(".")
        return Thing(self.module, owner) if member else None


@dataclass
class Sources:
    """The source files of a checkout, each parsed when it is first asked for."""

    root: Path
    _parsed: dict[str, Module | None] = field(default_factory=dict[str, Module | None])

    def module(self, name: str) -> Module | None:
        """Returns a module of ours, or None if there is none of that name."""
        if name not in self._parsed:
            self._parsed[name] = self._parse(name)
        return self._parsed[name]

    def find(self, module: Module, name: str) -> Thing | Module | None:
        """Returns what the name stands for in the module. None if it is nothing of ours."""
        if name in module.definitions:
            return Thing(module, name)
        source, there = module.imports.get(name, ("", ""))
        if source.partition(".")[0] not in OURS:
            return None
        if inner := self.module(f"{source}.{there}" if there else source):
            return inner
        outer = self.module(source)
        return None if outer is None or outer is module else self.find(outer, there)

    def _parse(self, name: str) -> Module | None:
        path = self.root.joinpath(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if not path.is_file():
            return None
        tree = ast.parse(path.read_text(encoding="utf-8"))
        return Module(name, dict(_definitions(tree)), dict(_imports(tree)))


def require(sources: Sources, folder: str, name: str) -> Thing:
    """Returns a function of a module in the folder by its name. Raises LookupError."""
    owner, _, member = name.partition(".")
    for path in sorted(sources.root.joinpath(*folder.split(".")).glob("*.py")):
        module = sources.module(f"{folder}.{path.stem}")
        defined = None if module is None else module.definitions.get(owner)
        has_member = not member or (isinstance(defined, ast.ClassDef) and member in members(defined))
        if module is not None and defined is not None and has_member:
            return Thing(module, name)
    raise LookupError(f"nothing in {folder} has {name}")


@cache
def members(defined: ast.ClassDef) -> dict[str, Definition]:
    """Returns methods and annotated fields of a class by name, also those that `__init__` sets."""
    found = {name: node for each in defined.body for name, node in _names(each)}
    init = found.get("__init__")
    if isinstance(init, Function):
        types = {each.arg: each.annotation for each in (*init.args.args, *init.args.kwonlyargs)}
        for node in ast.walk(init):
            for name, member in _set_on_self(node, types):
                found.setdefault(name, member)
    return found


def routes_of(module: Module, name: str) -> Iterator[tuple[str, str]]:
    """Yields the method and the path of each route that a function answers."""
    node = module.definitions[name]
    for each in node.decorator_list if isinstance(node, Function) else ():
        if is_route(each) and isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            path = each.args[0]
            if isinstance(path, ast.Constant) and isinstance(path.value, str):
                yield each.func.attr.upper(), path.value


def is_route(decorator: ast.expr) -> bool:
    """Returns whether a decorator declares a route: it runs once at the start, and not for a request."""
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func).startswith("router.")


def _definitions(tree: ast.Module) -> Iterator[tuple[str, Definition]]:
    for node in tree.body:
        inner = node.body if isinstance(node, ast.If | ast.With | ast.Try) else [node]
        for each in inner:
            yield from _names(each)


def _names(node: ast.stmt) -> Iterator[tuple[str, Definition]]:
    if isinstance(node, Function | ast.ClassDef):
        yield node.name, node
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, node
    elif isinstance(node, ast.Assign):
        yield from ((each.id, node) for each in node.targets if isinstance(each, ast.Name))


def _imports(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield (each.asname, (each.name, "")) if each.asname else (each.name.partition(".")[0], (each.name, ""))
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                yield each.asname or each.name, (node.module, each.name)


def _set_on_self(node: ast.AST, types: dict[str, ast.expr | None]) -> Iterator[tuple[str, Definition]]:
    """Yields what a statement of `__init__` sets on `self`, with the annotation of its parameter if it is one."""
    if isinstance(node, ast.AnnAssign) and _is_of_self(node.target):
        yield ast.unparse(node.target).removeprefix("self."), node
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_of_self(node.targets[0]):
        name, value = ast.unparse(node.targets[0]).removeprefix("self."), node.value
        kind = types.get(value.id) if isinstance(value, ast.Name) else None
        yield name, node if kind is None else ast.AnnAssign(ast.Name(name), kind, value, simple=0)


def _is_of_self(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
