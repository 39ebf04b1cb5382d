"""Training and retraining: recipes by name, one explicit loop, checkpoints that resume."""

from snacs.training.history import EpochRow, History, ProgressRow
from snacs.training.loop import train_
from snacs.training.recipes import RECIPES, Recipe, recipe, scaled

__all__ = ["RECIPES", "EpochRow", "History", "ProgressRow", "Recipe", "recipe", "scaled", "train_"]
