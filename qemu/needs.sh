# Sourced by the scripts that set things up. The caller defines `me` (its name) and `fail MESSAGE`.
# shellcheck shell=sh

# Makes sure that a program is there: $1 is its name, the rest the Debian packages that have it.
need() {
    program=$1
    shift
    command -v "$program" >/dev/null 2>&1 && return
    install="apt-get install -y --no-install-recommends $*"
    command -v apt-get >/dev/null 2>&1 || fail "$program is missing; install it with your system's package manager"
    [ "$(id -u)" = 0 ] || fail "$program is missing; as root, run: apt-get update && $install"
    printf '%s: installing %s\n' "$me" "$*" >&2
    { apt-get update && DEBIAN_FRONTEND=noninteractive $install; } >&2 </dev/null || fail "could not install $*"
}

# Makes sure that cargo is there, also where only Rust's own installer has been.
need_cargo() {
    command -v cargo >/dev/null 2>&1 && return
    PATH=$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin
    command -v cargo >/dev/null 2>&1 || fail "cargo is missing; install Rust, see https://rustup.rs"
}
