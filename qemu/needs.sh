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

# Builds with cargo, all of whose words are given. Whoever looks on sees how far it is; files and pipes get errors alone.
build() {
    quiet=--quiet
    [ -t 2 ] && quiet=
    # shellcheck disable=SC2086 # one word, or none
    cargo "$@" $quiet --manifest-path "$root/Cargo.toml" >&2 </dev/null || fail "the build failed"
}

# Says so before the first build, which is long: $1 is what it makes, $2 how long that takes.
tell_build() {
    [ -e "$1" ] || printf '%s: building, which takes %s the first time\n' "$me" "$2" >&2
}

# Whether the words ask for help, or for the version, and nothing else has to be there for it.
asks_for_help() {
    for word in "$@"; do
        case $word in
        --) return 1 ;;
        -h | --help | -V | --version) return 0 ;;
        esac
    done
    return 1
}

# After a library went into a folder ($1 its file's name, $2 the folder): programs shall find it there, or their users be
# told what to set. Nothing where it is for another root.
publish() {
    [ -z "${DESTDIR:-}" ] || return 0
    ldconfig=$(PATH=$PATH:/sbin:/usr/sbin command -v ldconfig) || return 0
    [ "$(id -u)" != 0 ] || "$ldconfig" || true
    "$ldconfig" -p | grep -q "$2/$1\$" && return
    printf '%s: %s is not where the system looks for libraries; to build and run programs with it:\n' "$me" "$2" >&2
    printf '    export PKG_CONFIG_PATH=%s/pkgconfig LD_LIBRARY_PATH=%s\n' "$2" "$2" >&2
}

# Makes sure that cargo is there, also where only Rust's own installer has been.
need_cargo() {
    command -v cargo >/dev/null 2>&1 && return
    PATH=$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin
    command -v cargo >/dev/null 2>&1 || fail "cargo is missing; install Rust, see https://rustup.rs"
}
