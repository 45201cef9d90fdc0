"""The board of a cluster (./scripts/up --cluster): members, who leads, replication, quorum, and what HAProxy sees of them."""
from .board import board
from .palette import BLUE, GREEN, GREY, RED, YELLOW
from .panels import COUNT, stat, timeline, timeseries
from .queries import q

POSTGRES = {"0": ("down", RED), "1": ("standby", "#A9BBD0"), "2": ("synchronous", BLUE), "3": ("primary", GREEN)}
ETCD = {"0": ("down, or no leader", RED), "1": ("follows", "#A9BBD0"), "2": ("leads", GREEN)}
USED = {"0": ("not used", GREY), "1": ("used", GREEN)}


def make():
    return board(
        "cluster", "Cluster", "Who leads, and who is missing? Empty without a cluster (./scripts/up --cluster).",
        [*glance(), *members(), *between()],
    )


def glance():
    return [
        stat("Members down", COUNT["unit"], "Of PostgreSQL, etcd and HAProxy; a nats-server has no metrics. MemberDown fires above 0.",
             q("sum(1 - job_instance:member_up:min)"), w=6, thresholds=[GREEN, (1, RED)], background=True),
        stat("Primaries", COUNT["unit"], "Members of PostgreSQL that accept writes. NoPrimary fires at 0.", q("postgres:primaries:sum"), w=6,
             thresholds=[RED, (1, GREEN), (2, RED)], background=True),
        stat("Synchronous standbys", COUNT["unit"], "A commit returns when one of these has it, and waits while there is none. "
             "NoSynchronousStandby fires at 0.", q("postgres:synchronous_standbys:sum"), w=6, thresholds=[RED, (1, GREEN)], background=True),
        stat("etcd with a leader", COUNT["unit"], "Members of etcd that know a leader, of three; two are a quorum. EtcdWithoutQuorum fires at 0.",
             q("etcd:members_with_leader:sum"), w=6, thresholds=[RED, (2, YELLOW), (3, GREEN)], background=True),
    ]


def members():
    return [
        timeline("PostgreSQL", "The role of each member, as its Patroni reports it.", q(
            "max by (instance) (patroni_postgres_running + patroni_sync_standby + 2 * patroni_primary or 0 * up{job=\"postgres\"})",
            "{{instance}}"), h=9, mappings=POSTGRES),
        timeline("etcd", "Patroni's primary holds a lease in etcd, and gives up when it cannot renew it.", q(
            "etcd_server_has_leader + etcd_server_is_leader or 0 * up{job=\"etcd\"}", "{{instance}}"), h=9, mappings=ETCD),
        timeline("Front", "Where HAProxy sends clients: of PostgreSQL to the primary only, of a service to each replica that is ready. "
                 "ReplicaMissing fires when a service has fewer than two.", q(
                     'max by (server) (haproxy_server_status{instance!="links", state="UP"})', "{{server}}"), h=9, mappings=USED),
    ]


def between():
    return [
        timeseries("Replication lag", "bytes", "What the primary has written and a standby has not received. Members are scraped up to five "
                   "seconds apart, and what is written meanwhile counts as lag.", q(
                       "clamp_min(scalar(max(patroni_xlog_location)) - max by (instance) (patroni_xlog_received_location > 0), 0)",
                       "{{instance}}"), w=12, top=1_000_000),
        timeseries("Routes of nats-servers", COUNT["unit"], "Connections of each to the two others, through HAProxy: 0 when it is down or cut off.",
                   q(f"sum by (member) ({routes_of('(.*):.*')} or {routes_of('.*:(.*)')})", "{{member}}"), w=12),
    ]


def routes_of(member):
    """The connections in one direction, nats-a:nats-b, labelled with the member that the expression captures."""
    return f'label_replace(haproxy_server_current_sessions{{proxy=~"nats.*"}}, "member", "$1", "proxy", "{member}")'
