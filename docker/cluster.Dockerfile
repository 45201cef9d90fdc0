# The images of docker-compose.cluster.yml: `etcd`, `patroni` (PostgreSQL with Patroni) and `haproxy`.
ARG BUSYBOX_IMAGE=busybox:1.37.0-musl
ARG ETCD_IMAGE=quay.io/coreos/etcd:v3.5.25
ARG HAPROXY_IMAGE=haproxy:3.2.6-alpine
ARG CLUSTER_POSTGRES_IMAGE=postgres:17.6-trixie

# A new volume gets the owner of the folder it is mounted on, and etcd's image has no shell to make one.
FROM ${BUSYBOX_IMAGE} AS folder
RUN mkdir -m 700 /data

FROM ${ETCD_IMAGE} AS etcd
COPY --from=folder --chown=10001:10001 /data /data
USER 10001:10001

FROM ${CLUSTER_POSTGRES_IMAGE} AS patroni
# Debian's Patroni, not the newest one of PostgreSQL's own archive: within a release of Debian it gets only fixes.
RUN rm -f /etc/apt/sources.list.d/pgdg.* \
    && apt-get update \
    && apt-get install -y --no-install-recommends patroni python3-etcd \
    && rm -rf /var/lib/apt/lists/*
COPY patroni.yml /etc/patroni.yml
USER postgres
ENTRYPOINT ["patroni"]
CMD ["/etc/patroni.yml"]

FROM ${HAPROXY_IMAGE} AS haproxy
COPY haproxy/ /etc/haproxy/
USER haproxy
