# The images of docker-compose.cluster.yml: `etcd`, `patroni` (PostgreSQL under Patroni) and `haproxy`. The programs are Debian's
# packages, as with ./scripts/up --cluster: etcd 3.4, Patroni 3.0, HAProxy 2.6.
ARG RUNTIME_IMAGE=debian:bookworm-slim

FROM ${RUNTIME_IMAGE} AS etcd
RUN apt-get update \
    && apt-get install -y --no-install-recommends etcd-client etcd-server \
    && rm -rf /var/lib/apt/lists/*
# A new volume gets the owner of the folder it is mounted on.
RUN mkdir -m 700 /data && chown 10001:10001 /data
USER 10001:10001
ENTRYPOINT ["etcd"]

FROM ${RUNTIME_IMAGE} AS patroni
# The package would create a database of its own.
RUN mkdir -p /etc/postgresql-common/createcluster.d \
    && echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/none.conf \
    && apt-get update \
    && apt-get install -y --no-install-recommends patroni postgresql-15 python3-etcd \
    && rm -rf /var/lib/apt/lists/*
# The second is memory, which gets the folder's mode, and root as its owner.
RUN install -d -m 700 -o postgres -g postgres /var/lib/postgresql/data \
    && install -d -m 3777 /var/run/postgresql
COPY docker/patroni/ /etc/suite/
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PATRONICTL_CONFIG_FILE=/etc/suite
USER postgres
ENTRYPOINT ["patroni", "/etc/suite"]

FROM ${RUNTIME_IMAGE} AS haproxy
RUN apt-get update \
    && apt-get install -y --no-install-recommends haproxy wget \
    && rm -rf /var/lib/apt/lists/*
COPY docker/haproxy/ shared/contracts/participants.tsv /etc/haproxy/
# The proxies of the container `front`, with room for four replicas each.
RUN awk '!/^#/ { printf "listen %s from replicas\n    bind :%s\n    server-template %s- 4 %s.replicas:%s check\n", $1, $4, $1, $1, $4 }' \
    /etc/haproxy/participants.tsv >/etc/haproxy/front.cfg
ENV WATCH=:8404 BY_NAME=1
USER haproxy
ENTRYPOINT ["haproxy", "-db", "-f", "/etc/haproxy/common.cfg", "-f"]
