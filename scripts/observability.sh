# shellcheck shell=bash
# Sourced after lib.sh: starts Prometheus, Alertmanager, Grafana and the console, on which the suite does not depend. Each
# function returns when the program is ready, and fails with a line that says why when it is not available.

start_console() { # audits continuously, and shows alerts
    local program
    if is_running console; then return; fi
    program=$(program console)
    choose_ports console
    remember CONSOLE_URL "http://127.0.0.1:$CONSOLE_PORT"
    local -x LISTEN=127.0.0.1:$CONSOLE_PORT ADMIN_TOKEN=$ADMIN_TOKEN
    export_addresses
    with_access auditor start_process console "$program" audit --watch --scripts "$root/scripts"
    wait_for console 30 answers console "$CONSOLE_URL/health/live"
}

start_alertmanager() {
    if is_running alertmanager; then return; fi
    need_alertmanager
    choose_ports alertmanager
    remember ALERTMANAGER_URL "http://127.0.0.1:$ALERTMANAGER_PORT"
    mkdir -p "$run/alertmanager"
    filled "$root/docker/alertmanager.yml" console:8085 "127.0.0.1:${CONSOLE_PORT:-8085}" >"$run/alertmanager/alertmanager.yml"
    start_process alertmanager "$alertmanager" --config.file="$run/alertmanager/alertmanager.yml" \
        --storage.path="$run/alertmanager" --cluster.listen-address= --web.listen-address="127.0.0.1:$ALERTMANAGER_PORT"
    wait_for alertmanager 30 answers alertmanager "$ALERTMANAGER_URL/-/ready"
}

start_prometheus() {
    local alerts
    if is_running prometheus; then return; fi
    need_prometheus
    choose_ports prometheus
    remember PROMETHEUS_URL "http://127.0.0.1:$PROMETHEUS_PORT"
    mkdir -p "$run/prometheus/alerts"
    scrape_targets
    for alerts in "$root"/grafana/alerts/*.yml; do
        filled "$alerts" http://127.0.0.1:8085 "${CONSOLE_URL-http://127.0.0.1:8085}" >"$run/prometheus/alerts/${alerts##*/}"
    done
    filled "$root/docker/prometheus/local.yml" @RUN@ "${run//\'/\'\'}" \
        @ALERTMANAGER@ "127.0.0.1:${ALERTMANAGER_PORT:-9093}" >"$run/prometheus/prometheus.yml"
    start_process prometheus "$prometheus" --config.file="$run/prometheus/prometheus.yml" "${prometheus_options[@]}" \
        --storage.tsdb.path="$run/prometheus/data" --storage.tsdb.retention.time=3d \
        --web.listen-address="127.0.0.1:$PROMETHEUS_PORT" --enable-feature=exemplar-storage --log.level=warn
    wait_for prometheus 60 answers prometheus "$PROMETHEUS_URL/-/ready"
}

scrape_targets() { # for Prometheus: the services, their further replicas while they run, and a cluster's members
    local name port list=()
    [[ -d $run/prometheus ]] || return 0
    local services=("${participants[@]}")
    if [[ ${SUITE_CLUSTER-} ]]; then
        services=("${participants[@]/%/-a}" "${participants[@]/%/-b}")
        member_targets >"$run/prometheus/members.new"
        mv "$run/prometheus/members.new" "$run/prometheus/members.json"
    fi
    for name in "${services[@]}" "${participants[@]/%/-2}" "${participants[@]/%/-3}" gateway_simulator console; do
        if [[ $name == *-[23] ]] && ! is_running "$name"; then continue; fi
        port=${name%_simulator}_PORT
        port=${port^^}
        port=${port//-/_}
        if [[ -n ${!port-} ]]; then
            list+=("{\"targets\": [\"127.0.0.1:${!port}\"], \"labels\": {\"job\": \"${name%-[23ab]}\"}}")
        fi
    done
    local IFS=,
    # Moved into place, because Prometheus reads it as soon as it changes.
    printf '[%s]\n' "${list[*]}" >"$run/prometheus/targets.new"
    mv "$run/prometheus/targets.new" "$run/prometheus/targets.json"
}

start_grafana() { # where it is installed; Debian has no package
    local board url
    if is_running grafana; then return; fi
    find_grafana || die "found no Grafana: install it (https://grafana.com/docs/grafana/latest/setup-grafana/installation), or set GRAFANA_HOME"
    choose_ports grafana
    remember GRAFANA_URL "http://127.0.0.1:$GRAFANA_PORT"
    remember_default GRAFANA_ADMIN_PASSWORD "$(make_password)"
    rm -rf "$run/grafana/dashboards"
    mkdir -p "$run/grafana/dashboards"
    for board in "$root"/grafana/dashboards/*.json; do
        filled "$board" http://127.0.0.1:8081 "$ORDER_URL" http://127.0.0.1:8085 "${CONSOLE_URL-http://127.0.0.1:8085}" \
            >"$run/grafana/dashboards/${board##*/}"
    done
    url=$(database_url auditor "$AUDITOR_DB_PASSWORD")
    [[ $url =~ @([^/?]+)/([^?]*) ]] || die "cannot determine the database's address"
    local -x POSTGRES_ADDRESS=${BASH_REMATCH[1]} POSTGRES_DATABASE=${BASH_REMATCH[2]} AUDITOR_DB_PASSWORD=$AUDITOR_DB_PASSWORD
    local -x POSTGRES_SSLMODE=disable
    if [[ ${SUITE_CLUSTER-} ]]; then local -x POSTGRES_SSLMODE=verify-full POSTGRES_CA_FILE=$run/cluster/ca.crt; fi
    local -x PROMETHEUS_URL=${PROMETHEUS_URL-http://127.0.0.1:9090} TEMPO_URL=${TEMPO_URL-http://127.0.0.1:3200}
    local -x DASHBOARDS_DIR=$run/grafana/dashboards GF_SECURITY_ADMIN_PASSWORD=$GRAFANA_ADMIN_PASSWORD
    local -x GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH=$DASHBOARDS_DIR/overview.json
    local -x GF_PATHS_DATA=$run/grafana/data GF_PATHS_LOGS=$run/grafana/log GF_PATHS_PLUGINS=$run/grafana/plugins
    local -x GF_PATHS_PROVISIONING=$root/grafana/provisioning GF_LOG_MODE=console GF_LOG_LEVEL=warn
    local -x GF_SERVER_HTTP_ADDR=127.0.0.1 GF_SERVER_HTTP_PORT=$GRAFANA_PORT
    local -x GF_AUTH_ANONYMOUS_ENABLED=true GF_AUTH_ANONYMOUS_ORG_ROLE=Editor GF_PLUGINS_PREINSTALL_DISABLED=true
    local -x GF_ANALYTICS_REPORTING_ENABLED=false GF_ANALYTICS_CHECK_FOR_UPDATES=false
    local -x GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES=false GF_NEWS_NEWS_FEED_ENABLED=false
    start_process grafana "$grafana" server --homepath "$grafana_home"
    wait_for grafana 60 answers grafana "$GRAFANA_URL/api/health"
}

filled() { # FILE NAME VALUE...: its text with each name replaced by its value
    local text
    text=$(<"$1")
    shift
    while (($#)); do
        text=${text//"$1"/"$2"}
        shift 2
    done
    printf '%s\n' "$text"
}
