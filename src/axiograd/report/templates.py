"""Pages and notebooks are written by jinja2 from the same macros; whatever is put into them is escaped."""

import re
from functools import cache
from typing import Any

from axiograd._extras import optional
from axiograd._names import visible
from axiograd.homogeneity.certificate import grouped, summary
from axiograd.report.charts import plain
from axiograd.report.colours import asset

_CODE = re.compile(r"`([^`]+)`")


def render(template: str, **content: Any) -> str:
    """A page from the file of this name."""
    return _environment().get_template(template).render(**content)  # type: ignore[no-any-return]


def fragment(macro: str, *content: Any) -> str:
    """What a notebook shows: one of the macros that pages are made of, with its style.

    >>> "&lt;b&gt;" in fragment("text_block", "<b>", None)
    True
    """
    inside = getattr(_environment().get_template("macros.html").module, macro)(*content)
    return f'<div class="axiograd"><style>{asset("macros.css")}</style>{inside}</div>'


@cache
def _environment() -> Any:
    jinja2 = optional("jinja2", "plots", "pages and notebooks")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_seen,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"plain": plain, "code": _code, "signed": lambda value: plain(value, signed=True)}
    style = "".join(asset(name) for name in ("palette.css", "macros.css", "report.css"))
    environment.globals |= {"grouped": grouped, "summary": summary, "zip": zip, "style": style}
    return environment


def _seen(value: Any) -> Any:
    """Characters that hide or reorder text are shown by their number; markup has gone through this before."""
    return visible(value) if type(value) is str else value


def _code(text: Any) -> Any:
    """Plain text with `code` in backticks."""
    from markupsafe import Markup, escape

    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(visible(str(text))))))  # noqa: S704  # escaped
