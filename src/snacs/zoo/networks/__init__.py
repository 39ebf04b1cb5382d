"""The networks of the zoo, by name.

>>> sorted(NETWORKS)
['resnet50', 'resnet56', 'small-conv', 'small-resnet', 'vgg16']
"""

from __future__ import annotations

from snacs.zoo.entry import Entry, Normalisation
from snacs.zoo.networks.resnet50 import ResNet50
from snacs.zoo.networks.resnet_cifar import ResNet56
from snacs.zoo.networks.small import SmallConvNet, SmallResNet
from snacs.zoo.networks.vgg import VGG16

DIGITS = Normalisation((0.305,), (0.376,))
"""Mean and std of the 8×8 digits in [0, 1], rounded."""
IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR10 = Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
"""Mean and std of the CIFAR-10 training images."""

NETWORKS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="small-conv",
            build=SmallConvNet,
            classes=10,
            shape=(1, 8, 8),
            normalisation=DIGITS,
            training=DIGITS,
            data="digits",
            notes="Our own; for the digits of scikit-learn.",
        ),
        Entry(
            name="small-resnet",
            build=SmallResNet,
            classes=10,
            shape=(1, 8, 8),
            normalisation=DIGITS,
            training=DIGITS,
            data="digits",
            notes="Our own; the demo trains it on the digits of scikit-learn.",
        ),
        Entry(
            name="vgg16",
            build=VGG16,
            classes=10,
            shape=(3, 32, 32),
            normalisation=CIFAR10,
            training=CIFAR10,
            data="cifar10",
            notes="Simonyan & Zisserman 2015 with BatchNorm and one Linear; weights: our own.",
        ),
        Entry(
            name="resnet56",
            build=ResNet56,
            classes=10,
            shape=(3, 32, 32),
            # Not the statistics of CIFAR-10: these weights were trained with ImageNet's.
            normalisation=IMAGENET,
            training=CIFAR10,
            data="cifar10",
            notes="He et al. 2016, option A; weights: akamaster/pytorch_resnet_cifar10 (BSD).",
        ),
        Entry(
            name="resnet50",
            build=ResNet50,
            classes=1000,
            shape=(3, 224, 224),
            normalisation=IMAGENET,
            training=IMAGENET,
            data=None,
            notes="He et al. 2016, v1 strides (on the first 1×1); torchvision's key names.",
        ),
    )
}

__all__ = [
    "CIFAR10",
    "DIGITS",
    "IMAGENET",
    "NETWORKS",
    "VGG16",
    "Entry",
    "ResNet50",
    "ResNet56",
    "SmallConvNet",
    "SmallResNet",
]
