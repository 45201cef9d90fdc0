"""Keeps schemathesis from sending 2.0 where a schema says integer: JSON Schema calls that an integer, serde does not,
and the services mean to refuse it."""

import schemathesis


def whole(value):
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {name: whole(member) for name, member in value.items()}
    return value


@schemathesis.hook
def map_body(context, body):
    return whole(body)
