"""Figures for the page: `marks` as the traces and layout that Plotly takes."""

from html import escape  # Plotly takes some HTML in its texts
from typing import Any

import numpy as np

from safecritic.report.marks import Bars, Figure, Heat, Line, Panel, Points, Scale, root_ticks
from safecritic.style import GRID, INK, LIMIT, SOFT, Style

MARKERS = {"triangle": "triangle-up", "cross": "x"}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


# Pixels. A layout is made for a width, and stretches a little.
WIDE, NARROW = 1240, 370
PLOT = 235  # height of a panel that is not a map
BETWEEN = 62  # panels above each other: ticks and the title of an axis
BETWEEN_NAMED, BETWEEN_TILTED = 40, 82  # where methods are named, and where they do not fit
BUTTONS = 26  # of Plotly, above a wide figure
BAR = 62  # a colour bar with its numbers and its label
LETTER, ENTRY, ROW = 7, 52, 21  # of a legend: a letter, the sign before a name, a row of names


def plotly(figure: Figure) -> dict[str, Any]:
    """Return `data` and two layouts of a figure, ready for JSON.

    `layout` is for a wide window, `narrow` for a telephone: the same panels below each other.
    """
    seen: set[str] = set()
    scales = list(figure.scales)
    data: list[dict[str, Any]] = []
    for number, panel in enumerate(figure.panels):
        for mark in panel.marks:
            traces = _traces(mark, _suffix(number), seen, scales)
            data += [_by_root(trace) for trace in traces] if panel.yroot else traces
    return {
        "data": data,
        "layout": _layout(figure, figure.shape[1], WIDE),
        "narrow": _layout(figure, 1, NARROW),
    }


def widest(figure: Figure) -> int:
    """Return the width in pixels beyond which a figure does not grow."""
    columns = figure.shape[1]
    return 330 * columns if figure.has_maps else max(680, 480 * columns)


def _suffix(number: int) -> str:
    return "" if number == 0 else str(number + 1)


def _layout(figure: Figure, columns: int, width: int) -> dict[str, Any]:
    rows = -(-len(figure.panels) // columns)
    margin = {"l": 54, "r": 14}
    inner = min(width, widest(figure)) - sum(margin.values())
    apart = 64 if columns > 1 else 0
    across = (inner - apart * (columns - 1)) / columns
    tall = across if figure.has_maps else PLOT
    below = max(_below(panel, across) for panel in figure.panels)
    lines = max(panel.note.count("\n") + 1 if panel.note else 0 for panel in figure.panels)
    above = 24 + 13 * lines  # title and note of a panel
    bars = _bar_rows(figure, columns)
    legend = _legend_rows(figure, inner) * ROW if figure.shows_legend else 0
    heights = [tall + above + below + (BAR if row in bars.values() else 0) for row in range(rows)]
    top, total = legend + above + 8, sum(heights) - above
    top += BUTTONS if width == WIDE else 0
    plot = total - below - (BAR if rows - 1 in bars.values() else 0)
    height = round(top + total)
    layout: dict[str, Any] = {
        "height": height,
        "margin": margin | {"t": top, "b": round(total - plot)},
        "font": {"family": FONT, "size": 12, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "showlegend": figure.shows_legend,
        "legend": {"orientation": "h", "x": 0, "y": 1 + (above + 4) / plot, "yanchor": "bottom"},
        "annotations": [],
        "shapes": [],
        "hovermode": "closest",
        "bargap": 0.3,
    }
    step = (across + apart) / inner
    for number, panel in enumerate(figure.panels):
        row, column = divmod(number, columns)
        ceiling = 1 - sum(heights[:row]) / plot
        left = column * step
        place = (left, min(left + across / inner, 1.0))
        up = (max(ceiling - tall / plot, 0.0), ceiling)
        _axes(layout, panel, _suffix(number), place, up)
    for number, (scale, row) in enumerate(bars.items()):
        mine = [at % columns for at in figure.scales[scale] if at // columns == row]
        left, right = min(mine) * step, max(mine) * step + across / inner
        floor = 1 - (sum(heights[:row]) + tall + below - 8) / plot
        layout[f"coloraxis{_suffix(number)}"] = {
            "cmin": scale.low,
            "cmax": scale.high,
            "colorscale": "Viridis",
            "colorbar": {
                "orientation": "h",
                "x": left,
                "xanchor": "left",
                "len": right - left,
                "y": floor,
                "yanchor": "top",
                "thickness": 11,
                "outlinewidth": 0,
                "xpad": 0,
                "ypad": 0,
                "title": {"text": escape(scale.label), "side": "bottom", "font": {"size": 12}},
            },
        }
    return layout


def _below(panel: Panel, width: float) -> int:
    """Return the room for what is written below a panel's axis."""
    if not (panel.xticks and panel.named):
        return BETWEEN
    fits = sum(LETTER * len(name) + 8 for name in panel.xticks[1]) < width
    return BETWEEN_NAMED if fits else BETWEEN_TILTED


def _bar_rows(figure: Figure, columns: int) -> dict[Scale, int]:
    """Return the row under which each colour bar goes: the last that has its colours."""
    return {scale: max(places) // columns for scale, places in figure.scales.items()}


def _legend_rows(figure: Figure, width: float) -> int:
    """Return how many rows a legend takes; its entries are all as wide as the widest."""
    widths = max(LETTER * len(label) + ENTRY for label in figure.legend)
    return -(-len(figure.legend) // max(int(width // widths), 1))


def _axes(
    layout: dict[str, Any],
    panel: Panel,
    suffix: str,
    across: tuple[float, float],
    up: tuple[float, float],
) -> None:
    line = {"color": LIMIT.colour, "width": LIMIT.width, "dash": "dash"}
    x: dict[str, Any] = {
        "domain": across,
        "anchor": f"y{suffix}",
        "title": {"text": escape(panel.xlabel), "standoff": 6},
        "showgrid": False,
        "linecolor": SOFT,
        "ticks": "outside",
        "tickcolor": SOFT,
        "zeroline": False,
    }
    y: dict[str, Any] = {
        "domain": up,
        "anchor": f"x{suffix}",
        "title": {"text": escape(panel.ylabel), "standoff": 4},
        "gridcolor": GRID,
        "zeroline": False,
        "linecolor": SOFT,
    }
    if panel.xlog:
        x |= {"type": "log", "dtick": 1}
    if panel.ylog:
        y |= {"type": "log", "dtick": 1}
    if panel.xrange is not None:
        x["range"] = list(panel.xrange)
    if panel.xticks is not None:
        x |= {"tickmode": "array", "tickvals": list(panel.xticks[0])}
        x |= {"ticktext": list(map(escape, panel.xticks[1]))}
    if panel.yrange is not None:
        y["range"] = [_root(x) for x in panel.yrange] if panel.yroot else list(panel.yrange)
    if panel.yroot and panel.yrange is not None:
        ticks = root_ticks(panel.yrange[1])
        y |= {"tickmode": "array", "tickvals": [_root(x) for x in ticks]}
        y |= {"ticktext": [f"{x:g}" for x in ticks]}
    if panel.square:
        x |= {"constrain": "domain"}
        y |= {"scaleanchor": f"x{suffix}", "showgrid": False, "constrain": "domain"}
        if across[0] > 0:
            y["title"] = {"text": ""}
    layout[f"xaxis{suffix}"], layout[f"yaxis{suffix}"] = x, y
    text = f"<b>{escape(panel.title)}</b>"
    if panel.note:
        note = escape(panel.note).replace("\n", "<br>")
        text += f"<br><span style='font-size:10.5px;color:{SOFT}'>{note}</span>"
    layout["annotations"].append(
        {
            "text": text,
            "x": across[0],
            "y": up[1],
            "xref": "paper",
            "yref": "paper",
            "xanchor": "left",
            "yanchor": "bottom",
            "align": "left",
            "showarrow": False,
            "font": {"size": 12},
        }
    )
    if panel.level is not None:
        place = {"xref": f"x{suffix} domain", "x0": 0, "x1": 1, "yref": f"y{suffix}"}
        place |= {"y0": panel.level, "y1": panel.level}
        layout["shapes"].append({"type": "line", "layer": "below", "line": line} | place)
    if panel.upright is not None:
        place = {"yref": f"y{suffix} domain", "y0": 0, "y1": 1, "xref": f"x{suffix}"}
        place |= {"x0": panel.upright, "x1": panel.upright}
        layout["shapes"].append({"type": "line", "layer": "below", "line": line} | place)


def _traces(mark: Any, suffix: str, seen: set[str], scales: list[Scale]) -> list[dict[str, Any]]:
    place = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    trace: dict[str, Any]
    match mark:
        case Line():
            band: list[dict[str, Any]] = []
            if mark.low is not None and mark.high is not None:
                x = np.concatenate([mark.x, mark.x[::-1]])
                y = np.concatenate([mark.high, mark.low[::-1]])
                band.append(_fill(x, y, mark.style, 0.13, mark.label) | place)
            style = {"color": mark.style.colour, "width": mark.style.width}
            trace = {
                "type": "scatter",
                "mode": "lines+markers" if mark.marked else "lines",
                "x": numbers(mark.x),
                "y": numbers(mark.y),
                "line": style | {"dash": mark.style.dash},
                "marker": {"symbol": _symbol(mark.style), "size": 6},
            }
            if mark.error is not None:
                trace["error_y"] = {"array": numbers(mark.error), "thickness": 1.4, "width": 3}
            return [*band, trace | place | _named(mark.label, seen)]
        case Points():
            trace = {
                "type": "scatter",
                "mode": "markers",
                "x": numbers(mark.x),
                "y": numbers(mark.y),
                "marker": {
                    "symbol": _symbol(mark.style),
                    "size": 1.3 * mark.size,
                    "color": mark.style.colour,
                    "opacity": mark.opacity,
                    "line": {"color": "white", "width": 0.7 if mark.opacity == 1 else 0},
                },
            }
            for key, error in (("error_y", mark.error), ("error_x", mark.across)):
                if error is not None:
                    trace[key] = {"array": numbers(error), "thickness": 1.8, "width": 4}
            if mark.names:
                trace["text"] = list(map(escape, mark.names))
                trace["hovertemplate"] = "%{text}: %{y:.2f}<extra></extra>"
            return [trace | place | _named(mark.label, seen)]
        case Bars():
            trace = {
                "type": "bar",
                "x": numbers(mark.x),
                "y": numbers(mark.height),
                "marker": {"color": [style.colour for style in mark.styles]},
                "showlegend": False,
                "hovertemplate": "%{y:.1f}<extra></extra>",
            }
            if mark.error is not None:
                trace["error_y"] = {"array": numbers(mark.error), "color": SOFT, "thickness": 1.5}
            return [trace | place]
        case Heat():
            size, end = len(mark.z), mark.extent
            middles = (np.arange(size) + 0.5) / size * 2 * end - end
            trace = {
                "type": "heatmap",
                "z": [[round(float(value), 3) for value in row] for row in mark.z],
                "x": numbers(middles),
                "y": numbers(middles),
                "coloraxis": f"coloraxis{_suffix(scales.index(mark.scale))}",
                "hovertemplate": "%{z:.2f} at (%{x:.2f}, %{y:.2f})<extra></extra>",
            }
            return [trace | place]
    raise TypeError(f"cannot draw {type(mark).__name__}")


def _root(value: float) -> float:
    return float(np.sqrt(max(value, 0.0)))


def _by_root(trace: dict[str, Any]) -> dict[str, Any]:
    """Return a line on an axis by the square root, which Plotly does not have."""
    values = [np.nan if y is None else y for y in trace["y"]]
    rooted = [_root(y) for y in values]
    trace = trace | {"y": numbers(np.array(rooted)), "customdata": numbers(np.array(values))}
    trace["hovertemplate"] = "%{customdata:.2f}"
    if "error_y" in trace:
        errors = trace["error_y"]["array"]
        up = [_root(y + e) - r for y, e, r in zip(values, errors, rooted, strict=True)]
        down = [r - _root(y - e) for y, e, r in zip(values, errors, rooted, strict=True)]
        ends = {"array": numbers(np.array(up)), "arrayminus": numbers(np.array(down))}
        trace["error_y"] = trace["error_y"] | ends | {"symmetric": False}
    return trace


def _fill(
    x: np.ndarray, y: np.ndarray, style: Style, opacity: float, group: str = ""
) -> dict[str, Any]:
    red, green, blue = (int(style.colour[i : i + 2], 16) for i in (1, 3, 5))
    return {
        "type": "scatter",
        "mode": "none",
        "x": numbers(x),
        "y": numbers(y),
        "fill": "toself",
        "fillcolor": f"rgba({red},{green},{blue},{opacity})",
        "hoverinfo": "skip",
        "showlegend": False,
    } | ({"legendgroup": escape(group)} if group else {})


def _symbol(style: Style) -> str:
    return MARKERS.get(style.marker, style.marker)


def _named(label: str, seen: set[str]) -> dict[str, Any]:
    """List a method once; its legend entry switches it on and off in all panels."""
    if not label:
        return {"showlegend": False, "hoverinfo": "skip"}
    first = label not in seen
    seen.add(label)
    return {"name": escape(label), "legendgroup": escape(label), "showlegend": first}


def numbers(values: np.ndarray) -> list[float | None]:
    """Return values for JSON: six digits, None where a line is broken."""
    return [float(f"{x:.6g}") if np.isfinite(x) else None for x in np.asarray(values, np.float64)]
