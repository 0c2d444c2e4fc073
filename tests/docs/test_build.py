"""The documentation builds without a warning, and its reference has every public name."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import axiograd

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGES = [
    "attribution", "homogeneity", "priors", "training", "axioms", "metrics", "models", "datasets", "report",
    "tables", "loading",
]  # fmt: skip


def public_names(package: str) -> set[str]:
    """What `__init__.py` exports by `from … import name as name`; the package itself has `_surface.py` for that."""
    folder = ROOT / "src" / "axiograd" / package
    files = [folder / "__init__.py", *([] if package else [folder / "_surface.py"])]
    trees = [ast.parse(file.read_text()) for file in files]
    imports = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in imports for alias in node.names if alias.asname == alias.name}


@pytest.mark.parametrize("package", PACKAGES)
def test_reference_has_every_public_name(package):
    page = (DOCS / "reference" / f"{package}.md").read_text()
    described = set(re.findall(r"^\.\. auto(?:class|function):: (\w+)", page, re.MULTILINE))
    constants = set(re.findall(r"^\.\. py:data:: (\w+)", page, re.MULTILINE))
    listed = set(re.findall(r"^   (\w+)$", page, re.MULTILINE))
    assert described == listed
    assert described | constants == public_names(package)


def test_reference_lists_everything_that_axiograd_exports():
    page = (DOCS / "reference" / "index.md").read_text()
    listed = set(re.findall(r"^   ~\w+\.(\w+)$", page, re.MULTILINE))
    # The studio is a package that is called; layers, text and scale have pages of their own.
    assert listed | {"AxiogradError", "studio", "layers", "text", "scale"} == set(axiograd.__all__) - set(PACKAGES)


def test_reference_has_every_error():
    page = (DOCS / "reference" / "errors.md").read_text()
    tree = ast.parse((ROOT / "src" / "axiograd" / "errors.py").read_text())
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert set(re.findall(r"^   (\w+)$", page, re.MULTILINE)) == classes


def test_every_prior_has_a_section_and_a_small_picture():
    page = (DOCS / "priors.md").read_text()
    for prior in public_names("priors") - {"Prior"}:
        section = page.partition(f"\n## {prior}\n")[2].partition("\n## ")[0]
        picture = re.search(r"!\[[^\]]{20,}\]\((pictures/\w+\.png)\)", section)
        assert picture is not None, prior
        assert "```python" in section
        assert (DOCS / picture[1]).stat().st_size < 60_000


def test_what_pages_link_to_is_there():
    pages = [page for page in DOCS.rglob("*.md") if "_build" not in page.parts]
    for page in pages:
        words = re.sub(r"(?s)```.*?```|`[^`]*`", "", page.read_text())
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", words):
            assert "://" in target or (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.long
def test_builds_without_warnings(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-d", str(tmp_path / "trees")]
    done = subprocess.run([*command, str(DOCS), str(tmp_path / "html")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "html" / "reference" / "attribution.html").read_text()
    assert 'id="axiograd.attribution.XGradient"' in page
