"""The subnet manager's own state: start, failover, handover, sweeps."""

from .opensm_log import decode, line


def states(*texts: str) -> list[tuple[object, object, str, bool]]:
    """State, the one before, severity and whether it was a takeover, of each sm_state event."""
    events = decode(*(line(text, second=number) for number, text in enumerate(texts)))
    return [
        (e.attributes["state"], e.attributes.get("from"), e.severity, "takeover" in e.attributes)
        for e in events
        if e.kind == "sm_state"
    ]


def test_a_standby_that_becomes_master_has_taken_over() -> None:
    """It goes through DISCOVERING; that is a warning, a start is none."""
    start = ["Entering DISCOVERING state", "Entering MASTER state"]
    assert [(state, severity) for state, _, severity, _ in states(*start)] == [
        ("DISCOVERING", "info"),
        ("MASTER", "info"),
    ]
    told = states(
        "Entering DISCOVERING state", "Entering STANDBY state", *start, "Entering STANDBY state", "Exiting SM"
    )
    assert told[3] == ("MASTER", "DISCOVERING", "warning", True)
    assert told[4:] == [("STANDBY", "MASTER", "info", False), ("EXITED", "STANDBY", "info", False)]


def test_a_new_process_knows_nothing_of_the_one_before_it() -> None:
    """Killed while standby: what starts then is no takeover, and comes from no state."""
    told = states("Entering STANDBY state", "OpenSM 3.3.23", "Entering DISCOVERING state", "Entering MASTER state")
    assert told[1:] == [("DISCOVERING", None, "info", False), ("MASTER", "DISCOVERING", "info", False)]


def test_the_subnet_is_told_up_where_it_was_not() -> None:
    """Not after each sweep, nor at the start of a log that begins in the middle."""
    events = decode(
        *(
            line(text, second=number)
            for number, text in enumerate(
                [
                    "SUBNET UP",
                    "Entering MASTER state",
                    "SUBNET UP",
                    "SUBNET UP",
                    "Errors during initialization",
                    "SUBNET UP",
                    "SM port is down",
                    "SM port is up",
                    "SUBNET UP",
                ]
            )
        )
    )
    assert [(e.line, e.kind, e.severity) for e in events] == [
        (2, "sm_state", "info"),
        (3, "subnet_up", "info"),
        (5, "sm_error", "error"),
        (6, "subnet_up", "info"),
        (7, "sm_state", "error"),
        (8, "sm_state", "info"),
        (9, "subnet_up", "info"),
    ]


def test_a_handover_names_the_other_manager() -> None:
    """By GUID and host."""
    text = (
        "state_mgr_send_handover: Handing over mastership. Updating "
        "sm_state_mgr master_guid: b83fd20300200101 (node gpu017 mlx5_0)"
    )
    (event,) = decode(line(text))
    assert (event.kind, event.node, event.device.uuid) == ("sm_state", "gpu017", "0xb83fd20300200101")
    assert event.attributes == {"state": "HANDOVER"}


def test_a_heavy_sweep_is_one_event_whichever_build_tells_it() -> None:
    """Upstream a box, MLNX a box and its flags; light sweeps and other boxes are none."""
    stars = "*" * 66
    box = ["", "", stars, f"{'*' * 21} {{}} {'*' * 21}", stars, "", ""]
    for title, flags, expected in (
        ("INITIATING HEAVY SWEEP", [], 1),
        ("HEAVY SWEEP COMPLETE", [], 0),
        ("INITIATING LIGHT SWEEP", [], 0),
        (
            "HEAVY SWEEP START",
            [line("do_sweep: Entering heavy sweep with flags: force_heavy_sweep 1, sm port change 0")],
            1,
        ),
    ):
        events = decode(line("do_sweep:"), *(row.format(title) for row in box), *flags, line("SUBNET UP", second=12))
        assert [event.kind for event in events] == ["heavy_sweep"] * expected, title


def test_a_sweep_after_errors_is_a_warning_with_its_flags() -> None:
    """Why it sweeps is in the flags."""
    text = (
        "do_sweep: Entering heavy sweep with flags: force_heavy_sweep 0, "
        "coming out of standby 1, subnet initialization error 1, sm port change 0"
    )
    (event,) = decode(line(text))
    assert event.severity == "warning"
    assert event.attributes == {
        "force_heavy_sweep": False,
        "coming_out_of_standby": True,
        "subnet_initialization_error": True,
        "sm_port_change": False,
    }
