"""What each part of the default is worth: one changed at a time, on the images to report on."""

from __future__ import annotations

from asking import ask

METHODS = (
    "default",
    "default+repair=false",  # choose as if nothing were repaired
    "default+sequential=false",  # all layers in the dense network
    "default+doubt=0",  # believe the calibration images
    "default+score=acmi",
    "default+score=l2",
    "default+score=l2+coupling=0.5",
    "default+allocation=uniform",
    "default+allocation=global",
    "default+shares=0.1:0.2",  # protection
    "default+refine=false",  # plain least squares
    "default+logits=false",  # no last step for the logits
)

if __name__ == "__main__":
    ask("ablation", METHODS, "--stages", "batchnorm,repaired", half="report")
