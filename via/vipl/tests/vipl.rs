//! The library as C programs see it: the header in every dialect, what is exported, the suite and the samples.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use uvia_models::machine::Kind;
use uvia_models::serve::Doorbells;
use uvia_tests::ServedModels;

/// How long a program may take: far beyond what it needs.
const PATIENCE: Duration = Duration::from_secs(600);

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command to its end, which has to be a good one; answers what it printed.
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// The static library that was built with this program.
fn static_library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let found = std::fs::read_dir(program.parent().unwrap()).unwrap().flatten().filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("libvipl-") && name.ends_with(".a")
    });
    // Others may be left from before.
    found.max_by_key(|entry| entry.metadata().and_then(|about| about.modified()).unwrap()).unwrap().path()
}

/// A folder with libvipl.so, made once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vipl");
        std::fs::create_dir_all(&to).unwrap();
        run(Command::new(folder().join("link")).arg(static_library()).arg(&to));
        to
    })
}

/// Builds a program of these sources, with every warning an error.
fn program(name: &str, sources: &[PathBuf]) -> PathBuf {
    let to = library().join(name);
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-pedantic", "-Werror"]);
    command.arg("-Wno-unused-function").arg("-I").arg(folder().join("include"));
    command.args(sources).arg("-o").arg(&to).arg("-L").arg(library()).args(["-lvipl", "-lpthread"]);
    run(&mut command);
    to
}

/// The C sources of a folder.
fn sources(of: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder().join(of)).unwrap().flatten();
    let mut found: Vec<_> =
        entries.map(|entry| entry.path()).filter(|path| path.extension() == Some(OsStr::new("c"))).collect();
    found.sort();
    found
}

fn start(program: &Path, words: &[&str], environment: &[(&str, &str)]) -> Child {
    let mut command = Command::new(program);
    command.args(words).env("LD_LIBRARY_PATH", library());
    command.env_remove("UVIA_NIC").env("UVIA_CONF", "/dev/null");
    command.env_remove("UVIA_ADAPTER_MEMORY").envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits for a program, which has to end well; answers what it printed.
fn finish(mut child: Child) -> String {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{text}", output.status);
    text
}

/// The suite, built once.
fn suite() -> &'static Path {
    static SUITE: OnceLock<PathBuf> = OnceLock::new();
    SUITE.get_or_init(|| program("suite", &sources("tests/c")))
}

/// Runs the suite over these devices.
fn passes_over(devices: &[&str]) {
    let mut words = vec!["--a", devices[0]];
    if let Some(b) = devices.get(1) {
        words.extend(["--b", b]);
    }
    let text = finish(start(suite(), &words, &[]));
    let passed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ... ok")).count();
    assert!(passed >= 156, "{passed} cases\n{text}");
}

#[test]
fn the_header_is_clean_in_every_dialect() {
    let source = folder().join("tests/c/tools/layout.c");
    let c = ["c89", "c99", "c11", "c17", "c2x"];
    let cpp = ["c++98", "c++11", "c++14", "c++17", "c++20", "c++2b"];
    let mut compilers = vec![("gcc", &c[..], "c"), ("g++", &cpp[..], "c++")];
    // Where there is one.
    if Command::new("clang").arg("--version").stdout(Stdio::null()).status().is_ok() {
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
    let program = program("layout", &[folder().join("tests/c/tools/layout.c")]);
    let layout = run(Command::new(program).env("LD_LIBRARY_PATH", library()));
    assert_eq!(layout, std::fs::read_to_string(folder().join("tests/layout.txt")).unwrap());
}

#[test]
fn the_symbols_are_those_on_record() {
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libvipl.so.1")));
    let mut symbols: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    symbols.sort_unstable();
    let record = std::fs::read_to_string(folder().join("tests/symbols.txt")).unwrap();
    let mut recorded: Vec<_> = record.lines().collect();
    recorded.sort_unstable();
    assert_eq!(symbols, recorded);
}

#[test]
fn every_function_has_a_manual_page() {
    let record = std::fs::read_to_string(folder().join("tests/symbols.txt")).unwrap();
    let pages = tempfile::tempdir().unwrap();
    run(Command::new(folder().join("man/make")).arg(pages.path()));
    for symbol in record.lines().filter_map(|line| line.split("@@").next()).filter(|s| s.starts_with("Vip")) {
        let page = pages.path().join(format!("man3/{symbol}.3"));
        let text = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        assert!(text.contains(".SH SYNOPSIS") && text.contains(symbol), "{symbol}");
    }
    assert!(pages.path().join("man7/vipl.7").exists());
}

#[test]
fn what_is_installed_can_be_used() {
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new(folder().join("install"));
    command.env("DESTDIR", root.path()).env("PREFIX", "/opt/uvia").arg(static_library());
    run(&mut command);
    let prefix = root.path().join("opt/uvia");
    for file in
        ["include/vipl.h", "lib/libvipl.so", "lib/libvipl.so.1", "lib/libvipl.a", "lib/pkgconfig/vipl.pc"]
    {
        assert!(prefix.join(file).exists(), "{file}");
    }
    let about = std::fs::read_to_string(prefix.join("lib/pkgconfig/vipl.pc")).unwrap();
    assert!(about.contains("prefix=/opt/uvia\n") && about.contains("-lvipl"), "{about}");
    let to = root.path().join("names");
    let mut command = Command::new("cc");
    command.arg(folder().join("examples/names.c")).arg("-o").arg(&to);
    command.arg("-Wno-unused-function").arg("-I").arg(prefix.join("include"));
    run(command.arg("-L").arg(prefix.join("lib")).arg("-lvipl"));
}

#[test]
fn a_program_is_built_against_the_debian_package() {
    if !has("dpkg-deb") {
        println!("not done: dpkg-deb is not there");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new(folder().join("deb"));
    // The smallest package takes many times as long to make, and nobody keeps this one.
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "none").arg(root.path()).arg(static_library());
    run(&mut command);
    let package = std::fs::read_dir(root.path()).unwrap().flatten().next().unwrap().path();
    assert_eq!(package.extension(), Some(OsStr::new("deb")));
    let fields = run(Command::new("dpkg-deb").arg("--info").arg(&package));
    assert!(fields.contains(" Package: libvipl-uvia\n") && fields.contains(" Depends: libc6"), "{fields}");
    let there = root.path().join("root");
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&there));
    assert!(there.join("usr/share/man/man7/vipl.7.gz").exists());
    let libraries = std::fs::read_dir(there.join("usr/lib")).unwrap().flatten().next().unwrap().path();
    for linkage in ["-lvipl", "-l:libvipl.a"] {
        let to = root.path().join("names");
        let mut command = Command::new("cc");
        command.arg(folder().join("examples/names.c")).arg("-o").arg(&to).arg("-Wno-unused-function");
        command.arg("-I").arg(there.join("usr/include")).arg("-L").arg(&libraries).arg(linkage);
        run(command.args(["-lgcc_s", "-lpthread", "-ldl", "-lm"]));
        let device = format!("shm:vipl-deb-{}", std::process::id());
        let mut command = Command::new(&to);
        command.args([&device, "localhost"]).env("LD_LIBRARY_PATH", &libraries).env("UVIA_CONF", "/dev/null");
        assert!(run(&mut command).starts_with("localhost is "));
    }
}

#[test]
fn the_suite_passes_over_loopback() {
    passes_over(&[&format!("shm:vipl-suite-{}", std::process::id())]);
}

#[test]
fn the_suite_passes_over_models() {
    if is_quick() {
        return println!("not done: the run is a quick one");
    }
    let sockets = tempfile::tempdir().unwrap();
    let models = ServedModels::start(sockets.path(), &[Kind::E1000, Kind::Virtio], Doorbells::Polled);
    let names: Vec<_> = models.names().iter().map(String::as_str).collect();
    passes_over(&names);
}

/// What takes long is done in full where `UVIA_LONG=1`.
fn is_long() -> bool {
    std::env::var_os("UVIA_LONG").is_some_and(|value| value == "1")
}

/// What shared memory shows is not shown again over models where `UVIA_QUICK=1`.
fn is_quick() -> bool {
    std::env::var_os("UVIA_QUICK").is_some_and(|value| value == "1")
}

fn has(command: &str) -> bool {
    Command::new(command).arg("--version").stdout(Stdio::null()).status().is_ok()
}

/// A program under valgrind, to which any error of memory and any block that nothing refers to is one.
fn checked(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["-q", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite"]);
    command.arg("--errors-for-leak-kinds=definite").arg(program);
    command.env("LD_LIBRARY_PATH", library()).env("UVIA_CONF", "/dev/null").env_remove("UVIA_NIC");
    command.stdin(Stdio::null());
    command
}

#[test]
fn the_suite_is_clean_under_valgrind() {
    if !has("valgrind") || is_quick() {
        println!("not done: valgrind is not installed, or the run is a quick one");
        return;
    }
    let device = format!("shm:vipl-valgrind-{}", std::process::id());
    let level = if is_long() { "full" } else { "early" };
    let mut command = checked(suite());
    let text = run(command.args(["--a", &device, "--level", level]));
    assert!(text.ends_with(" 0 failed\n"), "{text}");
}

/// Programs of old connect by asking over and over until somebody waits.
#[test]
fn asking_where_nobody_waits_leaves_nothing_behind() {
    /// KiB: below what a byte a call would come to, and above what the allocator keeps one time or another.
    const MOST: i64 = 768;
    let program = program("refused", &[folder().join("tests/c/tools/refused.c")]);
    let device = format!("shm:vipl-refused-{}", std::process::id());
    let mut command = Command::new(&program);
    command.arg(&device).env("LD_LIBRARY_PATH", library()).env("UVIA_CONF", "/dev/null");
    let mut other = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut open = [0; 5];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut open).unwrap();
    let times = if is_long() { "1000000" } else { "4000" };
    let said = finish(start(&program, &[&device, "localhost", times], &[]));
    let grown: i64 = said.trim().parse().unwrap();
    assert!(grown < MOST, "{times} calls took {grown} KiB");
    drop(other.stdin.take());
    finish(other);
}

#[test]
fn interfaces_of_an_adapters_memory_are_had_by_names_of_our_own() {
    let program = program("pio", &[folder().join("tests/c/tools/pio.c")]);
    for kind in [Kind::E1000, Kind::Virtio] {
        let sockets = tempfile::tempdir().unwrap();
        let models = ServedModels::start_with_memory(sockets.path(), &[kind; 2], Doorbells::Polled, 1 << 18);
        let names: Vec<_> = models.names().iter().map(String::as_str).collect();
        assert_eq!(finish(start(&program, &names, &[])), "none\n");
        let memory = [("UVIA_ADAPTER_MEMORY", models.memory())];
        assert_eq!(finish(start(&program, &names, &memory)), "done\n");
    }
}

/// Two processes that know a device's name of old, and the name of their host.
#[test]
fn samples_run_between_two_processes() {
    let names = tempfile::tempdir().unwrap();
    let conf = names.path().join("uvia.conf");
    std::fs::write(&conf, format!("alias VINIC shm:vipl-samples-{}\n", std::process::id())).unwrap();
    let conf = conf.to_str().unwrap();
    let build = |name: &str| program(name, &[folder().join(format!("examples/{name}.c"))]);
    for name in ["pingpong", "rdma", "notify"] {
        let program = build(name);
        let server = start(&program, &["VINIC"], &[("UVIA_CONF", conf)]);
        let client = start(&program, &["VINIC", "localhost"], &[("UVIA_CONF", conf)]);
        let said = [finish(client), finish(server)].concat();
        assert!(!said.is_empty(), "{name}");
    }
    let program = build("latency");
    let few = ["--rounds", "2000", "--warm", "100", "--size", "500", "--json", "VINIC"];
    let server = start(&program, &few, &[("UVIA_CONF", conf)]);
    let client = start(&program, &[&few[..], &["localhost"]].concat(), &[("UVIA_CONF", conf)]);
    let said = finish(client);
    assert!(
        said.starts_with("{\"size\": 500, \"rounds\": 2000, \"min\": ") && said.ends_with("}\n"),
        "{said}"
    );
    finish(server);
    let program = build("peer");
    let one = start(&program, &["VINIC", "a", "bob", "b"], &[("UVIA_CONF", conf), ("UVIA_NAME", "ann")]);
    let other = start(&program, &["VINIC", "b", "ann", "a"], &[("UVIA_CONF", conf), ("UVIA_NAME", "bob")]);
    assert_eq!((finish(one).as_str(), finish(other).as_str()), ("a has met b\n", "b has met a\n"));
    let said = finish(start(&build("names"), &["VINIC", "localhost"], &[("UVIA_CONF", conf)]));
    assert!(said.starts_with("localhost is "), "{said}");
}
