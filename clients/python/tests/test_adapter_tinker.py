"""tinker's own Datum and outputs, and tinker_cookbook's way to the same data."""

from __future__ import annotations

import numpy as np
import pytest
from shapes.leases import Leases
from shapes.trainers import need
from tables import delivered, row

tinker = need("tinker")

from icecore.adapters.tinker import datums, logprobs_back  # noqa: E402
from icecore.errors import DataError  # noqa: E402


def batch(**more):
    worked = dict(token_ids=[10, 11, 12, 13, 20, 14], loss_mask=[0, 0, 1, 1, 0, 1], logprobs=[None, None, -0.1, -0.2, None, -0.3])
    return Leases(
        delivered(
            [
                row(**worked, rollout_id="a", reward=1.0, advantage=0.5, weight=0.5, **more),
                row([1, 2, 3, 4], [0, 1, 1, 1], [None, -0.5, -0.6, None], rollout_id="b", reward=0.0, advantage=-1.0),
                row([1, 3], [0, 1], rollout_id="c"),
            ]
        )
    ).batches[0]


def test_a_datum_is_shifted_and_has_advantage_0_where_nothing_is_trained():
    (_, a), (_, b) = datums(batch(), missing="mask")
    inputs = {k: v.to_numpy() for k, v in a.loss_fn_inputs.items()}
    assert a.model_input.to_ints() == [10, 11, 12, 13, 20]
    assert inputs["target_tokens"].tolist() == [11, 12, 13, 20, 14]
    assert inputs["logprobs"].tolist() == pytest.approx([0, -0.1, -0.2, 0, -0.3])
    assert inputs["advantages"].tolist() == [0, 0.25, 0.25, 0, 0.25]
    assert set(inputs) == {"target_tokens", "logprobs", "advantages"}, "tinker takes no mask"
    assert b.model_input.to_ints() == [1, 2], "the token without a log-prob is cut off with the end"


def test_the_mask_may_stay_for_tinker_cookbook():
    (_, a), *_ = datums(batch(), missing="mask", mask=True)
    assert a.loss_fn_inputs["mask"].to_numpy().tolist() == [0, 1, 1, 0, 1]


def test_the_request_that_tinker_would_send_is_valid():
    from tinker.types import ForwardBackwardInput

    data = [d for _, d in datums(batch(), missing="mask")]
    sent = ForwardBackwardInput(data=data, loss_fn="importance_sampling")
    for datum in sent.data:
        length = datum.model_input.length
        assert {len(v.to_numpy()) for v in datum.loss_fn_inputs.values()} == {length}
        assert all(np.isfinite(v.to_numpy()).all() for v in datum.loss_fn_inputs.values())


def test_the_cookbook_makes_the_same_datum_of_the_same_turns():
    data_processing = need("tinker_cookbook.rl.data_processing")
    completers = need("tinker_cookbook.completers")
    types = need("tinker_cookbook.rl.types")

    def turn(seen, sampled, logprobs):
        return types.Transition(
            ob=tinker.ModelInput.from_ints(seen),
            ac=completers.TokensWithLogprobs(tokens=sampled, maybe_logprobs=logprobs),
            reward=0.0, episode_done=False,
        )

    turns = [turn([10, 11], [12, 13], [-0.1, -0.2]), turn([10, 11, 12, 13, 20], [14], [-0.3])]
    trajectory = types.Trajectory(transitions=turns, final_ob=tinker.ModelInput.empty())
    (theirs,) = data_processing.trajectory_to_data(trajectory, 0.25)
    (_, ours), *_ = datums(batch(), missing="mask", mask=True)
    assert ours.model_input.to_ints() == theirs.model_input.to_ints()
    for name, values in theirs.loss_fn_inputs.items():
        np.testing.assert_allclose(ours.loss_fn_inputs[name].to_numpy(), values.to_numpy(), rtol=1e-6, err_msg=name)


def outputs(*logprobs):
    from tinker.types import ForwardBackwardOutput, TensorData

    made = [{"logprobs": TensorData(data=list(x), dtype="float32", shape=[len(x)])} for x in logprobs]
    return ForwardBackwardOutput(loss_fn_output_type="x", loss_fn_outputs=made, metrics={})


def test_log_probs_come_back_token_aligned():
    data = datums(batch(), missing="mask")
    back = logprobs_back(data, outputs([-1, -2, -3, -4, -5], [-6, -7]))
    np.testing.assert_array_equal(back["tr_0"], np.float32([np.nan, -1, -2, -3, -4, -5]))
    np.testing.assert_array_equal(back["tr_1"], np.float32([np.nan, -6, -7, np.nan]))
    with pytest.raises(DataError, match="1 outputs for 2 rows"):
        logprobs_back(data, outputs([-1]))
    with pytest.raises(DataError, match="4 for row tr_0, 5 are needed"):
        logprobs_back(data, outputs([-1, -2, -3, -4], [-6, -7]))


def test_another_temperature_is_refused():
    rows = batch(temperature=0.7, logprobs_mode="processed")
    with pytest.raises(DataError, match="sampled at temperature 0.7, the trainer computes at 1"):
        datums(rows, missing="mask")
    assert len(datums(rows, missing="mask", temperature=None)) == 2
