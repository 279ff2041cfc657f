from typing import Any

datetime: Any

def render_jinja_template(conversations: list[list[dict[str, str]]], **options: Any) -> tuple[list[str], list[Any]]: ...
