"""Models by their names and from files: ours, other libraries', a user's own, and what the commands wrote."""

#: What a model may be named by.
SPEC_HELP = (
    "One of axiograd's models (see `axiograd models`), timm:NAME, torchvision:NAME, hf:NAME_OR_FOLDER, "
    "path/to/file.py:factory, package.module:factory, a file that `axiograd convert` or `train` wrote, or FILE.pt2."
)
#: Among the extra files of a .pt2 file: `axiograd export` wrote it, and this is what it says of itself.
EXPORT_CARD = "axiograd.json"
