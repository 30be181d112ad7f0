//! Ranks on other hosts.

use std::process::{Command, Stdio};

use uvia_tools::{Failure, Tied};

use crate::program;

/// Starts the rest of its words, in a process group of their own, and ends that when its standard input ends: a remote shell
/// whose client is gone leaves what it has started. The watcher holds no output, so that the remote shell ends with the rank.
const WATCHED: &str = "command -v setsid >/dev/null && set -- setsid \"$@\"; \
    exec 3<&0; \"$@\" 3<&- </dev/null & rank=$!; \
    { cat >/dev/null; kill -TERM -$rank $rank; sleep 2; kill -KILL -$rank $rank; } <&3 3<&- >/dev/null 2>&1 & watcher=$!; \
    exec 3<&-; wait $rank; status=$?; kill $watcher 2>/dev/null; exit $status";

/// Whether a host is this one.
pub fn is_here(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "")
}

/// What starts a program on another host.
///
/// # Errors
/// There is no remote shell.
pub fn command(
    remote_shell: &str,
    host: &str,
    set: &[(&str, String)],
    command: &[String],
) -> Result<Command, Failure> {
    let mut words = remote_shell.split_whitespace();
    let shell = words.next().ok_or_else(|| Failure::usage("--remote-shell names no program"))?;
    // The shell there gets one line, in which each word is quoted.
    let variables = set.iter().map(|(name, value)| format!("{name}={value}"));
    let line = ["exec", "env"].map(str::to_owned).into_iter();
    let line = line.chain(variables.map(|word| quoted(&word)));
    let line = line.chain(["sh", "-c"].map(str::to_owned)).chain([quoted(WATCHED), "uvia-launch".to_owned()]);
    let line: Vec<_> = line.chain(command.iter().map(|word| quoted(word))).collect();
    let mut process = tied(shell)?;
    process.args(words).arg(host).arg(line.join(" ")).stdin(Stdio::piped());
    Ok(process)
}

/// A program that is ended with the launcher.
///
/// # Errors
/// There is no such program; or the system does not tell where the launcher's own is.
pub fn tied(program: &str) -> Result<Command, Failure> {
    program::check(program)?;
    Ok(Tied::command(program)?)
}

/// A word as a shell takes it for one.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words() {
        let word = "it's a \"test\" of $HOME \\ `x`\nand more";
        let output =
            Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted(word))).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
    }
}
