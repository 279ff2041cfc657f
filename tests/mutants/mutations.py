"""Finds small changes of a function's body that a test should notice.

A change is known by its function's name and the source that it changes, so that it is found again where the function
has moved.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef

_COMPARISONS: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
}
_ARITHMETIC: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.FloorDiv(),
    ast.Div: ast.Mult(),
    ast.FloorDiv: ast.Mult(),
}
_CONDITIONS = frozenset({"where", "and_", "filter"})
"""Calls of SQLAlchemy, each of whose arguments is a condition."""


@dataclass(frozen=True)
class Mutation:
    """Replaces the `index`-th expression or statement of a function that reads as `before`."""

    function: str
    before: str
    after: str
    index: int


def functions(tree: ast.Module) -> dict[str, Function]:
    """Returns the functions of a module and the methods of its classes, by their qualified names.

    A name that is defined twice, as by `overload`, is left out.
    """
    found = list(_functions(tree, ""))
    names = Counter(name for name, _ in found)
    return {name: function for name, function in found if names[name] == 1}


def mutations(name: str, function: Function) -> Iterator[Mutation]:
    """Yields all mutations of a function's body."""
    seen: dict[str, int] = {}
    for node in _parts(function):
        before = ast.unparse(node)
        index = seen[before] = seen.get(before, -1) + 1
        for after in _variants(node):
            if (text := ast.unparse(after)) != before:
                yield Mutation(name, before, text, index)


def apply(function: Function, mutation: Mutation) -> bool:
    """Changes the function in place. Returns False where it does not have the mutation's source any more."""
    index = -1
    for node in _parts(function):
        if ast.unparse(node) != mutation.before:
            continue
        index += 1
        if index == mutation.index:
            _Replacing(node, mutation.after).visit(function)
            ast.fix_missing_locations(function)
            return True
    return False


def line(function: Function, mutation: Mutation) -> int | None:
    """Returns the line where the mutation's source begins."""
    same = [node for node in _parts(function) if ast.unparse(node) == mutation.before]
    return same[mutation.index].lineno if mutation.index < len(same) else None


class _Replacing(ast.NodeTransformer):
    def __init__(self, node: ast.AST, source: str) -> None:
        self._node = node
        self._source = source

    def visit(self, node: ast.AST) -> ast.AST:
        if node is not self._node:
            return self.generic_visit(node)
        (made,) = ast.parse(self._source).body
        replacement = made.value if isinstance(node, ast.expr) and isinstance(made, ast.Expr) else made
        return ast.copy_location(replacement, node)


def _functions(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, Function]]:
    for item in node.body:
        if isinstance(item, Function):
            yield prefix + item.name, item
        elif isinstance(item, ast.ClassDef):
            yield from _functions(item, f"{prefix}{item.name}.")


def _parts(function: Function) -> list[ast.expr | ast.stmt]:
    """Returns what can be mutated: the statements but for the docstring, and the expressions below them."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    found: list[ast.expr | ast.stmt] = []
    for statement in body:
        found.extend(_below(statement))
    return found


def _below(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "args"} and isinstance(node, Function | ast.AnnAssign):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _below(child)


def _variants(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    match node:
        case ast.Compare(left, [operator], [right]):
            yield ast.Compare(left, [_COMPARISONS[type(operator)]], [right])
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC and not _is_text(left, right):
            yield ast.BinOp(left, _ARITHMETIC[type(operator)], right)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
        case ast.Call(ast.Attribute(attr=name) | ast.Name(id=name), [_, _, *_] as conditions, []) if (
            name in _CONDITIONS
        ):
            for index in range(len(conditions)):
                yield ast.Call(node.func, conditions[:index] + conditions[index + 1 :], [])
        case ast.Return(ast.expr() as value) if not _is_none(value):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call() | ast.Await()):
            yield ast.Pass()
        case ast.If(_, body, orelse):
            yield ast.If(ast.Constant(False), body, orelse)
        case _:
            return


def _is_text(*operands: ast.expr) -> bool:
    return any(
        isinstance(operand, ast.JoinedStr) or (isinstance(operand, ast.Constant) and isinstance(operand.value, str))
        for operand in operands
    )


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None
