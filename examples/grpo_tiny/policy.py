"""The policy: a GRU over single characters, small enough for one core.

Text is split into characters, each of which is a token; so text that was made
of tokens gives the same tokens again, and a harness that keeps its history
word for word keeps it token for token. Four tokens are no characters: END ends
a message, and one mark for each role begins one. The policy can sample
characters and END only, so a reply is never mistaken for a mark.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 .,?"
END = len(CHARACTERS)
SAMPLED = END + 1  # what can be sampled: [0, SAMPLED)
ROLES = {"system": SAMPLED, "user": SAMPLED + 1, "assistant": SAMPLED + 2}
TOKENS = SAMPLED + len(ROLES)

_ID = {c: i for i, c in enumerate(CHARACTERS)}


def encode(text: str) -> list[int]:
    """Ids of a text; a character that the policy does not know becomes '?'."""
    return [_ID.get(c, _ID["?"]) for c in text.lower()]


def decode(ids: list[int]) -> str:
    """Text of ids; END and marks are nothing."""
    return "".join(CHARACTERS[i] for i in ids if i < END)


def render(messages: list[dict[str, str]]) -> list[int]:
    """The chat template: every message as mark, text, END; then the mark that asks for a reply."""
    ids: list[int] = []
    for message in messages:
        ids += [ROLES[message["role"]], *encode(message["content"]), END]
    return [*ids, ROLES["assistant"]]


class Policy(nn.Module):
    """Embedding, one GRU layer, linear head: about 75,000 parameters."""

    def __init__(self, embedding: int = 32, hidden: int = 128) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, embedding)
        self.gru = nn.GRU(embedding, hidden, batch_first=True)
        self.head = nn.Linear(hidden, SAMPLED)

    def forward(self, ids: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Log-probabilities (nats) of the next token behind each of `ids`.

        ids: int64 [rows, T]; state: [1, rows, hidden], what came before.
        Returns float32 [rows, T, SAMPLED], N-aligned (entry i scores token
        i + 1), and the state behind the last id.
        """
        hidden, state = self.gru(self.embed(ids), state)
        return self.head(hidden).log_softmax(-1), state

    def token_logprobs(self, ids: Tensor) -> Tensor:
        """Log-probability of each token given those before it, T-aligned.

        ids: int64 [rows, T]. Returns float32 [rows, T]. Entry 0 is 0 and means
        nothing; neither does the entry of a mark, which cannot be sampled.
        """
        scores, _ = self(ids[:, :-1])
        targets = ids[:, 1:].clamp(max=SAMPLED - 1)
        picked = scores.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        return nn.functional.pad(picked, (1, 0))

    @torch.no_grad()
    def sample(self, prompt: list[int], limit: int, generator: torch.Generator) -> tuple[list[int], list[float]]:
        """Sample a reply at temperature 1 until END or `limit` tokens.

        Returns its ids and their log-probabilities (natural logarithm).
        """
        ids: list[int] = []
        logprobs: list[float] = []
        scores, state = self(torch.tensor([prompt]))
        while len(ids) < limit:
            last = scores[0, -1]
            token = int(torch.multinomial(last.exp(), 1, generator=generator))
            ids.append(token)
            logprobs.append(float(last[token]))
            if token == END:
                break
            scores, state = self(torch.tensor([[token]]), state)
        return ids, logprobs


def weights_path(directory: Path, version: int) -> Path:
    """Where the weights of a policy version are."""
    return directory / f"v{version:04d}.pt"


def save(policy: Policy, directory: Path, version: int) -> None:
    """Write the weights of a version, whole or not at all."""
    path = weights_path(directory, version)
    part = path.with_suffix(".part")
    torch.save(policy.state_dict(), part)
    part.rename(path)


def load(directory: Path, version: int) -> Policy:
    """The policy of a version."""
    policy = Policy()
    policy.load_state_dict(torch.load(weights_path(directory, version), weights_only=True))
    return policy.eval()
