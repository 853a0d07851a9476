"""Servers of the web, good and bad: what they do is said in one sentence, and nothing waits for ever."""

from __future__ import annotations

import gzip
import re
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalogs
from catalogs.errors import CatalogError, DamagedFileError, FormatError
from catalogs.remote.remote_file import Listing, RemoteFile, remote_listing
from catalogs.remote.urls import UnreachableError
from tests.catalogs.web import CUT, Web, serving

aiohttp = pytest.importorskip("aiohttp", reason="fsspec reads http with aiohttp")

SUFFIXES = (".parquet", ".fits")
ROWS = 300_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of some megabytes, so that the footer is not all of it."""
    folder = tmp_path_factory.mktemp("web")
    x = np.random.default_rng(0).standard_normal(ROWS)
    (folder / "release" / "field=1").mkdir(parents=True)
    pq.write_table(pa.table({"id": np.arange(ROWS), "x": x}), folder / "release" / "field=1" / "a b.parquet")
    pq.write_table(pa.table({"id": [1, 2], "x": [0.5, 1.5]}), folder / "small.parquet")
    return folder


@pytest.fixture
def web(folder: Path) -> Iterator[Web]:
    with serving(folder) as web:
        yield web


BIG = "release/field=1/a b.parquet"


def one(url: str, *, within: tuple[str, ...] = ()) -> RemoteFile:
    listing = remote_listing(url, SUFFIXES, within=within)
    assert isinstance(listing, Listing)
    (file,) = listing.all_files()
    return file


def read(url: str) -> int:
    return sum(batch.num_rows for batch in catalogs.open(url).batches(["x"]))


@pytest.mark.parametrize("words", [(), ("whole",), ("tagged",)])
def test_read_and_fetched_whole(web: Web, tmp_path: Path, words: tuple[str, ...]) -> None:
    """With ranges and without, which no header tells."""
    web.odd = [("parquet", word) for word in words]
    assert read(f"{web.url}/{BIG}") == ROWS
    assert len(web.bodies()) > 4 or "whole" in words, "pieces are asked for where a server gives them"
    assert catalogs.open(f"{web.url}/{BIG}").content_hash() == catalogs.open(web.folder / BIG).content_hash()
    one(f"{web.url}/{BIG}").fetch(tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (web.folder / BIG).read_bytes()


def test_what_a_catalogue_is_called(web: Web) -> None:
    assert catalogs.open(f"{web.url}/small.parquet").path.name == "small.parquet"
    assert catalogs.open(f"{web.url}/release/").path.name == "release"
    (partition,) = catalogs.open(f"{web.url}/release/*/*.parquet").partitions
    assert partition.key == "field=1/a b.parquet"
    assert catalogs.open(f"{web.url}/small.parquet?token=secret").partitions[0].key == "small.parquet"


@pytest.mark.parametrize(
    ("word", "error", "message"),
    [
        ("404", CatalogError, r"there is no http.*small.parquet; correct the URL"),
        ("410", CatalogError, r"there is no http.*small.parquet; correct the URL"),
        ("403", CatalogError, r"small.parquet may not be read: .* 403; check the credentials"),
        ("500", UnreachableError, r"small.parquet cannot be read: the server answered 500; try again later"),
        ("503", UnreachableError, r"small.parquet cannot be read: the server answered 503; try again later"),
        ("unknown", FormatError, r"does not state the size of .*small.parquet"),
        ("password", CatalogError, r"small.parquet may not be read: the server answered 401"),
    ],
)
def test_answers_that_are_no_file(web: Web, word: str, error: type[Exception], message: str) -> None:
    web.odd = [("small", word)]
    with pytest.raises(error, match=message):
        catalogs.open(f"{web.url}/small.parquet")


@pytest.mark.parametrize("status", ["404", "403", "500"])
def test_a_folder_within_that_cannot_be_listed_is_not_passed_over(web: Web, status: str) -> None:
    """Its files would seem to be gone."""
    web.odd = [("field=1|field%3D1", status)]
    with pytest.raises(CatalogError, match=r"there is no|may not be read|cannot be read"):
        catalogs.open(f"{web.url}/release")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("cut", r"cannot be read: .*; try again later"),
        ("fewer", r"gave [\d,]+ bytes, expected [\d,]+; the file changed or the connection broke"),
    ],
)
def test_fewer_bytes_than_promised(web: Web, tmp_path: Path, word: str, message: str) -> None:
    file = one(f"{web.url}/{BIG}")
    web.odd = [("parquet", word)]
    with pytest.raises(CatalogError, match=message):
        file.fetch(tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CatalogError, match=r"cannot be read|is damaged"):
        read(f"{web.url}/{BIG}")


def test_more_bytes_than_promised(web: Web, tmp_path: Path) -> None:
    file = one(f"{web.url}/{BIG}")
    web.odd = [("parquet", "more")]
    promised = file.n_bytes
    with pytest.raises(DamagedFileError, match=f"gave {promised + CUT:,} bytes, expected {promised:,}"):
        file.fetch(tmp_path / "a.parquet")


def test_a_silent_server_is_given_up(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute; here a user's own configuration of fsspec says 0.3 s."""
    short = {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=None, sock_read=0.3)}}
    monkeypatch.setitem(fsspec.config.conf, "http", short)
    file = one(f"{web.url}/{BIG}")
    web.odd = [("parquet", "silent")]
    with pytest.raises(UnreachableError, match=r"cannot be read: .*[Tt]imeout.*; try again later"):
        file.fetch(tmp_path / "a.parquet")


def test_bytes_are_taken_as_they_are_stored(web: Web, tmp_path: Path) -> None:
    """A server that calls a stored .gz encoded would else have it unpacked on the way."""
    packed = gzip.compress(bytes(100_000))
    (web.folder / "t.fits.gz").write_bytes(packed)
    web.odd = [("gz", "packed")]
    listing = remote_listing(f"{web.url}/t.fits.gz", (".fits.gz",))
    assert isinstance(listing, Listing)
    # fsspec does not trust the length either
    with pytest.raises(FormatError, match="does not state the size"):
        listing.all_files()
    replace(listing.places[0], n_bytes=len(packed)).fetch(tmp_path / "t.fits.gz")
    assert (tmp_path / "t.fits.gz").read_bytes() == packed


@pytest.mark.parametrize("name", ["%2Fetc%2Fa.parquet", "..%2F..%2Fa.parquet", "..%5Ca.parquet"])
def test_names_that_lead_elsewhere(web: Web, name: str) -> None:
    """A copy would be written there."""
    with pytest.raises(FormatError, match="has a name that is not allowed here"):
        catalogs.open(f"{web.url}/release/{name}")


def test_folders_that_want_a_slash(web: Web) -> None:
    web.odd = [("release", "slash")]
    for named in ("release/", "release/*/*.parquet", "release/**"):
        assert [p.key for p in catalogs.open(f"{web.url}/{named}").partitions] == ["field=1/a b.parquet"]
    with pytest.raises(CatalogError, match=r"there is no .*/release; correct"):
        catalogs.open(f"{web.url}/release")


def test_a_name_in_a_listing_that_no_file_may_have_is_not_passed_over(web: Web) -> None:
    """Its rows would be missing."""
    (web.folder / "odd").mkdir(exist_ok=True)
    (web.folder / "odd" / "index.html").write_text('<a href="a.parquet">a</a><a href="b%5C.parquet">b</a>')
    with pytest.raises(FormatError, match=r"b%5C.parquet has a name that is not allowed here"):
        remote_listing(f"{web.url}/odd/", SUFFIXES)


def test_quoted_slashes_in_the_values_of_folders(web: Web) -> None:
    folder = web.folder / "dates" / "d=01%2F02%2F2026"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.parquet").write_bytes((web.folder / "small.parquet").read_bytes())
    here, there = catalogs.open(web.folder / "dates"), catalogs.open(f"{web.url}/dates")
    assert list(there.batches(["d", "id"])) == list(here.batches(["d", "id"]))
    assert there.partitions[0].key == here.partitions[0].key


def test_links_of_all_kinds(web: Web) -> None:
    """As servers write them: sorting, the folder above, other hosts, other schemes, the page itself, ways out."""
    links = f"?C=N;O=D ../ / ./ #top b.parquet {web.url}/page/c.parquet /page/d.parquet ../h.parquet k.parquet?x=1"
    links += " https://evil.net/page/e.parquet //evil.net/f.parquet javascript:g.parquet %2e%2e/i.parquet"
    links += " ..%2fj.parquet _l.parquet .m.parquet /other/n.parquet"
    page = "".join(f'<a href="{link}">x</a>' for link in links.split())
    (web.folder / "page").mkdir(exist_ok=True)
    (web.folder / "page" / "index.html").write_text(f"<html>{page}</html>")
    listing = remote_listing(f"{web.url}/page/", SUFFIXES)
    assert isinstance(listing, Listing)
    keys = {place.key for place in listing.places}
    assert keys - {"javascript:g.parquet"} == {"b.parquet", "c.parquet", "d.parquet"}


def test_what_is_no_page_of_links_is_not_read_as_one(web: Web) -> None:
    (web.folder / "12345").write_bytes(bytes(100))
    (web.folder / "t.fits.gz").write_bytes(gzip.compress(bytes(100)))
    with pytest.raises(
        FormatError,
        match=r"is application/octet-stream of 100 bytes, which is neither a page that lists files",
    ):
        catalogs.open(f"{web.url}/12345")
    web.asked.clear()
    with pytest.raises(FormatError, match=r"neither a page that lists files"):
        catalogs.open(f"{web.url}/t.fits.gz")
    assert web.bodies() == []


def test_redirections(web: Web, tmp_path: Path) -> None:
    """Anywhere, unless it is said what requests may go to."""
    with serving(tmp_path) as other:
        other.odd = [("moved", f"to {web.url}/small.parquet")]
        assert read(f"{other.url}/moved.parquet") == 2
        own = (f"{other.url}/",)
        with pytest.raises(
            CatalogError,
            match=rf"moved.parquet redirects to {re.escape(web.url)}/small.parquet, expected an address",
        ):
            one(f"{other.url}/moved.parquet", within=own)
        assert one(f"{other.url}/moved.parquet", within=(*own, web.url)).n_bytes
        other.odd = [("moved", f"to {other.url}/there.parquet"), ("there", f"to {web.url}/small.parquet")]
        with pytest.raises(CatalogError, match=r"there.parquet redirects to"):
            one(f"{other.url}/moved.parquet", within=own)


def test_passwords(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the URL, or in ~/.netrc; what is said never has one."""
    web.odd = [("small", "password")]
    secret = web.url.replace("//", "//user:secret@")
    assert read(f"{secret}/small.parquet") == 2
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert read(f"{web.url}/small.parquet") == 2
    monkeypatch.delenv("NETRC")
    signed = f"{secret}/small.parquet?X-Amz-Signature=hidden"
    for status in ("404", "403", "500", "unknown"):
        web.odd = [("small", status)]
        with pytest.raises(CatalogError) as caught:
            read(signed)
        told = "".join(traceback.format_exception(caught.value))
        assert not re.search("user:secret|X-Amz|hidden", told)
        assert "small.parquet?..." in str(caught.value)


def test_signed_urls_that_a_server_leads_on_to_are_not_shown(web: Web) -> None:
    """As archives do, that keep their files in a store of objects."""
    for status in ("403", "500"):
        web.odd = [("moved", f"to {web.url}/there.parquet?X-Amz-Signature=hidden"), ("there", status)]
        with pytest.raises(CatalogError, match=r"moved.parquet .*the server answered") as caught:
            catalogs.open(f"{web.url}/moved.parquet")
        assert not re.search("X-Amz|hidden", "".join(traceback.format_exception(caught.value)))
