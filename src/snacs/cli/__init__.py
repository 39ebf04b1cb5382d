"""The command ``snacs``: every command is a thin call of the library.

Exit codes: 0 done, 2 the user's mistake (with a message that says what to do), 1 ours (with a
traceback to report), 130 interrupted (the same command goes on where it stopped).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from snacs.cli.parser import build_parser
from snacs.errors import SnacsError


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, and turn errors into exit codes."""
    arguments = build_parser().parse_args(argv)
    if arguments.no_color:
        os.environ["NO_COLOR"] = "1"  # what the terminal library and worker processes look at
    try:
        import snacs.cli.commands as commands  # torch only once there is work to do

        return int(commands.COMMANDS[arguments.command](arguments) or 0)
    except SnacsError as error:
        sys.stderr.write(f"snacs: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\nsnacs: interrupted. The same command goes on where this one stopped.\n")
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough (`snacs layers … | head`)
        sys.stderr.close()
        return 0


def entry() -> None:
    """The console script."""
    sys.exit(main())
