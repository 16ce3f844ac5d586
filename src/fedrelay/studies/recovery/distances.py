"""How far two sets of images are apart by their features: the Fréchet distance (FID) and the kernel distance (KID).

Both are pure functions of features, one row an image. FID grows with fewer images even where both sets are of one kind:
two samples of N from one unit Gaussian in d dimensions are (d (d + 1) / 2 + 2 d) / N apart, so two FIDs compare only if
both are of the same N. KID has no such bias, which is why it stands beside it where images are few.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from fedrelay.errors import BadInput

Floats = NDArray[np.float64]


class FewImages(UserWarning):
    """There are not more images than features, so that FID says more about their number than about what they show."""


def fid(one: Floats, other: Floats) -> float:
    """The Fréchet distance of two Gaussians with the means and covariances of these features (Heusel et al. 2017).

    Both must have as many rows; not more rows than features is worth a warning.
    """
    one, other = checked(one, other)
    if len(one) != len(other):
        raise BadInput(
            f"FID compares as many images with as many, found {len(one)} and {len(other)}: the fewer there are, the "
            "larger it gets, so take the same number of both"
        )
    images, features = one.shape
    if images <= features:
        warnings.warn(few(images, features), FewImages, stacklevel=2)
    return distance(one.mean(0), half_of_sample(one), other.mean(0), half_of_sample(other))


def few(images: int, features: int) -> str:
    """What there is to say of an FID of not more images than features."""
    return (
        f"FID of {images} images by {features} features says more about their number than about what they show: "
        f"it takes more than {features} images, a network with fewer features, or KID"
    )


def frechet(mean: Floats, covariance: Floats, other_mean: Floats, other_covariance: Floats) -> float:
    """‖μ1 - μ2‖² + Tr(Σ1 + Σ2 - 2 (Σ1 Σ2)^½): the Fréchet distance of two Gaussians, squared."""
    return distance(mean, half_of_covariance(covariance), other_mean, half_of_covariance(other_covariance))


def kid(one: Floats, other: Floats) -> float:
    """The kernel distance: MMD², without bias, of the kernel (x·y / d + 1)³ (Bińkowski et al. 2018). It may come out
    below 0 where two sets are of one kind."""
    one, other = checked(one, other)
    return among(one) + among(other) - 2 * float(kernel(one, other).mean())


# --- the parts


def distance(mean: Floats, half: Floats, other_mean: Floats, other_half: Floats) -> float:
    """The Fréchet distance, of factors H with Σ = Hᵀ H: then Tr (Σ1 Σ2)^½ is the sum of singular values of H1 H2ᵀ,
    which needs no root of a matrix that is not symmetric."""
    shift = float(((mean - other_mean) ** 2).sum())
    spread = float((half**2).sum() + (other_half**2).sum())
    common = float(np.linalg.svdvals(half @ other_half.T).sum())
    return max(shift + spread - 2 * common, 0.0)  # what is below is rounding


def half_of_sample(rows: Floats) -> Floats:
    """A factor of the covariance of a sample: the centred rows, or as many rows as there are columns, if that is
    less."""
    centred = (rows - rows.mean(0)) / np.sqrt(len(rows) - 1)
    return centred if len(rows) <= rows.shape[1] else np.asarray(np.linalg.qr(centred, mode="r"))[: rows.shape[1]]


def half_of_covariance(covariance: Floats) -> Floats:
    """A factor of a covariance that is given."""
    values, vectors = np.linalg.eigh(covariance)
    half: Floats = np.sqrt(values.clip(min=0))[:, None] * vectors.T
    return half


def kernel(one: Floats, other: Floats) -> Floats:
    """(x·y / d + 1)³ of every two rows."""
    found: Floats = (one @ other.T / one.shape[1] + 1) ** 3
    return found


def among(rows: Floats) -> float:
    """The mean of the kernel over every two different rows."""
    found, count = kernel(rows, rows), len(rows)
    return float((found.sum() - np.trace(found)) / (count * (count - 1)))


def checked(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Two tables of features that can be compared, in double precision."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    if one.ndim != 2 or other.ndim != 2 or one.shape[1] != other.shape[1]:
        raise BadInput(
            f"two sets of features must be tables (images, features) of the same features, found the shapes "
            f"{one.shape} and {other.shape}"
        )
    if min(len(one), len(other)) < 2:
        raise BadInput(f"a distance takes at least 2 images of each kind, found {len(one)} and {len(other)}")
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise BadInput("some features are not finite: the network cannot tell how far these images are apart")
    return one, other
