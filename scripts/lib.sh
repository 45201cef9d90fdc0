# shellcheck shell=bash
# Shared by the scripts of this folder, which source it: settings, ports, processes. A process is signalled only by the id
# that was recorded at its start, after a check that it is still the same process.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
run=${SUITE_RUN_DIR:-$root/.run}
[[ $run == /* ]] || run=$PWD/$run

say() { printf '%s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

((BASH_VERSINFO[0] >= 5)) || die "these scripts need bash 5 or later"

# The participants of shared/contracts/src/manifest.rs, in the order in which they are started: a caller after those it
# calls.
participants=()
declare -A schema_of=() participant_port=()
# shellcheck disable=SC2034
while IFS=$'\t' read -r name schema _ port _; do
    [[ $name != '#'* ]] || continue
    participants=("$name" "${participants[@]}")
    schema_of[$name]=$schema participant_port[$name]=$port
done <"$root/shared/contracts/participants.tsv"

own_ports() { # OFFSET: preferred ports of a suite beside others
    local name
    for name in "${participants[@]}"; do export "${name^^}_PORT=$((participant_port[$name] + $1))"; done
    export GATEWAY_PORT=$((8084 + $1))
}

is_participant() { [[ " ${participants[*]} " == *" $1 "* ]]; } # NAME

# shellcheck source-path=SCRIPTDIR
. "$root/scripts/programs.sh"
# shellcheck source-path=SCRIPTDIR
. "$root/scripts/servers.sh"

# --- Settings ------------------------------------------------------------------------------------------------------
# $run/env keeps the settings of the suite's first start until `down --wipe`. It overrides the environment: a variable
# exported for another suite must not lead a script there. It exports nothing, so a service gets only its own password.

# The environment, before remembered settings replace it.
declare -A wishes=()
for name in $(compgen -e); do wishes[$name]=${!name}; done

load_settings() {
    # shellcheck disable=SC1091
    if [[ -f $run/env ]]; then . "$run/env"; fi
}

is_remembered() { grep -qs "^$1=" "$run/env"; } # NAME

remember() { # NAME VALUE: sets it, now and for every later script
    mkdir -p "$run"
    (
        umask 077
        {
            grep -v "^$1=" "$run/env" 2>/dev/null || true
            printf '%s=%q\n' "$1" "$2"
        } >"$run/env.new"
        mv "$run/env.new" "$run/env"
    )
    printf -v "$1" %s "$2"
}

remember_default() { # NAME VALUE: unless set by an earlier start or the environment
    is_remembered "$1" || remember "$1" "${!1-$2}"
}

# It cannot be changed later, because the data is in other places.
choose_cluster() {
    if [[ ${SUITE_CLUSTER-} ]]; then return; fi
    if is_remembered SUITE_POSTGRES; then die "this suite was started without --cluster; ./scripts/down --wipe deletes it"; fi
    [[ -z ${wishes[DATABASE_URL]-}${wishes[NATS_URL]-} ]] || die "--cluster starts its own servers: unset DATABASE_URL and NATS_URL"
    remember SUITE_CLUSTER 1
    remember SUITE_POSTGRES private
    remember SUITE_NATS private
}

# It begins with a letter, because nats-server would read 1e5 as a number.
make_password() { printf p; od -An -N18 -tx1 /dev/urandom | tr -d ' \n'; }

# --- Ports ---------------------------------------------------------------------------------------------------------
# Each suite of this machine records its ports in a shared folder, so that two that start at the same time, or one that
# starts while another's service is stopped, never choose the same. The default ports are below 32768, where Linux begins
# to assign ports to outgoing connections.

ports_folder=/tmp/pas-de-trois-ports

port_file() { printf '%s/%s' "$ports_folder" "$(printf %s "$run" | cksum | cut -d' ' -f1)"; }

lock_ports() { # all suites of the machine, one after the other; until descriptor 8 is closed
    [[ -d /proc/self/fd ]] || die "without Docker, the suite runs on Linux only"
    until [[ /proc/self/fd/8 -ef $ports_folder/lock ]]; do # the last one to leave deletes it
        mkdir -m 1777 "$ports_folder" 2>/dev/null || true
        # Opened for reading, because in such a folder Linux forbids writing to another user's file.
        (umask 022 && set -o noclobber && : >"$ports_folder/lock") 2>/dev/null || true
        exec 8<"$ports_folder/lock" || continue
        flock -w 60 8 || die "another suite holds $ports_folder/lock"
    done
}

write_down_ports() { # those that this suite remembers
    local file
    file=$(port_file)
    { printf '%s\n' "$run"; sed -nE 's/^[A-Z0-9_]+_PORT=([0-9]+)$/\1/p' "$run/env"; } >"$file.new"
    mv "$file.new" "$file"
}

forget_ports() {
    lock_ports
    rm -f "$(port_file)"
    if [[ ! $(find "$ports_folder" -mindepth 1 ! -name lock -print -quit) ]]; then rm -rf "$ports_folder"; fi
    exec 8<&-
}

port_is_promised() { # PORT: whether another suite has recorded it
    local file mine owner seen
    mine=$(port_file)
    for file in "$ports_folder"/*[0-9]; do
        [[ $file != "$mine" && -f $file ]] || continue
        read -r owner <"$file" || true
        # A deleted suite keeps no ports; one whose folder this user cannot read may exist.
        seen=$owner
        until [[ -e $seen ]]; do seen=$(dirname "$seen"); done
        if [[ -x $seen && ! -e $owner/env ]]; then continue; fi
        if grep -qx "$1" <(sed 1d "$file"); then return 0; fi
    done
    return 1
}

port_is_taken() { # PORT: whether a socket listens there (0A), or has it for a connection (01 to 03); closing ones do not matter
    local hex
    printf -v hex '%04X' "$1"
    grep -qsE "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:[0-9A-F]{4} (0A|0[123]) " /proc/net/tcp /proc/net/tcp6
}

# The remembered port if it is free, otherwise that of the environment or the default, or a free one near it.
choose_port() { # NAME DEFAULT
    local name=$1 wish port
    lock_ports
    load_settings
    if is_remembered "$name" && something_runs; then
        # The running processes use this port.
        if port_is_taken "${!name}"; then
            die "port ${!name} ($name) is used by another program: stop that program, or the suite (./scripts/down)"
        fi
    else
        wish=${wishes[$name]-${!name-$2}}
        [[ $wish =~ ^[1-9][0-9]*$ ]] || die "$name is not a port: $wish"
        for ((port = wish; ; port += 100)); do
            ((port < 65536)) || die "found no free port for $name; set it to one"
            if ! port_is_taken "$port" && ! port_is_promised "$port" && ! port_is_chosen "$name" "$port"; then break; fi
        done
        if ((port != wish)); then say "port $wish is taken, $name is $port"; fi
        remember "$name" "$port"
    fi
    write_down_ports
    exec 8<&-
}

port_is_chosen() { # NAME PORT: whether this suite uses it for something else
    grep -qE "^[A-Z0-9_]+_PORT=$2\$" <(grep -v "^$1=" "$run/env")
}

# --- Processes -----------------------------------------------------------------------------------------------------

process_mark() { # PID: distinguishes this process from a later one with the same id; fails when there is none
    local line fields boot
    line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The name in parentheses may hold spaces. After it come the state (Z: ended, not yet reaped) and, 20th, the start.
    read -ra fields <<<"${line##*) }"
    [[ ${fields[0]-Z} != [ZX] ]] || return 1
    boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null || true)
    printf '%s@%s' "${fields[19]}" "$boot"
}

running_pid() { # NAME: prints its id; fails when it does not run
    local pid mark now
    read -r pid mark 2>/dev/null <"$run/pid/$1" || return 1
    [[ $pid && $mark ]] || return 1
    now=$(process_mark "$pid") || return 1
    [[ $now == "$mark" ]] || return 1
    printf %s "$pid"
}

is_running() { running_pid "$1" >/dev/null; }

is_frozen() { # NAME: whether it runs and is suspended
    local pid line
    pid=$(running_pid "$1") || return 1
    line=$(cat "/proc/$pid/stat" 2>/dev/null) || return 1
    [[ ${line##*) } == T* ]]
}

something_runs() {
    local file
    for file in "$run"/pid/*; do if is_running "${file##*/}"; then return 0; fi; done
    return 1
}

start_process() { # NAME COMMAND...: in the background, in a session of its own, its output appended to log/NAME.log
    local name=$1
    shift
    mkdir -p "$run/log" "$run/pid"
    # It records itself before it becomes the program, and holds the lock (descriptor 9) until then: there is no moment at
    # which it runs unrecorded, whenever this script is killed.
    (
        self=$BASHPID # within a substitution it is another one
        printf '%s %s\n' "$self" "$(process_mark "$self")" >"$run/pid/$name.new"
        mv "$run/pid/$name.new" "$run/pid/$name"
        exec setsid "$@" </dev/null >>"$run/log/$name.log" 2>&1 7>&- 8>&- 9>&-
    ) &
    until is_recorded "$name" $!; do sleep 0.01; done
}

is_recorded() { # NAME PID: also when the process has ended since
    local pid
    read -r pid _ 2>/dev/null <"$run/pid/$1" && [[ $pid == "$2" ]] || ! process_mark "$2" >/dev/null
}

stop_process() { # NAME SIGNAL SECONDS: and kill -9 when it takes longer
    local name=$1 signal=$2 limit=$3 pid
    if pid=$(running_pid "$name"); then
        kill -s "$signal" "$pid" 2>/dev/null || true
        # A frozen process does not react before it resumes.
        kill -s CONT "$pid" 2>/dev/null || true
        if ! has_ended "$name" "$limit"; then
            say "$name did not stop within $limit s, killing it"
            kill -s KILL "$pid" 2>/dev/null || true
            has_ended "$name" 30 || die "$name (pid $pid) cannot be killed"
        fi
    fi
    rm -f "$run/pid/$name"
}

has_ended() { # NAME SECONDS: waits for it
    local step
    for ((step = 0; step < $2 * 20; step++)); do
        is_running "$1" || return 0
        sleep 0.05
    done
    ! is_running "$1"
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
            if [[ $1 == answers ]]; then say "$name says: $(http_body "$3")" >&2; fi
            die "$name was not ready within $limit s; its log is $run/log/$name.log"
        fi
        sleep 0.1
    done
}

last_words() { tail -n 15 "$run/log/$1.log" 2>/dev/null | sed 's/^/  | /' >&2 || true; }

answers() { # NAME URL: whether the process NAME itself listens at this address, and answers with 200
    local pid port
    pid=$(running_pid "$1") || return 1
    [[ $2 =~ ^http://[^/:]+:([0-9]+) ]] || return 1
    port=${BASH_REMATCH[1]}
    listens "$pid" "$port" && http_ok "$2"
}

listens() { # PID PORT: whether this process owns the port
    local hex inode
    printf -v hex '%04X' "$2"
    while read -r inode; do
        if [[ $(find "/proc/$1/fd" -lname "socket:\[$inode\]" -print -quit 2>/dev/null) ]]; then return 0; fi
    done < <(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v port=":$hex" '$4 == "0A" && substr($2, length($2) - 4) == port { print $10 }')
    return 1
}

send_get() { # URL: the answer is at descriptor 3; with bash alone, because a minimal machine has no curl
    [[ $1 =~ ^http://([^/:]+):([0-9]+)(/.*)?$ ]] || return 1
    exec 3<>"/dev/tcp/${BASH_REMATCH[1]}/${BASH_REMATCH[2]}" || return 1
    printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "${BASH_REMATCH[3]:-/}" "${BASH_REMATCH[1]}" >&3
}

http_ok() ( # URL
    send_get "$1" && read -r -t 2 _ status _ <&3 && [[ $status == 200 ]]
) 2>/dev/null

http_body() ( # URL: the answer, such as which dependency is not ready, and why
    if send_get "$1"; then timeout 3 sed '1,/^\r$/d' <&3 || true; fi
) 2>/dev/null

lock() { # one `down` or `service` at a time; loads what the previous one remembered
    mkdir -p "$run"
    exec 9>"$run/lock"
    flock -w 120 9 || die "another script holds $run/lock"
    load_settings
}

# --- Access --------------------------------------------------------------------------------------------------------

database_url() { # [ROLE PASSWORD]: as the owner, or as the role
    local url=$SUITE_POSTGRES
    if [[ $url == private ]]; then url=postgres://postgres:$POSTGRES_PASSWORD@127.0.0.1:$POSTGRES_PORT/suite; fi
    if [[ ${SUITE_CLUSTER-} ]]; then url+="?sslmode=verify-full&sslrootcert=$(url_encoded "$run/cluster/ca.crt")"; fi
    if (($# == 2)); then
        [[ $url =~ ^(postgres(ql)?://)([^@/]*@)?(.*)$ ]] || die "DATABASE_URL must begin with postgres://"
        url=${BASH_REMATCH[1]}$1:$2@${BASH_REMATCH[4]}
    fi
    printf %s "$url"
}

url_encoded() { # TEXT: as a parameter of a URL
    local LC_ALL=C i code
    for ((i = 0; i < ${#1}; i++)); do
        if [[ ${1:i:1} == [A-Za-z0-9/._-] ]]; then printf %s "${1:i:1}" && continue; fi
        printf -v code %d "'${1:i:1}"
        printf '%%%02X' $((code & 255))
    done
}

broker_url() {
    # All members of a cluster.
    if [[ $SUITE_NATS == private ]]; then printf %s "${NATS_URLS:-nats://127.0.0.1:$NATS_PORT}"; else printf %s "$SUITE_NATS"; fi
}

with_access() { # NAME COMMAND...: with only the database role and the broker user of NAME
    local name=$1 database=${1^^}_DB_PASSWORD broker=${1^^}_NATS_PASSWORD
    local -x DATABASE_URL NATS_URL
    shift
    case $name in
        provision) DATABASE_URL=$(database_url) ;;
        auditor) DATABASE_URL=$(database_url auditor "${!database}") ;;
        *) DATABASE_URL=$(database_url "${name}_service" "${!database}") ;;
    esac
    NATS_URL=$(broker_url)
    if [[ -n ${!broker-} ]]; then local -x NATS_USER=$name NATS_PASSWORD=${!broker}; fi
    if [[ ${SUITE_CLUSTER-} ]]; then
        local -x NATS_CA_FILE=$run/cluster/ca.crt
        # Otherwise each connection to PostgreSQL would read the machine's CAs, and trust them, too.
        local -x SSL_CERT_FILE=$run/cluster/ca.crt SSL_CERT_DIR=
    elif [[ ${NATS_CA_FILE-} ]]; then
        local -x NATS_CA_FILE=$NATS_CA_FILE
    fi
    "$@"
}

export_addresses() { # of the participants and the card processor, as far as they have been started
    local name
    for name in "${participants[@]}" gateway; do
        name=${name^^}_URL
        if [[ ${!name-} ]]; then export "${name?}"; fi
    done
}

# shellcheck disable=SC2120
build_suite() { # [PACKAGE...]: the suite's programs, and those of further packages of the same name
    local programs=("${participants[@]}" gateway_simulator provision console) selection
    # With faults, which scenarios need; they have no effect until one is armed.
    selection=("${programs[@]/#/-p}" "${@/#/-p}" --bins --features faults)
    # In the profiles of tests and proofs with the features of the whole workspace, as those are built: nothing is compiled twice.
    case ${SUITE_PROFILE-} in
        dev) selection=(--workspace "${programs[@]/#/--bin=}" "${@/#/--bin=}") ;;
        proof) selection=(--workspace "${programs[@]/#/--bin=}" "${@/#/--bin=}" --features faults) ;;
    esac
    (cd "$root" && SQLX_OFFLINE=true cargo build --profile "${SUITE_PROFILE:-demo}" --locked "${selection[@]}")
}

program() { # NAME: the path of one of the suite's programs
    local profile=${SUITE_PROFILE:-demo}
    # Cargo's folder for the profile `dev` has another name.
    local path=${SUITE_BIN_DIR:-${CARGO_TARGET_DIR:-$root/target}/${profile/#dev/debug}}/$1
    [[ -x $path ]] || die "$path is not built; ./scripts/up builds it"
    printf %s "$path"
}

console() { # ARGUMENT...: replaces the process with the console, for the running suite
    load_settings
    [[ -n ${ORDER_URL-} ]] || die "the suite has not been started here; ./scripts/up starts it"
    export_addresses
    export ADMIN_TOKEN
    cd "$root" || exit
    local program
    program=$(program console)
    with_access auditor exec "$program" "$@"
}

revision() { # of the sources, for reports: a commit, and whether it was changed since
    git -C "$root" describe --always --dirty 2>/dev/null || printf unknown
}
