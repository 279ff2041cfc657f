"""Walks through a function, and finds what it calls or names, in the order of its text."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.reach.names import Function, Module, Sources, Thing, is_route, members

Reach = Callable[[Thing], None]


@dataclass(frozen=True)
class Value:
    """An object of a class, or a list, iterator or context of such objects."""

    kind: Thing


Known = Thing | Module | Value | None
"""What is known of an expression: what it names, the class of its value, or nothing."""


def walk(sources: Sources, thing: Thing, reach: Reach) -> None:
    """Calls `reach` for each of our functions, classes and constants that a function or a constant names.

    Of a class it names the bases: methods are reached where they are called.
    """
    node, visitor = thing.node, _Visitor(sources, thing.module, reach)
    if isinstance(node, ast.ClassDef):
        for base in node.bases:
            visitor.visit(base)
    elif isinstance(node, Function):
        if thing.owner is not None:
            first = next((each.arg for each in node.args.args), "")
            visitor.known[first] = Value(thing.owner)
        visitor.visit_function(node)
    elif node.value is not None:
        visitor.visit(node.value)


@dataclass
class _Visitor:
    sources: Sources
    module: Module
    reach: Reach
    known: dict[str, Known] = field(default_factory=dict[str, Known])
    """What is known of local names."""

    def visit_function(self, node: Function) -> None:
        for each in node.decorator_list:
            if not is_route(each):
                self.visit(each)
        for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if each.annotation is not None:
                self.visit(each.annotation)
                self.known[each.arg] = self.value_of(each.annotation, self.module)
        for each in node.body:
            self.visit(each)

    def visit(self, node: ast.AST) -> Known:
        """Returns what is known of the value."""
        method = getattr(self, f"on_{type(node).__name__.lower()}", None)
        if method is not None:
            return method(node)
        for each in ast.iter_child_nodes(node):
            self.visit(each)
        return None

    def value_of(self, annotation: ast.expr, module: Module) -> Value | None:
        """Returns the first class of ours in an annotation that stands in the module: X of `X | None` or `list[X]`."""
        if isinstance(annotation, ast.Constant):
            annotation = ast.Name(str(annotation.value))  # a class that is defined below
        for name in ast.walk(annotation):
            found = self.sources.find(module, name.id) if isinstance(name, ast.Name) else None
            if isinstance(found, Thing) and isinstance(found.node, ast.ClassDef):
                return Value(found)
            if isinstance(found, Thing) and isinstance(found.node, ast.Assign):
                return self.value_of(found.node.value, found.module)
        return None

    def on_functiondef(self, node: Function) -> None:
        self.visit_function(node)

    on_asyncfunctiondef = on_functiondef

    def on_name(self, node: ast.Name) -> Known:
        if node.id in self.known:
            return self.known[node.id]
        return self._reached(self.sources.find(self.module, node.id))

    def on_attribute(self, node: ast.Attribute) -> Known:
        base = self.visit(node.value)
        if isinstance(base, Module):
            return self._reached(self.sources.find(base, node.attr))
        if base is None:
            return None
        return self._member(base.kind if isinstance(base, Value) else base, node.attr)

    def on_call(self, node: ast.Call) -> Known:
        called = self.visit(node.func)
        for each in (*node.args, *node.keywords):
            self.visit(each)
        if isinstance(called, Thing) and isinstance(called.node, ast.ClassDef):
            for name in ("__init__", "__post_init__"):
                self._member(called, name)
            return Value(called)
        if isinstance(called, Value):
            self._member(called.kind, "__call__")
        return self._answer_of(called) if isinstance(called, Thing) else None

    def on_await(self, node: ast.Await | ast.YieldFrom) -> Known:
        return self.visit(node.value)

    on_yieldfrom = on_await

    def on_subscript(self, node: ast.Subscript) -> Known:
        value = self.visit(node.value)
        self.visit(node.slice)
        return value if isinstance(value, Value) else None

    def on_assign(self, node: ast.Assign) -> None:
        value = self.visit(node.value)
        for target in node.targets:
            self._set(target, value)

    def on_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
        self._set(node.target, self.value_of(node.annotation, self.module))

    def on_withitem(self, node: ast.withitem) -> None:
        value = self.visit(node.context_expr)
        if node.optional_vars is not None:
            self._set(node.optional_vars, value)

    def on_for(self, node: ast.For | ast.AsyncFor) -> None:
        self._set(node.target, self.visit(node.iter))
        for each in (*node.body, *node.orelse):
            self.visit(each)

    on_asyncfor = on_for

    def on_listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Known:
        for each in node.generators:
            self._set(each.target, self.visit(each.iter))
            for condition in each.ifs:
                self.visit(condition)
        if isinstance(node, ast.DictComp):
            self.visit(node.key)
            return self.visit(node.value)
        return self.visit(node.elt)

    on_setcomp = on_generatorexp = on_dictcomp = on_listcomp

    def _set(self, target: ast.expr, value: Known) -> None:
        if isinstance(target, ast.Name):
            self.known[target.id] = value if isinstance(value, Value) else None
        elif isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._set(each, None)

    def _reached(self, found: Thing | Module | None) -> Known:
        if isinstance(found, Thing):
            self.reach(found)
            if isinstance(found.node, ast.Assign) and not isinstance(found.node.value, ast.Constant):
                return self.value_of(found.node.value, found.module)
        return found

    def _member(self, kind: Thing, name: str) -> Known:
        """Returns what is known of a class's member, and reaches it if it is a method."""
        node = kind.node
        if not isinstance(node, ast.ClassDef):
            return None
        member = members(node).get(name)
        if isinstance(member, Function):
            method = Thing(kind.module, f"{kind.name}.{name}")
            self.reach(method)
            is_value = any(ast.unparse(each).endswith("property") for each in member.decorator_list)
            return self._answer_of(method) if is_value else method
        if isinstance(member, ast.AnnAssign):
            return self.value_of(member.annotation, kind.module)
        if isinstance(member, ast.Assign):
            return self.value_of(member.value, kind.module)
        for base in node.bases:
            found = self.sources.find(kind.module, base.id) if isinstance(base, ast.Name) else None
            if isinstance(found, Thing) and (known := self._member(found, name)) is not None:
                return known
        return None

    def _answer_of(self, called: Thing) -> Value | None:
        node = called.node
        if not isinstance(node, Function) or node.returns is None:
            return None
        if called.owner is not None and ast.unparse(node.returns).strip("'\"") == "Self":
            return Value(called.owner)
        return self.value_of(node.returns, called.module)
