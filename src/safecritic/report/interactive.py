"""Figures for the page: `marks` as the traces and layout that Plotly takes."""

from html import escape  # Plotly takes some HTML in its texts
from typing import Any

import numpy as np

from safecritic.report.marks import Area, Bars, Figure, Heat, Line, Panel, Points
from safecritic.style import GRID, INK, LIMIT, SOFT, Style

MARKERS = {"triangle": "triangle-up", "cross": "x"}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def plotly(figure: Figure) -> dict[str, Any]:
    """Return `data` and `layout` of a figure, ready for JSON."""
    (rows, columns), maps = figure.shape, figure.has_maps
    height = round(rows * (1050 / columns + 75 if maps else 320)) + 60
    layout: dict[str, Any] = {
        "height": height,
        "margin": {"l": 52, "r": 14, "t": 62, "b": 50},
        "font": {"family": FONT, "size": 12, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "showlegend": figure.shows_legend,
        "legend": {"orientation": "h", "y": -0.2 / rows, "yanchor": "top", "x": 0},
        "annotations": [],
        "shapes": [],
        "hovermode": "closest",
        "bargap": 0.3,
    }
    data: list[dict[str, Any]] = []
    seen: set[str] = set()
    gap_x, gap_y = 0.075 if columns > 1 else 0.0, 0.16 if rows > 1 else 0.0
    width = (1 - gap_x * (columns - 1)) / columns
    tall = (1 - gap_y * (rows - 1)) / rows
    for number, panel in enumerate(figure.panels):
        row, column = divmod(number, columns)
        left, bottom = column * (width + gap_x), 1 - tall - row * (tall + gap_y)
        suffix = "" if number == 0 else str(number + 1)
        _axes(layout, panel, suffix, (left, left + width), (max(bottom, 0.0), bottom + tall))
        for mark in panel.marks:
            data += _traces(mark, suffix, seen)
    return {"data": data, "layout": layout}


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
        y["range"] = list(panel.yrange)
    if panel.square:
        x |= {"constrain": "domain"}
        y |= {"scaleanchor": f"x{suffix}", "showgrid": False, "constrain": "domain"}
        if across[0] > 0:
            y["title"] = {"text": ""}
    layout[f"xaxis{suffix}"], layout[f"yaxis{suffix}"] = x, y
    text = f"<b>{escape(panel.title)}</b>"
    if panel.note:
        text += f"<br><span style='font-size:10px;color:{SOFT}'>{escape(panel.note)}</span>"
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


def _traces(mark: Any, suffix: str, seen: set[str]) -> list[dict[str, Any]]:
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
            if mark.error is not None:
                trace["error_y"] = {"array": numbers(mark.error), "thickness": 1.8, "width": 4}
            if mark.names:
                trace["text"] = list(map(escape, mark.names))
                trace["hovertemplate"] = "%{text}: %{y:.2f}<extra></extra>"
            return [trace | place | _named(mark.label, seen)]
        case Area():
            return [_fill(mark.x, mark.y, mark.style, 0.2) | place]
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
                "colorscale": "Viridis",
                "zmin": 0,
                "zmax": 1,
                "showscale": False,
                "hovertemplate": "%{z:.2f} at (%{x:.2f}, %{y:.2f})<extra></extra>",
            }
            return [trace | place]
    raise TypeError(f"cannot draw {type(mark).__name__}")


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
