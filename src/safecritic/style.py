"""Colours and lines that every picture shares."""

from typing import Any

INK, SOFT, GRID = "#1f2430", "#6b7280", "#e5e7eb"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
COLOURS = {"reward": "#0072b2", "cost": "#d55e00", "success": "#009e73", "multiplier": "#7b4fa3"}
