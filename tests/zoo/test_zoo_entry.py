import pytest
import torch

from snacs.errors import InputError
from snacs.zoo.entry import Normalisation


def test_each_channel_gets_its_own_mean_and_std() -> None:
    x = torch.tensor([0.5, 1.0]).view(1, 2, 1, 1).expand(3, 2, 4, 4)
    y = Normalisation((0.5, 0.0), (0.1, 2.0))(x)
    assert torch.equal(y[:, 0], torch.zeros(3, 4, 4))
    assert torch.equal(y[:, 1], torch.full((3, 4, 4), 0.5))


def test_round_trip_through_plain_types() -> None:
    one = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert Normalisation.from_dict(one.as_dict(), origin="here") == one


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.5,), (0.5, 0.5), "1 means and 2 stds"),
        ((0.5,), (0.0,), "positive"),
        ((float("nan"),), (1.0,), "finite"),
        ((), (), "finite"),
        ("no", (1.0,), "numbers"),
    ],
)
def test_unusable_values_are_refused(mean: object, std: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Normalisation(mean, std)  # type: ignore[arg-type]


def test_wrong_channels_and_foreign_metadata_are_named() -> None:
    with pytest.raises(InputError, match=r"3 channel\(s\), the images have shape \(2, 1, 8, 8\)"):
        Normalisation((0, 0, 0), (1, 1, 1))(torch.zeros(2, 1, 8, 8))
    with pytest.raises(InputError, match=r"w\.safetensors must be"):
        Normalisation.from_dict([0.5], origin="w.safetensors")
    with pytest.raises(InputError, match=r"w\.safetensors cannot be used.*positive"):
        Normalisation.from_dict({"mean": [0], "std": [-1]}, origin="w.safetensors")
