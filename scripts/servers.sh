# shellcheck shell=bash
# Sourced by lib.sh: private PostgreSQL and NATS servers, and temporary ones for tests. Each start completes an interrupted
# one.

# --- PostgreSQL ----------------------------------------------------------------------------------------------------

# PostgreSQL refuses to run as root, so then it runs as `postgres` or, without such a user, as `nobody`; once there is data,
# as its owner.
choose_server_user() { # sets server_user and as_server_user
    as_server_user=()
    if ((EUID != 0)); then return; fi
    server_user=$(stat -c %U "${POSTGRES_DATA-}" 2>/dev/null || id -un postgres 2>/dev/null || echo nobody)
    as_server_user=(setpriv --reuid="$(id -u "$server_user")" --regid="$(id -g "$server_user")" --clear-groups env -C / HOME=/tmp)
}

choose_data_folder() { # remembers POSTGRES_DATA, in a folder that the server's user can access
    local folder=$run/postgres
    mkdir -p "$folder"
    if ((EUID == 0)); then
        chown "$server_user" "$folder"
        if ! "${as_server_user[@]}" test -w "$folder"; then
            rmdir "$folder"
            folder=/var/tmp/pas-de-trois-$(printf %s "$run" | cksum | cut -d' ' -f1)
            say "the user $server_user cannot access $run: the database goes to $folder"
            [[ ! -e $folder ]] || die "$folder is left from an earlier run: delete it if you do not need it"
            mkdir "$folder"
            chown "$server_user" "$folder"
        fi
    fi
    remember POSTGRES_DATA "$folder"
}

make_cluster() { # in POSTGRES_DATA; its superuser is `postgres`, with POSTGRES_PASSWORD, or without a password when that is empty
    local new=$POSTGRES_DATA/new password_file=$POSTGRES_DATA/password authentication=(--auth=trust)
    mkdir -p "$POSTGRES_DATA"
    rm -rf "$new"
    if ((EUID == 0)); then chown "$server_user" "$POSTGRES_DATA"; fi
    chmod 700 "$POSTGRES_DATA"
    if [[ -n $POSTGRES_PASSWORD ]]; then
        (umask 077 && printf '%s\n' "$POSTGRES_PASSWORD" >"$password_file")
        if ((EUID == 0)); then chown "$server_user" "$password_file"; fi
        authentication=(--auth=scram-sha-256 --pwfile="$password_file")
    fi
    if ! LC_ALL=C.UTF-8 "${as_server_user[@]}" "$postgres_bin/initdb" -D "$new" -U postgres -E UTF8 \
        --locale=C.UTF-8 --no-instructions "${authentication[@]}" >>"$run/log/postgres.log" 2>&1; then
        rm -f "$password_file"
        last_words postgres
        die "PostgreSQL could not be set up in $POSTGRES_DATA"
    fi
    rm -f "$password_file"
    # In one step, so that a cluster is complete or absent.
    mv "$new" "$POSTGRES_DATA/cluster"
}

start_postgres() { # DEFAULT-PORT OPTION...: returns when it accepts connections
    local port=$1 cluster
    shift
    need_postgres
    if is_running postgres; then return; fi
    choose_server_user
    mkdir -p "$run/log"
    remember_default POSTGRES_PASSWORD "$(make_password)"
    if [[ -n ${POSTGRES_DATA-} ]]; then
        for _ in {1..300}; do
            is_left_behind "$POSTGRES_DATA/cluster" || break
            sleep 0.1
        done
    fi
    choose_port POSTGRES_PORT "$port"
    [[ -n ${POSTGRES_DATA-} ]] || choose_data_folder
    cluster=$POSTGRES_DATA/cluster
    [[ -e $cluster ]] || make_cluster
    # No socket file: its path could be too long, and everything here speaks TCP.
    start_process postgres "${as_server_user[@]}" "$postgres_bin/postgres" -D "$cluster" -p "$POSTGRES_PORT" \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c log_line_prefix='%m [%p] %q%u@%d ' "$@"
    wait_for postgres 60 postgres_is_ready
}

sessions_in() { find /proc/[0-9]*/cwd -maxdepth 0 -lname "$1" -printf '%h\n' 2>/dev/null | sed 's#/proc/##'; } # CLUSTER

# A killed server leaves sessions that end a moment later, and its process id until its parent has reaped it. Until then a
# new one refuses to start.
is_left_behind() { # CLUSTER
    local pid
    pid=$("${as_server_user[@]}" head -n 1 "$1/postmaster.pid" 2>/dev/null) && kill -s 0 "$pid" 2>/dev/null && return
    [[ $(sessions_in "$1") ]]
}

# Its own file decides, not an answer at the port.
postgres_is_ready() {
    local pid lines
    pid=$(running_pid postgres) || return 1
    mapfile -t lines < <("${as_server_user[@]}" cat "$POSTGRES_DATA/cluster/postmaster.pid" 2>/dev/null)
    [[ ${lines[0]-} == "$pid" && ${lines[7]-} == ready* ]]
}

# Each test creates and drops a database, a thousand files: on a disk that costs more than what the test does with it.
scratch_folder() { # in memory, where there is plenty
    local free available group=/sys/fs/cgroup limit used
    free=$(df -Pk /dev/shm 2>/dev/null | awk 'END { print $4 }')
    available=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo 2>/dev/null)
    # In a container.
    limit=$(cat $group/memory.max 2>/dev/null || true) used=$(cat $group/memory.current 2>/dev/null || true)
    if [[ ${limit:-max} != max ]] && (((limit - used) / 1024 < available)); then available=$(((limit - used) / 1024)); fi
    if [[ -w /dev/shm ]] && ((${free:-0} > 3 << 20 && ${available:-0} > 6 << 20)); then
        echo /dev/shm
    else
        echo "${TMPDIR:-/tmp}"
    fi
}

start_scratch_postgres() { # PORT: deleted when the script ends, and so is $run, now a temporary folder
    run=$(mktemp -d "$(scratch_folder)/suite.XXXXXX")
    chmod 711 "$run" # PostgreSQL, running as another user, must reach its folder in there.
    unset POSTGRES_DATA POSTGRES_PORT "wishes[POSTGRES_PORT]"
    trap drop_scratch EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    POSTGRES_PASSWORD=''
    # Its data need not survive a power cut, so it does not wait for the disk.
    start_postgres "$1" -c fsync=off -c full_page_writes=off -c shared_buffers=256MB -c max_connections=1000 \
        -c max_wal_size=1GB -c checkpoint_timeout=1h -c jit=off
}

# For use before `provision` is built, whose own queries are checked against these tables, or without roles.
make_tables() { # DATABASE: the tables of all services, as the superuser of the private server
    local schema owner folder
    {
        for owner in "${participants[@]}" saga; do
            schema=${schema_of[$owner]-saga} folder=migrations/$owner
            if [[ $owner == saga ]]; then folder=shared/saga_store/migrations; fi
            echo "create schema $schema; set search_path = $schema;"
            # The migrator records what it has applied.
            echo 'create table _migration (version bigint primary key, description text not null, installed_on timestamptz not null
                default now(), success boolean not null, checksum bytea not null, execution_time bigint not null);'
            cat "$root/$folder"/*.sql
            if [[ $schema != saga ]]; then
                echo 'create table _messaging_migration (like _migration including all);'
                cat "$root"/shared/messaging/migrations/*.sql
                echo 'create table _webhook_migration (like _migration including all);'
                cat "$root"/shared/webhook/migrations/*.sql
            fi
        done
    } | superuser "$1" >/dev/null
}

superuser() { # DATABASE: runs the SQL of its input in a database of the private server
    PGPASSWORD=$POSTGRES_PASSWORD "$postgres_bin/psql" -qX -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$POSTGRES_PORT" -U postgres -d "$1"
}

drop_scratch() {
    stop_process postgres QUIT 10
    forget_ports
    rm -rf "$run" "${POSTGRES_DATA-}"
}

# --- NATS ----------------------------------------------------------------------------------------------------------

start_nats() { # returns when it accepts connections
    if is_running nats; then return; fi
    need_nats
    choose_port NATS_PORT 14222
    choose_port NATS_MONITOR_PORT 18222
    run_nats nats "$run/nats" "$NATS_PORT" "$NATS_MONITOR_PORT"
    wait_for nats 30 answers nats "http://127.0.0.1:$NATS_MONITOR_PORT/healthz"
}

run_nats() { # NAME STORE PORT MONITORING-PORT OPTION...: the passwords of its users are remembered
    local name=$1 store=$2 port=$3 monitor=$4 password passwords=("${participants[@]^^}" PROVISION AUDITOR)
    local conf=$root/docker/nats.conf
    shift 4
    passwords=("${passwords[@]/%/_NATS_PASSWORD}")
    for password in "${passwords[@]}"; do remember_default "$password" "$(make_password)"; done
    mkdir -p "$store"
    export "${passwords[@]}"
    # "always": each message is on the disk before it is acknowledged, on each server that stores it.
    if [[ ${NATS_SYNC_INTERVAL-} ]]; then
        sed "s/^  store_dir: .*/&\n  sync_interval: $NATS_SYNC_INTERVAL/" "$conf" >"$run/nats-sync.conf"
        conf=$run/nats-sync.conf
    fi
    if [[ ${SUITE_CLUSTER-} ]]; then conf=$(encrypted_conf "$name" "$conf"); fi
    local -x GOMAXPROCS=${GOMAXPROCS:-1} # all share one machine: 0.85 of the processor time (decision 90)
    # The server reads it as it reads its configuration.
    NATS_STORE_DIR=$(quoted "$store") start_process "$name" "$nats_server" -c "$conf" \
        -a 127.0.0.1 -p "$port" -m "$monitor" "$@"
    export -n "${passwords[@]}"
}

quoted() { # TEXT: as a string in a configuration of nats-server, or in YAML
    local text=${1//\\/\\\\}
    printf '"%s"' "${text//\"/\\\"}"
}
