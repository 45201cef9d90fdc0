# shellcheck shell=bash
# Shared by the scripts of this folder, which source it: where things are, how processes are started and stopped.
# A process is only ever signalled by the id that was recorded at its start, after a check that it is still the same one.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
run=${SUITE_RUN_DIR:-$root/.run}

say() { printf '%s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

((BASH_VERSINFO[0] >= 5)) || die "these scripts need bash 5 or later"

# --- Settings ------------------------------------------------------------------------------------------------------
# $run/env remembers what the first `up` chose. Anyone can source it; what the environment says already wins. It exports
# nothing, so that a service is given its own password and no other.

load_settings() {
    # shellcheck disable=SC1091
    if [[ -f $run/env ]]; then . "$run/env"; fi
}

remember() { # NAME VALUE: sets it, now and for every later script
    local name=$1 value=$2
    [[ $value != *['"$`\}']* ]] || die "$name may not contain any of \" \$ \` \\ }"
    mkdir -p "$run"
    (
        umask 077
        {
            grep -v "^$name=" "$run/env" 2>/dev/null || true
            # shellcheck disable=SC2016
            printf '%s="${%s-%s}"\n' "$name" "$name" "$value"
        } >"$run/env.new"
        mv "$run/env.new" "$run/env"
    )
    printf -v "$name" %s "$value"
}

remember_default() { # NAME VALUE: unless the environment or an earlier run has chosen
    remember "$1" "${!1-$2}"
}

# It begins with a letter, because nats-server would read 1e5 as a number.
make_password() { printf p; od -An -N18 -tx1 /dev/urandom | tr -d ' \n'; }

# --- Ports ---------------------------------------------------------------------------------------------------------

port_is_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

remember_port() { # NAME DEFAULT: the wished port, or a free one that looks like it
    local name=$1 wish=${!1-$2} port
    for ((port = wish; port < 65536; port += 100)); do
        if ! port_is_taken "$port"; then
            if ((port != wish)); then say "port $wish is taken, $name is $port"; fi
            remember "$name" "$port"
            return
        fi
        # Those that run were told the earlier choice when they started.
        if grep -qs "^$name=" "$run/env" && something_runs; then die "port $port is taken by another program: stop that, or the suite (./scripts/down)"; fi
    done
    die "found no free port; set $name to one"
}

# --- Processes -----------------------------------------------------------------------------------------------------

process_mark() { # PID: what tells this process from a later one with the same id; fails when there is none
    local line fields
    if [[ -r /proc/self/stat ]]; then
        line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
        # The name in parentheses may hold spaces. Behind it come the state (Z: ended, not yet reaped) and, 20th, the start.
        read -ra fields <<<"${line##*) }"
        [[ ${fields[0]} != Z ]] || return 1
        printf %s "${fields[19]}"
    else
        line=$(ps -o state=,lstart= -p "$1") || return 1
        [[ $line != Z* ]] || return 1
        printf %s "${line#* }" | tr -d ' '
    fi
}

running_pid() { # NAME: prints its id; fails when it does not run
    local pid mark
    read -r pid mark 2>/dev/null <"$run/pid/$1" || return 1
    [[ $(process_mark "$pid") == "$mark" ]] || return 1
    printf %s "$pid"
}

is_running() { running_pid "$1" >/dev/null; }

is_frozen() { # NAME: whether it runs and has been stopped in its tracks
    local pid line
    pid=$(running_pid "$1") || return 1
    if [[ -r /proc/self/stat ]]; then
        line=$(cat "/proc/$pid/stat" 2>/dev/null) || return 1
        line=${line##*) }
    else
        line=$(ps -o state= -p "$pid") || return 1
    fi
    [[ $line == T* ]]
}

something_runs() {
    local file
    for file in "$run"/pid/*; do if is_running "${file##*/}"; then return 0; fi; done
    return 1
}

start_process() { # NAME COMMAND...: in the background, in a session of its own, its output appended to log/NAME.log
    local name=$1 pid
    shift
    mkdir -p "$run/log" "$run/pid"
    # Descriptor 9 is the scripts' lock: a service must not keep it.
    setsid "$@" </dev/null >>"$run/log/$name.log" 2>&1 9>&- &
    pid=$!
    printf '%s %s\n' "$pid" "$(process_mark "$pid")" >"$run/pid/$name"
}

stop_process() { # NAME SIGNAL SECONDS: and kill -9 when it takes longer
    local name=$1 signal=$2 limit=$3 pid step
    if pid=$(running_pid "$name"); then
        kill -s "$signal" "$pid" 2>/dev/null || true
        # A frozen process does not notice before it goes on.
        kill -s CONT "$pid" 2>/dev/null || true
        for ((step = 0; step < limit * 20; step++)); do
            is_running "$name" || break
            sleep 0.05
        done
        if is_running "$name"; then
            say "$name did not stop within $limit s, killing it"
            kill -s KILL "$pid" 2>/dev/null || true
            while is_running "$name"; do sleep 0.05; done
        fi
    fi
    rm -f "$run/pid/$name"
}

wait_for() { # NAME SECONDS CHECK...: until the check succeeds; ends at once when the process NAME is gone
    local name=$1 limit=$2 end
    shift 2
    end=$((SECONDS + limit))
    until "$@" >/dev/null 2>&1; do
        if ! is_running "$name"; then
            last_words "$name"
            die "$name ended before it was ready; its log is $run/log/$name.log"
        fi
        if ((SECONDS >= end)); then
            last_words "$name"
            die "$name was not ready within $limit s; its log is $run/log/$name.log"
        fi
        sleep 0.1
    done
}

last_words() { tail -n 15 "$run/log/$1.log" 2>/dev/null | sed 's/^/  | /' >&2 || true; }

http_ok() { curl -fsS -o /dev/null --max-time 2 "$1"; }

lock() { # one `up`, `down` or `service` at a time
    mkdir -p "$run"
    exec 9>"$run/lock"
    if command -v flock >/dev/null; then flock -w 120 9 || die "another script holds $run/lock"; fi
}

# --- Programs ------------------------------------------------------------------------------------------------------

apt() { # ARGUMENT...: apt-get as root
    local sudo=()
    command -v apt-get >/dev/null || return 1
    if ((EUID != 0)); then
        command -v sudo >/dev/null || return 1
        sudo=(sudo)
    fi
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y "$@" </dev/null >/dev/null
}

apt_lists() { # once per run: a fresh machine has none
    if [[ -z ${apt_lists_done-} ]]; then apt update || true; fi
    apt_lists_done=1
}

need_curl() {
    command -v curl >/dev/null && return
    say "installing curl"
    { apt_lists && apt install --no-install-recommends curl ca-certificates; } || die "please install curl"
}

find_postgres() { # sets postgres_bin
    local candidate
    [[ -z ${postgres_bin-} ]] || return 0
    for candidate in "${POSTGRES_BIN_DIR-}" "$(dirname "$(command -v postgres || true)")" \
        $(printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin | sort -rV); do
        if [[ -x $candidate/postgres && -x $candidate/initdb && -x $candidate/pg_isready ]]; then
            postgres_bin=$candidate
            return 0
        fi
    done
    return 1
}

need_postgres() {
    if ! find_postgres; then
        say "installing PostgreSQL (Debian's package, without starting a server)"
        install_postgres || true
        find_postgres || die "found no PostgreSQL: install version 15 or later (Debian, Ubuntu: apt-get install postgresql), or set DATABASE_URL to a server's owner"
    fi
    local version
    version=$("$postgres_bin/postgres" --version | sed -nE 's/^.*PostgreSQL\) ([0-9]+).*/\1/p')
    ((version >= 15)) || die "$postgres_bin holds PostgreSQL $version, the suite needs 15 or later (POSTGRES_BIN_DIR names another)"
}

install_postgres() { # Debian's package makes and starts a cluster of its own unless its configuration forbids it
    local folder=/etc/postgresql-common/createcluster.d file sudo=() status=0
    if ((EUID != 0)); then sudo=(sudo); fi
    file=$folder/zz-suite-installs-no-cluster.conf
    apt_lists
    apt install --no-install-recommends postgresql-common || return 1
    "${sudo[@]}" mkdir -p "$folder"
    echo 'create_main_cluster = false' | "${sudo[@]}" tee "$file" >/dev/null
    apt install --no-install-recommends postgresql || status=1
    "${sudo[@]}" rm -f "$file"
    return "$status"
}

find_nats() { # sets nats_server
    local candidate
    [[ -z ${nats_server-} ]] || return 0
    for candidate in "${NATS_SERVER_BIN-}" "$(command -v nats-server || true)" /usr/sbin/nats-server \
        "$root/.run/tools/usr/sbin/nats-server"; do
        if [[ -n $candidate && -x $candidate ]]; then
            nats_server=$candidate
            return 0
        fi
    done
    return 1
}

need_nats() {
    find_nats && return
    say "unpacking nats-server (Debian's package) into .run/tools"
    unpack_nats || true
    find_nats || die "found no nats-server: install version 2.9 or later (Debian, Ubuntu: apt-get install nats-server), or set NATS_URL to a running one"
}

unpack_nats() { # not installed, because Debian's package would start a broker for the whole machine
    local folder
    command -v apt-get >/dev/null || return 1
    folder=$(mktemp -d)
    mkdir -p "$root/.run/tools"
    (
        cd "$folder" || exit 1
        apt_lists
        apt-get -qq download -o APT::Sandbox::User="$(id -un)" nats-server >&2 && dpkg -x nats-server*.deb "$root/.run/tools"
    )
    rm -rf "$folder"
}

# --- PostgreSQL ----------------------------------------------------------------------------------------------------

# PostgreSQL refuses to run as root, so then it runs as `postgres` or, where there is no such user, as `nobody`; once there
# is data, as the user whose it is.
choose_server_user() { # sets server_user and as_server_user
    as_server_user=()
    if ((EUID != 0)); then return; fi
    server_user=$(stat -c %U "${POSTGRES_DATA-}" 2>/dev/null || id -un postgres 2>/dev/null || echo nobody)
    as_server_user=(setpriv --reuid="$(id -u "$server_user")" --regid="$(id -g "$server_user")" --clear-groups env -C / HOME=/tmp)
}

make_data_folder() { # remembers POSTGRES_DATA: an empty folder that the server's user owns and reaches
    local folder=$run/postgres
    mkdir -p "$folder"
    if ((EUID == 0)); then
        chown "$server_user" "$folder"
        if ! "${as_server_user[@]}" test -w "$folder"; then
            rmdir "$folder"
            folder=/var/tmp/pas-de-trois-$(printf %s "$run" | cksum | cut -d' ' -f1)-$POSTGRES_PORT
            say "the user $server_user does not reach $run: the database goes to $folder"
            mkdir "$folder" || die "$folder is left from an earlier run: delete it if you do not need it"
            chown "$server_user" "$folder"
        fi
    fi
    chmod 700 "$folder"
    remember POSTGRES_DATA "$folder"
}

make_cluster() { # in POSTGRES_DATA; its superuser is `postgres`, with POSTGRES_PASSWORD, or none asked for when that is empty
    local password_file=$POSTGRES_DATA.password authentication=(--auth=trust)
    if [[ -n $POSTGRES_PASSWORD ]]; then
        (umask 077 && printf '%s\n' "$POSTGRES_PASSWORD" >"$password_file")
        if ((EUID == 0)); then chown "$server_user" "$password_file"; fi
        authentication=(--auth=scram-sha-256 --pwfile="$password_file")
    fi
    if ! LC_ALL=C.UTF-8 "${as_server_user[@]}" "$postgres_bin/initdb" -D "$POSTGRES_DATA" -U postgres -E UTF8 \
        --locale=C.UTF-8 --no-instructions "${authentication[@]}" >>"$run/log/postgres.log" 2>&1; then
        rm -f "$password_file"
        last_words postgres
        die "PostgreSQL could not be set up in $POSTGRES_DATA"
    fi
    rm -f "$password_file"
}

start_postgres() { # OPTION...: makes the cluster when there is none; returns when it accepts connections
    need_postgres
    choose_server_user
    mkdir -p "$run/log"
    remember_default POSTGRES_PASSWORD "$(make_password)"
    remember_port POSTGRES_PORT 55432
    [[ -n ${POSTGRES_DATA-} ]] || make_data_folder
    "${as_server_user[@]}" test -s "$POSTGRES_DATA/PG_VERSION" || make_cluster
    # No socket file: its path could be too long, and everything here speaks TCP.
    start_process postgres "${as_server_user[@]}" "$postgres_bin/postgres" -D "$POSTGRES_DATA" -p "$POSTGRES_PORT" \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c log_line_prefix='%m [%p] %q%u@%d ' "$@"
    wait_for postgres 60 "$postgres_bin/pg_isready" -q -h 127.0.0.1 -p "$POSTGRES_PORT"
}

start_scratch_postgres() { # PORT: gone without trace when the script ends, and so is $run, now a temporary folder
    run=$(mktemp -d "${TMPDIR:-/tmp}/suite.XXXXXX")
    chmod 711 "$run" # PostgreSQL, running as another user, has to get at its folder in there.
    unset POSTGRES_DATA
    trap drop_scratch EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # Nobody needs its data after a power cut, so it does not wait for the disk.
    POSTGRES_PASSWORD='' POSTGRES_PORT=$1
    start_postgres -c fsync=off -c full_page_writes=off -c shared_buffers=256MB -c max_connections=400 \
        -c max_wal_size=4GB -c checkpoint_timeout=1h -c jit=off
}

# For what cannot wait for `provision`, whose own queries are checked against these tables, or wants them without roles.
make_tables() { # DATABASE: the tables of all services, as the superuser of the private server
    local schema owner pair
    {
        echo 'create schema orders; create schema inventory; create schema payment; create schema saga;'
        for pair in orders/order inventory/inventory payment/payment saga/saga; do
            schema=${pair%/*} owner=${pair#*/}
            echo "set search_path = $schema;"
            # The migrator keeps its own account of what it has applied.
            echo 'create table _migration (version bigint primary key, description text not null, installed_on timestamptz not null
                default now(), success boolean not null, checksum bytea not null, execution_time bigint not null);'
            cat "$root/migrations/$owner"/*.sql
            if [[ $owner != saga ]]; then
                echo 'create table _messaging_migration (like _migration including all);'
                cat "$root"/migrations/messaging/*.sql
            fi
        done
    } | superuser "$1" >/dev/null
}

superuser() { # DATABASE: runs the SQL of its input in a database of the private server
    PGPASSWORD=$POSTGRES_PASSWORD "$postgres_bin/psql" -qX -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$POSTGRES_PORT" -U postgres -d "$1"
}

drop_scratch() {
    stop_process postgres QUIT 10
    rm -rf "$run" "${POSTGRES_DATA-}"
}

# --- NATS ----------------------------------------------------------------------------------------------------------

start_nats() { # returns when it accepts connections; the passwords of its users are remembered
    local name passwords=({ORDER,INVENTORY,PAYMENT,PROVISION,AUDITOR}_NATS_PASSWORD)
    need_nats
    need_curl
    remember_port NATS_PORT 54222
    remember_port NATS_MONITOR_PORT 58222
    for name in "${passwords[@]}"; do remember_default "$name" "$(make_password)"; done
    mkdir -p "$run/nats"
    export "${passwords[@]}"
    start_process nats "$nats_server" -c "$root/docker/nats.conf" \
        -a 127.0.0.1 -p "$NATS_PORT" -m "$NATS_MONITOR_PORT" -js -sd "$run/nats"
    export -n "${passwords[@]}"
    wait_for nats 30 http_ok "http://127.0.0.1:$NATS_MONITOR_PORT/healthz"
}

# --- Access --------------------------------------------------------------------------------------------------------

database_url() { # [ROLE PASSWORD]: as the owner, or as the role
    local url=$SUITE_POSTGRES
    if [[ $url == private ]]; then url=postgres://postgres:$POSTGRES_PASSWORD@127.0.0.1:$POSTGRES_PORT/suite; fi
    if (($# == 2)); then
        [[ $url =~ ^(postgres(ql)?://)([^@/]*@)?(.*)$ ]] || die "DATABASE_URL must begin with postgres://"
        url=${BASH_REMATCH[1]}$1:$2@${BASH_REMATCH[4]}
    fi
    printf %s "$url"
}

with_access() { # NAME COMMAND...: with the database role and the broker user of NAME, and nobody else's
    local name=$1 database=${1^^}_DB_PASSWORD broker=${1^^}_NATS_PASSWORD
    local -x DATABASE_URL NATS_URL=$SUITE_NATS
    shift
    case $name in
        provision) DATABASE_URL=$(database_url) ;;
        auditor) DATABASE_URL=$(database_url auditor "${!database}") ;;
        *) DATABASE_URL=$(database_url "${name}_service" "${!database}") ;;
    esac
    if [[ $NATS_URL == private ]]; then NATS_URL=nats://127.0.0.1:$NATS_PORT; fi
    if [[ -n ${!broker-} ]]; then local -x NATS_USER=$name NATS_PASSWORD=${!broker}; fi
    "$@"
}

program() { # NAME: the path of one of the suite's programs
    local path=${SUITE_BIN_DIR:-${CARGO_TARGET_DIR:-$root/target}/demo}/$1
    [[ -x $path ]] || die "$path is not built; ./scripts/up builds it"
    printf %s "$path"
}

console() { # ARGUMENT...: becomes the operator's desk, pointed at the running suite
    load_settings
    [[ -n ${ORDER_URL-} ]] || die "the suite has not been started here; ./scripts/up starts it"
    export ORDER_URL INVENTORY_URL PAYMENT_URL GATEWAY_URL ADMIN_TOKEN
    cd "$root" || exit
    local program
    program=$(program console)
    with_access auditor exec "$program" "$@"
}

revision() { # what the sources are, for reports: a commit, and whether something was changed since
    git -C "$root" describe --always --dirty 2>/dev/null || printf unknown
}
