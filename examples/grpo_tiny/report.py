"""What a run prints: the table of steps, and the reward as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

KINDS = {"first": "first", "extends": "extends", "same_prompt": "retry", "diverges_in_prompt": "cut"}
HEAD = ("step  reward            rollouts  rows  tokens trained  boundaries: first extends retry cut other  "
        "stale  clipped  |l-b| max  left out")
BAR = 10


def line(step: int, reward: float, meta: dict[str, Any], boundaries: dict[str, int], staleness: int, clipped: float, gap: float) -> str:
    """One step of the table."""
    bar = "#" * round(BAR * reward)
    counts = [boundaries.get(kind, 0) for kind in KINDS]
    other = sum(boundaries.values()) - sum(counts)
    first, extends, retry, cut = counts
    left_out = [f"{meta[name]} {what}" for name, what in (("excluded_failed", "died"), ("skipped_stale", "stale group")) if meta.get(name)]
    return (f"{step:4}  {reward:5.3f} {bar:{BAR}}  {meta['rollouts']:8}  {meta['rows']:4}  {meta['tokens']:6} {meta['trained_tokens']:7}  "
            f"            {first:5} {extends:7} {retry:5} {cut:3} {other:5}  "
            f"{staleness:5}  {clipped:7.3f}  {gap:9.1e}  {', '.join(left_out)}")


def svg(path: Path, trained: list[float], held_out: dict[int, float]) -> None:
    """The rewards as a picture: batches as dots, held-out tasks as a line."""
    width, height, edge = 640, 320, 40
    steps = max(len(trained), 1)

    def at(step: float, reward: float) -> str:
        return f"{edge + step * (width - 2 * edge) / steps:.1f},{height - edge - reward * (height - 2 * edge):.1f}"

    dots = "".join('<circle cx="{}" cy="{}" r="3" fill="#9bb"/>'.format(*at(i, r).split(",")) for i, r in enumerate(trained))
    points = " ".join(at(step, reward) for step, reward in held_out.items())
    grid = "".join(f'<path d="M{at(0, r)} L{at(steps, r)}" stroke="#ddd"/><text x="8" y="{at(0, r).split(",")[1]}">{r}</text>'
                   for r in (0.0, 0.5, 1.0))
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
                    f'{grid}{dots}<polyline points="{points}" fill="none" stroke="#046" stroke-width="2"/>'
                    f'<text x="{edge}" y="{height - 10}">step, 0 to {steps}: dots are training batches, the line is held-out tasks</text></svg>\n')
