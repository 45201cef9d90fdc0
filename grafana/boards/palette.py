"""Colours with a meaning, the same on every board: warm ones for how a saga ended, cool ones for services."""
import pathlib


GREEN, AMBER, ORANGE, RED, BLUE, GREY = "#56A64B", "#E5B53B", "#E8772E", "#E02F44", "#5794F2", "#8E8E8E"
YELLOW = AMBER

OUTCOMES = {
    "confirmed": GREEN, "compensated": AMBER, "timed out": ORANGE, "stuck": RED, "compensating": "#F7DE8F", "running": "#A9BBD0",
    "cancelled": AMBER, "pending": "#A9BBD0",
}
# The participants in the manifest's order: the first has the first colour.
_LINES = pathlib.Path(__file__).parents[2].joinpath("shared/contracts/participants.tsv").read_text(encoding="utf-8").splitlines()
PARTICIPANTS = [line.split("\t")[0] for line in _LINES if not line.startswith("#")]
SERVICES = dict(zip(PARTICIPANTS, (BLUE, "#2FA7A0", "#B877D9", "#7E9B4E", "#C97B9B", "#5B6BB5"))) | {
    "gateway_simulator": "#A68A64", "console": GREY,
}
# A step has a shade of its service's colour.
STEPS = {
    "create_order": "#5794F2", "confirm_order": "#8AB8FF", "cancel_unfillable_order": "#3274D9", "cancel_unpaid_order": "#1F60C4",
    "cancel_timed_out_order": "#C0D8FF", "cancel_order_on_request": "#6E7BD9", "drive_compensation": "#4453B8",
    "project_product_created": "#3D5A80", "project_product_price_changed": "#54769C", "project_product_details_changed": "#6F93B8",
    "reserve_stock": "#2FA7A0", "release_stock": "#84DAD3", "process_payment": "#B877D9", "refund_payment": "#E0BDF2",
    "detect_timeout": GREY,
}
# The outcome of a call, a publish, a request to the card processor: red only where an operator must act.
RESULTS = {
    "acknowledged": GREEN, "answered": GREEN, "done": GREEN, "succeeded": GREEN, "completed": GREEN, "ignored": AMBER, "compensated": AMBER,
    "duplicate": "#A9BBD0", "away": GREY, "rejected": GREY, "late": "#A9BBD0", "out_of_step": ORANGE, "unknown": ORANGE, "not_admitted": AMBER,
    "failed": RED, "refused": RED, "unavailable": RED,
}
# The hops of an event.
HOPS = {"publish": "#C9A66B", "deliver": "#7FA3CC", "apply": "#A593CC"}
# Why an order was cancelled: the colour of the service that refused.
REASONS = {
    "out_of_stock": SERVICES["inventory"], "payment_refused": SERVICES["payment"], "customer_request": SERVICES["order"],
    "timed_out": ORANGE,
}
QUANTILES = {"p50": "#D5DEE9", "p95": "#8FB0D6", "p99": "#4C7DB5"}
CONNECTIONS = {"active": GREEN, "idle": "#A9BBD0", "idle in transaction": AMBER}

STATUSES = {
    "STARTED": OUTCOMES["running"], "IN_PROGRESS": OUTCOMES["running"], "PENDING": OUTCOMES["running"],
    "COMPLETED": GREEN, "CONFIRMED": GREEN, "COMPENSATED": AMBER, "CANCELLED": AMBER, "COMPENSATING": OUTCOMES["compensating"],
    "TIMED_OUT": ORANGE, "FAILED": RED, "SKIPPED": GREY,
}
SEVERITIES = {"critical": RED, "warning": ORANGE}

# How the saga is coordinated.
KINDS = {"choreographed": BLUE, "orchestrated": "#B877D9"}

# By the name of a series; by the label that a legend shows.
NAMED = OUTCOMES | SERVICES | STEPS | HOPS | QUANTILES | KINDS
LABELS = {
    "{{job}}": SERVICES, "{{service}}": SERVICES, "{{step}}": STEPS, "{{reason}}": REASONS | STEPS, "{{status}}": STATUSES, "{{state}}": CONNECTIONS,
    "{{outcome}}": RESULTS,
}
