"""miles: the rollout function of icecore.adapters.slime, with miles' classes.

    --rollout-function-path icecore.adapters.miles.generate_rollout
    --disable-rewards-normalization
    --custom-config-path icecore.yaml

miles normalises per rollout (not by position), so icecore_score "reward" only asks
that every rollout is scored.
"""

from __future__ import annotations

from typing import Any

from .slime import Options, Types, finish, rollout

__all__ = ["finish", "generate_rollout"]


def generate_rollout(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """miles' rollout function; see icecore.adapters.slime.generate_rollout."""
    from miles.rollout.base_types import RolloutFnTrainOutput
    from miles.utils.types import Sample

    # weight_versions holds call records in miles, which only its own engine makes.
    types = Types(Sample, RolloutFnTrainOutput, versions=False, by_position=False)
    return rollout(args, rollout_id, evaluation, Options.of(args, consumer="miles"), types)
