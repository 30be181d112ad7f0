//! Where the ranks of a session are: each says where it can be reached on each rail, and learns of all others.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// A rank's addresses, one for each rail; `None` where it does not have the rail.
pub type Addresses = Vec<Option<String>>;

/// Where ranks find each other.
#[derive(Debug, Clone)]
pub enum Directory {
    /// Written down beforehand, for all ranks.
    Fixed(Vec<Addresses>),
    /// Ranks that are threads of one process.
    Local(Board),
    /// What `uvia-launch` serves, at this address.
    Launcher(String),
}

/// Bytes of the longest line that a rank may say.
const LONGEST: u64 = 64 << 10;

/// How long ranks wait for each other to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// A directory for ranks that are threads of one process.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<(Mutex<BTreeMap<usize, Addresses>>, Condvar)>);

impl Board {
    fn exchange(&self, rank: usize, size: usize, mine: Addresses) -> Result<Vec<Addresses>> {
        let (known, news) = &*self.0;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(rank, mine);
        news.notify_all();
        let start = Instant::now();
        while known.len() < size {
            let Some(left) = PATIENCE.checked_sub(start.elapsed()) else {
                return Err(late());
            };
            (known, _) = news.wait_timeout(known, left).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(known.values().cloned().collect())
    }
}

fn late() -> Error {
    Error::Timeout { what: "the other ranks to start", seconds: PATIENCE.as_secs() }
}

impl Directory {
    /// Says where a rank is, and learns where all are.
    ///
    /// # Errors
    /// Not all ranks have come in time; the launcher cannot be reached.
    pub(crate) fn exchange(&self, rank: usize, size: usize, mine: Addresses) -> Result<Vec<Addresses>> {
        let all = match self {
            Self::Fixed(all) => all.clone(),
            Self::Local(board) => board.exchange(rank, size, mine)?,
            Self::Launcher(address) => ask_launcher(address, rank, &mine)?,
        };
        if all.len() != size {
            return Err(Error::Config(format!(
                "the directory knows {} ranks, and the session has {size}",
                all.len()
            )));
        }
        Ok(all)
    }
}

/// A rank's line: its number, and its addresses with a tab before each.
pub fn to_line(rank: usize, addresses: &Addresses) -> String {
    let mut line = rank.to_string();
    for address in addresses {
        line.push('\t');
        line.push_str(address.as_deref().unwrap_or("-"));
    }
    line
}

/// What [`to_line`] made; `None` for anything else.
pub fn from_line(line: &str) -> Option<(usize, Addresses)> {
    let mut words = line.trim_end_matches(['\r', '\n']).split('\t');
    let rank = words.next()?.parse().ok()?;
    Some((rank, words.map(|word| (word != "-").then(|| word.to_owned())).collect()))
}

fn ask_launcher(address: &str, rank: usize, mine: &Addresses) -> Result<Vec<Addresses>> {
    let failed = |e| Error::io(format!("asking the launcher at {address} for the other ranks"), e);
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    writeln!(stream, "{}", to_line(rank, mine)).map_err(failed)?;
    let mut all = BTreeMap::new();
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(failed)?;
        let (rank, addresses) =
            from_line(&line).ok_or_else(|| Error::Config(format!("the launcher says {line:?}")))?;
        all.insert(rank, addresses);
    }
    Ok(all.into_values().collect())
}

/// How long one who has connected may take to say who it is.
const SAY: Duration = Duration::from_secs(20);

/// What a rank says, if it says that in time and it makes sense. Addresses that only say which port are completed by where
/// it speaks from.
fn hear(stream: &TcpStream, size: usize) -> Option<(usize, Addresses)> {
    stream.set_read_timeout(Some(SAY)).ok()?;
    let mut line = String::new();
    BufReader::new(stream).take(LONGEST).read_line(&mut line).ok()?;
    let (rank, addresses) = from_line(&line).filter(|(rank, _)| *rank < size)?;
    let here = stream.peer_addr().ok()?.ip();
    let completed = addresses.into_iter().map(|address| {
        address.map(|address| match address.parse::<SocketAddr>() {
            Ok(any) if any.ip().is_unspecified() => SocketAddr::new(here, any.port()).to_string(),
            _ => address,
        })
    });
    Some((rank, completed.collect()))
}

/// Between two looks at who has connected, while ranks are still to come.
const LOOK: Duration = Duration::from_millis(5);

/// Serves a directory to `size` ranks, until all have come and were told. Who connects and is none of them is sent away, and
/// keeps nobody waiting meanwhile.
///
/// # Errors
/// The socket does not work.
pub fn serve(listener: &TcpListener, size: usize) -> Result<()> {
    let failed = |e| Error::io("serving the ranks' directory", e);
    listener.set_nonblocking(true).map_err(failed)?;
    let (say, heard) = mpsc::channel();
    let mut ranks: BTreeMap<usize, (Addresses, TcpStream)> = BTreeMap::new();
    while ranks.len() < size {
        match listener.accept() {
            Ok((stream, from)) => {
                stream.set_nonblocking(false).map_err(failed)?;
                let say = say.clone();
                let listen = move || match hear(&stream, size) {
                    // Nobody is told any more when all are there.
                    Some((rank, addresses)) => drop(say.send((rank, addresses, stream))),
                    None => tracing::warn!("{from} has asked for the ranks, and is none"),
                };
                std::thread::Builder::new().name("directory".to_owned()).spawn(listen).map_err(failed)?;
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                if let Ok((rank, addresses, stream)) = heard.recv_timeout(LOOK) {
                    ranks.insert(rank, (addresses, stream));
                }
            }
            // Of one that was gone before it was accepted.
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(e) => return Err(failed(e)),
        }
    }
    let text: String = ranks.iter().map(|(rank, (addresses, _))| to_line(*rank, addresses) + "\n").collect();
    for (_, mut stream) in ranks.into_values() {
        // One that has gone meanwhile is no reason to let the others wait.
        if let Err(e) = stream.write_all(text.as_bytes()) {
            tracing::warn!("telling a rank where the others are: {e}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_was_said() {
        let addresses = vec![Some("02:00:00:00:00:01/3".to_owned()), None, Some("10.0.0.1:99".to_owned())];
        assert_eq!(from_line(&to_line(3, &addresses)), Some((3, addresses)));
        assert_eq!(from_line("x\ty"), None);
    }

    /// Asks as a rank does.
    fn ask(address: SocketAddr, rank: usize, mine: &str) -> std::thread::JoinHandle<Result<Vec<Addresses>>> {
        let mine = vec![Some(mine.to_owned())];
        std::thread::spawn(move || ask_launcher(&address.to_string(), rank, &mine))
    }

    #[test]
    fn who_is_no_rank_is_in_nobodys_way_and_ports_alone_become_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for line in ["nonsense\n", "2\tx\n", ""] {
            TcpStream::connect(address).unwrap().write_all(line.as_bytes()).unwrap();
        }
        let asked = [ask(address, 0, "0.0.0.0:7"), ask(address, 1, "02:00:00:00:00:01/1")];
        serve(&listener, 2).unwrap();
        let expected = ["127.0.0.1:7", "02:00:00:00:00:01/1"].map(|address| vec![Some(address.to_owned())]);
        for all in asked {
            assert_eq!(all.join().unwrap().unwrap(), expected);
        }
    }

    #[test]
    fn who_says_little_and_slowly_keeps_nobody_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(b"0").unwrap();
        let asked = ask(address, 0, "x");
        let (say, done) = mpsc::channel();
        std::thread::spawn(move || say.send(serve(&listener, 1)));
        // It never comes to the end of its line, and never pauses for long.
        let start = Instant::now();
        while done.recv_timeout(Duration::from_millis(100)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(100), "nobody is told");
            // Once all were told, it is sent away.
            let _ = slow.write_all(b"0");
        }
        assert_eq!(asked.join().unwrap().unwrap(), [vec![Some("x".to_owned())]]);
    }
}
