"""Where nodes stand on the map, and the map's figure."""

from dashboard.charts import charts, layout
from dashboard.text import words
from wire.nodes import NodeJson, ReasonJson


def many_nodes(count: int, per_rack: int = 8) -> list[NodeJson]:
    """Nodes in racks, all well."""
    return [NodeJson(node=f"gpu-{i:05}", state="ok", rack=f"rack-{i // per_rack:04}") for i in range(count)]


def test_racks_are_columns_and_nodes_rows() -> None:
    """Sorted by name, whatever the order of the answer."""
    cells = layout.cells(many_nodes(20)[::-1])
    assert [(c.name, c.column, c.row) for c in cells][7:9] == [("gpu-00007", 0, 7), ("gpu-00008", 1, 0)]
    assert cells[8].column_name == "rack-0001"


def test_without_racks_leaves_are_the_columns_and_without_both_groups() -> None:
    """A cluster whose nodes.csv is missing is still drawn."""
    leaves = layout.cells([NodeJson(node="a", leaf="leaf-2"), NodeJson(node="b", leaf="leaf-1")])
    assert [(c.name, c.column_name) for c in leaves] == [("b", "leaf-1"), ("a", "leaf-2")]
    alone = layout.cells([NodeJson(node=f"n{i:02}") for i in range(17)])
    assert {c.column_name for c in alone} == {"group 1", "group 2"}


def test_pointing_at_a_node_tells_its_risk_and_reasons() -> None:
    """And no tag in them is obeyed."""
    node = NodeJson(
        node="gpu-1",
        state="at_risk",
        rack="r1",
        score_24h=0.31,
        reasons=(ReasonJson(text="<b>hot</b> & loud", contribution=0.2),),
    )
    hover = layout.cells([node])[0].hover
    assert hover.startswith("<b>gpu-1</b>: at risk<br>risk 31 % within 24 h, – within 7 days")
    assert "&lt;b&gt;hot&lt;/b&gt; &amp; loud" in hover
    assert hover.endswith("r1")


def test_a_very_large_cluster_has_a_cell_for_each_rack_with_its_worst_node() -> None:
    """12,500 nodes are 1,563 squares, 40 a row, a click leads to the riskiest of the rack."""
    nodes = many_nodes(12_500)
    nodes[9] = NodeJson(node="gpu-00009", state="faulty", rack="rack-0001", score_24h=0.9)
    cells = layout.cells(nodes)
    assert len(cells) == 1563
    assert (cells[1].state, cells[1].name) == ("faulty", "gpu-00009")
    assert "1 faulty, 7 well" in cells[1].hover
    assert (cells[41].row, cells[41].column) == (1, 1)


def test_a_rack_of_states_that_are_not_known_yet_is_grey() -> None:
    """A newer server's state is not taken for well."""
    nodes = [NodeJson(node=f"n{i:05}", state="dreaming", rack="r") for i in range(1600)]
    assert layout.cells(nodes)[0].state == "silent"


def test_the_map_colours_states_and_marks_what_is_not_well() -> None:
    """Colour is never the only sign."""
    nodes = [
        NodeJson(node="a", state="faulty", rack="r1"),
        NodeJson(node="b", state="ok", rack="r1"),
        NodeJson(node="c", state="dreaming", rack="r2"),
    ]
    heat, marks = charts.node_map(layout.cells(nodes)).data
    order = list(words.STATES)
    assert heat.z[0][0] == order.index("faulty")
    assert heat.z[1][0] == order.index("ok")
    assert heat.z[0][1] == order.index("silent")
    assert heat.z[1][1] is None
    assert list(marks.text) == ["✕", "", "?"]
    assert [row[0] for row in marks.customdata] == ["a", "b", "c"]


def test_the_map_fills_its_frame_and_names_racks_where_there_are_any() -> None:
    """No empty band around it, however many nodes."""
    small, large = (charts.node_map(layout.cells(many_nodes(n))).layout for n in (64, 12_500))
    assert (list(small.xaxis.range), list(small.yaxis.range)) == ([-0.5, 7.5], [7.5, -0.5])
    assert len(small.xaxis.ticktext) == 8
    assert not large.xaxis.ticktext
    assert large.height < 600


def test_the_colour_scale_has_a_step_for_each_state() -> None:
    """From 0 to 1, without a gap."""
    scale = charts.node_map(layout.cells(many_nodes(1))).data[0].colorscale
    assert (scale[0][0], scale[-1][0]) == (0.0, 1.0)
    assert [colour for _, colour in scale[::2]] == list(words.STATE_COLOURS.values())
    assert list(words.STATE_COLOURS) == list(words.STATES)
