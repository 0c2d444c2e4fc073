"""The gallery: pictures that are part of the project, each with what it shows and where it comes from."""

from __future__ import annotations

from pathlib import Path

from axiograd.experiments.reproduce import find

INTRODUCTION = """# Gallery

Every picture is made from records or from networks trained for it, and shows no photo that is not ours to show; with
your own data the same commands draw yours. Made by `python -m axiograd.experiments.results_page`."""

#: Pictures of the pages: what each shows, and the page that tells its story.
PAGES = {
    "Front": (
        "Before and after a prior; 128 gradients or one; what a step costs",
        "index",
    ),
    "studio": ("The studio: suspicious places, painted and fixed while you watch", "how-to/studio"),
    "live": ("A page that runs the exported network, with its exact attribution, in the browser", "how-to/ship-it"),
    "RightReasons": ("A prior against a wrong reason", "priors"),
    "Energy": ("Attribution kept where the object is", "priors"),
    "Matching": ("Attributions that follow given ones", "priors"),
    "LowFrequency": ("Attributions without high frequencies", "priors"),
    "Smoothness": ("Neighbouring pixels with similar attributions", "priors"),
    "GraphSmoothness": ("Related features with similar attributions", "priors"),
    "Groups": ("Groups of features switched off together", "priors"),
    "Gini": ("Few features that count", "priors"),
    "L1": ("Small attributions", "priors"),
    "HeldGates": ("A prior without second derivatives: the cost of a step", "what-a-prior-costs"),
}
#: Figures of results, by the item that draws them.
FIGURES = ("fig1-left", "fig1-right", "fig2-left", "fig2-right", "fig3", "fig4", "box-energy")


def page(results: Path, docs: Path) -> str:
    """The Markdown of the gallery, with the pictures that are there.

    >>> page(Path("nowhere"), Path("nowhere")) == INTRODUCTION + "\\n"
    True
    """
    parts = [INTRODUCTION]
    for name, (caption, story) in PAGES.items():
        if (docs / "pictures" / f"{name}.png").is_file():
            parts.append(f"## {caption}\n\n![{caption}](pictures/{name}.png)\n\n[How it is made]({story}.md)")
    for name in FIGURES:
        if (results / name / "real.png").is_file():
            title = find(name).title
            parts.append(
                f"## {title}\n\n![{title}](../results/{name}/real.png)\n\n"
                f"`axiograd reproduce {name}`, [numbers](results.md)"
            )
    return "\n\n".join(parts) + "\n"
