# Private ssh servers on loopback, sourced by tests that have `work` and the array `started` of process ids.
has_ssh() { # name of the test: false, with a skip, if no server can be started
    sshd=$(PATH=$PATH:/usr/sbin command -v sshd) && command -v ssh ssh-keygen >/dev/null && return
    sshd=
    skip "$1" "no ssh client and server here"
    return 1
}
# Starts a server that the key $work/key may enter, until $work/keys says otherwise. Sets `port` and `server_id`. Clients
# know it as NAME, and their configuration needs $own_ssh.
start_ssh_server() { # name, lines of the server's configuration
    local try log=$work/$1.log
    [ "$(id -u)" != 0 ] || mkdir -p /run/sshd
    if ! [ -e "$work/key" ]; then
        ssh-keygen -q -t ed25519 -N '' -f "$work/key" && cp "$work/key.pub" "$work/keys" || return
        own_ssh=$(printf '  %s\n' "User $(id -un)" "IdentitiesOnly yes" "IdentityAgent none" "UserKnownHostsFile $work/known")
    fi
    ssh-keygen -q -t ed25519 -N '' -f "$work/$1.host" || return
    for try in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 10000))
        cat >"$work/$1.sshd" <<X
HostKey $work/$1.host
AuthorizedKeysFile $work/keys
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PidFile none
ListenAddress 127.0.0.1:$port
${2:-}
X
        "$sshd" -D -e -f "$work/$1.sshd" 2>"$log" &
        server_id=$!
        until_true 10 'grep -qs "Server listening" "$log" || ! [ -e /proc/$server_id ]'
        grep -qs "Server listening" "$log" && break
    done
    started+=($server_id)
    echo "$1 $(cut -d' ' -f1,2 "$work/$1.host.pub")" >>"$work/known"
}
