"""Archives made by hand, good and bad."""

from __future__ import annotations

import io
import tarfile
import zipfile


def tar_of(members: dict[str, bytes], compression: str = "gz") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=f"w:{compression}") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def tar_with(**changes: object) -> bytes:
    """A tar of one member `strange` of a kind that is not a file."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        info = tarfile.TarInfo("strange")
        for key, value in changes.items():
            setattr(info, key, value)
        tar.addfile(info)
    return stream.getvalue()


def zip_of(members: dict[str, bytes], mode: int = 0) -> bytes:
    """`mode` is what the members say that they are; 0 says nothing."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return stream.getvalue()
