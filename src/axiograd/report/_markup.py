"""The page's fixed parts as HTML; samples are drawn by its script."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from axiograd.report._certificates import certificate_markup
from axiograd.report._escape import inline, json_text, paragraphs, text
from axiograd.report._tables import show

SCRIPTS = (
    "colours.js",
    "elements.js",
    "picture.js",
    "bars.js",
    "card.js",
    "detail.js",
    "featured.js",
    "gallery.js",
    "tables.js",
    "main.js",
)


@dataclass(frozen=True)
class StoryStep:
    """One numbered step of the story."""

    title: str
    body: str
    numbers: Mapping[str, Any]
    code: str
    figure: str


@dataclass(frozen=True)
class Section:
    """A heading with tables, figures and text below it."""

    title: str
    blocks: list[str]


def asset(name: str) -> str:
    return (resources.files("axiograd.report") / "assets" / name).read_text(encoding="utf-8")


def script() -> str:
    """All scripts in one scope of their own."""
    return '(() => {\n"use strict";\n' + "\n".join(asset(name) for name in SCRIPTS) + "\n})();"


def value_markup(value: Any) -> str:
    """A number, or a pair (before, after) with an arrow between."""
    if isinstance(value, tuple):
        before, after = (text(show(v)) for v in value)
        return f'<span class="was">{before}</span> <span class="arrow" aria-label="became">→</span> <b>{after}</b>'
    return f"<b>{text(show(value))}</b>"


def numbers_markup(numbers: Mapping[str, Any], kind: str) -> str:
    if not numbers:
        return ""
    items = "".join(f"<div><dt>{inline(k)}</dt><dd>{value_markup(v)}</dd></div>" for k, v in numbers.items())
    return f'<dl class="{kind}">{items}</dl>'


def figure_markup(uri: str, caption: str, alt: str) -> str:
    words = f"<figcaption>{inline(caption)}</figcaption>" if caption else ""
    return f'<figure><img src="{uri}" alt="{text(alt or caption)}">{words}</figure>'


def command_markup(command: str, note: str = "") -> str:
    words = f"<p>{inline(note)}</p>" if note else ""
    button = '<button type="button" data-copy>Copy</button>'
    return f'{words}<div class="command"><pre tabindex="0"><code>{text(command)}</code></pre>{button}</div>'


def steps_markup(steps: Sequence[StoryStep]) -> str:
    if not steps:
        return ""
    items = "".join(
        f"<li><h3>{inline(s.title)}</h3>{paragraphs(s.body)}{numbers_markup(s.numbers, 'numbers')}"
        f"{f'<pre tabindex=0>{text(s.code)}</pre>' if s.code else ''}{s.figure}</li>"
        for s in steps
    )
    return f'<section id="story"><h2>Step by step</h2><ol class="story">{items}</ol></section>'


def samples_markup(legend: str) -> str:
    """The place where the script puts the samples."""
    without = "Samples are drawn by a script, which this browser does not run."
    return f'<section id="samples"><h2>Samples</h2>{legend}<noscript><p>{without}</p></noscript></section>'


def certificates_markup(certificates: Mapping[str, Any]) -> str:
    if not certificates:
        return ""
    lead = "<p>Is F(αx) = αᵏF(x) for every α &gt; 0? Only then is X-Gradient the exact Integrated Gradients.</p>"
    body = "".join(certificate_markup(name, c) for name, c in certificates.items())
    return f'<section id="certificate"><h2>Certificate</h2>{lead}{body}</section>'


def sections_markup(sections: Sequence[Section]) -> str:
    return "".join(
        f'<section id="section-{i}"><h2>{inline(s.title)}</h2>{"".join(s.blocks)}</section>'
        for i, s in enumerate(sections)
    )


def made_markup(facts: Mapping[str, Any], commands: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<div><dt>{text(k)}</dt><dd>{text(show(v))}</dd></div>" for k, v in facts.items())
    return (
        '<section id="made"><h2>How this was made</h2>'
        f'{"".join(command_markup(c, n) for c, n in commands)}<dl class="facts">{items}</dl></section>'
    )


def navigation_markup(entries: Sequence[tuple[str, str]]) -> str:
    links = "".join(f'<a href="{text(target)}">{inline(name)}</a>' for target, name in entries)
    return f'<nav aria-label="Sections">{links}</nav>'


def document(*, title: str, header: str, navigation: str, body: str, data: Any, payloads: Sequence[Any]) -> str:
    """The whole file; its policy allows this script and this style and nothing from anywhere else."""
    style, code = asset("report.css"), script()
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(code)}; "
        "base-uri 'none'; form-action 'none'"
    )
    stored = "\n".join(
        f'<script type="application/json" id="payload-{i}">{json_text(p)}</script>' for i, p in enumerate(payloads)
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="axiograd">
<title>{text(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to content</a>
{header}
{navigation}
<main id="content">
{body}
</main>
<script type="application/json" id="data">{json_text(data)}</script>
{stored}
<script>{code}</script>
</body>
</html>
"""


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
