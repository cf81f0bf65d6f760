#!/usr/bin/env bash
# The servers that tests, development and docker-compose.yml use, defined once.
#
#   topology.sh KIND              starts all servers of a kind, stays until it is ended, and ends them
#   topology.sh node KIND INDEX   becomes one of them, so that a test can kill, freeze and restart it
#   topology.sh join KIND         once all of them run: makes one whole of them
#   topology.sh ready KIND        whether they are ready for use; if not, says why
#   topology.sh version KIND      what each of them says it is: "Redis 7.0.15", a line for each
#
# KIND, with the INDEX of each server:
#   single     0  one server, no login
#   tls        0  one server, TLS only, users as below
#   sentinel   0  the primary "main"; 1, 2 its replicas; 3, 4, 5 sentinels; users as below
#   cluster    0-5  three primaries, each with a replica, no login
#
# users        locks/lock-secret: what an application may do; admin/admin-secret: everything
# sentinels    password sentinel-secret
#
# environment
#   TOPOLOGY_PORT      server INDEX listens on TOPOLOGY_PORT + INDEX, in a cluster on 10000 above that as well.
#                      A range, "7100-7105", counts by its first number
#   TOPOLOGY_DIR       where each server has its directory (default: the current one)
#   TOPOLOGY_BIND      what they listen on (default 127.0.0.1). They are known to each other as 127.0.0.1
#   TOPOLOGY_CERTS     directory with ca.crt, server.crt, server.key: with it every server speaks TLS only
#   TOPOLOGY_CONFIG    more lines for the configuration of each server that holds data
#   TOPOLOGY_DOWN_AFTER, TOPOLOGY_NODE_TIMEOUT
#                      after so many ms a silent node is failed over, in a sentinel set (default 1000) and a cluster (1000)
#   REDIS_SERVER, REDIS_CLI
#                      the programs: redis-server and redis-cli, or Valkey's. Without REDIS_CLI the one beside the server
#
# Runs in the image redis:7: bash, coreutils, redis-server and redis-cli are all that it needs.
set -euo pipefail

port=${TOPOLOGY_PORT:-6379}
port=${port%%-*}
dir=${TOPOLOGY_DIR:-.}
bind=${TOPOLOGY_BIND:-127.0.0.1}
certs=${TOPOLOGY_CERTS:-}
server=${REDIS_SERVER:-redis-server}
cli=${REDIS_CLI:-}
# The client beside the server is of its version; valkey-server may have no redis-cli beside it.
for beside in redis-cli valkey-cli; do
  if [ -z "$cli" ] && [ "$server" != "${server%/*}" ] && [ -x "${server%/*}/$beside" ]; then cli=${server%/*}/$beside; fi
done
cli=${cli:-redis-cli}

die() { echo "topology.sh: $*" >&2; exit 1; }

# servers KIND: how many it has.
servers() {
  case $1 in
    single | tls) echo 1 ;;
    sentinel | cluster) echo 6 ;;
    *) die "no such kind: $1" ;;
  esac
}

is_sentinel() { [ "$1" = sentinel ] && [ "$2" -ge 3 ]; }

# ask KIND INDEX COMMAND...: an answer of that server.
ask() {
  local kind=$1 index=$2 login=() tls=()
  shift 2
  if is_sentinel "$kind" "$index"; then
    login=(-a sentinel-secret)
  elif [ "$kind" = sentinel ] || [ "$kind" = tls ]; then
    login=(--user admin -a admin-secret)
  fi
  [ -z "$certs" ] || tls=(--tls --cacert "$certs/ca.crt")
  "$cli" -h 127.0.0.1 -p $((port + index)) "${tls[@]}" "${login[@]}" --no-auth-warning "$@" 2>&1 | tr -d '\r'
}

# ---- configurations

listen() {
  local own=$1
  echo "bind $bind"
  echo "protected-mode no"
  echo "daemonize no"
  echo "dir $2"
  if [ -z "$certs" ]; then
    echo "port $own"
    return
  fi
  cat <<END
port 0
tls-port $own
tls-cert-file $certs/server.crt
tls-key-file $certs/server.key
tls-ca-cert-file $certs/ca.crt
tls-auth-clients optional
tls-replication yes
END
}

# What every server that holds data has: nothing is kept unless TOPOLOGY_CONFIG says so.
data() {
  cat <<END
save ""
appendonly no
repl-diskless-sync yes
repl-diskless-sync-delay 0
repl-ping-replica-period 1
${TOPOLOGY_CONFIG:-}
END
}

users() {
  # Nobody can log in as "default", but Redis 7.0 loads its append-only file as that user, and without these
  # permissions leaves out what scripts wrote.
  cat <<END
user default off ~* &* +@all
user admin on >admin-secret ~* &* +@all
user locks on >lock-secret ~* &* +@all -@admin -@dangerous +info +role
user replica on >replica-secret +psync +replconf +ping
user watcher on >watcher-secret &* +multi +exec +slaveof +ping +subscribe +publish +config|rewrite +role +info +client|setname +client|kill +script|kill
masteruser replica
masterauth replica-secret
END
}

sentinel() {
  cat <<END
requirepass sentinel-secret
sentinel announce-ip 127.0.0.1
sentinel announce-port $1
sentinel monitor main 127.0.0.1 $port 2
sentinel auth-user main watcher
sentinel auth-pass main watcher-secret
sentinel down-after-milliseconds main ${TOPOLOGY_DOWN_AFTER:-1000}
sentinel failover-timeout main 10000
sentinel parallel-syncs main 2
END
}

cluster() {
  cat <<END
cluster-enabled yes
cluster-config-file nodes.conf
cluster-node-timeout ${TOPOLOGY_NODE_TIMEOUT:-1000}
cluster-require-full-coverage no
cluster-allow-replica-migration no
cluster-announce-ip 127.0.0.1
END
  [ -z "$certs" ] || echo "tls-cluster yes"
}

# configuration KIND INDEX DIRECTORY
configuration() {
  local kind=$1 index=$2 own=$((port + index))
  listen "$own" "$3"
  if is_sentinel "$kind" "$index"; then
    sentinel "$own"
    return
  fi
  data
  case $kind in
    tls) users ;;
    sentinel)
      users
      echo "replica-announce-ip 127.0.0.1"
      [ "$index" -eq 0 ] || echo "replicaof 127.0.0.1 $port"
      ;;
    cluster) cluster ;;
  esac
}

# Becomes the server. It keeps its configuration from an earlier start: sentinels rewrite it at a failover.
node() {
  local kind=$1 index=$2 own
  [ "$index" -lt "$(servers "$kind")" ] || die "$kind has no server $index"
  [ "$kind" != tls ] || [ -n "$certs" ] || die "kind tls needs TOPOLOGY_CERTS"
  if [ -n "$certs" ] && ! [ -r "$certs/server.key" ]; then
    die "no server.key in $certs; make certificates by: cargo xtask certs target/certs"
  fi
  mkdir -p "$dir/$index"
  own=$(cd "$dir/$index" && pwd)
  if ! [ -e "$own/server.conf" ]; then
    # A sentinel that comes too early learns of the replicas only after ten seconds.
    if is_sentinel "$kind" "$index"; then until in_step >/dev/null; do sleep 0.1; done; fi
    configuration "$kind" "$index" "$own" >"$own/server.conf"
  fi
  if is_sentinel "$kind" "$index"; then
    exec "$server" "$own/server.conf" --sentinel
  fi
  exec "$server" "$own/server.conf"
}

# ---- readiness

not() { echo "$*"; return 1; }

answers() { [ "$(ask "$1" "$2" ping)" = PONG ] || not "server $2 does not answer"; }

# has TEXT LINE: whether a line of the text is this one.
has() { [[ $'\n'$1$'\n' == *$'\n'$2$'\n'* ]]; }

in_step() {
  local index
  has "$(ask sentinel 0 info replication)" connected_slaves:2 || not "the primary does not have two replicas" || return
  for index in 1 2; do
    has "$(ask sentinel $index info replication)" master_link_status:up || not "replica $index is not in step" || return
  done
}

sentinel_ready() {
  local index state wanted
  in_step || return
  for index in 3 4 5; do
    state=$(ask sentinel $index sentinel master main)
    for wanted in $'flags\nmaster' $'num-slaves\n2' $'num-other-sentinels\n2'; do
      has "$state" "$wanted" || not "sentinel $index does not know all" || return
    done
  done
}

cluster_ready() {
  local index state
  for index in 0 1 2 3 4 5; do
    state=$(ask cluster $index cluster info)
    has "$state" cluster_state:ok && has "$state" cluster_slots_assigned:16384 && has "$state" cluster_known_nodes:6 \
      || not "node $index does not know all" || return
    state=$(ask cluster $index info replication)
    has "$state" role:master && has "$state" connected_slaves:1 || has "$state" master_link_status:up \
      || not "node $index is not in step" || return
  done
}

ready() {
  local index
  for index in $(seq 0 $(($(servers "$1") - 1))); do
    answers "$1" "$index" || return
  done
  case $1 in
    sentinel) sentinel_ready ;;
    cluster) cluster_ready ;;
  esac
}

# version KIND: by what INFO says of each. Valkey's redis_version is the Redis that it is compatible with.
version() {
  local index info name
  for index in $(seq 0 $(($(servers "$1") - 1))); do
    info=$(ask "$1" "$index" info server)
    name=$(sed -n 's/^valkey_version:/Valkey /p' <<<"$info")
    [ -n "$name" ] || name=$(sed -n 's/^redis_version:/Redis /p' <<<"$info")
    echo "${name:-unknown}"
  done
}

join() {
  [ "$1" = cluster ] || return 0
  ! has "$(ask cluster 0 cluster info)" cluster_slots_assigned:16384 || return 0
  local index nodes=()
  for index in 0 1 2 3 4 5; do
    nodes+=("127.0.0.1:$((port + index))")
  done
  ask cluster 0 --cluster create "${nodes[@]}" --cluster-replicas 1 --cluster-yes >/dev/null
}

# ---- all together

all() {
  local kind=$1 index last pids=()
  last=$(($(servers "$kind") - 1))
  # Without CONT a frozen server would not end.
  trap 'trap - EXIT; for pid in "${pids[@]}"; do kill -CONT "$pid"; kill "$pid"; done 2>/dev/null; wait; exit 0' INT TERM HUP
  trap 'for pid in "${pids[@]}"; do kill -9 "$pid"; done 2>/dev/null' EXIT
  for index in $(seq 0 $last); do
    node "$kind" "$index" &
    pids+=($!)
  done
  for index in $(seq 0 $last); do
    until answers "$kind" "$index" >/dev/null; do
      kill -0 "${pids[index]}" 2>/dev/null || die "server $index of $kind has ended"
      sleep 0.1
    done
  done
  join "$kind"
  # Ends by a signal, or with the last server.
  wait
}

case ${1:-} in
  node) [ $# -eq 3 ] || die "usage: topology.sh node KIND INDEX"; node "$2" "$3" ;;
  join) [ $# -eq 2 ] || die "usage: topology.sh join KIND"; join "$2" ;;
  ready) [ $# -eq 2 ] || die "usage: topology.sh ready KIND"; ready "$2" ;;
  version) [ $# -eq 2 ] || die "usage: topology.sh version KIND"; version "$2" ;;
  single | tls | sentinel | cluster) mkdir -p "$dir"; all "$1" ;;
  *) die "usage: topology.sh single|tls|sentinel|cluster, or node|join|ready|version; see its head" ;;
esac
