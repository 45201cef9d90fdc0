# shellcheck shell=bash
# Finds the running suite, however it was started, and runs the console for it. Sourced after lib.sh.

# --- Which suite ---------------------------------------------------------------------------------------------------

# A running suite of ./scripts/up has precedence over the Docker Compose project of this folder.
find_suite() { # sets suite to local or compose, by SUITE or by what runs
    case ${SUITE-} in
        local) suite=local ;;
        compose)
            find_project || die "$no_project; docker compose up -d --build starts the suite"
            suite=compose
            ;;
        '')
            if runs_here; then
                suite=local
            elif find_project; then
                suite=compose
            elif [[ -f $run/env ]]; then
                suite=local
            else
                die "no suite runs here ($no_project): start one with ./scripts/up or docker compose up -d --build"
            fi
            ;;
        *) die "SUITE is local or compose, not $SUITE" ;;
    esac
}

runs_here() { [[ -f $run/env && $("$root/scripts/service" status suite 2>/dev/null) == *', pid '* ]]; }

# --- Docker Compose ------------------------------------------------------------------------------------------------
# The labels of postgres, which no scenario changes, say which project of this folder runs, from which files, and which
# version of Compose created it.

find_project() { # exports COMPOSE_PROJECT_NAME, COMPOSE_FILE and SUITE_COMPOSE; or sets no_project, and fails
    local lines line name folder version files found=()
    if ! command -v docker >/dev/null; then
        no_project="no suite of ./scripts/up, and no Docker"
        return 1
    fi
    lines=$(docker ps --filter label=com.docker.compose.service=postgres --format \
        "$(printf '{{.Label "com.docker.compose.%s"}}|' project project.working_dir version project.config_files)" 2>&1) || {
        no_project="no suite of ./scripts/up, and Docker says: ${lines##*$'\n'}"
        return 1
    }
    while IFS='|' read -r name folder version files; do
        [[ $folder == "$root" || $folder == "$(cd "$root" && pwd -P)" ]] || continue
        [[ $name == "${COMPOSE_PROJECT_NAME:-$name}" && " ${found[*]} " != *" $name "* ]] || continue
        # A counter-proof's suite is found by its name only.
        [[ ${COMPOSE_PROJECT_NAME-} || $name != *-without-* ]] || continue
        found+=("$name")
        COMPOSE_FILE=$(absolute "$files") SUITE_COMPOSE=$(made_by "$version")
    done <<<"$lines"
    no_project="no suite of ./scripts/up, and no Docker Compose project of $root"
    ((${#found[@]})) || return 1
    ((${#found[@]} == 1)) || die "several Compose projects of this folder run, COMPOSE_PROJECT_NAME chooses one: ${found[*]}"
    COMPOSE_PROJECT_NAME=${found[0]}
    export COMPOSE_PROJECT_NAME COMPOSE_FILE SUITE_COMPOSE
}

absolute() { # FILE,FILE...: for COMPOSE_FILE; Compose 1 records them as they were given
    local files file all=
    IFS=, read -ra files <<<"$1"
    for file in "${files[@]}"; do
        [[ $file == /* ]] || file=$root/$file
        all+=:$file
    done
    printf %s "${all#:}"
}

made_by() { # VERSION: the command of that Compose; the versions may not be compatible
    if [[ $1 != 1.* ]] && docker compose version >/dev/null 2>&1; then printf 'docker compose'; else printf docker-compose; fi
}

compose() { # ARGUMENT...
    local command
    read -ra command <<<"$SUITE_COMPOSE"
    (cd "$root" && COMPOSE_PROGRESS=quiet COMPOSE_IGNORE_ORPHANS=1 "${command[@]}" "$@")
}

containers() { # NAME [OPTION...]: the containers of a service, also exited ones
    docker ps -a --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" \
        --filter "label=com.docker.compose.service=$1" --filter label=com.docker.compose.oneoff=False "${@:2}"
}

environment_of() { # NAME VARIABLE: with which the service was started
    local id line
    id=$(containers "$1" -q | head -n 1)
    while read -r line; do
        if [[ $line == "$2="* ]]; then printf %s "${line#*=}"; fi
    done < <(docker inspect -f '{{range .Config.Env}}{{println .}}{{end}}' "$id")
}

console_in_compose() { # [OPTION...] console ARGUMENT...: the console, where it reaches the services by their names
    if [[ ! (-t 0 && -t 1 && -t 2) ]]; then set -- -T "$@"; fi
    compose run --rm --no-deps "$@"
}

sharing() { # FOLDER: sets options to mount it at the same path, and to write as the user of this script
    local user
    user=$(id -u):$(id -g)
    # There root is the user who runs Docker.
    if [[ $(docker info -f '{{.SecurityOptions}}' 2>/dev/null) == *rootless* ]]; then user=0:0; fi
    options=(--user "$user" --volume "$1:$1")
}
