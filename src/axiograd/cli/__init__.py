"""The `axiograd` command: one file per subcommand, wired together in `app`."""

import sys


def main() -> None:
    """Entry point; says what to install where the command's own dependencies are missing."""
    try:
        from axiograd.cli.app import run
    except ImportError as error:
        if error.name not in {"typer", "rich"}:
            raise
        print("the axiograd command needs typer and rich: pip install 'axiograd[cli]'.", file=sys.stderr)
        sys.exit(2)  # 1 would mean that a model is not an X-DNN
    run()
