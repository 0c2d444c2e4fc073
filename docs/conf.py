"""How Sphinx builds this folder: `sphinx-build -W -b html docs docs/_build`."""

import re
from typing import Any

from axiograd import __version__

project = "axiograd"
author = "the axiograd authors"
copyright = "the axiograd authors, Apache-2.0"  # noqa: A001 (Sphinx's name)
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx_copybutton"]
exclude_patterns = ["_build"]
# Tables that were made elsewhere begin with their own title.
suppress_warnings = ["myst.header"]

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 3

# Docstrings have Markdown's single backticks; where one names something documented, it becomes a link.
default_role = "py:obj"
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 120
add_module_names = False
toc_object_entries_show_parents = "hide"

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"axiograd {version}"
html_static_path = ["_static"]
html_css_files = ["axiograd.css"]
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#135fa7",
        "color-brand-content": "#135fa7",
        "color-api-name": "#135fa7",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7db8e8",
        "color-brand-content": "#7db8e8",
        "color-api-name": "#7db8e8",
    },
}


def escape_formulas(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """In our formulas |a| is an absolute value and [batch, *features] a shape; reStructuredText has other ideas."""
    in_example = False
    for number, line in enumerate(lines):
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if not in_example:
            lines[number] = re.sub(r"(``.*?``|`[^`]*`)|([|*])", lambda m: m[1] or rf"\{m[2]}", line)


def setup(app: Any) -> None:
    """Sphinx calls this once."""
    app.connect("autodoc-process-docstring", escape_formulas)
