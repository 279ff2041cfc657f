"""Options that parameters and fields declare: of click and typer, and of dataclasses that tyro reads."""

import ast
from collections.abc import Iterator

from torchyard.cli.declared.files import texts, written
from torchyard.cli.declared.options import Kind, Option

_OPTIONS = {"typer.Option", "Option"}
_TRUTHS = "takes True and False: write True,False"


def of_functions(tree: ast.Module, file: str) -> Iterator[Option]:
    """Yields the options that the functions and classes of a module declare."""
    text = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _of_click(node, file)
            if "typer" in text:
                yield from _of_typer(node, file)
        elif isinstance(node, ast.ClassDef) and "tyro" in text:
            yield from _of_tyro(node, file)


def _of_click(function: ast.FunctionDef | ast.AsyncFunctionDef, file: str) -> Iterator[Option]:
    for call in function.decorator_list:
        if not isinstance(call, ast.Call) or written(call.func) not in {"click.option", "option"}:
            continue
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        is_flag = isinstance(flag := given.get("is_flag"), ast.Constant) and flag.value is True
        yield from _of_texts(texts(call), is_flag=is_flag or "flag_value" in given, where=f"{file}, line {call.lineno}")


def _of_texts(named: list[str], *, is_flag: bool, where: str) -> Iterator[Option]:
    """Yields the option of texts such as `--amp/--no-amp` and `-a`, as click and typer take them."""
    pairs = [text.partition("/") for text in named if text.startswith("-")]
    if not pairs:
        return
    names = tuple(on.strip() for on, _, _ in pairs)
    offs = {off.strip() for _, _, off in pairs if off.strip()}
    regular = offs <= {f"--no-{name.removeprefix('--')}" for name in names}
    kind: Kind = "no-flag" if offs and regular else "flag" if is_flag and not offs else "value"
    other = f"is switched off by {', '.join(sorted(offs))}: vary {{NAME}} in the arguments instead"
    yield Option(names=names, kind=kind, no_truths=None if regular else other, where=where)


def _of_typer(function: ast.FunctionDef | ast.AsyncFunctionDef, file: str) -> Iterator[Option]:
    if not _is_command(function):
        return
    for parameter, default in _parameters(function):
        where = f"{file}, line {parameter.lineno}"
        annotation = parameter.annotation
        call = _option_call(default) or _option_call(annotation)
        is_bool = annotation is not None and _plain_type(annotation) in {"bool", "Optional[bool]", "bool | None"}
        if default is None and call is None:
            continue  # an argument without a name
        named = [] if call is None else texts(call)
        if any(text.startswith("-") for text in named):
            yield from _of_texts(named, is_flag=is_bool, where=where)
        else:
            name = f"--{parameter.arg.replace('_', '-')}"
            yield Option(names=(name,), kind="no-flag" if is_bool else "value", where=where)


def _is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    decorators = [written(each) for each in function.decorator_list]
    return not decorators or any(".command" in each or ".callback" in each for each in decorators)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    given = [*function.args.posonlyargs, *function.args.args]
    missing: list[ast.expr | None] = [None] * (len(given) - len(function.args.defaults))
    yield from zip(given, [*missing, *function.args.defaults], strict=True)
    yield from zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)


def _option_call(node: ast.expr | None) -> ast.Call | None:
    found = ast.walk(node) if node is not None else ()
    return next((each for each in found if isinstance(each, ast.Call) and written(each.func) in _OPTIONS), None)


def _plain_type(annotation: ast.expr) -> str:
    """Returns the type of an annotation, without what `Annotated` adds."""
    if isinstance(annotation, ast.Subscript) and written(annotation.value).rpartition(".")[2] == "Annotated":
        inner = annotation.slice
        return written(inner.elts[0]) if isinstance(inner, ast.Tuple) else written(inner)
    return written(annotation)


def _of_tyro(node: ast.ClassDef, file: str) -> Iterator[Option]:
    for field in node.body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        is_bool, name = written(field.annotation) == "bool", f"--{field.target.id.replace('_', '-')}"
        kind: Kind = "no-flag" if is_bool and field.value is not None else "value"
        truths = _TRUTHS if is_bool and field.value is None else None
        yield Option(names=(name,), kind=kind, no_truths=truths, where=f"{file}, line {field.lineno}")
