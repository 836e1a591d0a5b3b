"""HTTP to a vLLM server, by the standard library: retries, time limits, and one line about whatever goes wrong."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPSConnection, RemoteDisconnected
from typing import Final
from urllib.parse import urlsplit

from motet.errors import EnvironmentFault, UsageError

API_KEY_VARIABLE: Final = "MOTET_VLLM_API_KEY"
_WAITS_S: Final = (0.5, 2.0, 8.0)  # between attempts
_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403
_OVERLOADED: Final = 429
_FAILED: Final = 500  # and above
_MAX_SAID: Final = 300


class Refused(EnvironmentFault):
    """The server answered that it will not do this (E-VLLM-08).

    Attributes:
        status: the HTTP status, 4xx.
    """

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message, code="E-VLLM-08")
        self.status = status


class VLLMClient:
    """Requests to one server, from several threads if wanted. Proxies are not used.

    Args:
        url: address of the server, such as "http://127.0.0.1:8000".
        timeout_s: longest wait for an answer.
        api_key: sent as a bearer token.
        pause: waits between attempts, in seconds.

    Raises:
        UsageError: E-VLLM-09 if `url` is no address.
    """

    def __init__(
        self, url: str, *, timeout_s: float, api_key: str | None = None, pause: Callable[[float], None] = time.sleep
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f'node.generation.url: got "{url}"; allowed: an address such as http://127.0.0.1:8000',
                code="E-VLLM-09",
            )
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"
        self._connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._address = parts.netloc.rpartition("@")[2]
        self._prefix = urlsplit(self.url).path
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._pause = pause
        self._counting = threading.Lock()
        self._interruptions = 0

    @property
    def interruptions(self) -> int:
        """How many connections were lost or refused so far: the server may be another one than before."""
        return self._interruptions

    def get(self, path: str) -> bytes:
        """The body of an answer; see `post`."""
        return self._request("GET", path, None, attempts=len(_WAITS_S) + 1)

    def post(self, path: str, body: Mapping[str, object], *, retry: bool = True) -> bytes:
        """The body of the answer to a JSON document.

        Lost connections, overload and inner faults of the server are tried again, three times, unless `retry` is
        off. Time limits are not: the server would only have more to do.

        Raises:
            Refused: the server will not do it (E-VLLM-08).
            EnvironmentFault: E-VLLM-01 if it cannot be reached or does not answer in time, E-VLLM-02 if it does not
                speak HTTP, E-VLLM-07 if it fails.
        """
        return self._request("POST", path, json.dumps(body).encode(), attempts=len(_WAITS_S) + 1 if retry else 1)

    def _request(self, method: str, path: str, body: bytes | None, *, attempts: int) -> bytes:
        for attempt in range(attempts):
            if attempt:
                self._pause(_WAITS_S[attempt - 1])
            try:
                status, answer = self._once(method, path, body)
            except TimeoutError:
                raise EnvironmentFault(
                    f"the vLLM server at {self.url} did not answer {path} within {self._timeout_s:g} s; see its log, "
                    "or raise node.generation.timeout_s",
                    code="E-VLLM-01",
                ) from None
            except (OSError, HTTPException) as error:
                if isinstance(error, BadStatusLine) and not isinstance(error, RemoteDisconnected):
                    raise EnvironmentFault(
                        f"what listens at {self.url} does not speak HTTP; check node.generation.url", code="E-VLLM-02"
                    ) from None
                with self._counting:
                    self._interruptions += 1
                fault = self._unreachable(error)
                continue
            if status == _OK:
                return answer
            if status < _FAILED and status != _OVERLOADED:
                raise self._refused(path, status, answer)
            fault = self._failed(path, status, answer)
        raise fault

    def _once(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        connection = self._connection(self._address, timeout=self._timeout_s)
        try:
            connection.request(method, self._prefix + path, body=body, headers=self._headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _unreachable(self, error: Exception) -> EnvironmentFault:
        why = " ".join(str(error).split()) or type(error).__name__
        return EnvironmentFault(
            f"no answer from a vLLM server at {self.url} ({why}); is it running, and is node.generation.url right?",
            code="E-VLLM-01",
        )

    def _refused(self, path: str, status: int, answer: bytes) -> Refused:
        hint = ""
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            hint = f"; set {API_KEY_VARIABLE} to the server's --api-key"
        return Refused(
            f"the vLLM server at {self.url} refused {path} with status {status}: {_said(answer)}{hint}", status=status
        )

    def _failed(self, path: str, status: int, answer: bytes) -> EnvironmentFault:
        what = f"failed at {path} with status {status}: {_said(answer)}"
        if self._is_dead():
            what += "; its engine is dead"
        return EnvironmentFault(
            f"the vLLM server at {self.url} {what}; see its log and start it anew", code="E-VLLM-07"
        )

    def _is_dead(self) -> bool:
        try:
            return self._once("GET", "/health", None)[0] >= _FAILED
        except (OSError, HTTPException):
            return True


def _said(answer: bytes) -> str:
    """The server's message, in one line."""
    text = answer.decode("utf-8", errors="replace")
    try:
        found = json.loads(text)
    except ValueError:
        found = text
    while isinstance(found, dict):
        found = next((found[key] for key in ("error", "message", "detail") if found.get(key)), text)
    return " ".join(str(found).split())[:_MAX_SAID] or "(nothing said)"
