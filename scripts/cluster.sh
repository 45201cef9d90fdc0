# shellcheck shell=bash
# Sourced by `service` after its own functions when the suite is a cluster (./scripts/up --cluster): each server has members,
# and so has each service. Programs reach PostgreSQL's primary and the services through HAProxy (`front`); members reach
# each other through another one (`links`), which can cut a member off.

names=(links etcd postgres nats front provision gateway_simulator "${participants[@]}")
servers=(etcd postgres nats)
letters=(a b c)

members_of() { # NAME: of a group; itself, when it is no group
    local letter count=1
    if [[ " ${servers[*]} " == *" $1 "* ]]; then count=3; elif is_participant "$1"; then count=2; fi
    if ((count == 1)); then printf '%s\n' "$1" && return; fi
    for letter in "${letters[@]:0:count}"; do printf '%s\n' "$1-$letter"; done
}

port_of() { # MEMBER [PURPOSE]: of nats-a, NATS_A_PORT or NATS_A_PURPOSE_PORT
    local name=${1^^}_${2:+${2^^}_}PORT
    name=${name//-/_}
    printf %s "${!name}"
}

# Default ports. A member's are near those of a suite of one.
for i in 0 1 2; do
    L=${letters[i]^^} l=${letters[i]}
    ports[etcd-$l]="ETCD_${L}_PORT=$((13379 + 100 * i)) ETCD_${L}_PEER_PORT=$((13380 + 100 * i))"
    ports[postgres-$l]="POSTGRES_${L}_PORT=$((15433 + i)) POSTGRES_${L}_REST_PORT=$((18008 + i))"
    ports[nats-$l]="NATS_${L}_PORT=$((14223 + i)) NATS_${L}_MONITOR_PORT=$((18223 + i)) NATS_${L}_ROUTE_PORT=$((16222 + i))"
    ports[links]+=" LINK_POSTGRES_${L}_PORT=$((15533 + i)) LINK_ETCD_${L}_PORT=$((13679 + i))"
    for other in a b c; do
        if [[ $other != "$l" ]]; then
            ports[links]+=" LINK_NATS_${L}_${other^^}_PORT=$((16322 + 10 * i + $(printf %d "'$other") - 97))"
        fi
    done
done
ports[links]+=' LINKS_PORT=18405 LINKS_CONTROL_PORT=18406'
ports[front]="FRONT_PORT=18404 ${ports[postgres]}"
for name in "${participants[@]}"; do
    ports[front]+=" ${name^^}_PORT=${participant_port[$name]}"
    ports[$name-a]="${name^^}_A_PORT=$((participant_port[$name] + 100))"
    ports[$name-b]="${name^^}_B_PORT=$((participant_port[$name] + 200))"
done

start_member() { # NAME
    case $1 in
        links | front) "start_$1" ;;
        etcd-?) start_etcd "$1" ;;
        postgres-?) start_patroni "$1" ;;
        nats-?) start_nats_member "$1" ;;
        *) with_access "${1%-?}" start_program "$1" "$(tr a-z- A-Z_ <<<"$1")" ;;
    esac
}

await_member() { # NAME
    case $1 in
        links | front) wait_for "$1" 30 http_ok "http://127.0.0.1:$(port_of "$1")/health" ;;
        etcd-?) wait_for "$1" 60 http_ok "http://127.0.0.1:$(port_of "$1")/health" ;;
        # 200 while PostgreSQL runs, whatever its role.
        postgres-?) wait_for "$1" 120 http_ok "http://127.0.0.1:$(port_of "$1" rest)/health" ;;
        nats-?) wait_for "$1" 60 http_ok "http://127.0.0.1:$(port_of "$1" monitor)/healthz" ;;
    esac
}

await_members() { # GROUP: those that run; a client needs a majority of them
    local member
    for member in $(members_of "$1"); do if is_running "$member"; then await_member "$member"; fi; done
}

# --- HAProxy -------------------------------------------------------------------------------------------------------

start_haproxy() { # NAME: with the proxies of its input, which follow common.cfg
    need_haproxy
    mkdir -p "$run/cluster"
    cat >"$run/cluster/$1.cfg"
    WATCH=127.0.0.1:$(port_of "$1") start_process "$1" "${haproxy[@]}" -db -f "$root/docker/haproxy/common.cfg" -f "$run/cluster/$1.cfg"
}

start_front() {
    if is_running front; then return; fi
    local name member
    need_postgres
    choose_ports front
    {
        printf 'listen postgres from primary\n bind 127.0.0.1:%s\n' "$POSTGRES_PORT"
        for member in $(members_of postgres); do
            printf ' server %s 127.0.0.1:%s check port %s\n' "$member" "$(port_of "$member")" "$(port_of "$member" rest)"
        done
        for name in "${participants[@]}"; do
            printf 'listen %s from replicas\n bind 127.0.0.1:%s\n' "$name" "$(port_of "$name")"
            for member in $(members_of "$name"); do printf ' server %s 127.0.0.1:%s check\n' "$member" "$(port_of "$member")"; done
        done
    } | start_haproxy front
    for name in "${participants[@]}"; do remember "${name^^}_URL" "http://127.0.0.1:$(port_of "$name")"; done
    await_member front
    local -x PGPASSWORD=$POSTGRES_PASSWORD PGHOST=127.0.0.1 PGPORT=$POSTGRES_PORT PGUSER=postgres PGCONNECT_TIMEOUT=2
    local -x PGSSLMODE=verify-full PGSSLROOTCERT=$run/cluster/ca.crt
    wait_for front 120 "$postgres_bin/psql" -qXd postgres -c ''
    "$postgres_bin/psql" -qXd suite -c '' 2>/dev/null || "$postgres_bin/createdb" suite
}

# Ports are known before what listens there has been started. A pair of nats-servers has a link in each direction, so that
# one of them can be cut off from all others; PostgreSQL's members have one for those who replicate from them, and one to etcd.
start_links() {
    if is_running links; then return; fi
    local from to
    {
        printf 'global\n stats socket ipv4@127.0.0.1:%s level admin\n' "$LINKS_CONTROL_PORT"
        for from in $(members_of nats); do
            for to in $(members_of nats); do
                if [[ $from != "$to" ]]; then link "$from" "$to" "link_$from-${to#*-}" "$(port_of "$to" route)"; fi
            done
        done
        for to in $(members_of postgres); do link "$to" standbys "link_$to" "$(port_of "$to")"; done
        for from in $(members_of postgres); do
            link "$from" etcd "link_etcd-${from#*-}" $(for to in $(members_of etcd); do port_of "$to"; echo; done)
        done
    } | start_haproxy links
    await_member links
}

link() { # FROM TO NAME-OF-PORT PORT...: to the first that accepts connections
    local port i=0
    printf 'listen %s:%s from common\n bind 127.0.0.1:%s\n mode tcp\n balance first\n' "$1" "$2" "$(port_of "$3")"
    shift 3
    for port; do printf ' server to%s 127.0.0.1:%s%s\n' "$((++i))" "$port" "$( (($# == 1)) || echo ' check')"; done
}

isolate() { # NAME: from the other members, not from its clients
    [[ $1 == nats-? || $1 == postgres-? ]] || die "only members of nats and postgres can be isolated, not $1"
    switch_links "$1" maint
}

rejoin() { switch_links "$1" ready; } # NAME

switch_links() { # NAME STATE
    local server links
    links=$(control_links 'show servers conn' | awk '{ print $1 }' | sort -u)
    for server in $(grep -E "(^|:)$1[:/]" <<<"$links"); do
        control_links "set server $server state $2" >/dev/null
        if [[ $2 == maint ]]; then control_links "shutdown sessions server $server" >/dev/null; fi
    done
}

control_links() ( # COMMAND
    exec 3<>"/dev/tcp/127.0.0.1/$LINKS_CONTROL_PORT"
    printf '%s\n' "$1" >&3
    cat <&3
)

# --- Certificates --------------------------------------------------------------------------------------------------

# That of a server names its address, and `localhost`, to which Patroni connects. It is for clients, too, because nats-servers
# verify each other.
certify() { # NAME: NAME.crt and NAME.key in $run/cluster, signed by the CA of the cluster, which is `ca`
    local name=$1 said sign=(-CA ca.crt -CAkey ca.key -CAcreateserial -extensions server)
    if [[ -e $run/cluster/$name.crt ]]; then return; fi
    if [[ $name == ca ]]; then sign=(-signkey ca.key -extensions ca); else certify ca; fi
    need_openssl
    mkdir -p "$run/cluster"
    (umask 077 && cat >"$run/cluster/openssl.cnf") <<'CONFIG'
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[server]
subjectAltName = IP:127.0.0.1, DNS:localhost
extendedKeyUsage = serverAuth, clientAuth
CONFIG
    said=$(umask 077 && cd "$run/cluster" && {
        openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config openssl.cnf -subj "/CN=$name" \
            -keyout "$name.key" -out "$name.csr" &&
            openssl x509 -req -in "$name.csr" "${sign[@]}" -extfile openssl.cnf -days 3650 -out "$name.crt.new" &&
            mv "$name.crt.new" "$name.crt" && rm "$name.csr"
    } 2>&1) || die "openssl made no certificate for $name: $said"
}

# --- etcd ----------------------------------------------------------------------------------------------------------

start_etcd() { # NAME
    if is_running "$1"; then return; fi
    need_etcd
    local member all=''
    for member in $(members_of etcd); do all+=${all:+,}$member=http://127.0.0.1:$(port_of "$member" peer); done
    mkdir -p "$run/cluster"
    start_process "$1" "$etcd" --name "$1" --data-dir "$run/cluster/$1" --logger zap --log-level warn \
        --listen-client-urls "http://127.0.0.1:$(port_of "$1")" --advertise-client-urls "http://127.0.0.1:$(port_of "$1")" \
        --listen-peer-urls "http://127.0.0.1:$(port_of "$1" peer)" --initial-advertise-peer-urls "http://127.0.0.1:$(port_of "$1" peer)" \
        --initial-cluster "$all" --initial-cluster-token suite --auto-compaction-retention 1 --enable-v2
}

# --- PostgreSQL ----------------------------------------------------------------------------------------------------

# A primary that hangs is replaced when its lease on the leader's key ends, after at most `ttl` seconds; then come the
# election and the promotion (1 to 4 s, because each standby asks the one that hangs, for 2 s), the other standby follows
# within 3 s, and the relays go on: 14 s. A standby whose log ends within a record that goes on in the next segment crashes when it
# follows (PostgreSQL 15: PANIC, "could not open file", of the new timeline's segment), and Patroni starts it again: 4 s more, and
# the limit is 20 s. From Patroni 3.2 on ttl is at least 20, so that there a hanging primary costs 27 s.
start_patroni() { # NAME
    if is_running "$1"; then return; fi
    local name tls limits=
    need_postgres
    choose_server_user
    remember_default POSTGRES_PASSWORD "$(make_password)"
    [[ -n ${POSTGRES_DATA-} ]] || choose_data_folder
    need_patroni
    if ((patroni_version >= 302)); then limits='s/ ttl: .*/ ttl: 20/; s/ retry_timeout: .*/ retry_timeout: 9/'; fi
    certify "$1"
    # For its user.
    for name in "$1.crt" "$1.key" ca.crt; do
        cmp -s "$run/cluster/$name" "$POSTGRES_DATA/$name" ||
            install -m 600 ${server_user:+-o "$server_user"} "$run/cluster/$name" "$POSTGRES_DATA/$name"
    done
    tls="sslmode: verify-full, sslrootcert: $(quoted "$POSTGRES_DATA/ca.crt")"
    await_members etcd
    (umask 077 && sed "$limits" "$root/docker/patroni/cluster.yml" - >"$run/cluster/$1.yml") <<CONFIG
name: $1
restapi: {listen: "127.0.0.1:$(port_of "$1" rest)", connect_address: "127.0.0.1:$(port_of "$1" rest)"}
# Not the addresses that etcd announces: the link can be cut. Version 2 of etcd's API, because with version 3 Patroni 3.0 renews
# an expired lease with an unconditional put: a primary that hung takes the lead back from its successor, and what that has
# committed is lost.
etcd: {hosts: ["127.0.0.1:$(port_of "link_etcd-${1#*-}")"], use_proxies: true}
postgresql:
  listen: 127.0.0.1:$(port_of "$1")
  connect_address: 127.0.0.1:$(port_of "link_$1")
  bin_dir: $postgres_bin
  data_dir: $POSTGRES_DATA/$1
  pgpass: $POSTGRES_DATA/$1.pgpass
  # A new standby does not wait for the end of a checkpoint that takes its time.
  basebackup: [{checkpoint: fast}]
  authentication:
    superuser: {username: postgres, password: $POSTGRES_PASSWORD, $tls}
    replication: {username: postgres, password: $POSTGRES_PASSWORD, $tls}
  # They replace those of initdb, which trusts each user of this machine.
  pg_hba: ["hostssl all all 127.0.0.1/32 scram-sha-256", "hostssl replication postgres 127.0.0.1/32 scram-sha-256"]
  parameters:
    unix_socket_directories: ""
    log_line_prefix: "%m [%p] %q%u@%d "
    ssl: "on"
    ssl_cert_file: $(quoted "$POSTGRES_DATA/$1.crt")
    ssl_key_file: $(quoted "$POSTGRES_DATA/$1.key")
CONFIG
    if ((EUID == 0)); then
        cp "$run/cluster/$1.yml" "$POSTGRES_DATA/$1.yml"
        chown "$server_user" "$POSTGRES_DATA/$1.yml"
    fi
    # A standby connects with its own password file, which this would override.
    start_process "$1" env -u PGPASSWORD "${as_server_user[@]}" "${patroni[@]}" "$( ((EUID)) && echo "$run/cluster" || echo "$POSTGRES_DATA")/$1.yml"
}

signal_postgres() { # NAME SIGNAL: Patroni, its server and all sessions, like the machine they run on
    local pid session
    if pid=$(running_pid "$1"); then kill -s "$2" "$pid"; fi
    # Twice, because a session may have begun meanwhile.
    for _ in 1 2; do
        for session in $(sessions_in "$POSTGRES_DATA/$1"); do kill -s "$2" "$session" 2>/dev/null || true; done
    done
}

# --- NATS ----------------------------------------------------------------------------------------------------------

start_nats_member() { # NAME
    if is_running "$1"; then return; fi
    need_nats_of_cluster
    certify "$1"
    local member routes='' urls=''
    for member in $(members_of nats); do
        urls+=${urls:+,}tls://127.0.0.1:$(port_of "$member")
        if [[ $member != "$1" ]]; then routes+=${routes:+,}nats://127.0.0.1:$(port_of "link_$1-${member#*-}"); fi
    done
    remember NATS_URLS "$urls"
    # Nobody listens at the announced address: members reach each other by their links only.
    run_nats "$1" "$run/cluster/$1" "$(port_of "$1")" "$(port_of "$1" monitor)" --server_name "$1" --cluster_name suite \
        --cluster "nats://127.0.0.1:$(port_of "$1" route)" --cluster_advertise 127.0.0.1:9 --no_advertise --routes "$routes"
}

encrypted_conf() { # NAME FILE: prints the path of that configuration with TLS for clients and routes; these verify each other
    local files
    files="cert_file: $(quoted "$run/cluster/$1.crt"), key_file: $(quoted "$run/cluster/$1.key"), ca_file: $(quoted "$run/cluster/ca.crt")"
    { cat "$2" && printf '\ntls { %s }\ncluster { tls { %s } }\n' "$files" "$files"; } >"$run/cluster/$1.conf" &&
        printf %s "$run/cluster/$1.conf"
}

# --- Prometheus ----------------------------------------------------------------------------------------------------

member_targets() { # prints what Prometheus scrapes besides the services; a nats-server has no metrics for it
    local member job purpose list=()
    for member in $(members_of postgres) $(members_of etcd) front links; do
        job=${member%-?} purpose=
        case $member in
            postgres-?) purpose=rest ;;
            front | links) job=haproxy ;;
        esac
        list+=("{\"targets\": [\"127.0.0.1:$(port_of "$member" $purpose)\"], \"labels\": {\"job\": \"$job\", \"instance\": \"$member\"}}")
    done
    local IFS=,
    printf '[%s]\n' "${list[*]}"
}

# --- Who leads -----------------------------------------------------------------------------------------------------

leader() { # GROUP [STREAM [CONSUMER]]: prints the member that leads
    local member
    for member in $(members_of "$1"); do
        is_running "$member" && ! is_frozen "$member" || continue
        case $1 in
            postgres) if http_ok "http://127.0.0.1:$(port_of "$member" rest)/primary"; then say "$member" && return; fi ;;
            etcd) if http_body "http://127.0.0.1:$(port_of "$member")/metrics" | grep -q '^etcd_server_is_leader 1'; then say "$member" && return; fi ;;
            nats)
                http_body "http://127.0.0.1:$(port_of "$member" monitor)/jsz?accounts=1&streams=1&consumers=1" |
                    python3 "$root/scripts/cluster_leader.py" "${@:2}" 2>/dev/null && return
                ;;
            *) die "$1 has no leader" ;;
        esac
    done
    die "$* has no leader now"
}

role_of() { # MEMBER: of a server
    local group=${1%-?}
    [[ $1 == *-? && " ${servers[*]} " == *" $group "* ]] || return 0
    if [[ $(leader "$group" 2>/dev/null) == "$1" ]]; then printf ', leads'; fi
}
