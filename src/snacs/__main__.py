"""``python -m snacs`` is the command ``snacs``."""

from snacs.cli import entry

entry()
