"""The command in this process: exit code, stdout and stderr of one call."""

import io
import json
import signal
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from axiograd.cli.app import run


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def axiograd(*arguments: Any) -> Done:
    """Run `axiograd ARGUMENTS…`."""
    out, err = io.StringIO(), io.StringIO()
    handler = signal.getsignal(signal.SIGTERM)
    code = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            run([str(argument) for argument in arguments])
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    finally:
        signal.signal(signal.SIGTERM, handler)
    return Done(code, out.getvalue(), err.getvalue())
