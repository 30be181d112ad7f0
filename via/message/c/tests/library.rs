//! The library as C programs see it: the header in every dialect, what is exported, what is installed, and calls that make
//! no sense.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

// What is linked is its static library, which is built with it.
use madeleine as _;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command to its end, which has to be a good one; answers what it printed.
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{errors}", output.status);
    text
}

fn has(command: &str) -> bool {
    Command::new(command).arg("--version").stdout(Stdio::null()).status().is_ok()
}

/// The static library that was built with this program.
fn static_library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let found = std::fs::read_dir(program.parent().unwrap()).unwrap().flatten().filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("libmadeleine-") && name.ends_with(".a")
    });
    // Others may be left from before.
    found.max_by_key(|entry| entry.metadata().and_then(|about| about.modified()).unwrap()).unwrap().path()
}

/// A folder with libmadeleine.so, made once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("madeleine");
        std::fs::create_dir_all(&to).unwrap();
        run(Command::new(folder().join("link")).arg(static_library()).arg(&to));
        to
    })
}

/// Builds a program of tests/c, with every warning an error.
fn program(name: &str) -> PathBuf {
    let to = library().join(name);
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-pedantic", "-Werror"]);
    command.arg("-I").arg(folder().join("include")).arg(folder().join(format!("tests/c/{name}.c")));
    run(command.arg("-o").arg(&to).arg("-L").arg(library()).args(["-lmadeleine", "-lpthread"]));
    to
}

/// Starts a rank of a session of two, whose ranks find each other by its description alone.
fn rank(mut command: Command, name: &str, rank: usize, libraries: &Path) -> Child {
    let name = format!("madeleine-{name}-{}", std::process::id());
    let session =
        format!("name = \"{name}\"\nranks = 2\npatience = 120\n[[rail]]\nname = \"a\"\nport = \"shared\"\n");
    command.env("UVIA_SESSION", session).env("UVIA_RANK", rank.to_string()).env_remove("UVIA_LAUNCHER");
    command.env("LD_LIBRARY_PATH", libraries).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn finish(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{text}", output.status);
    text
}

/// Runs a program as both ranks; answers what they printed.
fn both(program: &Path, words: &[&str], name: &str, libraries: &Path) -> [String; 2] {
    let children = [0, 1].map(|number| {
        let mut command = Command::new(program);
        command.args(words);
        rank(command, name, number, libraries)
    });
    children.map(finish)
}

#[test]
fn the_header_is_clean_in_every_dialect() {
    let source = folder().join("tests/c/layout.c");
    let c = ["c89", "c99", "c11", "c17", "c2x"];
    let cpp = ["c++98", "c++11", "c++14", "c++17", "c++20", "c++2b"];
    let mut compilers = vec![("gcc", &c[..], "c"), ("g++", &cpp[..], "c++")];
    // Where there is one.
    if has("clang") {
        compilers.extend([("clang", &c[..], "c"), ("clang++", &cpp[..], "c++")]);
    }
    for (compiler, dialects, language) in compilers {
        for dialect in dialects {
            let mut command = Command::new(compiler);
            command.arg(format!("-std={dialect}")).args(["-Wall", "-Wextra", "-pedantic", "-Werror"]);
            command.args(["-fsyntax-only", "-x", language]).arg("-I").arg(folder().join("include"));
            run(command.arg(&source));
        }
    }
}

#[test]
fn the_layout_is_that_on_record() {
    let layout = run(Command::new(program("layout")).env("LD_LIBRARY_PATH", library()));
    assert_eq!(layout, std::fs::read_to_string(folder().join("tests/layout.txt")).unwrap());
}

/// The functions that are declared.
fn declared() -> Vec<String> {
    let header = std::fs::read_to_string(folder().join("include/madeleine.h")).unwrap();
    // Each stands at the beginning of a line; comments and what goes on from the line before do not.
    let lines = header.lines().filter(|line| line.starts_with(|letter: char| letter.is_alphabetic()));
    let calls = lines.filter_map(|line| line.split_once('(')).map(|(before, _)| before);
    let names =
        calls.filter_map(|before| before.rsplit([' ', '*']).next()).filter(|name| name.starts_with("mad_"));
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_symbols_are_those_on_record() {
    let listed =
        run(Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libmadeleine.so.1")));
    let mut symbols: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    symbols.sort_unstable();
    let record = std::fs::read_to_string(folder().join("tests/symbols.txt")).unwrap();
    let mut recorded: Vec<_> = record.lines().collect();
    recorded.sort_unstable();
    assert_eq!(symbols, recorded);
    let mut functions: Vec<_> = recorded.iter().filter_map(|symbol| symbol.split("@@").next()).collect();
    functions.retain(|name| name.starts_with("mad_"));
    assert_eq!(functions, declared(), "what is declared is what is there");
}

#[test]
fn the_manual_has_every_function() {
    let page = std::fs::read_to_string(folder().join("man/madeleine.7")).unwrap();
    for name in declared() {
        assert!(page.contains(&format!("{name}(")), "{name}");
    }
}

/// Builds the ring against what lies under a prefix, and runs it.
fn ring_against(root: &Path, prefix: &Path, libraries: &Path, linkage: &str, name: &str) {
    let to = root.join("ring");
    let mut command = Command::new("cc");
    command.arg(folder().join("examples/ring.c")).arg("-o").arg(&to).arg("-I").arg(prefix.join("include"));
    command.arg("-L").arg(libraries).arg(linkage);
    run(command.args(["-lgcc_s", "-lpthread", "-ldl", "-lm"]));
    let [said, _] = both(&to, &["3"], name, libraries);
    assert_eq!(said, "token 3, expected 3\n");
}

#[test]
fn what_is_installed_can_be_used() {
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new(folder().join("install"));
    command.env("DESTDIR", root.path()).env("PREFIX", "/opt/uvia").arg(static_library());
    run(&mut command);
    let prefix = root.path().join("opt/uvia");
    for file in [
        "include/madeleine.h",
        "lib/libmadeleine.so",
        "lib/libmadeleine.so.1",
        "lib/libmadeleine.a",
        "lib/pkgconfig/madeleine.pc",
        "share/man/man7/madeleine.7",
        "share/man/man3/mad_begin_packing.3",
    ] {
        assert!(prefix.join(file).exists(), "{file}");
    }
    let about = std::fs::read_to_string(prefix.join("lib/pkgconfig/madeleine.pc")).unwrap();
    assert!(about.contains("prefix=/opt/uvia\n") && about.contains("-lmadeleine"), "{about}");
    ring_against(root.path(), &prefix, &prefix.join("lib"), "-lmadeleine", "installed");
}

#[test]
fn a_program_is_built_against_the_debian_package() {
    if !has("dpkg-deb") {
        println!("not done: dpkg-deb is not there");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new(folder().join("deb"));
    // What is built is looked at, and thrown away.
    run(command.env("DEB_COMPRESSION", "none").arg(root.path()).arg(static_library()));
    let package = std::fs::read_dir(root.path()).unwrap().flatten().next().unwrap().path();
    assert_eq!(package.extension(), Some(OsStr::new("deb")));
    let fields = run(Command::new("dpkg-deb").arg("--info").arg(&package));
    assert!(
        fields.contains(" Package: libmadeleine-uvia\n") && fields.contains(" Depends: libc6"),
        "{fields}"
    );
    let there = root.path().join("root");
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&there));
    for page in ["man7/madeleine.7.gz", "man3/mad_unpack.3.gz"] {
        assert!(there.join("usr/share/man").join(page).exists(), "{page}");
    }
    let libraries = std::fs::read_dir(there.join("usr/lib")).unwrap().flatten().next().unwrap().path();
    ring_against(root.path(), &there.join("usr"), &libraries, "-lmadeleine", "packaged");
    ring_against(root.path(), &there.join("usr"), &libraries, "-l:libmadeleine.a", "packaged-static");
}

#[test]
fn no_argument_does_harm() {
    let program = program("arguments");
    for said in both(&program, &[], "arguments", library()) {
        assert!(said.ends_with(" calls, 0 failures\n"), "{said}");
    }
    // Nor does it touch memory that it should not, where somebody looks.
    if std::env::var_os("UVIA_LONG").is_some_and(|value| value == "1") && has("valgrind") {
        let children = [0, 1].map(|number| {
            let mut command = Command::new("valgrind");
            command.args(["-q", "--error-exitcode=9"]).arg(&program);
            rank(command, "valgrind", number, library())
        });
        let _ = children.map(finish);
    }
}
