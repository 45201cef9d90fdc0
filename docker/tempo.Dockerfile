# Tempo with a program for its health check: its own image holds nothing else, not even a shell.
ARG TEMPO_IMAGE=grafana/tempo:2.8.2
ARG BUSYBOX_IMAGE=busybox:1.37.0-musl

FROM ${BUSYBOX_IMAGE} AS busybox

FROM ${TEMPO_IMAGE}
# Busybox chooses its program by its own name.
COPY --from=busybox /bin/busybox /usr/local/bin/wget
COPY tempo.yml /etc/tempo.yml
CMD ["-config.file=/etc/tempo.yml"]
