"""The rules of deploy/kubernetes: each yields its violations. Each has examples that violate it, in PLANTED, which are
tried every time: a rule that finds none of its own is broken itself.

usage: kubernetes_rules.py SECRETS OBJECTS BUILT (what deploy/kubernetes/secrets prints; a file for the objects, in JSON; what
`kubectl kustomize` prints, if it exists), in the project's folder
"""

import copy
import json
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path("deploy/kubernetes")
NAMESPACE = "pas-de-trois"
IMAGE = "pas-de-trois"
# Pods without probes that do not end.
NO_PROBES = {"keeper": "serves nothing; when it cannot go on it ends, and is started again"}
# Settings of docker-compose.yml without a place here.
NOT_HERE = {("provision", "GRAFANA_ADMIN_PASSWORD"): "Grafana is the cluster's own"}
# Names of docker-compose.yml, and what they are here.
HOSTS = {"@postgres:": "@postgres-rw:", "//gateway_simulator:": "//gateway-simulator:", "//tempo:": "//tempo.monitoring:"}
# Servers of operators and charts, with the labels of their pods.
SERVERS = {"postgres-rw": {"cnpg.io/cluster": "postgres"}, "nats": {"app.kubernetes.io/name": "nats"}}
# Made by CloudNativePG: the passwords of Compose that they stand for.
OPERATOR_SECRETS = {("postgres-superuser", "password"): "POSTGRES_PASSWORD"}
SECRET = re.compile(r"(PASSWORD|TOKEN)$")


# --- Kustomize, as far as it is used here ---------------------------------------------------------------------------


def build(folder):
    """The objects of a kustomization; what it does not know is an error."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    unknown = kustomization.keys() - {"apiVersion", "kind", "namespace", "resources", "patches"}
    assert not unknown, f"{folder}: {unknown} is not supported by {__file__}"
    objects = []
    for resource in kustomization["resources"]:
        path = folder / resource
        objects += build(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    for item in objects:
        if item["kind"] != "Namespace":
            item["metadata"]["namespace"] = kustomization["namespace"]
    for patch in kustomization.get("patches", []):
        targets = [item for item in objects if is_target(patch["target"], item)]
        assert targets, f"{folder}: nothing is patched by {patch}"
        for item in targets:
            for operation in yaml.safe_load(patch["patch"]):
                apply(operation, item)
    return objects


def is_target(target, item):
    unknown = target.keys() - {"kind", "name", "labelSelector"}
    assert not unknown, f"{unknown} is not supported by {__file__}"
    if item["kind"] != target["kind"] or target.get("name", item["metadata"]["name"]) != item["metadata"]["name"]:
        return False
    labels = item["metadata"].get("labels", {})
    for term in filter(None, target.get("labelSelector", "").split(",")):
        key, operator, value = re.fullmatch(r"([^!=]+)(!?=)([^!=]+)", term).groups()
        if (labels.get(key) == value) != (operator == "="):
            return False
    return True


def apply(operation, item):
    *way, last = operation["path"].strip("/").split("/")
    for key in way:
        item = item[key]
    assert operation["op"] == "add" or (operation["op"] == "replace" and last in item), operation
    item[last] = operation["value"]


# --- The suite ------------------------------------------------------------------------------------------------------


class Suite:
    def __init__(self, objects, secrets):
        self.objects, self.secrets = objects, secrets
        self.values = yaml.safe_load((ROOT / "cluster/nats-values.yaml").read_text())
        self.compose = yaml.safe_load(pathlib.Path("docker-compose.yml").read_text())["services"]
        self.images = dict(re.findall(r"(?m)^(\w+_IMAGE)=(.*)$", pathlib.Path(".env").read_text()))
        table = pathlib.Path("shared/contracts/participants.tsv").read_text()
        rows = [line.split("\t") for line in table.splitlines() if not line.startswith("#")]
        self.participants = {row[0]: int(row[3]) for row in rows}

    def of(self, kind):
        return [item for item in self.objects if item["kind"] == kind]

    def named(self, kind, name):
        return next((item for item in self.of(kind) if item["metadata"]["name"] == name), None)

    @property
    def pods(self):
        """The templates of pods, by the name of what makes them."""
        return {item["metadata"]["name"]: item["spec"]["template"] for item in self.of("Deployment") + self.of("Job")}

    @property
    def containers(self):
        for name, pod in self.pods.items():
            for container in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]:
                yield name, container

    def environment(self, container):
        """Its variables. One from a Secret has the form that it has in docker-compose.yml: `${ORDER_DB_PASSWORD}`."""
        variables = {}
        for source in container.get("envFrom", []):
            if "configMapRef" in source:
                found = self.named("ConfigMap", source["configMapRef"]["name"])
                variables.update(found["data"] if found else {})
            else:
                variables.update({key: f"${{{key}}}" for key in self.secrets.get(source["secretRef"]["name"], [])})
        for variable in container.get("env", []):
            if "value" in variable:
                variables[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda m: variables.get(m[1], m[0]), variable["value"])
            else:
                name, key = (variable["valueFrom"]["secretKeyRef"][part] for part in ("name", "key"))
                variables[variable["name"]] = f"${{{OPERATOR_SECRETS.get((name, key), key)}}}"
        return variables


def selects(selector, labels):
    expressions = all(
        {"Exists": e["key"] in labels, "In": labels.get(e["key"]) in e.get("values", [])}[e["operator"]]
        for e in selector.get("matchExpressions", [])
    )
    return expressions and selector.get("matchLabels", {}).items() <= labels.items()


def service_of_compose(suite, name):
    return suite.compose.get(name) or suite.compose.get(name.replace("-", "_"))


def named_properly(suite):
    seen = set()
    for item in suite.objects:
        name, kind = item["metadata"]["name"], item["kind"]
        if not re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name):
            yield f"{kind} {name}: no name of a host"
        if (kind, name) in seen:
            yield f"{kind} {name}: there are two"
        seen.add((kind, name))
        if kind != "Namespace" and item["metadata"].get("namespace") != NAMESPACE:
            yield f"{kind} {name}: is not in the namespace {NAMESPACE}"


def not_root(suite):
    for name, pod in suite.pods.items():
        context = pod["spec"].get("securityContext", {})
        if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
            yield f"{name}: may run as root"
        if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{name}: may make every system call"
        if pod["spec"].get("automountServiceAccountToken") is not False:
            yield f"{name}: holds a token of Kubernetes' API"
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if pod["spec"].get(key):
                yield f"{name}: {key}"
        if any("hostPath" in volume for volume in pod["spec"].get("volumes", [])):
            yield f"{name}: holds files of the machine"


def locked_down(suite):
    wanted = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    for name, container in [*suite.containers, ("nats-values.yaml", suite.values["container"]["merge"])]:
        if container.get("securityContext") != wanted:
            yield f"{name}: its securityContext is not {wanted}"


def limited(suite):
    for name, container in [*suite.containers, ("nats-values.yaml", suite.values["container"]["merge"])]:
        resources = container.get("resources", {})
        for part, key in (("requests", "cpu"), ("requests", "memory"), ("limits", "memory")):
            if key not in resources.get(part, {}):
                yield f"{name}: {part} no {key}"


def probed(suite):
    jobs = {item["metadata"]["name"] for item in suite.of("Job")}
    for name, container in suite.containers:
        if name in jobs or name in NO_PROBES:
            continue
        probes = {"livenessProbe": "/health/live", "readinessProbe": "/health/ready"}
        if name in suite.participants:  # accepts orders also while the broker is away
            probes |= {"startupProbe": "/health/ready", "readinessProbe": "/health/serving"}
        for probe, path in probes.items():
            if container.get(probe, {}).get("httpGet") != {"path": path, "port": "http"}:
                yield f"{name}: its {probe} does not ask {path}"


def same_ports(suite):
    """Container, Service and setting have the port of docker-compose.yml, a participant that of participants.tsv."""
    for name, container in suite.containers:
        listen = service_of_compose(suite, name)["environment"].get("LISTEN")
        if not listen:
            continue
        port = suite.participants.get(name, int(listen.rpartition(":")[2]))
        if container.get("ports") != [{"name": "http", "containerPort": port}]:
            yield f"{name}: the container's port is not {port}"
        if not suite.environment(container).get("LISTEN", "").endswith(f":{port}"):
            yield f"{name}: it does not listen on port {port}"
        service = suite.named("Service", name)
        if not service or service["spec"]["ports"] != [{"name": "http", "port": port, "targetPort": "http"}]:
            yield f"{name}: there is no Service with port {port}"


def same_environment(suite):
    """Every variable that docker-compose.yml gives a service, with the value it has there, unless .env sets it."""
    for name, container in suite.containers:
        composed, here = service_of_compose(suite, name), suite.environment(container)
        for key, value in composed["environment"].items():
            for old, new in HOSTS.items():
                value = value.replace(old, new)
            from_env = value == f"${{{key}}}" and not SECRET.search(key)
            if key not in here:
                if (name, key) not in NOT_HERE:
                    yield f"{name}: has no {key}"
            elif here[key] != value and not from_env:
                yield f"{name}: {key} is {here[key]}, in docker-compose.yml {value}"
        command = composed.get("entrypoint", []) + composed["command"]
        if container.get("command", []) + container.get("args", []) != command:
            yield f"{name}: its command is not {command}"


def participants_are_there(suite):
    for name in suite.participants:
        deployment, scaled = suite.named("Deployment", name), suite.named("ScaledObject", name)
        if not deployment:
            yield f"{name}: has no Deployment"
            continue
        replicas = deployment["spec"].get("replicas")
        if scaled and replicas is not None:
            yield f"{name}: KEDA and the Deployment both set its replicas"
        if (scaled["spec"]["minReplicaCount"] if scaled else replicas or 1) < 2:
            yield f"{name}: has fewer than two replicas"
        if not deployment["spec"]["template"]["spec"].get("topologySpreadConstraints"):
            yield f"{name}: its replicas may all be on one node"


def no_plain_secrets(suite):
    for item in suite.of("Secret"):
        yield f"Secret {item['metadata']['name']}: its values are in the manifests"
    literal = [(item["metadata"]["name"], item["data"]) for item in suite.of("ConfigMap")]
    literal += [(n, {e["name"]: e["value"] for e in c.get("env", []) if "value" in e}) for n, c in suite.containers]
    literal.append(("nats-values.yaml", suite.values["container"].get("env", {})))
    for name, variables in literal:
        for key, value in variables.items():
            if SECRET.search(key) or re.search(r"://[^/@]*:(?!\$\(\w+\)@)[^/@]*@", str(value)):
                yield f"{name}: {key} is a secret in plain text"


def references_exist(suite):
    for name, pod in suite.pods.items():
        for container in pod["spec"]["containers"]:
            for source in container.get("envFrom", []):
                if "configMapRef" in source and not suite.named("ConfigMap", source["configMapRef"]["name"]):
                    yield f"{name}: there is no ConfigMap {source['configMapRef']['name']}"
                if "secretRef" in source and source["secretRef"]["name"] not in suite.secrets:
                    yield f"{name}: {ROOT}/secrets makes no {source['secretRef']['name']}"
            for variable in container.get("env", []):
                wanted = variable.get("valueFrom", {}).get("secretKeyRef", {})
                secret, key = wanted.get("name"), wanted.get("key")
                if wanted and key not in suite.secrets.get(secret, []) and (secret, key) not in OPERATOR_SECRETS:
                    yield f"{name}: {ROOT}/secrets makes no {key} of {secret}"
        for volume in pod["spec"].get("volumes", []):
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and not suite.named("PersistentVolumeClaim", claim):
                yield f"{name}: there is no volume {claim}"


def pinned(suite):
    images = {container["image"] for _, container in suite.containers}
    if len(images) != 1:
        yield f"the programs are from several images: {sorted(images)}"
    nats = suite.values["container"]["image"]
    postgres = suite.named("Cluster", "postgres")["spec"]["imageName"]
    for image in [*images, postgres, f"{nats['repository']}:{nats['tag']}"]:
        if not re.search(r":\d+\.\d+[^/]*$|@sha256:[0-9a-f]{64}$", image):
            yield f"the image {image} names no version"
    if f"{nats['repository']}:{nats['tag']}" != suite.images["NATS_IMAGE"]:
        yield f"NATS is not the {suite.images['NATS_IMAGE']} of .env"
    version = suite.images["POSTGRES_IMAGE"].partition(":")[2].partition("-")[0]
    if not postgres.endswith(f":{version}"):
        yield f"PostgreSQL is not the {version} of .env"


def selectors_match(suite):
    labels = [pod["metadata"]["labels"] for pod in suite.pods.values()]
    for item in suite.of("Deployment"):
        if not selects(item["spec"]["selector"], item["spec"]["template"]["metadata"]["labels"]):
            yield f"Deployment {item['metadata']['name']}: does not select its own pods"
    for item in suite.of("Service"):
        selector = {"matchLabels": item["spec"]["selector"]}
        selected = [name for name, pod in suite.pods.items() if selects(selector, pod["metadata"]["labels"])]
        if selected != [item["metadata"]["name"]]:
            yield f"Service {item['metadata']['name']}: selects {selected}"
    for item in suite.of("PodDisruptionBudget") + suite.of("PodMonitor"):
        if not any(selects(item["spec"]["selector"], of) for of in labels):
            yield f"{item['kind']} {item['metadata']['name']}: selects nothing"
    monitors = suite.of("PodMonitor")
    for name, container in suite.containers:
        of = suite.pods[name]["metadata"]["labels"]
        watched = any(selects(m["spec"]["selector"], of) and m["spec"].get("jobLabel") in of for m in monitors)
        if container.get("ports") and not watched:
            yield f"{name}: Prometheus does not read its metrics under its name"


def disruptions_are_limited(suite):
    """Of what has replicas, one at a time is taken away; what has none may be taken away."""
    for item in suite.of("Deployment"):
        name, labels = item["metadata"]["name"], item["spec"]["template"]["metadata"]["labels"]
        budgets = [b for b in suite.of("PodDisruptionBudget") if selects(b["spec"]["selector"], labels)]
        replicated = item["spec"].get("replicas", 1) > 1 or suite.named("ScaledObject", name) is not None
        if replicated and [b["spec"].get("maxUnavailable") for b in budgets] != [1]:
            yield f"{name}: has replicas, and not one PodDisruptionBudget with maxUnavailable 1"
        if not replicated and budgets:
            yield f"{name}: a PodDisruptionBudget keeps its only pod on its node"
    if suite.values.get("podDisruptionBudget", {}).get("enabled") is not True:
        yield "NATS: has no PodDisruptionBudget"


def denied_by_default(suite):
    everything = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    if not any(item["spec"] == everything for item in suite.of("NetworkPolicy")):
        yield "no NetworkPolicy denies what the others do not allow"
    for item in suite.of("NetworkPolicy"):
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            for rule in item["spec"].get(direction, []):
                api = rule.get("ports") == [{"port": 443}, {"port": 6443}]
                if not rule.get("ports") or not (rule.get(peers) or api):
                    yield f"NetworkPolicy {item['metadata']['name']}: {direction} of any port or peer"


def connections_are_allowed(suite):
    """What a pod has the URL of it may connect to, and nothing else in the namespace."""
    pods = {name: pod["metadata"]["labels"] for name, pod in suite.pods.items()}
    wanted = set()
    for name, container in suite.containers:
        for value in suite.environment(container).values():
            found = re.match(r"\w+://(?:[^/@]*@)?([a-z.-]+):(\d+)", value)
            if found:
                wanted.add((name, found[1], int(found[2])))
    for name, host, port in sorted(wanted):
        server, _, namespace = host.partition(".")
        target = {"kubernetes.io/metadata.name": namespace} if namespace else SERVERS.get(server, pods.get(server))
        if target is None:
            yield f"{name}: there is no {host}"
            continue
        if not allowed(suite, "egress", "to", pods[name], target, namespace, port):
            yield f"{name}: may not connect to {host}:{port}"
        if not namespace and not allowed(suite, "ingress", "from", target, pods[name], "", port):
            yield f"{name}: {host}:{port} does not accept it"
    listening = {(server, port): SERVERS[server] for server, port in (("postgres-rw", 5432), ("nats", 4222))}
    for service in suite.of("Service"):
        server = service["metadata"]["name"]
        listening[server, service["spec"]["ports"][0]["port"]] = pods.get(server, {})
    for name, labels in pods.items():
        for (server, port), target in listening.items():
            possible = allowed(suite, "egress", "to", labels, target, "", port)
            possible = possible and allowed(suite, "ingress", "from", target, labels, "", port)
            if possible and (name, server, port) not in wanted:
                yield f"{name}: may connect to {server}:{port}, of which it has no URL"
    monitoring = {"kubernetes.io/metadata.name": "monitoring"}
    for name, container in suite.containers:
        if container.get("ports") and not allowed(suite, "ingress", "from", pods[name], monitoring, "monitoring", "http"):
            yield f"{name}: Prometheus may not read its metrics"


def allowed(suite, direction, peers, labels, peer, namespace, port):
    """Whether a policy of the pods with these labels allows the peer, by its labels or those of its namespace."""
    selector = "namespaceSelector" if namespace else "podSelector"
    return any(
        {"port": port} in rule["ports"] and any(selector in p and selects(p[selector], peer) for p in rule.get(peers, []))
        for item in suite.of("NetworkPolicy") if selects(item["spec"]["podSelector"], labels)
        for rule in item["spec"].get(direction, [])
    )


def connections_are_encrypted(suite):
    """To database and broker, and between their servers. Clients verify certificates with these CAs only."""
    wanted = {key: ("postgres-ca", "ca.crt") for key in ("PGSSLROOTCERT", "SSL_CERT_FILE")}
    wanted["NATS_CA_FILE"] = ("nats-tls", "ca.crt")
    for name, container in suite.containers:
        pod, here = suite.pods[name], suite.environment(container)
        if not {"database", "broker"} & pod["metadata"]["labels"].keys():
            continue
        volumes = {volume["name"]: volume.get("projected", {}).get("sources", []) for volume in pod["spec"].get("volumes", [])}
        files = {
            f"{mount['mountPath']}/{file['path']}": (source["secret"]["name"], file["key"])
            for mount in container.get("volumeMounts", [])
            for source in volumes.get(mount["name"], [])
            for file in source["secret"]["items"]
        }
        for key, secret in wanted.items():
            if files.get(here.get(key)) != secret:
                yield f"{name}: {key} is not the file {secret[1]} of the Secret {secret[0]}"
        if here.get("PGSSLMODE") != "verify-full":
            yield f"{name}: does not verify the server's certificate"
    if suite.named("Cluster", "postgres")["spec"]["postgresql"].get("pg_hba") != ["hostnossl all all all reject"]:
        yield "PostgreSQL: accepts connections without TLS"
    tls = {"enabled": True, "secretName": "nats-tls"}
    config = suite.values["config"]
    for what, found in (
        ("clients", config.get("nats", {}).get("tls")), ("routes", config["cluster"].get("tls")), ("CA", suite.values.get("tlsCA")),
    ):
        if found != tls:
            yield f"NATS: TLS of {what} is not {tls}"
    if suite.secrets.get("nats-tls", {}).keys() != {"ca.crt", "tls.crt", "tls.key"}:
        yield f"NATS: {ROOT}/secrets makes no certificate"


def commits_are_replicated(suite):
    spec = suite.named("Cluster", "postgres")["spec"]
    wanted = {"method": "any", "number": 1, "dataDurability": "required", "failoverQuorum": True}
    if spec["postgresql"].get("synchronous") != wanted:
        yield f"PostgreSQL: synchronous is not {wanted}"
    if spec["instances"] < 3:
        yield "PostgreSQL: without one of its servers nothing is committed"
    for key in ("fsync", "full_page_writes", "synchronous_commit"):
        if key in spec["postgresql"].get("parameters", {}):
            yield f"PostgreSQL: {key} is set"
    if spec.get("affinity", {}).get("podAntiAffinityType") != "required":
        yield "PostgreSQL: two of its servers may be on one node"


def streams_are_replicated(suite):
    config = suite.values["config"]
    replicas = config["cluster"].get("replicas") if config["cluster"].get("enabled") else 1
    if replicas != 3 or suite.named("ConfigMap", "provision")["data"]["STREAM_REPLICAS"] != str(replicas):
        yield "NATS: servers and copies of each stream are not three"
    store = config["jetstream"].get("fileStore", {})
    if not (config["jetstream"].get("enabled") and store.get("enabled") and store.get("pvc", {}).get("enabled")):
        yield "NATS: streams are not kept on disk"
    if suite.named("ConfigMap", "participant")["data"].get("PULL_EXPIRES") != "1s":
        yield "NATS: it delivers to replicas that have ended for longer than a second"
    if suite.values["container"].get("env", {}).get("NATS_STORE_DIR") != store.get("dir"):
        yield "NATS: NATS_STORE_DIR is not the folder of its store"
    spread = suite.values.get("podTemplate", {}).get("topologySpreadConstraints", {}).get("kubernetes.io/hostname", {})
    if spread.get("whenUnsatisfiable") != "DoNotSchedule":
        yield "NATS: two of its servers may be on one node"


def broker_knows_its_users(suite):
    """It includes its users, and gets every password that docker/nats.conf asks for, which has the same users."""
    values = suite.values
    mounts = [p["value"] for p in values["container"].get("patch", []) if p["path"] == "/volumeMounts/-"]
    volumes = [p["value"] for p in values["podTemplate"].get("patch", []) if p["path"] == "/spec/volumes/-"]
    wanted = [{"name": m["name"], "configMap": {"name": "nats-users"}} for m in mounts if m["mountPath"] == "/etc/nats-users"]
    if not wanted or volumes != wanted:
        yield "NATS: the ConfigMap nats-users is not mounted on /etc/nats-users"
    if values["config"].get("merge") != {"00$include": "../nats-users/nats.conf"}:
        yield "NATS: it does not include its users"
    known = set(values["container"].get("env", {}))
    for source in values["container"]["merge"].get("envFrom", []):
        known |= set(suite.secrets.get(source["secretRef"]["name"], []))
    for name in sorted(set(re.findall(r"(?m)^[^#\n]*\s\$([A-Z]\w+)$", pathlib.Path("docker/nats.conf").read_text())) - known):
        yield f"NATS: it does not get {name}"


def scaled_by_a_metric(suite):
    metrics = set(re.findall(r"(?m)^\| `(\w+)`", pathlib.Path("METRICS.md").read_text()))
    for item in suite.of("ScaledObject"):
        name = item["metadata"]["name"]
        if not suite.named("Deployment", item["spec"]["scaleTargetRef"]["name"]):
            yield f"ScaledObject {name}: scales nothing"
        for trigger in item["spec"]["triggers"]:
            query = trigger["metadata"]["query"]
            for metric in re.findall(r"(\w+)\{", query):
                if metric not in metrics:
                    yield f"ScaledObject {name}: METRICS.md has no {metric}"
            for key, wanted in (("namespace", NAMESPACE), ("job", item["spec"]["scaleTargetRef"]["name"])):
                if f'{key}="{wanted}"' not in query:
                    yield f"ScaledObject {name}: its query is not about the {key} {wanted}"


def alerts_are_complete(suite):
    # cluster.yml is about the servers of ./scripts/up --cluster; here operators run others, with alerts of their own.
    paths = [path for path in pathlib.Path("grafana/alerts").glob("*.yml") if path.name != "cluster.yml"]
    files = [yaml.safe_load(path.read_text()) for path in paths]
    groups = [group for file in files for group in file["groups"]]
    here = suite.named("PrometheusRule", "suite")["spec"]["groups"]
    if {group["name"]: group for group in groups} != {group["name"]: group for group in here}:
        yield "the PrometheusRule is not grafana/alerts"


RULES = [
    named_properly, not_root, locked_down, limited, probed, same_ports, same_environment, participants_are_there,
    no_plain_secrets, references_exist, pinned, selectors_match, disruptions_are_limited, denied_by_default,
    connections_are_allowed, connections_are_encrypted, commits_are_replicated, streams_are_replicated, broker_knows_its_users, scaled_by_a_metric,
    alerts_are_complete,
]


# --- Planted violations ---------------------------------------------------------------------------------------------


def put(where, path, value):
    """Sets the item at that path of an object, `Kind/name`, or of nats-values.yaml; None removes it."""

    def plant(suite):
        item = suite.values if where == "nats-values.yaml" else suite.named(*where.split("/"))
        *way, last = path.split("|")
        for key in way:
            item = item[int(key)] if isinstance(item, list) else item[key]
        last = int(last) if isinstance(item, list) else last
        if value is None:
            del item[last]
        else:
            item[last] = value

    plant.__qualname__ = f"{where}: {path} = {value}"
    return plant


def remove(where):
    def plant(suite):
        suite.objects.remove(suite.named(*where.split("/")))

    plant.__qualname__ = f"{where} removed"
    return plant


def add(item):
    def plant(suite):
        suite.objects.append(item)

    plant.__qualname__ = f"{item} added"
    return plant


def rename_server(suite):
    container = suite.named("Deployment", "order")["spec"]["template"]["spec"]["containers"][0]
    container["env"].append({"name": "OTHER_URL", "value": "http://nowhere:80"})


POD, CONTAINER = "spec|template|spec", "spec|template|spec|containers|0"
SYNCHRONOUS, QUERY = "spec|postgresql|synchronous", "spec|triggers|0|metadata|query"
PLANTED = [
    (named_properly, put("Deployment/order", "metadata|name", "order_service")),
    (named_properly, add({"kind": "ConfigMap", "metadata": {"name": "participant", "namespace": NAMESPACE}})),
    (named_properly, put("Service/order", "metadata|namespace", "default")),
    (not_root, put("Deployment/order", f"{POD}|securityContext|runAsNonRoot", False)),
    (not_root, put("Job/provision", f"{POD}|securityContext|runAsUser", 0)),
    (not_root, put("Deployment/keeper", f"{POD}|securityContext|seccompProfile", None)),
    (not_root, put("Deployment/console", f"{POD}|automountServiceAccountToken", None)),
    (not_root, put("Deployment/console", f"{POD}|hostNetwork", True)),
    (not_root, put("Deployment/gateway-simulator", f"{POD}|volumes|0", {"name": "ledger", "hostPath": {"path": "/"}})),
    (locked_down, put("Deployment/order", f"{CONTAINER}|securityContext|readOnlyRootFilesystem", False)),
    (locked_down, put("Job/provision", f"{CONTAINER}|securityContext|capabilities|add", ["NET_ADMIN"])),
    (locked_down, put("nats-values.yaml", "container|merge|securityContext", None)),
    (limited, put("Deployment/payment", f"{CONTAINER}|resources|limits", None)),
    (limited, put("nats-values.yaml", "container|merge|resources|requests|cpu", None)),
    (probed, put("Deployment/order", f"{CONTAINER}|livenessProbe", None)),
    (probed, put("Deployment/order", f"{CONTAINER}|readinessProbe|httpGet|path", "/health/live")),
    (same_ports, put("Deployment/order", f"{CONTAINER}|ports|0|containerPort", 8080)),
    (same_ports, put("Deployment/console", f"{CONTAINER}|env|2|value", "0.0.0.0:8084")),
    (same_ports, put("Service/payment", "spec|ports|0|port", 80)),
    (same_ports, remove("Service/gateway-simulator")),
    (same_environment, put("Deployment/payment", f"{CONTAINER}|env|6", None)),
    (same_environment, put("Deployment/order", f"{CONTAINER}|env|2|valueFrom|secretKeyRef|key", "PAYMENT_DB_PASSWORD")),
    (same_environment, put("Deployment/order", f"{CONTAINER}|envFrom", [])),
    (same_environment, put("Deployment/keeper", f"{CONTAINER}|command", ["provision"])),
    (same_environment, put("ConfigMap/addresses", "data|ORDER_URL", "http://order:8082")),
    (participants_are_there, remove("Deployment/inventory")),
    (participants_are_there, put("Deployment/inventory", "spec|replicas", 1)),
    (participants_are_there, put("Deployment/payment", "spec|replicas", 2)),
    (participants_are_there, put("ScaledObject/payment", "spec|minReplicaCount", 1)),
    (participants_are_there, put("Deployment/order", f"{POD}|topologySpreadConstraints", None)),
    (no_plain_secrets, add({"kind": "Secret", "metadata": {"name": "more", "namespace": NAMESPACE}})),
    (no_plain_secrets, put("Deployment/order", f"{CONTAINER}|env|0", {"name": "ADMIN_TOKEN", "value": "letmein"})),
    (no_plain_secrets, put("ConfigMap/participant", "data|DATABASE_URL", "postgres://order_service:letmein@postgres-rw")),
    (no_plain_secrets, put("nats-values.yaml", "container|env|ORDER_NATS_PASSWORD", "letmein")),
    (references_exist, put("Deployment/order", f"{CONTAINER}|env|0|valueFrom|secretKeyRef|name", "nothing")),
    (references_exist, put("Job/provision", f"{CONTAINER}|envFrom|1|secretRef|name", "nothing")),
    (references_exist, remove("ConfigMap/addresses")),
    (references_exist, remove("PersistentVolumeClaim/gateway")),
    (pinned, put("Deployment/order", f"{CONTAINER}|image", f"{IMAGE}:latest")),
    (pinned, put("Cluster/postgres", "spec|imageName", "ghcr.io/cloudnative-pg/postgresql:16.4")),
    (pinned, put("nats-values.yaml", "container|image|tag", "2.9.10-alpine")),
    (selectors_match, put("Deployment/order", "spec|selector|matchLabels|app", "orders")),
    (selectors_match, put("Service/order", "spec|selector|app", "inventory")),
    (selectors_match, put("PodDisruptionBudget/order", "spec|selector|matchLabels|app", "orders")),
    (selectors_match, put("PodMonitor/suite", "spec|jobLabel", "name")),
    (disruptions_are_limited, remove("PodDisruptionBudget/order")),
    (disruptions_are_limited, put("PodDisruptionBudget/payment", "spec|maxUnavailable", 2)),
    (disruptions_are_limited, put("PodDisruptionBudget/order", "spec|selector|matchLabels|app", "console")),
    (disruptions_are_limited, put("nats-values.yaml", "podDisruptionBudget|enabled", False)),
    (denied_by_default, remove("NetworkPolicy/default-deny")),
    (denied_by_default, put("NetworkPolicy/default-deny", "spec|policyTypes", ["Ingress"])),
    (denied_by_default, put("NetworkPolicy/order", "spec|ingress|0|from", [])),
    (denied_by_default, put("NetworkPolicy/nats", "spec|egress", [{}])),
    (connections_are_allowed, remove("NetworkPolicy/order")),
    (connections_are_allowed, remove("NetworkPolicy/nats")),
    (connections_are_allowed, remove("NetworkPolicy/database-clients")),
    (connections_are_allowed, remove("NetworkPolicy/traces")),
    (connections_are_allowed, remove("NetworkPolicy/monitoring")),
    (connections_are_allowed, put("NetworkPolicy/console", "spec|egress|0|ports", [{"port": 8081}])),
    (connections_are_allowed, put("NetworkPolicy/inventory", "spec|ingress|0|from", [])),
    (connections_are_allowed, put("Deployment/keeper", "spec|template|metadata|labels|database", "client")),
    (connections_are_allowed, rename_server),
    (connections_are_encrypted, put("ConfigMap/encryption", "data|PGSSLMODE", "require")),
    (connections_are_encrypted, put("ConfigMap/encryption", "data|NATS_CA_FILE", None)),
    (connections_are_encrypted, put("Deployment/order", f"{CONTAINER}|envFrom|1", None)),
    (connections_are_encrypted, put("Deployment/console", f"{CONTAINER}|volumeMounts", [])),
    (connections_are_encrypted, put("Job/provision", f"{POD}|volumes|0|projected|sources|0|secret|name", "nats-tls")),
    (connections_are_encrypted, put("Cluster/postgres", "spec|postgresql|pg_hba", ["host all all all scram-sha-256"])),
    (connections_are_encrypted, put("nats-values.yaml", "config|nats", {})),
    (connections_are_encrypted, put("nats-values.yaml", "config|cluster|tls|enabled", False)),
    (connections_are_encrypted, put("nats-values.yaml", "tlsCA|secretName", "postgres-ca")),
    (commits_are_replicated, put("Cluster/postgres", f"{SYNCHRONOUS}|dataDurability", "preferred")),
    (commits_are_replicated, put("Cluster/postgres", f"{SYNCHRONOUS}|failoverQuorum", None)),
    (commits_are_replicated, put("Cluster/postgres", "spec|instances", 2)),
    (commits_are_replicated, put("Cluster/postgres", "spec|postgresql|parameters|synchronous_commit", "local")),
    (commits_are_replicated, put("Cluster/postgres", "spec|affinity", {})),
    (streams_are_replicated, put("ConfigMap/provision", "data|STREAM_REPLICAS", "1")),
    (streams_are_replicated, put("nats-values.yaml", "config|cluster|replicas", 1)),
    (streams_are_replicated, put("ConfigMap/participant", "data|PULL_EXPIRES", None)),
    (streams_are_replicated, put("nats-values.yaml", "config|jetstream|fileStore|pvc|enabled", False)),
    (streams_are_replicated, put("nats-values.yaml", "container|env|NATS_STORE_DIR", "/tmp")),
    (streams_are_replicated, put("nats-values.yaml", "podTemplate|topologySpreadConstraints", {})),
    (broker_knows_its_users, put("nats-values.yaml", "container|merge|envFrom", [])),
    (broker_knows_its_users, put("nats-values.yaml", "config|merge", {})),
    (broker_knows_its_users, put("nats-values.yaml", "container|patch", [])),
    (scaled_by_a_metric, put("ScaledObject/payment", "spec|scaleTargetRef|name", "nothing")),
    (scaled_by_a_metric, put("ScaledObject/payment", QUERY, f'sum(lag{{namespace="{NAMESPACE}", job="payment"}})')),
    (scaled_by_a_metric, put("ScaledObject/payment", QUERY, "sum(consumer_pending{})")),
    (alerts_are_complete, put("PrometheusRule/suite", "spec|groups|0|rules|0", None)),
]


def comparable(objects):
    """Without the white space in texts: kubectl prints folded ones with more empty lines than it has read."""
    by_name = sorted(objects, key=lambda item: (item["kind"], item["metadata"]["name"]))
    return re.sub(r"(\\n|\s)+", " ", json.dumps(by_name, sort_keys=True))


def main():
    secrets, output, built = map(pathlib.Path, sys.argv[1:4])
    made = {item["metadata"]["name"]: item["stringData"] for item in yaml.safe_load_all(secrets.read_text())}
    suite = Suite(build(ROOT / "cluster"), made)
    broken = [f"{rule.__name__}: {what}" for rule in RULES for what in rule(suite)]
    if built.exists() and comparable(yaml.safe_load_all(built.read_text())) != comparable(suite.objects):
        broken.append("kubectl builds other objects")
    for rule, plant in PLANTED:
        changed = copy.deepcopy(suite)
        plant(changed)
        if not set(rule(changed)) - set(rule(suite)):
            broken.append(f"the rule {rule.__name__} does not detect the planted violation: {plant.__qualname__}")
    for rule in RULES:
        if rule not in [of for of, _ in PLANTED]:
            broken.append(f"the rule {rule.__name__} has no example that breaks it")
    for line in broken:
        print(f"error: {line}", file=sys.stderr)
    print(f"kubernetes: {len(suite.objects)} objects, {len(RULES)} rules, {len(PLANTED)} planted violations, {len(broken)} errors")
    output.write_text(json.dumps(suite.objects))
    return bool(broken)


sys.exit(main())
