"""Running a pruned network elsewhere, or faster."""
