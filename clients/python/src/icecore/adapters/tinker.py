"""tinker: a Datum per row, and the log-probs that it gives back.

    with client.lease("tinker", groups=16, policy_version=n) as batch:
        data = datums(batch)
        result = training.forward_backward([d for _, d in data], loss_fn="importance_sampling").result()
        training.optim_step(adam).result()
        batch.ack()
        batch.post_logprobs(logprobs_back(data, result), policy_version=n)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from icecore.errors import DataError
from icecore.rows import Row

from .rows import Batch, Comparable, Floats, Missing, Ready, ready, trained


def to_datum(one: Ready, mask: bool = False) -> Any:
    """tinker.Datum of a row: inputs x[:-1], and N-aligned targets, log-probs and advantages.

    tinker knows no mask: it is the advantage that is 0.0 where nothing is trained,
    and log-probs are 0.0 there. mask: adds it, as tinker_cookbook's own data has
    until it is sent.
    """
    import tinker

    inputs: dict[str, Any] = {
        "target_tokens": one.tokens[1:].astype(np.int64),
        "logprobs": one.logprobs[1:].astype(np.float32),
        "advantages": one.scores()[1:].astype(np.float32),
    }
    if mask:
        inputs["mask"] = one.mask[1:].astype(np.float32)
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(one.tokens[:-1].tolist()), loss_fn_inputs=inputs)


def datums(
    batch: Batch | Iterable[Row],
    *,
    missing: Missing = "raise",
    comparable: Comparable = "require",
    temperature: float | None = 1.0,
    mask: bool = False,
) -> list[tuple[Ready, Any]]:
    """The rows that train something, each with its Datum.

    The advantage is times weight. Rows never scored are left out: tinker sums over
    tokens, so that is the same as masking them. tinker computes log-probs at
    temperature 1; rows sampled at another are refused (temperature=None: not
    compared). missing, comparable: as in icecore.adapters.rows.ready.
    """
    prepared = ready(batch, missing=missing, comparable=comparable, temperature=temperature)
    return [(one, to_datum(one, mask)) for one in trained(prepared)]


def logprobs_back(data: Iterable[tuple[Ready, Any]], result: Any) -> dict[str, Floats]:
    """The learner's log-probs of forward_backward's result by trajectory id, T, for Batch.post_logprobs.

    Entry 0, and what stood behind the last trained token, are NaN: not known.
    """
    pairs, outputs = list(data), result.loss_fn_outputs
    if len(pairs) != len(outputs):
        raise DataError(f"read log-probs of tinker: {len(outputs)} outputs for {len(pairs)} rows")
    found: dict[str, Floats] = {}
    for (one, _), output in zip(pairs, outputs, strict=True):
        values = np.asarray(output["logprobs"].to_numpy(), dtype=np.float32)
        if len(values) != len(one) - 1:
            raise DataError(f"read log-probs of tinker: {len(values)} for row {one.row.id}, {len(one) - 1} are needed")
        whole = np.full(len(one.row), np.nan, dtype=np.float32)
        whole[1 : len(one)] = values
        found[one.row.id] = whole
    return found
