"""Everything that comes from outside passes through here on its way into HTML."""

import html
import json
import re
from typing import Any

from axiograd._names import visible

_CODE = re.compile(r"`([^`]+)`")


def text(value: Any) -> str:
    """For element content and quoted attributes.

    >>> text('<img src=x onerror="alert(1)">')
    '&lt;img src=x onerror=&quot;alert(1)&quot;&gt;'
    """
    return html.escape(visible(str(value)), quote=True)


def paragraphs(value: str) -> str:
    """Plain text with empty lines between paragraphs and `code` in backticks."""
    parts = [_CODE.sub(r"<code>\1</code>", text(p.strip())) for p in value.split("\n\n") if p.strip()]
    return "".join(f"<p>{p}</p>" for p in parts)


def inline(value: str) -> str:
    """One line of plain text with `code` in backticks."""
    return _CODE.sub(r"<code>\1</code>", text(value))


def json_text(value: Any) -> str:
    r"""JSON that neither ends its script element nor opens a comment or another one.

    >>> json_text("</script><!--")
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    encoded = visible(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    for character in "<>&\u2028\u2029":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    # Lone surrogates (file names that are not UTF-8) cannot be written as UTF-8.
    return encoded.encode("utf-8", "replace").decode()
