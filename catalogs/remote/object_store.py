"""A folder in an object store that is written to: s3, az and gs, by fsspec's drivers.

Objects appear whole or not at all.  One of them can be put on condition that it is as it was when it was read
(If-Match; of gs ifGenerationMatch), or that nothing is there yet (If-None-Match): of two writers, the second one gets
an error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from catalogs.errors import CatalogError
from catalogs.remote.urls import has_secret, is_chained, key_below, scheme_of, shown, speaking_of

__all__ = ["STORES", "ObjectStore", "Stored", "why_not"]

PRECONDITION = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
TAGS = ("ETag", "generation", "etag")
"""What drivers call an object's tag; of gs it is the generation, on which alone a put may depend."""


@dataclass(frozen=True)
class Stored:
    """An object's bytes, and its tag: the word of the store for this state of it."""

    content: bytes
    tag: str


@dataclass(frozen=True)
class ObjectStore:
    """The objects below a URL; keys are paths below it."""

    url: str
    filesystem: Any
    root: str

    @classmethod
    def at(cls, url: str) -> ObjectStore:
        """Return the store at a URL.

        Raises
        ------
        CatalogError
            As `why_not` says, or if the store's driver is not installed.
        """
        if why := why_not(url):
            raise CatalogError(why)
        from fsspec.core import url_to_fs  # noqa: PLC0415 -- slow to import, and most outputs are local

        try:
            with speaking_of(url):
                filesystem, root = url_to_fs(url.rstrip("/"), use_listings_cache=False)
        except CatalogError as error:
            if not isinstance(error.__cause__, ImportError):
                raise
            raise CatalogError(
                f"{shown(url)} cannot be reached: {error.__cause__}; install the driver that this message names"
            ) from error
        return cls(url.rstrip("/"), filesystem, root)

    def path(self, key: str) -> str:
        """Return the driver's path of an object."""
        return f"{self.root}/{key}"

    def read(self, key: str) -> Stored | None:
        """Return an object; None where nothing is there."""
        with speaking_of(self.url):
            self.filesystem.invalidate_cache()
            try:
                tag = _tag(self.filesystem.info(self.path(key)))
                content = bytes(self.filesystem.cat_file(self.path(key)))
                if _tag(self.filesystem.info(self.path(key))) == tag:
                    return Stored(content, tag)
            except FileNotFoundError:
                return None
        return self.read(key)  # it was replaced meanwhile

    def replace(self, key: str, content: bytes, *, before: Stored | None) -> bool:
        """Put an object in the place of what was `before`, None for nothing; say whether that was there still."""
        put = STORES[scheme_of(self.url)]
        with speaking_of(f"{self.url}/{key}"):
            try:
                put(self.filesystem, self.path(key), content, before.tag if before else None)
            except Exception as error:
                if _is_precondition(error):
                    return False
                raise
            self.filesystem.invalidate_cache()
        return True

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all objects below a folder, by their paths there; '' is the root."""
        top = self.path(folder) if folder else self.root
        with speaking_of(self.url):
            self.filesystem.invalidate_cache()
            found: Mapping[str, Mapping[str, Any]] = self.filesystem.find(top, detail=True)
        return {path.removeprefix(top).lstrip("/"): int(info["size"]) for path, info in found.items()}

    def put(self, key: str, content: bytes) -> None:
        """Put an object, whatever is there."""
        with speaking_of(f"{self.url}/{key}"):
            self.filesystem.pipe_file(self.path(key), content)

    def upload(self, local: Path, key: str) -> None:
        """Copy a file of this machine to an object."""
        with speaking_of(f"{self.url}/{key}"):
            self.filesystem.put_file(str(local), self.path(key))

    def copy(self, key: str, other: str) -> None:
        """Copy an object within the store."""
        with speaking_of(f"{self.url}/{key}"):
            self.filesystem.cp_file(self.path(key), self.path(other))

    def fetch(self, key: str, local: Path) -> None:
        """Copy an object to a path of this machine."""
        with speaking_of(f"{self.url}/{key}"):
            self.filesystem.get_file(self.path(key), str(local))

    def remove(self, keys: Iterable[str]) -> None:
        """Remove objects; one that has gone already is passed over."""
        for key in keys:
            with speaking_of(f"{self.url}/{key}"):
                try:
                    self.filesystem.rm_file(self.path(key))
                except FileNotFoundError:
                    continue


def why_not(url: str) -> str:
    """Return why releases cannot be published below a URL, '' where they can."""
    if scheme_of(url) not in STORES or is_chained(url):
        return (
            f"got '{shown(url)}', expected a folder on this machine, or a URL of "
            f"{' or '.join(f'{s}://' for s in STORES)}, since other stores cannot replace a release in one "
            "step; write to a folder, and copy it"
        )
    if has_secret(url):
        return (
            f"got '{shown(url)}' with a password, expected a URL without; give the password to the driver by "
            "its environment variables"
        )
    if not key_below(url, f"{scheme_of(url)}://").strip("/").partition("/")[2]:
        return (
            f"got '{shown(url)}', expected a folder in this store, such as {shown(url).rstrip('/')}/release"
        )
    return ""


def _tag(info: Mapping[str, Any]) -> str:
    return next((str(info[name]) for name in TAGS if info.get(name)), "")


def _put_s3(filesystem: Any, path: str, content: bytes, tag: str | None) -> None:
    bucket, key, _ = filesystem.split_path(path)
    condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
    filesystem.call_s3("put_object", Bucket=bucket, Key=key, Body=content, **condition)


def _put_az(filesystem: Any, path: str, content: bytes, tag: str | None) -> None:
    from fsspec.asyn import sync  # noqa: PLC0415 -- see `ObjectStore.at`

    container, blob, _ = filesystem.split_path(path)
    headers = {"If-None-Match": "*"} if tag is None else {"If-Match": tag}

    async def put() -> None:
        async with filesystem.service_client.get_blob_client(container, blob) as client:
            await client.upload_blob(content, overwrite=True, headers=headers)

    sync(filesystem.loop, put)


def _put_gs(filesystem: Any, path: str, content: bytes, tag: str | None) -> None:
    bucket, key, _ = filesystem.split_path(path)
    place = f"{filesystem.base.replace('/storage/', '/upload/storage/', 1)}b/{quote(bucket, safe='')}/o"
    boundary = hashlib.sha256(content).hexdigest()
    named = json.dumps({"name": key}).encode()
    parts = [
        b"Content-Type: application/json\r\n\r\n" + named,
        b"Content-Type: application/json\r\n\r\n" + content,
    ]
    body = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
    filesystem.call(
        "POST",
        place,
        uploadType="multipart",  # with uploadType=media, fake-gcs-server would pass over the condition
        ifGenerationMatch=tag or "0",
        headers={"Content-Type": f"multipart/related; boundary={boundary}"},
        data=body + f"--{boundary}--".encode(),
    )


def _is_precondition(error: BaseException | None) -> bool:
    """Say whether a store refused to put an object because it is not as it was."""
    while error is not None:
        answer = getattr(error, "response", None)
        code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
        names = {
            str(code),
            *(str(getattr(error, name, "")) for name in ("status_code", "error_code", "code")),
        }
        if names & PRECONDITION or isinstance(error, FileExistsError):
            return True
        error = error.__cause__ or error.__context__
    return False


Put = Callable[[Any, str, bytes, str | None], None]
STORES: Mapping[str, Put] = {
    "s3": _put_s3,
    "az": _put_az,
    "abfs": _put_az,
    "abfss": _put_az,
    "gs": _put_gs,
    "gcs": _put_gs,
}
"""How an object is put on condition, by the scheme of the URL."""
