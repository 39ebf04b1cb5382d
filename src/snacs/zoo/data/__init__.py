"""Data sets as :class:`Images`, by name or from a user's own folder or file."""

from snacs.zoo.data.cifar import data_folder
from snacs.zoo.data.images import Batches, Images
from snacs.zoo.data.opening import SPLITS, open_data

__all__ = ["SPLITS", "Batches", "Images", "data_folder", "open_data"]
