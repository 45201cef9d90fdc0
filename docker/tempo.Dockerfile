# Tempo with a program that can ask whether it is ready: its own image holds nothing else, not even a shell.
ARG TEMPO_IMAGE=grafana/tempo:2.8.2
ARG BUSYBOX_IMAGE=busybox:1.37.0-musl

FROM ${BUSYBOX_IMAGE} AS busybox

FROM ${TEMPO_IMAGE}
# Which of its programs busybox is, it reads off its name.
COPY --from=busybox /bin/busybox /usr/local/bin/wget
COPY tempo.yml /etc/tempo.yml
CMD ["-config.file=/etc/tempo.yml"]
