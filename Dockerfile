# One static binary, the certificate authorities and one user; nothing else.
#
#   docker buildx build --platform linux/amd64,linux/arm64 -t stream:dev \
#     --build-arg VERSION=1.2.3 --build-arg COMMIT=$(git rev-parse --short=12 HEAD) .
#   docker run --rm --read-only -p 9092:9092 -p 9093:9093 -v stream:/var/lib/stream stream:dev
#
# test/deploy builds the image from this file without a daemon and runs it.

ARG GO_VERSION=1.26.8
ARG VERSION=devel
ARG COMMIT=unknown

# Go compiles for other platforms by itself: the stage runs on the builder's.
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION}-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
ARG COMMIT
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" -o /out/usr/bin/stream .
RUN ln -s stream /out/usr/bin/hanzo-stream \
    && mkdir -p /out/etc/ssl/certs /out/usr/share/doc/stream /out/var/lib /empty \
    && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ \
    && cp LICENSE /out/usr/share/doc/stream/ \
    && echo 'stream:x:65532:65532:stream:/var/lib/stream:/sbin/nologin' > /out/etc/passwd \
    && echo 'stream:x:65532:' > /out/etc/group

FROM scratch
ARG VERSION
ARG COMMIT
LABEL org.opencontainers.image.title="stream" \
      org.opencontainers.image.description="A Kafka server that stores everything in NATS JetStream" \
      org.opencontainers.image.source="https://github.com/hanzoai/stream" \
      org.opencontainers.image.documentation="https://github.com/hanzoai/stream/tree/main/docs" \
      org.opencontainers.image.vendor="Hanzo AI" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"
COPY --from=build /out/ /
# A new named volume takes over this owner.
COPY --from=build --chown=65532:65532 /empty/ /var/lib/stream/
# The folder of the embedded NATS server is stream in $XDG_DATA_HOME. It is the
# only place that is ever written to, and only without --pubsub-url.
ENV XDG_DATA_HOME=/var/lib TMPDIR=/var/lib/stream
VOLUME /var/lib/stream
USER 65532:65532
EXPOSE 9092 9093
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/stream"]
