"""Data sets as :class:`~snacs.zoo.data.images.Images`."""
