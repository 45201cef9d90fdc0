"""What may change from one release to the next, so that both can run side by side (docs/upgrades.md). Each rule yields
what breaks it, and has examples that break it in PLANTED, which are tried every time.

usage: upgrade_rules.py COMMIT (of the earlier release), in the project's folder
"""

import json
import pathlib
import re
import subprocess
import sys

# Events without publisher and reader, each with the reason why it may be removed.
ENDED = {}
MARKS = ("additive", "contract")
MIGRATION = re.compile(r"migrations/(?P<folder>\w+)/(?P<number>\d+)_(?P<name>\w+)\.sql$")
# The libraries contain theirs, which were beside the services' own in earlier releases; they are matched by their former names.
CARRIED = {"shared/messaging/migrations/": "migrations/messaging/", "shared/saga_store/migrations/": "migrations/saga/"}
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
    def __init__(self, contracts, migrations):
        self.contracts, self.migrations = contracts, migrations

    def schema(self, schema):
        """The schema itself, where it is only named."""
        while "$ref" in schema:
            schema = self.contracts["parts"][schema["$ref"].rsplit("/", 1)[1]]
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
    if "items" in before and "items" in after:
        yield from differences(f"{path}/*", old, before["items"], new, after["items"])
    for word in ("oneOf", "allOf"):
        choices = before.get(word, []), after.get(word, [])
        if len(choices[0]) != len(choices[1]):
            yield f"{path}: {word} has other alternatives than before"
        for number, pair in enumerate(zip(*choices)):
            yield from differences(f"{path}/{word}/{number}", old, pair[0], new, pair[1])


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


def example(body=None, consumers=None, migrations=None, event="Paid.v1"):
    contracts = {"events": {event: body or {"type": "object"}}, "parts": {}, "consumers": consumers or {}}
    return Release(contracts, migrations or {})


def body(required=("id",), **properties):
    return {"type": "object", "required": list(required), "properties": {"id": {"type": "string"}, **properties}}


ONE = {"migrations/pay/0001_paid.sql": "create table paid ();"}
# What each rule must find, and what it must accept: the earlier release, the later one.
PLANTED = {
    events_are_kept: [(example(), example(event="Paid.v2"))],
    bodies_only_grow: [
        (example(body()), example(body(required=()))),
        (example(body()), example(body(required=("id", "note"), note={"type": "string"}))),
        (example(body()), example(body(id={"type": "integer"}))),
        (example(body(why={"enum": ["a"]})), example(body(why={"enum": ["a", "b"]}))),
        (example(body(of={"items": {"type": "string"}})), example(body(of={"items": {"type": "integer"}}))),
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
    has_contracts = bool(git("ls-tree", commit, "docs/contracts.json"))
    contracts = json.loads(git("show", f"{commit}:docs/contracts.json")) if has_contracts else None
    return Release(contracts, by_name(paths, lambda path: git("show", f"{commit}:{path}")))


def present():
    paths = [str(path) for folder in ("migrations", *CARRIED) for path in pathlib.Path(folder).rglob("*.sql")]
    migrations = by_name(paths, lambda path: pathlib.Path(path).read_text())
    return Release(json.loads(pathlib.Path("docs/contracts.json").read_text()), migrations)


def main(commit):
    for rule, examples in PLANTED.items():
        for old, new in examples:
            if not list(rule(old, new)):
                sys.exit(f"error: {rule.__name__} does not find what was planted for it: {new.contracts} {new.migrations}")
        if wrong := list(rule(*SOUND)):
            sys.exit(f"error: {rule.__name__} finds something where nothing is wrong: {wrong}")
    old, new = earlier(commit), present()
    if old.contracts is None:
        print(f"{commit} has no docs/contracts.json: events are not compared")
        old.contracts = new.contracts
    broken = [f"{rule.__name__}: {what}" for rule in PLANTED for what in rule(old, new)]
    if broken:
        sys.exit("\n".join(["error: this release cannot run beside " + commit, *broken]))


main(*sys.argv[1:])
