"""The canvas: metres in their places."""

from safecritic.tasks.drawing.canvas import Panel


def test_panel_puts_metres_where_they_belong():
    panel = Panel(100, 50, (2.0, 1.0), 10.0)
    assert panel.edges == (-3.0, 7.0, -1.5, 3.5)
    assert panel.pixels((2.0, 1.0)) == [(150.0, 75.0)]
    assert panel.pixels((3.0, 2.0)) == [(180.0, 45.0)]
