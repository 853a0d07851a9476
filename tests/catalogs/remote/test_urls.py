"""URLs as texts: what is shown of them, which lie below others, and which word of a server's is taken."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from catalogs.remote.urls import (
    agree,
    file_name,
    has_secret,
    is_below,
    is_remote,
    key_below,
    scrubbed,
    shown,
    tag_of,
    url_of,
)

NOW = datetime(2026, 11, 22, 10, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.org/a.parquet", None),
        ("https://example.org:8080/release/*.parquet", None),
        ("https://user:secret@example.org/a.parquet", "https://example.org/a.parquet"),
        ("https://token@example.org/a.parquet", "https://example.org/a.parquet"),
        ("https://example.org/a.parquet?X-Amz-Signature=abc#x", "https://example.org/a.parquet?..."),
        ("HTTPS://a:b@c@example.org/a?b?c", "HTTPS://example.org/a?..."),
        ("s3://bucket/a?.parquet", None),
        ("s3://key:secret@bucket/a.parquet", "s3://key@bucket/a.parquet"),
        ("abfs://container@account.dfs.core.windows.net/a", None),
        ("simplecache::https://u:p@example.org/a?s=1", "simplecache::https://example.org/a?..."),
        ("zip://a.parquet::https://example.org/a.zip?s=1", "zip://a.parquet::https://example.org/a.zip?..."),
        ("http://[::1]:8080/a.parquet", None),
        ("/data/a@b:c.parquet", None),
    ],
)
def test_what_is_shown(url: str, expected: str | None) -> None:
    assert shown(url) == (expected or url)
    assert has_secret(url) == (expected is not None)
    assert scrubbed(f"got '{url}', and") == f"got '{expected or url}', and"
    assert is_remote(url) == ("://" in url)


BELOW = [
    ("https://example.org/data/a.parquet", "https://example.org/data"),
    ("https://example.org/data/a.parquet", "https://example.org/data/"),
    ("https://EXAMPLE.org:443/data/b/*.parquet", "https://example.org/data"),
    ("https://example.org/data", "https://example.org/data"),
    ("https://user:p@example.org/data/a", "https://example.org/data"),
    ("https://example.org/data/a%20b", "https://example.org"),
    ("https://example.org/data/d=1%2F2/a", "https://example.org/data"),
    ("s3://bucket/data/a..b", "s3://bucket/data"),
    ("http://[::1]:8080/a", "http://[::1]:8080"),
]
OUTSIDE = [
    ("https://example.org/database/a", "https://example.org/data"),
    ("https://example.org/dat*/a", "https://example.org/data"),
    ("http://example.org/data/a", "https://example.org/data"),
    ("https://example.org:8443/data/a", "https://example.org/data"),
    ("https://example.org.evil.net/data/a", "https://example.org/data"),
    ("https://example.org@evil.net/data/a", "https://example.org/data"),
    ("https://evil.net@example.org@evil.net/data/a", "https://example.org/data"),
    ("https://evil.net\\@example.org/data/a", "https://example.org/data"),
    ("https://example.org\\@evil.net/data/a", "https://example.org/data"),
    ("https://evil.net#@example.org/data/a", "https://example.org/data"),
    ("https://evil.net?@example.org/data/a", "https://example.org/data"),
    ("https://example.org/data/../secret", "https://example.org/data"),
    ("https://example.org/data/%2e%2E/secret", "https://example.org/data"),
    ("https://example.org/data/%252e%252e/secret", "https://example.org/data"),
    ("https://example.org/data/..%2fsecret", "https://example.org/data"),
    ("https://example.org/data/..%5csecret", "https://example.org/data"),
    ("https://example.org/data/.", "https://example.org/data/."),
    ("https://example.org", "https://example.org/data"),
    ("s3://bucket2/data", "s3://bucket"),
    ("file:///data/a", "https://example.org"),
    ("/data/a", "/data"),
    ("simplecache::https://example.org/data/a", "https://example.org/data"),
]


@pytest.mark.parametrize(("url", "root"), BELOW)
def test_below(url: str, root: str) -> None:
    assert is_below(url, root)


@pytest.mark.parametrize(("url", "root"), OUTSIDE)
def test_not_below(url: str, root: str) -> None:
    assert not is_below(url, root)


def test_names() -> None:
    assert file_name("https://u:p@example.org/data/a%20b.parquet?x=/y") == "a b.parquet"
    assert file_name("https://example.org:80/") == "example.org:80"
    assert file_name("https://example.org/data/a%2Fb.parquet") == "b.parquet"
    assert file_name("s3://bucket/data/") == "data"
    assert file_name("memory://release") == "release"
    assert key_below("https://h/r/x%3D1/a.parquet?q", "https://h/r") == "x=1/a.parquet"
    assert key_below("/r/x%3D1/a.parquet", "/r") == "x%3D1/a.parquet"


@pytest.mark.parametrize(
    ("info", "tagged"),
    [
        ({"ETag": '"a"'}, True),
        ({"ETag": 'W/"a"'}, False),
        ({"etag": "a"}, True),
        ({"ETag": 'W/"a"', "Last-Modified": "Sun, 22 Nov 2026 09:00:00 GMT"}, True),
        ({"Last-Modified": "Sun, 22 Nov 2026 09:59:30 GMT"}, False),
        ({"Last-Modified": "Sun, 22 Nov 2026 11:59:30 GMT"}, False),
        ({"Last-Modified": "yesterday"}, False),
        ({"LastModified": NOW - timedelta(hours=1)}, True),
        ({"LastModified": NOW - timedelta(seconds=1)}, False),
        ({"created": NOW - timedelta(microseconds=1)}, True),
        ({"created": datetime(2026, 1, 1)}, True),  # noqa: DTZ001 -- as some drivers give it
        ({"mtime": (NOW - timedelta(hours=1)).timestamp()}, True),
        ({"mtime": 1e300}, False),
        ({"updated": "2026-11-22T09:00:00Z"}, True),
        ({"url": "https://example.org/a"}, False),
    ],
)
def test_states(info: dict[str, Any], tagged: object) -> None:
    """Of two files of other sizes the words differ, whatever the server calls them."""
    word = tag_of(info | {"size": 5}, now=NOW)
    assert bool(word) == tagged
    assert not tagged or tag_of(info | {"size": 6}, now=NOW) != word


NEWFOUNDLAND = timezone(-timedelta(hours=3, minutes=30))


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ({"LastModified": NOW}, {"LastModified": NOW.astimezone(NEWFOUNDLAND)}, True),
        ({"LastModified": NOW}, {"LastModified": NOW + timedelta(seconds=1)}, False),
        ({"updated": "2026-11-22T09:00:00Z"}, {"updated": "2026-11-22T05:30:00-03:30"}, True),
        # MinIO's listings have parts of a second, its answers about a file have none.
        ({"ETag": '"a"', "LastModified": NOW}, {"ETag": '"a"', "LastModified": NOW.replace(second=1)}, True),
        ({"ETag": '"a"', "LastModified": NOW}, {"ETag": '"b"', "LastModified": NOW}, False),
        ({"etag": "0x8D"}, {"etag": '"0x8D"'}, True),
        ({"ETag": 'W/"a"', "LastModified": NOW}, {"ETag": 'W/"b"', "LastModified": NOW}, False),
        ({"md5": "a", "ETag": '"x"'}, {"md5": "b", "ETag": '"x"'}, False),
        ({"ETag": '"a"'}, {"LastModified": NOW}, True),
        ({"LastModified": "0001-01-01T00:00:00+12:00"}, {"LastModified": "yesterday"}, False),
    ],
)
def test_one_state_said_twice(before: dict[str, Any], after: dict[str, Any], same: object) -> None:
    """A listing, and a question about one file, may say the same in other words; another size is another state."""
    first, second = before | {"size": 5}, after | {"size": 5}
    assert agree(first, second) == agree(second, first) == same
    assert not agree(first, before | {"size": 6})


def test_the_word_for_a_state_is_the_same_in_every_zone() -> None:
    changed = NOW - timedelta(hours=1)
    times = [changed.astimezone(zone) for zone in (UTC, NEWFOUNDLAND)]
    words = {tag_of({"LastModified": time, "size": 5}, now=NOW) for time in times}
    assert len(words) == 1


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("s3://bucket/out", "s3://bucket/out"),
        (Path("s3://bucket/out"), "s3://bucket/out"),  # pathlib makes one slash of two
        (Path("file:///data"), "file:///data"),
        ("out", None),
        ("/data/s3:/out", None),
        ("M31:2026", None),
        (Path("M31:"), None),
    ],
)
def test_paths_that_were_urls(path: str | Path, url: str | None) -> None:
    assert url_of(path) == url
