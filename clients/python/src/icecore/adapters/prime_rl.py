"""prime-rl: TrainingSamples for its packer, in place of its orchestrator.

    sender = setup_training_batch_sender(output_dir, transport)
    feed = PrimeFeed(icecore.Client(url), "prime-rl", sender)
    for step in range(steps):
        feed.send(step, groups=16)
        wait_for_weights(step)       # the broadcast that the trainer makes after the step
        feed.trained(step)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from icecore.errors import DataError
from icecore.rows import Row

from .feed import Feed
from .rows import Batch, Comparable, Missing, Ready, ready, trained


def to_training_sample(one: Ready, sample: Any = None) -> Any:
    """prime-rl's TrainingSample of a row: T-aligned ids, mask, log-probs, temperatures, advantages.

    sample: the class, by default prime_rl.transport.types.TrainingSample. A token
    whose trace said no temperature counts as sampled at 1.
    """
    if sample is None:
        from prime_rl.transport.types import TrainingSample as sample  # type: ignore[no-redef]
    fields = set(getattr(sample, "__struct_fields__", ()))
    if not {"token_ids", "mask", "logprobs", "temperatures", "advantages"} <= fields:
        raise DataError(
            "make TrainingSample for prime-rl: this version's has no token_ids, mask, logprobs, temperatures and "
            "advantages per token; use a newer one"
        )
    length = len(one)
    more = {"reward": one.row.reward} if "reward" in fields else {}
    return sample(
        token_ids=one.tokens.tolist(),
        mask=one.mask.tolist(),
        logprobs=one.logprobs.tolist(),
        temperatures=one.row.per_span("temperature", 1.0)[:length].tolist(),
        env_name=one.row.harness or "icecore",
        advantages=one.scores().tolist(),
        **more,
    )


def training_samples(
    batch: Batch | Iterable[Row], *, missing: Missing = "raise", comparable: Comparable = "require", sample: Any = None
) -> list[Any]:
    """TrainingSamples of the rows that train something, the advantage times weight.

    Rows never scored are left out: prime-rl raises on a trained row without an
    advantage, and its token mean does not see rows. missing, comparable: as in
    icecore.adapters.rows.ready. Temperatures are given along, so rows of several may mix.
    """
    prepared = ready(batch, missing=missing, comparable=comparable)
    return [to_training_sample(one, sample) for one in trained(prepared)]


class PrimeFeed:
    """Leases a batch per step and sends it with prime-rl's own sender.

    sender: a TrainingBatchSender of prime_rl.transport. lease: fields of every lease.
    """

    def __init__(
        self,
        client: Any,
        consumer: str,
        sender: Any,
        *,
        missing: Missing = "raise",
        comparable: Comparable = "require",
        **lease: Any,
    ) -> None:
        self.sender = sender
        self._rules: dict[str, Any] = {"missing": missing, "comparable": comparable}
        self._feed = Feed(client, consumer, lag=1 << 31, **lease)
        self._steps: dict[str, int] = {}

    def send(self, step: int, **fields: Any) -> Any:
        """Leases (waiting until there is one) and sends the batch of this step; gives the batch."""
        from prime_rl.transport.types import TrainingBatch

        batch = self._feed.next(**fields)
        with self._feed.using(batch):
            examples = training_samples(batch, **self._rules)
        self._steps[batch.lease_id] = step
        self.sender.send(TrainingBatch(examples=examples, step=step))
        return batch

    def trained(self, step: int, metrics: Any = None) -> int:
        """The trainer has made this step: acknowledges the batches up to it; says how many."""
        done = {lease for lease, of in self._steps.items() if of <= step}
        for lease in done:
            del self._steps[lease]
        return self._feed.settle(lambda batch: batch.lease_id in done, metrics)

    def close(self) -> None:
        """Returns what was sent and not trained."""
        self._feed.stop()
