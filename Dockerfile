# Two images: `broker`, nats-server with the suite's users, and `suite`, with all programs of the suite.
ARG NATS_IMAGE=nats:2.12.1-alpine
ARG RUST_IMAGE=rust:1.95.0-slim-bookworm
ARG RUNTIME_IMAGE=debian:bookworm-slim

FROM ${NATS_IMAGE} AS broker
# A new volume gets the owner of the folder it is mounted on.
RUN mkdir /data && chown 10001:10001 /data
COPY docker/nats.conf /etc/nats/nats.conf
COPY docker/nats-cluster.conf /etc/nats/cluster.conf
USER 10001:10001
ENV NATS_STORE_DIR=/data
ENTRYPOINT ["nats-server"]
CMD ["-c", "/etc/nats/nats.conf", "-p", "4222", "-m", "8222"]

FROM ${RUST_IMAGE} AS build
# The demonstration's image contains fault injection. An empty argument builds programs without it.
ARG SUITE_FEATURES=faults
# A profile of Cargo.toml: `demo` builds quickly, `release` runs fastest.
ARG SUITE_PROFILE=release
WORKDIR /suite
COPY . .
# The caches make a second build as quick as one outside of Docker.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/suite/target \
    SQLX_OFFLINE=true cargo build --locked --profile "$SUITE_PROFILE" --bins --features "$SUITE_FEATURES" \
        $(sed '/^#/d; s/\t.*//; s/^/-p /' shared/contracts/participants.tsv) -p gateway_simulator -p provision -p console \
    && mkdir /programs \
    && find "target/$SUITE_PROFILE" -maxdepth 1 -type f -executable -exec cp {} /programs/ \;

FROM ${RUNTIME_IMAGE} AS suite
COPY --from=build /programs/ /usr/local/bin/
RUN mkdir /var/lib/gateway && chown 10001:10001 /var/lib/gateway
USER 10001:10001
