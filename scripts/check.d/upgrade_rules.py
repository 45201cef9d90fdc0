"""What may change from one release to the next, so that both can run side by side (docs/upgrades.md). Each rule yields
what breaks it, and has examples that break it in PLANTED, which are tried every time.

usage: upgrade_rules.py COMMIT (of the earlier release), in the project's folder
"""

import json
import pathlib
import re
import subprocess
import sys

DOCUMENTS = ("docs/contracts.json", "docs/asyncapi.json")
# Events without publisher and reader, each with the reason why it may be removed.
ENDED = {}
MARKS = ("additive", "contract")
MIGRATION = re.compile(r"migrations/(?P<folder>\w+)/(?P<number>\d+)_(?P<name>\w+)\.sql$")
# The libraries contain theirs, which were beside the services' own in earlier releases; they are matched by their former names.
CARRIED = {
    "shared/messaging/migrations/": "migrations/messaging/",
    "shared/saga_store/migrations/": "migrations/saga/",
    "shared/webhook/migrations/": "migrations/webhook/",
}
# What an older build cannot work with. Whether a function has kept its meaning is not checked here.
NO_ADDITION = re.compile(
    r"\b(drop\s+(table|column|constraint|schema|view|type|function)|rename|truncate|set\s+not\s+null"
    r"|add\s+(constraint|check|unique|foreign|primary|exclude)"
    r"|alter\s+(column\s+)?\w+\s+(set\s+data\s+)?type|add\s+column\s[^,;]*\bnot\s+null\b(?![^,;]*\bdefault\b))",
    re.IGNORECASE,
)
# The body of a function runs only when it is called.
BODY = re.compile(r"\bcreate\s+(?:or\s+replace\s+)?(?:function|procedure)\b[^;$]*?\$\$.*?\$\$", re.IGNORECASE | re.DOTALL)
# On an existing table it rejects rows of builds that do not know it.
UNIQUE_INDEX = re.compile(r"\bcreate\s+unique\s+index\b[^;]*?\bon\s+(?P<table>[\w.]+)", re.IGNORECASE)
# They do not restrict a body.
WORDS = {"description", "example", "examples", "title", "$ref", "properties", "required", "items", "oneOf", "allOf", "enum"}


class Release:
    def __init__(self, contracts, migrations, asyncapi=None):
        self.contracts, self.migrations, self.asyncapi = contracts, migrations, asyncapi or {}
        components = self.asyncapi.get("components", {})
        self.messages = components.get("messages", {})
        self.parts = components.get("schemas", {}) | (contracts or {}).get("parts", {})

    def schema(self, schema):
        """The schema itself, where it is only named."""
        while "$ref" in schema:
            schema = self.parts[schema["$ref"].rsplit("/", 1)[1]]
        return schema

    def newest(self):
        """The events that are published: of each the highest version."""
        versions = {}
        for event in self.contracts["events"]:
            name, version = event.rsplit(".v", 1)
            versions[name] = max(int(version), versions.get(name, 0))
        return {f"{name}.v{version}" for name, version in versions.items()}


def events_are_kept(old, new):
    for event in sorted(old.newest() - set(new.contracts["events"]) - set(ENDED)):
        yield f"{event} is published by the earlier release, and no longer read"


def bodies_only_grow(old, new):
    for event, schema in old.contracts["events"].items():
        if event in new.contracts["events"]:
            yield from differences(event, old, schema, new, new.contracts["events"][event])


def differences(path, old, before, new, after):
    before, after = old.schema(before), new.schema(after)
    for word in sorted((before.keys() | after.keys()) - WORDS):
        if before.get(word) != after.get(word):
            yield f"{path}: {word} was {before.get(word)}, and is {after.get(word)}"
    if set(before.get("enum", [])) != set(after.get("enum", [])):
        yield f"{path}: other values than before, which one of the releases cannot read: {after.get('enum')}"
    needed, given = set(before.get("required", [])), set(after.get("required", []))
    for name in sorted(needed - given):
        yield f"{path}/{name}: the earlier release requires it"
    for name in sorted(given - needed):
        yield f"{path}/{name}: events of the earlier release do not have it"
    properties = after.get("properties", {})
    for name, schema in before.get("properties", {}).items():
        if name in properties:
            yield from differences(f"{path}/{name}", old, schema, new, properties[name])
        elif name not in needed:
            yield f"{path}/{name}: the earlier release has it"
    if "items" in before and "items" in after:
        yield from differences(f"{path}/*", old, before["items"], new, after["items"])
    for word in ("oneOf", "allOf"):
        choices = before.get(word, []), after.get(word, [])
        if len(choices[0]) != len(choices[1]):
            yield f"{path}: {word} has other alternatives than before"
        for number, pair in enumerate(zip(*choices)):
            yield from differences(f"{path}/{word}/{number}", old, pair[0], new, pair[1])


def subjects_are_kept(old, new):
    for subject, channel in old.asyncapi.get("channels", {}).items():
        if subject not in new.asyncapi["channels"] and not channel["messages"].keys() <= ENDED.keys():
            yield f"{subject} is a subject of the earlier release, and nothing is published there any more"


def headers_only_grow(old, new):
    for event in sorted(old.messages.keys() & new.messages.keys()):
        before, after = old.messages[event]["headers"], new.messages[event]["headers"]
        yield from differences(f"headers of {event}", old, before, new, after)


def consumers_keep_their_triggers(old, new):
    for consumer, subject in old.contracts["consumers"].items():
        now = new.contracts["consumers"].get(consumer, subject)
        if now != subject:
            yield f"{consumer} gets {now} instead of {subject}: that requires a step of another name"


def migrations_are_kept(old, new):
    for path, text in old.migrations.items():
        if path not in new.migrations:
            yield f"{path} was released, and is missing"
        elif new.migrations[path] != text:
            yield f"{path} was released, and has changed"


def new_migrations_are_marked(old, new):
    for path in sorted(new.migrations.keys() - old.migrations.keys()):
        if not path.removesuffix(".sql").endswith(tuple(f"_{mark}" for mark in MARKS)):
            yield f"{path}: its name must end in {' or '.join(f'_{mark}.sql' for mark in MARKS)}"


def additions_only_add(old, new):
    for path in sorted(new.migrations.keys() - old.migrations.keys()):
        if not path.endswith("_additive.sql"):
            continue
        statements = BODY.sub("", re.sub(r"--.*", "", new.migrations[path]))
        made = re.findall(r"create\s+table\s+(?:if\s+not\s+exists\s+)?([\w.]+)", statements.lower())
        found = [match.group() for match in NO_ADDITION.finditer(statements)]
        found += [match.group() for match in UNIQUE_INDEX.finditer(statements) if match["table"].lower() not in made]
        for what in found:
            yield f"{path}: {' '.join(what.split())} is not an addition"


def numbers_are_new(old, new):
    last = {}
    for path in old.migrations:
        folder, number = MIGRATION.match(path).group("folder", "number")
        last[folder] = max(int(number), last.get(folder, 0))
    for path in sorted(new.migrations.keys() - old.migrations.keys()):
        folder, number = MIGRATION.match(path).group("folder", "number")
        if int(number) <= last.get(folder, 0):
            yield f"{path}: the earlier release has {last[folder]:04} already"
        last[folder] = max(int(number), last.get(folder, 0))


def example(schema=None, consumers=None, migrations=None, event="Paid.v1", subject="events.pay.Paid", headers=None):
    contracts = {"events": {event: schema or {"type": "object"}}, "parts": {}, "consumers": consumers or {}}
    message = {"headers": {"allOf": [{"$ref": "#/components/schemas/All"}]}}
    components = {"messages": {event: message}, "schemas": {"All": headers or body()}}
    asyncapi = {"channels": {subject: {"messages": {event: {}}}}, "components": components}
    return Release(contracts, migrations or {}, asyncapi)


def body(required=("id",), **properties):
    return {"type": "object", "required": list(required), "properties": {"id": {"type": "string"}, **properties}}


ONE = {"migrations/pay/0001_paid.sql": "create table paid ();"}
# What each rule must find in the later release after the earlier one, and the name that it must say; what it must accept.
PLANTED = {
    events_are_kept: [(example(), example(event="Paid.v2"), "Paid.v1 is")],
    bodies_only_grow: [
        (example(body()), example(body(required=())), "Paid.v1/id: "),
        (example(body()), example(body(required=("id", "note"), note={"type": "string"})), "Paid.v1/note: "),
        (example(body(note={"type": "string"})), example(body()), "Paid.v1/note: "),
        (example(body()), example(body(id={"type": "integer"})), "Paid.v1/id: type "),
        (example(body(why={"enum": ["a"]})), example(body(why={"enum": ["a", "b"]})), "Paid.v1/why: "),
        (example(body(of={"items": {"type": "string"}})), example(body(of={"items": {"type": "integer"}})), "Paid.v1/of/*: "),
    ],
    subjects_are_kept: [(example(), example(subject="events.paying.Paid"), "events.pay.Paid is")],
    headers_only_grow: [
        (example(), example(headers=body(required=())), "headers of Paid.v1/allOf/0/id: "),
        (example(), example(headers=body(required=("id", "time"))), "headers of Paid.v1/allOf/0/time: "),
        (example(), example(headers=body(id={"type": "string", "pattern": "^[0-9]+$"})), "headers of Paid.v1/allOf/0/id: "),
    ],
    consumers_keep_their_triggers: [(example(consumers={"a": "x"}), example(consumers={"a": "y"}))],
    migrations_are_kept: [
        (example(migrations=ONE), example()),
        (example(migrations=ONE), example(migrations={path: text + " " for path, text in ONE.items()})),
    ],
    new_migrations_are_marked: [(example(), example(migrations=ONE))],
    additions_only_add: [
        (example(), example(migrations={"migrations/pay/0002_x_additive.sql": f"alter table paid {change};"}))
        for change in ("drop column id", "rename to p", "alter id type text", "add column a int not null", "add check (a)")
    ]
    + [
        (example(), example(migrations={"migrations/pay/0002_x_additive.sql": text}))
        for text in ("create unique index i on paid (id);", "do $$ begin execute 'drop table paid'; end $$;")
    ],
    numbers_are_new: [
        (example(migrations=ONE), example(migrations=ONE | {"migrations/pay/0001_x_additive.sql": ""})),
        (example(), example(migrations={f"migrations/pay/0002_{name}_additive.sql": "" for name in "ab"})),
    ],
}
SOUND = (
    example(body(), {"a": "x"}, ONE),
    example(
        body(note={"type": ["string", "null"], "description": "new"}),
        {"a": "x", "b": "y"},
        ONE
        | {
            "migrations/pay/0002_x_additive.sql": "alter table paid add column a int not null default 0, add b int;",
            "migrations/pay/0003_y_additive.sql": "create table y (a int not null); create unique index y_a on y (a);"
            "create function f() returns void language plpgsql as $$ begin drop table a_day; end $$;",
        },
    ),
)


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def by_name(paths, read):
    """Migrations by their names, wherever they are kept."""
    migrations = {}
    for path in paths:
        folder, _, file = path.rpartition("/")
        name = CARRIED.get(folder + "/", folder + "/") + file
        if MIGRATION.match(name):
            migrations[name] = read(path)
    return migrations


def earlier(commit):
    paths = git("ls-tree", "-r", "--name-only", commit, "migrations", *CARRIED).split()
    documents = [
        json.loads(git("show", f"{commit}:{path}")) if git("ls-tree", commit, path) else None for path in DOCUMENTS
    ]
    return Release(documents[0], by_name(paths, lambda path: git("show", f"{commit}:{path}")), documents[1])


def present():
    paths = [str(path) for folder in ("migrations", *CARRIED) for path in pathlib.Path(folder).rglob("*.sql")]
    migrations = by_name(paths, lambda path: pathlib.Path(path).read_text())
    contracts, asyncapi = (json.loads(pathlib.Path(path).read_text()) for path in DOCUMENTS)
    return Release(contracts, migrations, asyncapi)


def main(commit):
    for rule, examples in PLANTED.items():
        for old, new, *names in examples:
            found = list(rule(old, new))
            if not found or not all(any(name in what for what in found) for name in names):
                sys.exit(f"error: {rule.__name__} does not find what was planted for it: {new.contracts} {new.migrations}")
        if wrong := list(rule(*SOUND)):
            sys.exit(f"error: {rule.__name__} finds something where nothing is wrong: {wrong}")
    old, new = earlier(commit), present()
    if old.contracts is None:
        print(f"{commit} has no docs/contracts.json: events are not compared")
        old.contracts, old.parts = new.contracts, old.parts | new.parts
    broken = [f"{rule.__name__}: {what}" for rule in PLANTED for what in rule(old, new)]
    if broken:
        sys.exit("\n".join(["error: this release cannot run beside " + commit, *broken]))


main(*sys.argv[1:])
