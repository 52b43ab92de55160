#!/usr/bin/env bash
# Installs what the tests need that is not Go, into .cache of the checkout:
#
#   .cache/kafka    Apache Kafka's tools, broker and Connect, through Maven
#   .cache/python   a virtual environment with Python clients
#   .cache/node     Node clients, and a Node that is new enough for them
#   .cache/java-*   two lines of the Java client and Kafka Streams, through Maven
#   .cache/rust     a program on a Rust client, and the client's own tests
#   kcat            Debian's package, where this runs as root
#
# and downloads the Go modules. Each step is done once per content of its
# manifest. A step that cannot be done is named at the end; with CI=true that is
# a failure, else its suite is skipped.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/test/e2e
cache=$root/.cache
mkdir -p "$cache"
missing=()

# try NAME COMMAND...: runs a step, shows its output only if it fails.
try() {
	local name=$1 log
	shift
	log=$(mktemp)
	if "$@" >"$log" 2>&1; then
		echo "setup: $name: ready"
	else
		tail -n 30 "$log"
		missing+=("$name: $(tail -n 1 "$log")")
	fi
	rm -f "$log"
}

need() {
	command -v "$1" >/dev/null || { echo "no $1 on this machine: $2"; return 1; }
}

# folder NAME MANIFEST...: prints the folder of a manifest's content.
folder() {
	local name=$1
	shift
	echo "$cache/$name-$(cat "$@" | sha256sum | cut -c1-16)"
}

# publish FOLDER NAME: makes a finished folder known to the tests.
publish() {
	touch "$1/.done" && ln -sfn "$(basename "$1")" "$cache/$2"
}

install_modules() {
	(cd "$root" && go mod download) && (cd "$here" && go mod download)
}

install_kafka() {
	if [ -n "${KAFKA_BIN_DIR:-}" ]; then
		[ -x "$KAFKA_BIN_DIR/kafka-topics.sh" ] || { echo "KAFKA_BIN_DIR=$KAFKA_BIN_DIR has no kafka-topics.sh"; return 1; }
		need java "install a JDK, 17 or newer"
		return
	fi
	local dir
	dir=$(folder kafka "$here/kafka/pom.xml")
	need java "install a JDK, 17 or newer" || return
	if [ ! -e "$dir/.done" ]; then
		need mvn "install Maven, or set KAFKA_BIN_DIR to the bin folder of Apache Kafka" || return
		rm -rf "$dir"
		mvn -q -B -f "$here/kafka/pom.xml" dependency:copy-dependencies -DoutputDirectory="$dir/libs" || return
	fi
	publish "$dir" kafka
	archive_kafka "$dir"
}

# archive_kafka FOLDER: what Java knows of the tools' classes once they are loaded
# (see java/Archive.java), per version of Java. It counts for the path by which the
# tests name the jars. Without it tools only start slower.
archive_kafka() {
	local name
	name=tools-$(cat "$here/java/Archive.java" <(java -version 2>&1) | sha256sum | cut -c1-16).jsa
	if [ ! -e "$1/$name" ]; then
		rm -f "$1"/tools*.jsa
		java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xlog:disable -XX:ArchiveClassesAtExit="$1/new.jsa" \
			-cp "$cache/kafka/libs/*" "$here/java/Archive.java" >"$1/archive.log" 2>&1 &&
			mv "$1/new.jsa" "$1/$name" || return 0
	fi
	ln -sfn "$name" "$1/tools.jsa"
}

install_python() {
	local dir
	dir=$(folder python "$here/python/requirements.txt" <(python3 --version 2>&1))
	if [ ! -e "$dir/.done" ]; then
		need python3 "install Python 3.11 or newer with its venv module" || return
		rm -rf "$dir"
		if ! python3 -m venv "$dir"; then
			root_apt python3-venv && rm -rf "$dir" && python3 -m venv "$dir" || return
		fi
		"$dir/bin/pip" install -q --disable-pip-version-check -r "$here/python/requirements.txt" || return
	fi
	publish "$dir" python
}

install_node() {
	local dir
	dir=$(folder node "$here/node/package.json")
	if [ ! -e "$dir/.done" ]; then
		need npm "install Node 20 or newer with npm" || return
		rm -rf "$dir" && mkdir -p "$dir" && cp "$here/node/package.json" "$dir/" || return
		npm install --prefix "$dir" --no-package-lock --no-audit --no-fund --loglevel=error || return
	fi
	publish "$dir" node
}

# install_java NAME SOURCE...: the libraries of java/NAME/pom.xml, and the program
# on them.
install_java() {
	local name=$1 dir
	shift
	local sources=("${@/#/$here/java/}") pom=$here/java/$name/pom.xml
	dir=$(folder "java-$name" "$pom" "${sources[@]}")
	need javac "install a JDK, 17 or newer" || return
	if [ ! -e "$dir/.done" ]; then
		need mvn "install Maven" || return
		rm -rf "$dir"
		mvn -q -B -f "$pom" dependency:copy-dependencies -DoutputDirectory="$dir/libs" &&
			javac --release 11 -nowarn -d "$dir/classes" -cp "$dir/libs/*" "${sources[@]}" || return
	fi
	publish "$dir" "java-$name"
}

# install_rust builds what Cargo.lock pins: the program on rskafka, which is told
# its version, and rskafka's own tests, with what is in rust/tests in the place of
# two of their files.
install_rust() {
	local source=$here/rust dir version manifest test
	dir=$(folder rust "$source/Cargo.toml" "$source/Cargo.lock" "$source"/*.rs "$source"/tests/*.rs)
	need cargo "install Rust 1.85 or newer" || return
	if [ ! -e "$dir/.done" ]; then
		version=$(grep -A1 '^name = "rskafka"$' "$source/Cargo.lock" | sed -n 's/^version = "\(.*\)"/\1/p')
		rm -rf "$dir" && mkdir -p "$dir/source/tests" && cp "$source"/Cargo.* "$source"/*.rs "$dir/source/" || return
		manifest=$(cargo metadata -q --locked --format-version 1 --manifest-path "$dir/source/Cargo.toml" |
			grep -o '"manifest_path":"[^"]*/rskafka-'"$version"'/Cargo.toml"' | cut -d '"' -f 4)
		cp "$(dirname "$manifest")"/tests/*.rs "$dir/source/tests/" && cp "$source"/tests/*.rs "$dir/source/tests/" || return
		RSKAFKA_VERSION=$version cargo build -q --locked --manifest-path "$dir/source/Cargo.toml" --target-dir "$dir/target" \
			--bin rskafka --test client --test consumer --test produce_consume --test producer || return
		mv "$dir/target/debug/rskafka" "$dir/" || return
		for test in client consumer produce_consume producer; do
			mv "$(find "$dir/target/debug/deps" -maxdepth 1 -type f -perm -u+x -name "$test-*")" "$dir/$test" || return
		done
		rm -rf "$dir/source" "$dir/target"
	fi
	publish "$dir" rust
}

# root_apt PACKAGE...: installs Debian packages where that is possible.
root_apt() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "install the package $*: this is not root on Debian"; return 1; }
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

install_kcat() {
	command -v kcat >/dev/null || root_apt kcat
}

# confluent-kafka-go has librdkafka inside and needs a C compiler.
install_compiler() {
	command -v gcc >/dev/null || command -v cc >/dev/null || root_apt gcc libc6-dev
}

try "Go modules" install_modules
try "C compiler" install_compiler
try "Kafka tools" install_kafka
try "Python clients" install_python
try "Node clients" install_node
try "Java client 4.3" install_java 4.3 Client.java 4.3/Line.java SchemaStore.java
try "Java client 2.1" install_java 2.1 Client.java 2.1/Line.java
try "Kafka Streams" install_java streams streams/WordCount.java
try "Rust client" install_rust
try "kcat" install_kcat

printf '%s\n' ${missing[@]+"${missing[@]}"} >"$cache/missing"
if [ ${#missing[@]} -gt 0 ]; then
	printf 'setup: MISSING %s\n' "${missing[@]}"
	[ "${CI:-}" != true ] || exit 1
fi
