"""The values that flow from room to room: plain, frozen, free of torch.

Conventions used everywhere:

* A *connection* is one (output filter i, input channel j) pair of a layer. Scores and masks have
  shape ``(c_out, c_in)``; ``c_in`` counts the channels of one group, so grouped convolutions have
  as many columns as a filter has inputs.
* ``keep`` is the one polarity of masks: True stays.
* Fractions lie in [0, 1]; percent appears only in front of people.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]

NETWORK_INPUT = "<input>"
"""Source name of channels that come from the network's own input."""
MIXED = "<mixed>"
"""Source name of channels whose origin an operation has blended beyond tracing."""


@dataclass(frozen=True)
class Segment:
    """Channels ``start … start+length`` carry filters ``first … first+length`` of ``source``.

    ``source`` is a layer's name, :data:`NETWORK_INPUT` or :data:`MIXED`. Segments of one tensor may
    overlap: a residual sum carries the filters of both its branches.
    """

    source: str
    first: int
    start: int
    length: int


@dataclass(frozen=True)
class Layer:
    """One convolution or linear module that was called, and whether it may be pruned.

    Attributes
    ----------
    kernel : int
        Weights per connection: kh·kw of a convolution, columns per channel behind a Flatten.
    positions : int
        Output positions per image, summed over calls: MACs = kept weights × positions.
    feeds : tuple of Segment
        Where its input channels come from. Channels count over all groups.
    consumers : tuple of str
        Layers that read its output directly, in order of the forward pass.
    kept_because : str or None
        Why it is not pruned; None if it is.
    """

    name: str
    kind: str
    c_out: int
    c_in: int
    kernel: int
    groups: int = 1
    positions: int = 1
    calls: int = 1
    has_bias: bool = False
    feeds: tuple[Segment, ...] = ()
    consumers: tuple[str, ...] = ()
    kept_because: str | None = None

    @property
    def prunable(self) -> bool:
        return self.kept_because is None

    @property
    def connections(self) -> int:
        return self.c_out * self.c_in

    @property
    def weights(self) -> int:
        """Number of weights, biases excluded."""
        return self.connections * self.kernel

    @property
    def macs(self) -> int:
        """Multiply-adds per image of the dense layer; one multiply-add counts as one."""
        return self.weights * self.positions

    @property
    def channels(self) -> int:
        """Input channels over all groups."""
        return self.c_in * self.groups

    def channel_of(self) -> IntArray:
        """The (c_out, c_in) table of absolute input channels; differs from 0…c_in-1 in groups."""
        group = np.arange(self.c_out) // (self.c_out // self.groups)
        return group[:, None] * self.c_in + np.arange(self.c_in)[None, :]


@dataclass(frozen=True)
class Norm:
    """A normalisation module on the way, to be silenced where only dead filters reach it."""

    name: str
    kind: str
    channels: int
    feeds: tuple[Segment, ...]
    affine: bool = True


@dataclass(frozen=True)
class Sum:
    """The ``call``-th addition of the forward pass, one operand of which is a layer's own output.

    ``operand`` (0 or 1) is the side that comes from ``layer`` through nothing but ``norm`` (or
    directly, if None); the other side is the rest of the residual stream. Repair uses it to let a
    layer make up for errors that the stream carries already. ``rectified``: the sum is read by one
    ReLU and by nothing else.
    """

    call: int
    layer: str
    operand: int
    norm: str | None = None
    rectified: bool = False


@dataclass(frozen=True)
class LeftAlone:
    """A module with weights that is not treated at all, and the reason."""

    name: str
    kind: str
    reason: str


@dataclass(frozen=True)
class Structure:
    """What one forward pass revealed: layers in order of first call, norms, and the rest.

    ``rectified`` names the layers whose output, through their own norm if they have one, is read by
    one ReLU and by nothing else: below zero, its value does not matter.
    """

    layers: tuple[Layer, ...]
    norms: tuple[Norm, ...] = ()
    sums: tuple[Sum, ...] = ()
    left_alone: tuple[LeftAlone, ...] = ()
    outputs: tuple[Segment, ...] = ()
    rectified: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __getitem__(self, name: str) -> Layer:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    @property
    def prunable(self) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if layer.prunable)

    @property
    def weights(self) -> int:
        """All Conv + Linear weights, kept layers included: the denominator of every target."""
        return sum(layer.weights for layer in self.layers)

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What one layer showed on the calibration images. Arrays may be memory-mapped, float32.

    Attributes
    ----------
    weight : (c_out, c_in, kernel)
    bias : (c_out,) or None
    windows : (n, channels, kernel)
        Input windows of n samples: at sampled output positions, or averaged over all of them.
    inputs : (n, channels)
        Each input channel at the same samples: the centre tap, or the spatial mean.
    outputs : (n, c_out)
        What the module returned at the same samples, bias included.
    window_means : (images, channels, kernel)
        Mean of the input over the shifted windows; ``weight · window_means + bias`` is the spatial
        mean of the output, whatever mask the weight carries.
    input_rms : (channels,)
        Root mean square of each input channel over all images and positions.
    labels : (images,)
    importance : (c_out,) or None
        Expected squared change of the logits per unit of squared change of each output, summed over
        positions (:mod:`snacs.network.importance`); only where a score asks for it.
    """

    layer: Layer
    weight: FloatArray
    bias: FloatArray | None
    windows: FloatArray
    inputs: FloatArray
    outputs: FloatArray
    window_means: FloatArray
    input_rms: FloatArray
    labels: IntArray
    importance: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Scores:
    """One score per connection (η of the paper): how much it carries. Low goes first.

    ``occupancy`` holds what the estimator says about its own cells (see ``scores.occupancy``); it
    is empty for scores that hash nothing.
    """

    values: FloatArray
    occupancy: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Curve:
    """SVM accuracy of one layer at pruning levels; ``base`` is its unpruned accuracy (α of c=0)."""

    levels: FloatArray
    accuracy: FloatArray
    base: float
    share: float = 0.0


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """What happens to one layer, and why."""

    layer: Layer
    keep: BoolArray
    scores: FloatArray
    limit: float
    protected: BoolArray
    curve: Curve | None = None
    occupancy: dict[str, float] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        return int(self.keep.sum())

    @property
    def pruned(self) -> float:
        """Fraction of the layer's connections that go."""
        return 1.0 - self.kept / self.layer.connections

    @property
    def dead(self) -> BoolArray:
        """(c_out,) filters that lost all their kernels."""
        return np.logical_not(self.keep.any(axis=1))
