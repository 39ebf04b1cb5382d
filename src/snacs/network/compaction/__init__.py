"""The parts of :mod:`snacs.network.compact`: watch, probe, decide, cut, rewrite, check, fold."""
