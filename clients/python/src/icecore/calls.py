"""Short requests, for both clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._http import Answer, Call, json_body, loads, segment
from .ingest import rollout_call


def get(path: str, params: Mapping[str, Any] | None = None) -> Call[dict[str, Any]]:
    return Call("GET", path, loads, params or {})


def put_rollout(rollout_id: str, attributes: Mapping[str, Any], ack: str | None) -> Call[dict[str, Any]]:
    return _rollout("rollout", rollout_id, attributes, ack)


def finish(rollout_id: str, status: str, error: Any, ack: str | None) -> Call[dict[str, Any]]:
    return _rollout("finish", rollout_id, {"status": status} if error is None else {"status": status, "error": error}, ack)


def _rollout(kind: str, rollout_id: str, body: Mapping[str, Any], ack: str | None) -> Call[dict[str, Any]]:
    call = rollout_call(kind, rollout_id, json_body(body)[0], ack)

    def parse(answer: Answer) -> dict[str, Any]:
        rollout: dict[str, Any] = loads(answer)["rollout"]
        return rollout

    return Call(call.method, call.path, parse, call.params, call.headers, call.content)


def analytics(name: str, params: Mapping[str, Any]) -> Call[dict[str, Any]]:
    joined = {k: ",".join(map(str, v)) if isinstance(v, (list, tuple)) and k in ("by", "k") else v for k, v in params.items()}
    return Call("GET", f"/v1/analytics/{segment(name)}", loads, joined, wait=60.0)


def listing(name: str, filters: Mapping[str, Any], cursor: str | None) -> Call[dict[str, Any]]:
    return get(f"/v1/{name}", {"limit": 1000, **filters, "cursor": cursor})


def rollout(rollout_id: str) -> Call[dict[str, Any]]:
    return get(f"/v1/rollouts/{segment(rollout_id)}")


def status() -> Call[dict[str, Any]]:
    return get("/v1/status")


def consumers() -> Call[list[dict[str, Any]]]:
    def parse(answer: Answer) -> list[dict[str, Any]]:
        said = loads(answer)
        found: list[dict[str, Any]] = said if isinstance(said, list) else said["consumers"]
        return found

    return Call("GET", "/v1/consumers", parse)


def consumer(name: str) -> Call[dict[str, Any]]:
    return get(f"/v1/consumers/{segment(name)}")


def delete_consumer(name: str) -> Call[None]:
    return Call("DELETE", f"/v1/consumers/{segment(name)}", lambda answer: None)


def seek(name: str, time: Any, policy_version: int | None, to: str | None) -> Call[dict[str, Any]]:
    body = {"time": time, "policy_version": policy_version, "to": to}
    content, headers = json_body({k: v for k, v in body.items() if v is not None})
    return Call("POST", f"/v1/consumers/{segment(name)}/seek", loads, headers=headers, content=content)


def lease_state(lease_id: str) -> Call[dict[str, Any]]:
    return get(f"/v1/leases/{segment(lease_id)}")
