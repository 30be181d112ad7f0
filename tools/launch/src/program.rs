//! Whether a program can be started, looked for before it is: each rank would say by itself that it cannot.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use uvia_tools::Failure;

/// Where programs are looked for without PATH, as execvp(3) does.
const USUAL: &str = "/bin:/usr/bin";

/// Refuses what is no program here.
///
/// # Errors
/// Nothing of that name is there, or nothing that may be executed.
pub fn check(program: &str) -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from(USUAL));
    // What names a folder is looked for there alone.
    let places: Vec<_> = match program.contains('/') {
        true => vec![Path::new(program).to_owned()],
        false => std::env::split_paths(&path).map(|folder| folder.join(program)).collect(),
    };
    let files: Vec<_> =
        places.iter().filter_map(|place| place.metadata().ok()).filter(|it| it.is_file()).collect();
    if files.iter().any(|file| file.permissions().mode() & 0o111 != 0) {
        return Ok(());
    }
    let why = if files.is_empty() { "there is no such program here" } else { "it may not be executed" };
    Err(Failure::failed(format!("{program}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_started_is_found_as_execvp_finds_it() {
        for there in ["sh", "/bin/sh"] {
            check(there).unwrap();
        }
        for (program, says) in [
            ("no-such-program-anywhere", "no such program"),
            ("/nonexistent/sh", "no such program"),
            ("/bin", "no such program"),
            ("/dev/null", "no such program"),
            ("/etc/passwd", "may not be executed"),
        ] {
            let Err(Failure::Failed(why)) = check(program) else { panic!("{program}") };
            assert!(why.starts_with(program) && why.contains(says), "{why}");
        }
    }
}
