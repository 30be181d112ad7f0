//! Either end is killed at any moment: the other has an error in bounded time, and a new one works.

mod toy;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use toy::{FROM, GO, LEN, SCRATCH, STATUS, Served, TO};
use uvia_vfio_user::client::{Client, ClientOptions, NoMemory};
use uvia_vfio_user::memory::SharedMemory;
use uvia_vfio_user::server::{Server, ServerOptions};
use uvia_vfio_user::{Error, Rights};

/// Names the socket to a child.
const SOCKET: &str = "UVIA_TEST_TOY";
const ROUNDS: u64 = 25;
const BOUND: Duration = Duration::from_secs(5);

fn child(test: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(SOCKET, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn serve(path: &Path) -> Served {
    let doorbells = toy::doorbells();
    let server = Server::bind(path, toy::description(&doorbells), ServerOptions::default()).unwrap();
    Served::start(server, doorbells)
}

/// Everything at once, for as long as it works.
fn use_it(client: &Client) -> Error {
    let memory = SharedMemory::create("client", 0x2000).unwrap();
    let once = || -> Result<(), Error> {
        client.dma_map(0x10000, 0x2000, Rights::all(), Some((memory.fd(), 0)))?;
        for (register, value) in [(FROM, 0x10000u64), (TO, 0x11000), (LEN, 64)] {
            client.region_post(0, register, &value.to_le_bytes())?;
        }
        client.region_write(0, GO, &[1])?;
        client.region_read(0, STATUS, &mut [0; 8])?;
        client.dma_unmap(0x10000, 0x2000)
    };
    loop {
        if let Err(e) = once() {
            return e;
        }
    }
}

fn connect(path: &Path) -> Option<Client> {
    let start = Instant::now();
    while start.elapsed() < BOUND {
        let options = ClientOptions { patience: BOUND };
        if let Ok(client) = Client::connect(path, Arc::new(NoMemory), options) {
            return Some(client);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

#[test]
#[ignore = "is a child of the tests here"]
fn child_that_serves() {
    // Nobody's child when all ignored tests are run.
    if let Some(path) = std::env::var_os(SOCKET) {
        let _served = serve(&PathBuf::from(path));
        std::thread::sleep(Duration::from_secs(60));
    }
}

#[test]
#[ignore = "is a child of the tests here"]
fn child_that_drives() {
    if let Some(path) = std::env::var_os(SOCKET) {
        use_it(&connect(&PathBuf::from(path)).unwrap());
    }
}

#[test]
fn servers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toy");
    for round in 0..ROUNDS {
        let server = child("child_that_serves", &path);
        let client = connect(&path).expect("a new server works where one was killed");
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(round * 397 % 5000));
            kill(server);
            Instant::now()
        });
        let error = use_it(&client);
        let killed = killer.join().unwrap();
        assert!(matches!(error, Error::Closed { .. }), "{error}");
        assert!(killed.elapsed() < BOUND && client.is_closed());
        assert!(client.region_read(0, SCRATCH, &mut [0]).is_err());
    }
}

#[test]
fn clients() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toy");
    let served = serve(&path);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    for round in 0..ROUNDS {
        let client = child("child_that_drives", &path);
        let start = Instant::now();
        while served.seen.lock().unwrap().attached as u64 <= round * 2 {
            assert!(start.elapsed() < BOUND, "the child does not come");
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(Duration::from_micros(round * 397 % 5000));
        kill(client);
        // Waits in the queue until the other is gone.
        let client = connect(&path).expect("a new client works where one was killed");
        assert_eq!(served.dma.mappings(), 0);
        client.region_read(0, SCRATCH, &mut [0]).unwrap();
        drop(client);
    }
    let seen = served.seen.lock().unwrap().attached as u64;
    assert_eq!(seen, 2 * ROUNDS);
    assert!(descriptors() < 100, "descriptors are left");
}
