"""The rules of docker-compose.yml, alone and with docker-compose.cluster.yml: each yields its violations. Each has examples
that violate it, in PLANTED, which are tried every time: a rule that finds none of its own is broken itself.

usage: compose_rules.py V1 V2 WRITTEN FILE... in the project's folder: what `config` of both versions of Compose prints of the
files (that of version 2 twice, if version 1 cannot read them), and what version 2 prints with --no-interpolate
"""

import copy
import json
import pathlib
import re
import sys

import yaml

PATRONI = "docker/patroni/cluster.yml"
# Services without a health check that do not exit.
NO_HEALTHCHECK = {"keeper": "serves nothing; when it cannot go on it ends, and is started again"}
SECRET = re.compile(r"(PASSWORD|TOKEN)$")


def loopback_only(suite):
    for name, service in suite.services:
        for port in service.get("ports", []):
            if port.get("host_ip") != "127.0.0.1":
                yield f"{name}: port {port.get('published')} is open to other machines"
        if service.get("network_mode") == "host":
            yield f"{name}: is on the machine's own network"


def not_root(suite):
    for name, service in suite.services:
        user = str(service.get("user") or suite.user_of_image(service) or "root")
        if user.split(":")[0] in ("root", "0"):
            yield f"{name}: runs as root; neither its `user` nor its Dockerfile's USER says otherwise"


def locked_down(suite):
    for name, service in suite.services:
        if service.get("read_only") is not True:
            yield f"{name}: its files are not read_only"
        if service.get("cap_drop") != ["ALL"] or service.get("cap_add"):
            yield f"{name}: keeps capabilities of root"
        if "no-new-privileges:true" not in service.get("security_opt", []):
            yield f"{name}: may gain privileges"
        if service.get("privileged"):
            yield f"{name}: is privileged"
        if any("docker.sock" in volume.get("source", "") for volume in service.get("volumes", [])):
            yield f"{name}: holds Docker's socket"


def limited(suite):
    for name, service in suite.services:
        for limit in ("mem_limit", "pids_limit"):
            if int(service.get(limit) or 0) <= 0:
                yield f"{name}: has no {limit}"


def health_or_end(suite):
    awaited = {
        other
        for _, service in suite.services
        for other, how in service.get("depends_on", {}).items()
        if how["condition"] == "service_completed_successfully"
    }
    for name, service in suite.services:
        check = service.get("healthcheck", {})
        if (not check.get("test") or check.get("disable")) and name not in awaited and name not in NO_HEALTHCHECK:
            yield f"{name}: has no healthcheck, and nothing waits for its end"
    for name, service in suite.services:
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy" and not suite.model["services"][other].get("healthcheck"):
                yield f"{name}: waits for the health of {other}, which has no healthcheck"


def pinned(suite):
    images = [(name, service["image"]) for name, service in suite.services if not service.get("build")]
    for name, service in suite.services:
        arguments = service.get("build", {}).get("args") or {}
        images += [(name, image) for key, image in arguments.items() if key.endswith("_IMAGE")]
    for name, image in images:
        tag = image.rpartition("/")[2].partition(":")[2]
        if not re.search(r"\d", tag) and not tag.startswith(("bookworm", "trixie")):
            yield f"{name}: the image {image} names no version"


def files_are_there(suite):
    for name, service in suite.services:
        build = service.get("build")
        if build:
            file = pathlib.Path(build["context"], build.get("dockerfile", "Dockerfile"))
            if not file.is_file():
                yield f"{name}: there is no {file}"
            elif build.get("target") and not re.search(rf"(?im)^FROM .* AS {build['target']}$", file.read_text()):
                yield f"{name}: {file} has no stage {build['target']}"
        for volume in service.get("volumes", []):
            if volume["type"] == "bind":
                if not pathlib.Path(volume["source"]).exists():
                    yield f"{name}: there is no {volume['source']}"
                if not volume.get("read_only"):
                    yield f"{name}: may write to {volume['source']}"


def variables_are_set(suite):
    used = set(re.findall(r"\$\{?([A-Z][A-Z0-9_]*)", re.sub(r"(?m)^\s*#.*$", "", suite.text)))
    for name in sorted(used - suite.env.keys()):
        yield f"{name} is used, and not in .env"
    for name in sorted(suite.env.keys() - used):
        yield f"{name} is in .env, and not used"


def defaults_are_guarded(suite):
    """A public default is for development: a program of the suite gets it and APP_ENV, and refuses it in production."""
    for key, value in suite.env.items():
        if SECRET.search(key) and re.search(rf"\$\{{{key}\}}", suite.text):
            guards = [
                name
                for name, service in suite.services
                if "APP_ENV" in service.get("environment", {}) and suite.has_variable(name, key)
            ]
            if not guards:
                yield f"{key}: no service gets both it and APP_ENV, so production accepts {value!r}"


def guests_only_look(suite):
    for name, service in suite.services:
        for key in ("GF_AUTH_ANONYMOUS_ORG_ROLE", "GF_USERS_AUTO_ASSIGN_ORG_ROLE"):
            if service.get("environment", {}).get(key, "Viewer") != "Viewer":
                yield f"{name}: {key} lets guests do more than view"


def few_know_passwords(suite):
    """A running service knows at most one database password, and only the database itself its owner's."""
    keys = sorted(key for key in suite.env if re.search(r"_DB_PASSWORD$|^POSTGRES_PASSWORD$", key))
    for name, service in suite.services:
        known = [key for key in keys if suite.has_variable(name, key)]
        if service.get("restart") == "unless-stopped" and len(known) > 1:
            yield f"{name}: keeps running with {', '.join(known)}"
        if "POSTGRES_PASSWORD" in known and service.get("restart") == "unless-stopped" and not re.fullmatch("postgres(-[abc])?", name):
            yield f"{name}: keeps running as the database's owner"


def both_read_the_same(suite):
    if suite.old["services"].keys() != suite.model["services"].keys():
        yield f"versions 1 and 2 see other services: {sorted(suite.old['services'])}, {sorted(suite.model['services'])}"
        return
    for name, service in suite.services:
        for key in ("image", "command", "entrypoint", "environment", "user", "read_only", "cap_drop", "security_opt", "restart", "scale"):
            if (suite.old["services"][name].get(key) or None) != (service.get(key) or None):
                yield f"{name}: versions 1 and 2 differ in {key}"


def members_are_alike(suite):
    """A cluster's, but for their names. The first nats-server, which has ports, has another name."""
    for name, service in suite.services:
        if name.endswith(("-a", "-b")):
            group = name[:-2]
            one, other = (re.sub(rf"\b{group}-[abc]\b", group, json.dumps(s)) for s in (service, suite.model["services"][f"{group}-c"]))
            if one != other:
                yield f"{name}: differs from {group}-c"


def data_is_kept_apart(suite):
    users = {}
    for name, service in suite.services:
        volumes = [volume["source"] for volume in service.get("volumes", []) if volume["type"] == "volume"]
        if name.endswith(("-a", "-b", "-c")) and not volumes:
            yield f"{name}: keeps its data in its container"
        for volume in volumes:
            users.setdefault(volume, []).append(name)
    for volume, names in users.items():
        if len(names) > 1:
            yield f"{volume}: is the volume of {', '.join(names)}"


def every_postgres_has_the_same_settings(suite):
    """That of docker-compose.yml, of ./scripts/up, and of a cluster."""
    compose = dict(option[2:].split("=") for option in suite.command if option.startswith("-c"))
    local = dict(re.findall(r"-c (\w+)=(\w[\w.]*)", re.search(r"(?s)\npostgres_options=\((.*?)\)", suite.service)[1]))
    if compose != local:
        yield f"docker-compose.yml and scripts/service differ in {sorted(compose.items() ^ local.items())}"
    cluster = suite.patroni["bootstrap"]["dcs"]["postgresql"]["parameters"]
    for key, value in local.items():
        if str(cluster.get(key)) != value:
            yield f"{key} is {value}, and {cluster.get(key)} in {PATRONI}"


RULES = [
    loopback_only, not_root, locked_down, limited, health_or_end, pinned, files_are_there, variables_are_set,
    defaults_are_guarded, guests_only_look, few_know_passwords, both_read_the_same, members_are_alike, data_is_kept_apart,
    every_postgres_has_the_same_settings,
]


class Suite:
    def __init__(self, old, model, raw, text, env):
        self.old, self.model, self.raw, self.text, self.env = old, model, raw, text, env
        self.command = yaml.safe_load(pathlib.Path("docker-compose.yml").read_text())["services"]["postgres"]["command"]
        self.service = pathlib.Path("scripts/service").read_text()
        self.patroni = yaml.safe_load(pathlib.Path(PATRONI).read_text())

    @property
    def services(self):
        return self.model["services"].items()

    def has_variable(self, name, key):
        """Whether the service's environment, as written, has the variable."""
        return f"${{{key}}}" in json.dumps(self.raw["services"][name].get("environment", {}))

    def user_of_image(self, service):
        """The last USER of the stage that is built."""
        build = service.get("build")
        if not build:
            return None
        file = pathlib.Path(build["context"], build.get("dockerfile", "Dockerfile"))
        user, inside = None, False
        for line in file.read_text().splitlines() if file.is_file() else []:
            if line.startswith("FROM "):
                inside = not build.get("target") or line.endswith(f" AS {build['target']}")
                user = None if inside else user
            elif inside and line.startswith("USER "):
                user = line.split()[1]
        return user


def put(path, value, of="model"):
    """Sets the item at that path below the services of a document; None removes it."""

    def plant(suite):
        *way, last = path.split(".")
        item = getattr(suite, of)["services"]
        for key in way:
            item = item[int(key) if isinstance(item, list) else key]
        if value is None:
            del item[last]
        else:
            item[last] = value

    plant.__qualname__ = f"{of}: {path} = {value}"
    return plant


def remove_everywhere(part, key):
    def plant(suite):
        for service in suite.model["services"].values():
            service.get(part, {}).pop(key, None)

    return plant


def put_option(option):
    def plant(suite):
        suite.command = [*suite.command, option]

    plant.__qualname__ = f"docker-compose.yml: postgres {option}"
    return plant


def cluster_setting(name, value):
    def plant(suite):
        suite.patroni["bootstrap"]["dcs"]["postgresql"]["parameters"][name] = value

    plant.__qualname__ = f"{PATRONI}: {name} = {value}"
    return plant


def unknown_variable(suite):
    suite.text += "${NOT_IN_ENV}"


def unused_variable(suite):
    suite.env["NOT_IN_THE_FILE"] = "1"


DOCKER_SOCKET = {"type": "bind", "source": "/var/run/docker.sock", "read_only": True}
PLANTED = [
    (loopback_only, put("postgres.ports.0.host_ip", "0.0.0.0")),
    (loopback_only, put("nats.network_mode", "host")),
    (not_root, put("prometheus.user", None)),
    (not_root, put("postgres.user", "0:0")),
    (not_root, put("order.build", {"context": ".", "target": "build"})),
    (locked_down, put("order.read_only", False)),
    (locked_down, put("grafana.cap_drop", None)),
    (locked_down, put("grafana.cap_add", ["NET_ADMIN"])),
    (locked_down, put("front.security_opt", None)),
    (locked_down, put("tempo.privileged", True)),
    (locked_down, put("console.volumes", [DOCKER_SOCKET])),
    (limited, put("payment.mem_limit", None)),
    (limited, put("payment.pids_limit", -1)),
    (health_or_end, put("inventory.healthcheck", None)),
    (health_or_end, put("order.healthcheck", {"disable": True})),
    (health_or_end, put("nats.healthcheck", None)),
    (health_or_end, remove_everywhere("depends_on", "samples")),
    (pinned, put("postgres.image", "postgres")),
    (pinned, put("postgres.image", "registry:5000/postgres:latest")),
    (pinned, put("order.build.args.RUNTIME_IMAGE", "debian")),
    (files_are_there, put("order.build.dockerfile", "Nofile")),
    (files_are_there, put("order.build.target", "nothing")),
    (files_are_there, put("alertmanager.volumes.0.source", "lost.yml")),
    (files_are_there, put("alertmanager.volumes.0.read_only", False)),
    (variables_are_set, unknown_variable),
    (variables_are_set, unused_variable),
    (defaults_are_guarded, remove_everywhere("environment", "APP_ENV")),
    (guests_only_look, put("grafana.environment.GF_AUTH_ANONYMOUS_ORG_ROLE", "Editor")),
    (few_know_passwords, put("keeper.environment", {"DATABASE_URL": "${POSTGRES_PASSWORD}"}, of="raw")),
    (few_know_passwords, put("console.environment.ORDER_DB_PASSWORD", "${ORDER_DB_PASSWORD}", of="raw")),
    (both_read_the_same, put("console", None, of="old")),
    (both_read_the_same, put("console.command", ["audit"], of="old")),
    (data_is_kept_apart, put("nats.volumes.0.source", "postgres")),
    (every_postgres_has_the_same_settings, put_option("-cjit=on")),
    (every_postgres_has_the_same_settings, cluster_setting("random_page_cost", 4)),
    (every_postgres_has_the_same_settings, cluster_setting("jit", None)),
]
PLANTED_IN_CLUSTER = [
    (few_know_passwords, put("etcd-a.environment", {"PASSWORD": "${POSTGRES_PASSWORD}"}, of="raw")),
    (members_are_alike, put("etcd-b.environment.ETCD_ENABLE_V2", "false")),
    (members_are_alike, put("postgres-c.mem_limit", "1")),
    (members_are_alike, put("nats-b.ports", [{"host_ip": "127.0.0.1", "target": 4222}])),
    (data_is_kept_apart, put("postgres-b.volumes.0.source", "postgres-a")),
    (data_is_kept_apart, put("etcd-a.volumes", None)),
]


def main():
    old, model, raw = (pathlib.Path(path).read_text() for path in sys.argv[1:4])
    files = sys.argv[4:]
    text = "".join(pathlib.Path(path).read_text() for path in files)
    planted = PLANTED if len(files) == 1 else PLANTED_IN_CLUSTER
    env = dict(re.findall(r"(?m)^([A-Z][A-Z0-9_]*)=(.*)$", pathlib.Path(".env").read_text()))
    suite = Suite(yaml.safe_load(old), json.loads(model), json.loads(raw), text, env)
    broken = [f"{rule.__name__}: {what}" for rule in RULES for what in rule(suite)]
    for rule, plant in planted:
        changed = copy.deepcopy(suite)
        plant(changed)
        before = set(rule(suite))
        if not set(rule(changed)) - before:
            broken.append(f"the rule {rule.__name__} does not detect the planted violation: {plant.__qualname__}")
    for rule in set(RULES) - {rule for rule, _ in PLANTED + PLANTED_IN_CLUSTER}:
        broken.append(f"the rule {rule.__name__} has no example that breaks it")
    for line in broken:
        print(f"error: {line}", file=sys.stderr)
    print(f"{files[-1]}: {len(suite.services)} services, {len(RULES)} rules, {len(planted)} planted violations, {len(broken)} errors")
    return bool(broken)


sys.exit(main())
