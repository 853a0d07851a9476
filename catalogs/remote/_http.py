"""How fsspec asks servers of the web: with time limits, for bytes as they are stored, and only from allowed addresses.

What a user's fsspec configuration says of `client_kwargs` stands above this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from catalogs.errors import CatalogError
from catalogs.remote.urls import is_below, shown

__all__ = ["web_client"]

CONNECT = 30.0
"""Seconds within which a server has to take a connection."""
SILENCE = 60.0
"""Seconds that a server may send nothing in the middle of an answer.  A whole answer may take as long as it does."""

Client = Callable[..., Awaitable[Any]]


@cache
def web_client(within: tuple[str, ...]) -> Client:
    """Return what makes the client of a file system, whose requests are not led out of `within`, if that names URLs."""

    async def check(_: Any, __: Any, seen: Any) -> None:
        """Refuse a redirection that leads elsewhere, before it is followed."""
        answer = seen.response
        named = answer.headers.get("Location") or answer.headers.get("URI") or ""
        target = str(answer.url.join(type(answer.url)(named)))
        if within and not any(is_below(target, root) for root in within):
            answer.close()
            raise CatalogError(
                f"{shown(str(answer.url))} redirects to {shown(target)}, expected an address below "
                f"{' or '.join(map(shown, within))}; ask for that address to be allowed, or fetch the file yourself"
            )

    async def client(**options: Any) -> Any:
        import aiohttp  # noqa: PLC0415 -- fsspec has imported it; who reads no URL of the web does not wait for it

        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(check)
        # A file that is stored compressed, and said to be so, is wanted as it is stored.
        headers = {"Accept-Encoding": "identity"} | dict(options.pop("headers", None) or {})
        ours: dict[str, Any] = {
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=SILENCE),
            "auto_decompress": False,
            "trust_env": True,  # proxies, and the passwords of ~/.netrc
        }
        traces = [*options.pop("trace_configs", ()), trace]
        return aiohttp.ClientSession(headers=headers, trace_configs=traces, **(ours | options))

    return client
