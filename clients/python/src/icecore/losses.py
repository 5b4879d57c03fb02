"""What a lease left out, as log lines: nothing is lost without a word."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger("icecore")

# What each count of a lease's metadata counts, and what it means.
LEFT_OUT = {
    "skipped_stale": "groups skipped as stale (older than max_staleness allows)",
    "skipped_version_unknown": "groups skipped because a row's policy_version is unknown (max_staleness needs it)",
    "skipped_oversized": "groups skipped for a row longer than max_row_tokens",
    "skipped_failed": "groups skipped for a failed or incomplete rollout (on_failed=drop_group)",
    "skipped_unscorable": "groups skipped because their advantages cannot be computed",
    "skipped_empty": "groups skipped because no row of theirs has a token to train on",
    "excluded_failed": "failed rollouts left out of delivered groups and their means (on_failed)",
    "excluded_incomplete": "rollouts with missing traces left out of delivered groups and their means (on_failed)",
    "newer_than_learner": "rows of a newer policy version than the learner's (is policy_version right?)",
}
# Common, or asked for.
REMARKS = {
    "skipped_zero_advantage": "groups skipped for their zero advantage (skip_zero_advantage)",
    "zero_advantage_groups": "groups delivered whose advantages are all zero",
}


def report(consumer: str, meta: Mapping[str, Any]) -> None:
    """Logs a WARNING when a delivered lease left something out, and an INFO when
    some of it has nothing to teach: a line each, with the counts."""
    for level, names in ((logging.WARNING, LEFT_OUT), (logging.INFO, REMARKS)):
        found = [f"{meta[name]} {what}" for name, what in names.items() if meta.get(name)]
        if found and level == logging.WARNING and any(meta.get(name) for name in names if name.startswith("skipped_")):
            found.append("skipped groups come again only after a seek")
        if found:
            log.log(level, "lease of %s (key %s): %s", consumer, meta.get("key"), "; ".join(found))
