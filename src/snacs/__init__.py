"""snacs: prune a PyTorch network by what its connections carry."""

__version__ = "0.1.0"
