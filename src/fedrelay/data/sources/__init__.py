"""Data sets in the file formats their publishers give them: what they are, how to read them, where they come from."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrelay.data.federation import Source
from fedrelay.data.locate import Layout, data_folder
from fedrelay.data.sources import cifar, domains, femnist, idx, shakespeare, stackoverflow, svhn, tiny_imagenet, usps
from fedrelay.errors import BadInput


@dataclass(frozen=True)
class Remote:
    """A file at its publisher: where it is put (below the data folder), its checksum, and where it is unpacked.

    Checksums and sizes are those of TensorFlow Datasets, TensorFlow Federated and torchvision.
    """

    url: str
    to: str
    checksum: str | None  # "sha256:…" (or "md5:…"); None when no published one is known
    size: int | None = None  # bytes, where it is published
    unpack: str | None = None  # the folder an archive is unpacked into; None for what is no archive
    unpacked: int | None = None  # the most bytes that may come out of an archive, where the format tells them
    extra: bool = False  # the data set can be read without it


@dataclass(frozen=True)
class FileSource:
    """A data set in files: its reader, the ways its files may be laid out, and where they come from."""

    name: str
    about: str
    classes: int
    reader: Callable[..., Source]
    layouts: tuple[Layout, ...]
    page: str
    licence: str
    citation: str
    remotes: tuple[Remote, ...] = ()

    def present(self, folder: Path) -> bool:
        """Whether the files of some layout are all there."""
        return any(not layout.missing(base) for layout in self.layouts for base in (folder / layout.folder, folder))


def load(name: str, data_dir: Path | str | None = None, **options: Any) -> Source:
    """A data set by name, from the data folder (see `locate.data_folder`)."""
    return named(name).reader(data_folder(data_dir), **options)


def named(name: str) -> FileSource:
    """The entry of this name; an unknown one is refused with the nearest."""
    if name not in FILES:
        close = difflib.get_close_matches(name, FILES, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise BadInput(f"there is no data set {name!r}{hint} (there is: {', '.join(FILES)})")
    return FILES[name]


def _idx(site: str, folder: str, known: dict[str, tuple[int, str]]) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"{site}/{name}.gz", f"{folder}/{name}.gz", f"sha256:{checksum}", size)
        for name, (size, checksum) in known.items()
    )


_MNIST = _idx(
    "https://ossci-datasets.s3.amazonaws.com/mnist",  # the publisher's own site refuses downloads
    "MNIST/raw",
    {
        "train-images-idx3-ubyte": (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        "train-labels-idx1-ubyte": (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        "t10k-images-idx3-ubyte": (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        "t10k-labels-idx1-ubyte": (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    },
)
_WRITERS = Remote(
    "https://raw.githubusercontent.com/facebookresearch/qmnist/master/qmnist-train-labels-idx2-int.gz",
    "MNIST/raw/qmnist-train-labels-idx2-int.gz",
    "sha256:2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
    463_024,
    extra=True,
)
_FASHION = _idx(
    # The publisher's own repository; the site that others name, an S3 website, has no https.
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "FashionMNIST/raw",
    {
        "train-images-idx3-ubyte": (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        "train-labels-idx1-ubyte": (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        "t10k-images-idx3-ubyte": (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        "t10k-labels-idx1-ubyte": (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    },
)
_TORONTO = "https://www.cs.toronto.edu/~kriz"
_PAPERS = 1 << 20  # bytes of the read-me files beside the data
_TFF = "https://storage.googleapis.com/tff-datasets-public"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"
_SVHN = "http://ufldl.stanford.edu/housenumbers"  # the publisher names no https; the checksums hold what comes

_ENTRIES = (
    FileSource(
        "cifar10",
        "60,000 colour images of 32 x 32 pixels",
        10,
        cifar.cifar10,
        cifar.CIFAR10_LAYOUTS,
        page=f"{_TORONTO}/cifar.html",
        licence="none stated; the publisher asks for the citation",
        citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
        remotes=(
            Remote(
                f"{_TORONTO}/cifar-10-binary.tar.gz",
                "cifar-10-binary.tar.gz",
                "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                170_052_171,
                unpack=".",
                unpacked=60_000 * 3_073 + _PAPERS,
            ),
        ),
    ),
    FileSource(
        "cifar100",
        "60,000 colour images of 32 x 32 pixels, fine labels",
        100,
        cifar.cifar100,
        cifar.CIFAR100_LAYOUTS,
        page=f"{_TORONTO}/cifar.html",
        licence="none stated; the publisher asks for the citation",
        citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
        remotes=(
            Remote(
                f"{_TORONTO}/cifar-100-binary.tar.gz",
                "cifar-100-binary.tar.gz",
                "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                168_513_733,
                unpack=".",
                unpacked=60_000 * 3_074 + _PAPERS,
            ),
        ),
    ),
    FileSource(
        "mnist",
        "70,000 grey digits of 28 x 28 pixels, by 539 writers (QMNIST)",
        10,
        idx.mnist,
        idx.MNIST_LAYOUTS,
        page="http://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0; the writers (QMNIST): BSD 3-Clause",
        citation="LeCun et al., Gradient-based learning applied to document recognition, 1998; "
        "Yadav and Bottou, Cold case: the lost MNIST digits, 2019",
        remotes=(*_MNIST, _WRITERS),
    ),
    FileSource(
        "fashion-mnist",
        "70,000 grey pictures of clothes, 28 x 28 pixels",
        10,
        idx.fashion_mnist,
        idx.FASHION_LAYOUTS,
        page="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
        citation="Xiao et al., Fashion-MNIST, 2017",
        remotes=_FASHION,
    ),
    FileSource(
        "emnist",
        "grey digits and letters of 28 x 28 pixels, in six versions",
        62,
        idx.emnist,
        idx.emnist_layouts("byclass"),
        page="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        licence="public domain (NIST)",
        citation="Cohen et al., EMNIST: extending MNIST to handwritten letters, 2017",
        remotes=(
            Remote(
                "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
                "EMNIST/gzip.zip",
                "sha256:fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
                561_753_746,
                unpack="EMNIST",
                unpacked=561_753_746 + 10 * _PAPERS,  # what it holds is compressed already
            ),
        ),
    ),
    FileSource(
        "femnist",
        "grey digits and letters of 28 x 28 pixels, by writer",
        62,
        femnist.femnist,
        femnist.LAYOUTS,
        page="https://github.com/TalwalkarLab/leaf (preprocess.sh makes the folders train and test)",
        licence="public domain (NIST); LEAF: BSD 2-Clause",
        citation="Caldas et al., LEAF: a benchmark for federated settings, 2018",
        remotes=(
            Remote(
                f"{_TFF}/fed_emnist.tar.bz2",
                "femnist/fed_emnist.tar.bz2",
                "sha256:fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
                unpack="femnist",
            ),
        ),
    ),
    FileSource(
        "shakespeare",
        "the next character after 80 of them, by speaking role",
        80,
        shakespeare.shakespeare,
        shakespeare.LAYOUTS,
        page="https://github.com/TalwalkarLab/leaf (preprocess.sh makes the folders train and test)",
        licence="public domain; LEAF: BSD 2-Clause",
        citation="Caldas et al., LEAF: a benchmark for federated settings, 2018; Karpathy, char-rnn, 2015",
        remotes=(
            Remote(
                "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
                "shakespeare/input.txt",
                "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            ),
        ),
    ),
    FileSource(
        "stackoverflow",
        "the next word at every place of a sentence, by author",
        10_004,
        stackoverflow.stackoverflow,
        stackoverflow.LAYOUTS,
        page="https://www.tensorflow.org/federated/api_docs/python/tff/simulation/datasets/stackoverflow",
        licence="CC BY-SA 3.0",
        citation="The TensorFlow Federated authors, Stack Overflow dataset, 2019; Reddi et al., 2021",
        remotes=(
            Remote(
                f"{_TFF}/stackoverflow.word_count.tar.bz2",
                "stackoverflow/stackoverflow.word_count.tar.bz2",
                "sha256:1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
                unpack="stackoverflow",
            ),
            Remote(
                f"{_TFF}/stackoverflow.tar.bz2",
                "stackoverflow/stackoverflow.tar.bz2",
                "sha256:99eca2f8b8327a09e5fc123979df2d237acbc5e52322f6d86bf523ee47b961a2",
                unpack="stackoverflow",
            ),
        ),
    ),
    FileSource(
        "svhn",
        "99,289 colour digits of 32 x 32 pixels from house numbers",
        10,
        svhn.svhn,
        svhn.LAYOUTS,
        page=f"{_SVHN}/",
        licence="for non-commercial use only",
        citation="Netzer et al., Reading digits in natural images with unsupervised feature learning, 2011",
        remotes=(
            Remote(
                f"{_SVHN}/train_32x32.mat",
                "SVHN/train_32x32.mat",
                "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
                182_040_794,
            ),
            Remote(
                f"{_SVHN}/test_32x32.mat",
                "SVHN/test_32x32.mat",
                "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
                64_275_384,
            ),
        ),
    ),
    FileSource(
        "usps",
        "9,298 grey digits of 16 x 16 pixels from envelopes",
        10,
        usps.usps,
        usps.LAYOUTS,
        page="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps",
        licence="none stated",
        citation="Hull, A database for handwritten text recognition research, 1994",
        remotes=(
            Remote(
                f"{_LIBSVM}/usps.bz2",
                "usps/usps.bz2",
                "sha256:3771e9dd6ba685185f89867b6e249233dd74652389f263963b3b741e994b034f",
            ),
            Remote(
                f"{_LIBSVM}/usps.t.bz2",
                "usps/usps.t.bz2",
                "sha256:a9c0164e797d60142a50604917f0baa604f326e9a689698763793fa5d12ffc4e",
            ),
        ),
    ),
    FileSource(
        "tiny-imagenet",
        "110,000 colour images of 64 x 64 pixels",
        200,
        tiny_imagenet.tiny_imagenet,
        tiny_imagenet.LAYOUTS,
        page="https://cs231n.stanford.edu/",
        licence="for non-commercial research (ImageNet)",
        citation="Le and Yang, Tiny ImageNet visual recognition challenge, 2015",
        remotes=(
            Remote(
                "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "tiny-imagenet-200.zip",
                "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
                248_100_043,
                unpack=".",
                unpacked=2 * 248_100_043,  # pictures are compressed already, but the lists of boxes are not
            ),
        ),
    ),
    FileSource(
        "pacs",
        "9,991 pictures as photos, paintings, cartoons and sketches, by domain",
        7,
        domains.pacs,
        domains.PACS_LAYOUTS,
        page="https://domaingeneralization.github.io",
        licence="for research",
        citation="Li et al., Deeper, broader and artier domain generalization, 2017",
    ),
    FileSource(
        "office-caltech-10",
        "2,533 pictures of objects from 4 sources, by domain",
        10,
        domains.office_caltech10,
        domains.OFFICE_CALTECH10_LAYOUTS,
        page="https://faculty.cc.gatech.edu/~judy/domainadapt/",
        licence="none stated",
        citation="Gong et al., Geodesic flow kernel for unsupervised domain adaptation, 2012",
    ),
    FileSource(
        "office-31",
        "4,110 pictures of office objects from 3 sources, by domain",
        31,
        domains.office31,
        domains.OFFICE31_LAYOUTS,
        page="https://faculty.cc.gatech.edu/~judy/domainadapt/",
        licence="none stated",
        citation="Saenko et al., Adapting visual category models to new domains, 2010",
    ),
    FileSource(
        "office-home",
        "15,588 pictures as art, clip art, products and photos, by domain",
        65,
        domains.office_home,
        domains.OFFICE_HOME_LAYOUTS,
        page="https://www.hemanthdv.org/officeHomeDataset.html",
        licence="for non-commercial research",
        citation="Venkateswara et al., Deep hashing network for unsupervised domain adaptation, 2017",
    ),
)

FILES: dict[str, FileSource] = {entry.name: entry for entry in _ENTRIES}
"""Every data set in files that can be read by name."""

__all__ = [
    "FILES",
    "FileSource",
    "Remote",
    "load",
    "named",
]
